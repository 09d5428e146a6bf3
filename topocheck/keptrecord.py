"""An acceptance record that was kept, beside that of a verified job: it fills what evidence leaves open.

What plan and evidence show is never replaced. A record of other sizes, cards or another model is of another
run, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from topocheck.errors import UsageError
from topocheck.inputfile import digest_of, name_of, read_bytes, text_in
from topocheck.ledger import supplies
from topocheck.record import NOT_MEASURED, Missing, Record, StagePart, fields
from topocheck.recordfile import MAX_BYTES, parse_record

__all__ = ["KeptRecord", "completed", "read_kept_record"]

Filled = TypeVar("Filled", bound=msgspec.Struct)
Values = Mapping[str, object]

SAME_RUN = ("engine.name", "model.layers", "hardware.cards", "parallelism.sizes", "parallelism.ranks")
"""What is the same in all records of one run."""
COMPARED = ("engine.", "model.", "hardware.", "parallelism.", "workload.")
"""Where two records of one run would say the same."""
MOST_NAMED = 8


class KeptRecord(NamedTuple):
    """A record that was kept in a file."""

    name: str
    """File as the user gave it."""
    digest: str
    """`sha256:` and the hex digest of its bytes."""
    record: Record


def read_kept_record(path: str | Path, name: str | None = None) -> KeptRecord:
    """The record in a file, `-` is standard input; `name` is what it is called. Raises InputError."""
    data = read_bytes(path, MAX_BYTES, "is larger than 64 MB and no record")
    called = name_of(path) if name is None else name
    return KeptRecord(called, digest_of(data), parse_record(text_in(data, path), called))


def completed(record: Record, kept: KeptRecord) -> Record:
    """The record with what only the kept one knows. Raises UsageError for one of another run."""
    mine, its = fields(record), fields(kept.record)
    refuse(mine, its, kept.name)
    whole = filled(record, kept.record)
    if isinstance(record.stages, tuple) and isinstance(kept.record.stages, tuple):
        others = {stage.stage: stage for stage in kept.record.stages}
        both = tuple(filled_stage(stage, others.get(stage.stage)) for stage in record.stages)
        whole = msgspec.structs.replace(whole, stages=both)
    still = {path for path, value in fields(whole).items() if value == NOT_MEASURED}
    found = [path for path, value in mine.items() if value == NOT_MEASURED and path not in still]
    hints = {one.field: one for one in kept.record.missing}
    return msgspec.structs.replace(
        whole,
        sources=record.sources | {path: source_of(path, kept) for path in found},
        notes=tuple(dict.fromkeys((*record.notes, *notes(mine, its, kept), *kept.record.notes))),
        inputs=(*record.inputs, *kept.record.inputs),
        missing=tuple(hint(one, hints) for one in supplies(whole, None)),
    )


def refuse(mine: Values, its: Values, name: str) -> None:
    """Raise UsageError if the two are not of one run."""
    for path in differing(mine, its, SAME_RUN):
        raise UsageError(
            f"--record {name}: is the record of another run: {path} is {spelled(its[path])} there, and "
            f"{spelled(mine[path])} here"
        )


def differing(mine: Values, its: Values, starts: tuple[str, ...]) -> Iterator[str]:
    """Fields with these starts that both know and that are not the same."""
    for path, value in mine.items():
        other = its.get(path, NOT_MEASURED)
        if path.startswith(starts) and NOT_MEASURED not in (value, other) and value != other:
            yield path


def filled(part: Filled, kept: Any) -> Filled:
    """The part with each open field as the kept one has it."""
    changes: dict[str, object] = {}
    for name in part.__struct_fields__:
        value, other = getattr(part, name), getattr(kept, name)
        if value == NOT_MEASURED:
            changes[name] = other
        elif isinstance(value, msgspec.Struct) and type(value) is type(other):
            changes[name] = filled(value, other)
    return msgspec.structs.replace(part, **changes)


def filled_stage(stage: StagePart, kept: StagePart | None) -> StagePart:
    """A stage with what the kept one knows of it; bytes of one source are not mixed with those of another."""
    if kept is None or (NOT_MEASURED not in (stage.layers, kept.layers) and stage.layers != kept.layers):
        return stage
    if stage.capacity.source == NOT_MEASURED:
        return filled(stage, kept)
    return msgspec.structs.replace(filled(stage, kept), capacity=stage.capacity)


def source_of(path: str, kept: KeptRecord) -> str:
    """Where a value of the kept record was read."""
    source = kept.record.sources.get(path)
    return f"{kept.name}: {source}" if source else kept.name


def hint(one: Missing, hints: Mapping[str, Missing]) -> Missing:
    """What would fill a field, as the kept record says it: it knows which benchmark was run."""
    return hints.get(one.field, one)


def notes(mine: Values, its: Values, kept: KeptRecord) -> Iterator[str]:
    """What a reader has to know of the kept record."""
    yield f"{kept.name} was recorded at {kept.record.at}"
    if all(NOT_MEASURED in (mine[path], its[path]) for path in SAME_RUN):
        yield f"{kept.name} shows neither engine, sizes nor cards: that it is of this run is not proven"
    for path in differing(mine, its, COMPARED):
        yield f"{path}: {spelled(mine[path])} is taken, {spelled(its[path])} by {kept.name} is not"


def spelled(value: object) -> str:
    """A value in a sentence; of many items the first ones."""
    if isinstance(value, dict):
        return " x ".join(f"{name} {size}" for name, size in value.items()) or "one rank"
    if isinstance(value, tuple):
        return ", ".join(map(str, value[:MOST_NAMED])) + (" ..." if len(value) > MOST_NAMED else "")
    return str(value)
