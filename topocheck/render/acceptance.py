"""The acceptance record of a run as tables: what is known and whence, the rest with what would fill it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from topocheck.record import NOT_MEASURED, Record, fields
from topocheck.render.words import say
from topocheck.report import PlacementReport, Report

__all__ = ["Entry", "Group", "RecordView", "record_view"]

MOST_STAGES = 64
MOST_INTERVALS = 100
MOST_NOTES = 50
MOST_NAMED = 8
GROUPS = {
    "engine": ("engine.", "model."),
    "machines": ("hardware.", "parallelism."),
    "load": ("workload.",),
    "waits": ("perf.ttft_ms.", "perf.tpot_ms.", "perf.itl_ms."),
    "requests": ("perf.",),
    "use": ("status", "utilization."),
}
"""Groups of the table of single values by the start of their paths, in the order of the page."""
BYTES = ("gpu_bytes", "weights_bytes", "kv_bytes", "activations_bytes", "buffers_bytes")
"""Sizes of a stage in the order of its table."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table: a value, or all fields that one thing would fill."""

    name: str
    value: str
    known: bool
    source: str
    """Where the value was read; of a value that is not known, what would fill it."""


class Group(msgspec.Struct, frozen=True):
    """Lines under one heading."""

    title: str
    entries: list[Entry]


class StageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of the table of stages."""

    stage: int
    cells: list[tuple[str, bool]]
    """Text of each cell, and whether it is known."""


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """The record as the page shows it."""

    groups: list[Group]
    stages: list[StageRow]
    stages_total: int
    stage_columns: list[str]
    stage_sources: list[str]
    """What the bytes rest on."""
    lacking: list[Entry]
    """What would fill the open cells of the table of stages."""
    intervals: list[list[str]]
    unit: str
    """The unit of work that was followed."""
    unit_supply: str
    """What would show one."""
    intervals_total: int
    after: Group
    """Unit of work and change."""
    notes: list[str]
    known: int
    total: int


def record_view(report: Report) -> RecordView | None:
    """The record of a report; None if it has none."""
    record = report.record
    if record is None:
        return None
    values = _values(record)
    supply = {one.field: one.supply for one in record.missing}
    groups, left = list[Group](), dict(values)
    for name, starts in GROUPS.items():
        own = {path: left.pop(path) for path in values if path in left and path.startswith(starts)}
        groups.append(Group(say(f"record_{name}"), _entries(record, own, supply)))
    groups[1].entries[:0] = _mapping(report.placement, record)
    stages = record.stages if isinstance(record.stages, tuple) else ()
    intervals = record.unit.intervals if isinstance(record.unit.intervals, tuple) else ()
    shown = [path for path in values if path not in left]
    return RecordView(
        groups=groups,
        stages=[_stage(stage) for stage in stages[:MOST_STAGES]],
        stages_total=len(stages),
        stage_columns=[
            say(f"record_stage_{name}") for name in ("layers", "modules", "ranks", "fits", *BYTES)
        ],
        stage_sources=list(dict.fromkeys(one.capacity.source for one in stages))[:MOST_NAMED],
        lacking=_lacking(supply, stages=bool(stages)),
        intervals=[
            [str(one.stage), one.kind, _number(one.start_ms, "start_ms"), _number(one.end_ms, "end_ms")]
            for one in intervals[:MOST_INTERVALS]
        ],
        unit=record.unit.id,
        unit_supply=supply.get("unit.intervals", ""),
        intervals_total=len(intervals),
        after=Group(say("record_after"), list(_after(record, supply))),
        notes=list(record.notes[:MOST_NOTES]),
        known=sum(values[path] != NOT_MEASURED for path in shown),
        total=len(shown),
    )


def _values(record: Record) -> dict[str, object]:
    """Every single value by its path; a figure is one value with its source."""
    figures = {
        "utilization.bubble_estimate": record.utilization.bubble_estimate,
        "utilization.stage_imbalance": record.utilization.stage_imbalance,
        "perf.goodput": record.perf.goodput,
    }
    found: dict[str, object] = {}
    for path, value in fields(record).items():
        whole = next((name for name in figures if path.startswith(name)), None)
        found[whole or path] = value if whole is None else figures[whole]
    return found


def _entries(record: Record, values: dict[str, object], supply: dict[str, str]) -> list[Entry]:
    """Known values one by one, then the others by what would fill them."""
    found, open_by_supply = [], dict[str, list[str]]()
    for path, value in values.items():
        if value == NOT_MEASURED:
            open_by_supply.setdefault(supply.get(path, ""), []).append(_name(path))
        else:
            spelled = spell(value, path)
            found.append(
                Entry(name=_name(path), value=spelled, known=True, source=record.sources.get(path, ""))
            )
    return found + [
        Entry(name=", ".join(names), value=say("not_measured"), known=False, source=how)
        for how, names in open_by_supply.items()
    ]


def _name(path: str) -> str:
    """What a field is called."""
    return say(f"field_{path}")


def _mapping(placement: PlacementReport | None, record: Record) -> Iterator[Entry]:
    """How many ranks are placed; the table of ranks says where."""
    if placement is None:
        return
    nodes = sum(rank.node is not None for rank in placement.ranks)
    gpus = sum(rank.gpu is not None for rank in placement.ranks)
    yield Entry(
        name=say("record_mapping"),
        value=say("record_placed", world=placement.world, nodes=nodes, gpus=gpus),
        known=nodes > 0,
        source=record.sources.get("mapping", ""),
    )


def _stage(stage: msgspec.Struct) -> StageRow:
    """One stage."""
    values = fields(stage)
    paths = ["layers", "modules", "ranks", "capacity.fits", *(f"capacity.{name}" for name in BYTES)]
    cells = [(spell(values[path], path), values[path] != NOT_MEASURED) for path in paths]
    number = values["stage"]
    return StageRow(stage=number if isinstance(number, int) else 0, cells=cells)


def _lacking(supply: dict[str, str], *, stages: bool) -> list[Entry]:
    """What would fill the open cells of the stages, or the stages themselves."""
    by_supply: dict[str, list[str]] = {}
    for path, how in supply.items():
        if path.startswith("stages[].") and stages:
            by_supply.setdefault(how, []).append(say(f"record_stage_{path.rpartition('.')[2]}"))
        elif path == "stages" and not stages:
            by_supply.setdefault(how, []).append(say("record_stages"))
    return [
        Entry(name=", ".join(names), value=say("not_measured"), known=False, source=how)
        for how, names in by_supply.items()
    ]


def _after(record: Record, supply: dict[str, str]) -> Iterator[Entry]:
    """What became of one change."""
    change = record.change
    if isinstance(change, str):
        yield Entry(
            name=say("record_change"),
            value=say("not_measured"),
            known=False,
            source=supply.get("change", ""),
        )
        return
    for name in ("before", "changed", "measured_gain", "predicted_gain", "verdict"):
        value = getattr(change, name)
        yield Entry(
            name=say(f"field_change.{name}"),
            value=spell(value, name),
            known=value != NOT_MEASURED,
            source=supply.get(f"change.{name}", ""),
        )


def spell(value: object, path: str) -> str:
    """A value in words: bytes as GiB, shares as percent, lists by their first items."""
    if value == NOT_MEASURED:
        return say("not_measured")
    if isinstance(value, dict):
        return ", ".join(
            f"{key} {each}" if path.endswith("sizes") else f"{each} x {key}" for key, each in value.items()
        )
    if isinstance(value, tuple):
        shown = [spell(each, path) for each in value[:MOST_NAMED]]
        more = len(value) - len(shown)
        return ", ".join(shown) + (f" {say('and_more', count=more)}" if more else "") or say("none")
    if isinstance(value, msgspec.Struct):
        return _figure(value)
    if isinstance(value, (int, float)):
        return _number(value, path)
    return say("record_fits_" + value) if path.endswith("fits") and value in ("yes", "no") else str(value)


def _figure(value: msgspec.Struct) -> str:
    """A figure with what it says and where it is from."""
    values = fields(value)
    share = values.get("share")
    if isinstance(share, float | int):
        return say(
            "record_figure", share=f"{share:.1%}", means=values.get("means"), source=values.get("source")
        )
    return ", ".join(f"{name} {each}" for name, each in values.items())


def _number(value: float | str, path: str) -> str:
    """A number with its unit by the name of its field."""
    if isinstance(value, str):
        return say("not_measured") if value == NOT_MEASURED else value
    if path.endswith("bytes"):
        return say("gib", size=f"{value / (1 << 30):.4g}")
    unit = next((unit for end, unit in UNITS.items() if path.rpartition(".")[2].endswith(end)), "")
    if not unit and "_ms." in path:
        unit = "ms"
    return f"{value:,.6g} {unit}".rstrip() if isinstance(value, float) else f"{value:,} {unit}".rstrip()


UNITS = {"_ms": "ms", "_per_s": "/s", "duration_s": "s"}
"""Units by the end of a field's name."""
