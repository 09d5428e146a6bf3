"""Evidence taken away: each part of a snapshot in turn, down to the single field of a single entry.

What is taken away is not shown any more; nothing is made to say something else. Where a list goes, what counts
by its ordinals goes with it, and so does the part of the coverage that let absence speak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from topocheck.snapshot import Coverage, FullSnapshot, Hardware, LinkMatrix

__all__ = ["SAYS_SOMETHING", "Removal", "removals"]

Removal = tuple[str, list[FullSnapshot]]
"""(what was taken away, the evidence that is left)."""

SAYS_SOMETHING = {
    "disagreements": "() is that launchers agree",
    "nested": "() is that no launcher started launchers",
    "faults": "a probe fault is the absence itself",
    "mig": "() is a GPU that is not sliced",
    "providers": "the list is whole where the means of RDMA were looked at",
    "plugins": "the list is whole where the means of RDMA were looked at",
    "parent": "None is a root complex",
    "hypervisor": "None is a machine that shows none",
    "gids_cut": "a table that is not cut is more, not less",
    "settings": "{} is a file that sets nothing",
    "config_digest": "None is a folder without config.json",
    "weights_digest": "None is a folder without weights",
    "weights_files": "counted wherever the folder was looked at",
    "weights_bytes": "counted wherever the folder was looked at",
    "members": "() is no bond",
    "master": "None is no member of a bond",
}
"""Fields whose default is a statement and no absence, with what it says."""

SINGLE = frozenset(
    {
        "ranks",
        "job",
        "fabric",
        "observed.comms",
        "observed.edges",
        "observed.facts",
        "hardware.peers",
        "state.gpus",
        "state.nics",
    }
)
"""Lists whose entries stand for themselves, so that one of them may be missing."""

COVERED = {"ranks": ("ranks",), "observed": ("observed",), "hardware.nics": ("nics",), "hardware.gpus": ("links",)}
"""Parts of the coverage that go with a list, or with a thing in it, by the beginning of its path."""

MOST_ENTRIES = 4
"""Entries of a list that are thinned one by one: the first, and those that are not like it."""


def removals(evidence: Sequence[FullSnapshot]) -> Iterator[Removal]:
    """Evidence without one thing: a snapshot, a part of all snapshots, a part of the first that shows it."""
    seen: dict[str, dict[int, FullSnapshot]] = {}
    for number, snapshot in enumerate(evidence):
        yield f"snapshot {number}", [*evidence[:number], *evidence[number + 1 :]]
        for path, thinner in without(snapshot):
            seen.setdefault(path, {})[number] = thinner
    for path, thinned in seen.items():
        whole = list(enumerate(evidence))
        first = min(thinned)
        if "[" not in path or len(thinned) == 1:
            yield path, [thinned.get(number, snapshot) for number, snapshot in whole]
        if len(thinned) > 1:
            yield f"{path} of {first}", [
                thinned[first] if number == first else snapshot for number, snapshot in whole
            ]


def without(snapshot: FullSnapshot) -> Iterator[tuple[str, FullSnapshot]]:
    """A snapshot without each of its parts."""
    for part in fields(Coverage):
        for extent in ("part", None):
            if getattr(snapshot.coverage, part.name) not in (None, extent):
                yield f"coverage.{part.name} {extent}", uncovered(snapshot, [part.name], extent)
    yield from lists(snapshot)
    for path, thinner in records(snapshot, ""):
        if path.partition(".")[0] not in ("coverage", "schema") and path not in BY_ORDINAL:
            gone = [part for start, parts in COVERED.items() if shortens(path, start) for part in parts]
            yield path, uncovered(thinner, gone)


BY_ORDINAL = frozenset({"hardware", "hardware.gpus", "hardware.nics", "hardware.matrix.gpus", "identity.gpus", "identity.nics"})
"""Lists by whose ordinals other parts count."""


def shortens(path: str, start: str) -> bool:
    """The list that begins so is gone, or has an entry or an entry's ports less."""
    return path in (start, f"{start}.ports") or path.startswith((f"{start}[", f"{start}.ports["))


def lists(snapshot: FullSnapshot) -> Iterator[tuple[str, FullSnapshot]]:
    """A snapshot without each of the lists by whose ordinals other parts count."""
    hardware, identity = snapshot.hardware, snapshot.identity
    if hardware == Hardware():
        return
    matrix = hardware.matrix or LinkMatrix()
    nics_gone = replace(
        hardware, nics=(), matrix=replace(matrix, nics=()) if matrix.gpus else None
    )
    gpus_gone = replace(hardware, gpus=(), matrix=None, peers=())
    yield "hardware", uncovered(replace(snapshot, hardware=Hardware()), ["links", "nics"])
    yield "hardware.gpus", uncovered(replace(snapshot, hardware=gpus_gone), ["links"])
    if matrix.gpus and matrix.nics:
        yield "hardware.matrix.gpus", replace(snapshot, hardware=replace(hardware, matrix=replace(matrix, gpus=())))
    if hardware.nics:
        state = replace(snapshot.state, nics=())
        bare = replace(snapshot, hardware=nics_gone, identity=replace(identity, nics=()), state=state)
        yield "hardware.nics", uncovered(bare, ["nics"])
    if identity.gpus:
        bare = replace(
            snapshot,
            hardware=gpus_gone,
            identity=replace(identity, gpus=()),
            ranks=tuple(replace(claim, gpu=None) for claim in snapshot.ranks),
            fabric=tuple(replace(fabric, gpus=()) for fabric in snapshot.fabric),
            state=replace(snapshot.state, gpus=()),
        )
        if bare.observed is not None:
            comms = tuple(replace(member, gpu=None) for member in bare.observed.comms)
            bare = replace(bare, observed=replace(bare.observed, comms=comms))
        yield "identity.gpus", uncovered(bare, ["gpus", "links"])


def uncovered(snapshot: FullSnapshot, parts: Sequence[str], extent: str | None = None) -> FullSnapshot:
    """The snapshot, from these parts of which nothing may be concluded by absence."""
    known = snapshot.coverage
    fewer: dict[str, Any] = {part: extent for part in parts if getattr(known, part) is not None}
    return replace(snapshot, coverage=replace(known, **fewer)) if fewer else snapshot


def records(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A record without each of its fields, and with each of the records inside it thinned."""
    for field in fields(value):
        held, name = getattr(value, field.name), f"{path}.{field.name}".lstrip(".")
        empty = field.default_factory() if field.default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT else field.default
        if field.name in SAYS_SOMETHING or held in (None, empty):
            continue
        if empty is None or empty == () or empty == {}:
            yield name, replace(value, **{field.name: empty})
        for inner, thinner in inside(held, name):
            yield inner, replace(value, **{field.name: thinner})


def inside(held: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What a field holds, thinned: a record, or a row of records, all at once and one by one."""
    if isinstance(held, msgspec.Struct):
        yield from records(held, name)
    if not (isinstance(held, tuple) and held and isinstance(held[0], msgspec.Struct)):
        return
    found: dict[str, dict[int, Any]] = {}
    for place, entry in enumerate(held):
        for inner, thinner in records(entry, name):
            found.setdefault(inner, {})[place] = thinner
    for inner, entries in found.items():
        yield inner, tuple(entries.get(place, entry) for place, entry in enumerate(held))
        if len(held) > 1 and "[" not in inner:
            for place in odd_ones(held, entries):
                yield f"{inner}[{place}]", (*held[:place], entries[place], *held[place + 1 :])
    if name in SINGLE:
        for place in range(len(held)):
            yield f"{name}[{place}]", (*held[:place], *held[place + 1 :])


def odd_ones(held: Sequence[Any], entries: dict[int, Any]) -> list[int]:
    """The first entry, and those that are not like it."""
    first = min(entries)
    return [place for place in entries if place == first or held[place] != held[first]][:MOST_ENTRIES]
