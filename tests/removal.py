"""Evidence taken away: every part of a snapshot in turn, down to the single field.

What is taken away is not shown any more; nothing is made to say something else. Where a list is whole,
its coverage goes with it, and entries whose place is their number are never left out alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from topocheck.snapshot import Coverage, FullSnapshot, Hardware

__all__ = ["Removal", "removals"]

Removal = tuple[str, list[FullSnapshot]]
"""(what was taken away, the evidence without it)."""

SAYS_SOMETHING = frozenset(
    {
        "schema",
        "token",
        "end",
        "disagreements",  # () is that no launchers disagree
        "nested",  # () is that no launcher started launchers
        "faults",  # a probe fault is the absence itself
        "mig",  # () is a GPU that is not sliced
        "providers",  # these lists are whole where the means of RDMA were looked at
        "plugins",
        "parent",  # None is a root complex
        "hypervisor",  # None is a machine that shows none
        "gids_cut",  # not cut is more, not less
        "searched",
        "exists",
        "settings",
        "counters",
        "members",
        "master",
        "unnamed",
        "reason",
    }
)
"""Fields whose default is a statement and no absence: to set it would be to say something else."""

ENTRIES = frozenset({"ranks", "comms", "edges", "facts", "job", "fabric", "peers", "state.gpus", "state.nics"})
"""Lists whose entries stand for themselves: one of them may be missing."""

COVERED = {
    "gpus": ("gpus", "links"),
    "hardware": ("gpus", "links", "nics"),
    "identity": ("gpus", "links", "nics"),
    "nics": ("nics",),
    "ranks": ("ranks",),
    "observed": ("observed",),
}
"""Parts of the coverage that go with a list."""


def removals(evidence: Sequence[FullSnapshot]) -> Iterator[Removal]:
    """Evidence without one thing: a snapshot, a part of all snapshots, a part of the one that shows it."""
    for number, _ in enumerate(evidence):
        yield f"snapshot {number}", [*evidence[:number], *evidence[number + 1 :]]
    seen: dict[str, list[tuple[int, FullSnapshot]]] = {}
    for number, snapshot in enumerate(evidence):
        for path, thinner in without(snapshot):
            seen.setdefault(path, []).append((number, thinner))
    for path, thinned in seen.items():
        everywhere = list(evidence)
        for number, thinner in thinned:
            everywhere[number] = thinner
        yield path, everywhere
        if len(thinned) > 1:
            number, thinner = thinned[0]
            yield f"{path} of snapshot {number}", [*evidence[:number], thinner, *evidence[number + 1 :]]


def without(snapshot: FullSnapshot) -> Iterator[tuple[str, FullSnapshot]]:
    """A snapshot without each of its parts."""
    replace = msgspec.structs.replace
    for part in Coverage.__struct_fields__:
        for extent in ("part", None):
            if getattr(snapshot.coverage, part) not in (None, extent):
                yield f"coverage.{part} {extent}", uncovered(snapshot, part, extent=extent)
    if snapshot.hardware != Hardware():
        yield "hardware", uncovered(replace(snapshot, hardware=Hardware()), "links", "nics")
    if snapshot.identity.gpus:
        identity = replace(snapshot.identity, gpus=())
        bare = replace(snapshot, identity=identity, hardware=replace(snapshot.hardware, gpus=(), matrix=None, peers=()))
        yield "identity.gpus", uncovered(bare, "gpus", "links")
    for path, thinner in thinned(snapshot, ""):
        top = path.partition(".")[0]
        if path in ("hardware", "identity.gpus", "identity.nics") or top == "coverage":
            continue
        yield path, uncovered(thinner, *covered(path))


def covered(path: str) -> tuple[str, ...]:
    """Parts of the coverage of a list that is gone or short."""
    return {
        "hardware.gpus": ("links",),
        "hardware.nics": ("nics",),
        "hardware.nics.ports": ("nics",),
    }.get(path, COVERED.get(path.partition(".")[0].partition("[")[0], ()) if path[:4] in ("rank", "obse") else ())


def uncovered(snapshot: FullSnapshot, *parts: str, extent: str | None = None) -> FullSnapshot:
    """The snapshot, from whose parts nothing may be concluded by absence."""
    known = snapshot.coverage
    fewer = {part: extent for part in parts if getattr(known, part) is not None}
    return msgspec.structs.replace(snapshot, coverage=msgspec.structs.replace(known, **fewer))


def thinned(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A record without each of its fields, and with each of its records thinned."""
    fields = msgspec.structs.fields(value)
    for field in fields:
        held, name = getattr(value, field.name), f"{path}.{field.name}".lstrip(".")
        if field.name in SAYS_SOMETHING or held is None or held == field.default:
            continue
        empty = field.default
        if empty is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            empty = field.default_factory()
        if empty in (None, (), {}) and held != empty:
            yield name, msgspec.structs.replace(value, **{field.name: empty})
        for inner, thinner in inside(held, name):
            yield inner, msgspec.structs.replace(value, **{field.name: thinner})


def inside(held: Any, name: str) -> Iterator[tuple[str, Any]]:
    """What is inside a field, thinned: a record, or records in a row."""
    if isinstance(held, msgspec.Struct):
        yield from thinned(held, name)
    elif isinstance(held, tuple) and held and isinstance(held[0], msgspec.Struct):
        found: dict[str, dict[int, Any]] = {}
        for place, entry in enumerate(held):
            for inner, thinner in thinned(entry, name):
                found.setdefault(inner, {})[place] = thinner
        for inner, entries in found.items():
            yield inner, tuple(entries.get(place, entry) for place, entry in enumerate(held))
            for place in odd_places(held, entries):
                yield f"{inner}[{place}]", (*held[:place], entries[place], *held[place + 1 :])
        if name in ENTRIES or name.rpartition(".")[2] in ENTRIES and not name.startswith(("hardware.g", "identity")):
            for place in range(len(held)):
                yield f"{name}[{place}]", (*held[:place], *held[place + 1 :])


def odd_places(held: Sequence[Any], entries: dict[int, Any]) -> list[int]:
    """The first entry, and those that are not like it."""
    if len(entries) < 2:
        return []
    first = min(entries)
    return [place for place in entries if place == first or held[place] != held[first]][:4]
