"""Evidence taken away: each part of a snapshot in turn, down to the single field of a single entry.

What is taken away is not shown any more; nothing is made to say something else. Where a list goes, what
counts by its ordinals goes with it, and so does the part of the coverage that let absence speak.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from topocheck.snapshot import Coverage, FullSnapshot, Hardware, LinkMatrix, Network

__all__ = ["SAYS_SOMETHING", "SNAPSHOT", "Removal", "parts_of", "removals"]

Removal = tuple[str, list[FullSnapshot]]
"""(what was taken away, the evidence that is left)."""

SNAPSHOT = "snapshot"
"""The part of the evidence that is a whole snapshot."""

SAYS_SOMETHING = {
    "schema": "no evidence",
    "disagreements": "() is that launchers agree",
    "nested": "() is that no launcher started launchers",
    "faults": "a probe fault is the absence itself",
    "providers": "the list is whole where the means of RDMA were looked at",
    "plugins": "the list is whole where the means of RDMA were looked at",
    "own_environments": "() is that all ranks have the same",
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
        "network.nics",
        "state.ports",
    }
)
"""Lists whose entries stand for themselves, so that one of them may be missing."""

BY_ORDINAL = frozenset(
    {
        "hardware",
        "hardware.gpus",
        "hardware.nics",
        "hardware.matrix.gpus",
        "identity.gpus",
        "identity.nics",
        "network.netdevs",
    }
)
"""Lists by whose ordinals other parts count: `lists` takes them away."""

COVERED = {
    "ranks": ("ranks",),
    "observed": ("observed",),
    "hardware.nics": ("nics",),
    "hardware.gpus": ("links",),
}
"""Parts of the coverage that go with a list, or with an entry of it."""

MOST_ENTRIES = 4
"""Entries of a list that are thinned, or left out, one by one."""


def parts_of(evidence: Sequence[FullSnapshot]) -> list[str]:
    """Parts of the evidence that can be taken away: whole snapshots, then what any of them shows."""
    shown = [
        field.name
        for field in fields(FullSnapshot)
        if field.name not in SAYS_SOMETHING
        and any(getattr(snapshot, field.name) != empty_of(field) for snapshot in evidence)
    ]
    return [SNAPSHOT, *shown] if evidence else []


def empty_of(field: Any) -> Any:
    """What a field holds where nothing is shown."""
    made = field.default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT
    return field.default_factory() if made else field.default


def removals(evidence: Sequence[FullSnapshot], part: str) -> Iterator[Removal]:
    """Evidence without one thing of a part: in all snapshots, and in the first alone that shows it."""
    if part == SNAPSHOT:
        for number, _ in enumerate(evidence):
            yield f"{SNAPSHOT} {number}", [*evidence[:number], *evidence[number + 1 :]]
        return
    seen: dict[str, dict[int, FullSnapshot]] = {}
    for number, snapshot in enumerate(evidence):
        for path, thinner in without(snapshot, part):
            seen.setdefault(path, {})[number] = thinner
    for path, thinned in seen.items():
        first = min(thinned)
        if "[" not in path or len(thinned) == 1:
            yield path, [thinned.get(number, snapshot) for number, snapshot in enumerate(evidence)]
        if len(thinned) > 1:
            alone = [thinned[n] if n == first else snapshot for n, snapshot in enumerate(evidence)]
            yield f"{path} of {first}", alone


def without(snapshot: FullSnapshot, part: str) -> Iterator[tuple[str, FullSnapshot]]:
    """A snapshot without each thing of one part."""
    if part == "coverage":
        for field in fields(Coverage):
            for extent in ("part", None):
                if getattr(snapshot.coverage, field.name) not in (None, extent):
                    yield f"coverage.{field.name} {extent}", uncovered(snapshot, [field.name], extent)
        return
    for path, thinner in lists(snapshot):
        if path.partition(".")[0] == part:
            yield path, thinner
    for path, thinner in records(snapshot, "", part):
        if path not in BY_ORDINAL:
            gone = [name for start, names in COVERED.items() if shortens(path, start) for name in names]
            yield path, uncovered(thinner, gone)


def shortens(path: str, start: str) -> bool:
    """The list that begins so is gone, or has an entry or an entry's ports less."""
    return path in (start, f"{start}.ports") or path.startswith((f"{start}[", f"{start}.ports["))


def lists(snapshot: FullSnapshot) -> Iterator[tuple[str, FullSnapshot]]:
    """A snapshot without each of the lists by whose ordinals other parts count."""
    hardware, identity = snapshot.hardware, snapshot.identity
    matrix = hardware.matrix or LinkMatrix()
    gpus_gone = replace(hardware, gpus=(), matrix=None, peers=())
    if hardware != Hardware():
        yield "hardware", uncovered(replace(snapshot, hardware=Hardware()), ["links", "nics"])
        yield "hardware.gpus", uncovered(replace(snapshot, hardware=gpus_gone), ["links"])
    if matrix.gpus and matrix.nics:
        half = replace(hardware, matrix=replace(matrix, gpus=()))
        yield "hardware.matrix.gpus", replace(snapshot, hardware=half)
    if snapshot.network != Network():
        silent = replace(snapshot.state, addresses=())
        yield "network", replace(snapshot, network=Network(), state=silent)
        bare = replace(snapshot.network, netdevs=())
        yield "network.netdevs", replace(snapshot, network=bare, state=silent)
    told = snapshot.state.addresses
    for place in range(len(told))[:MOST_ENTRIES]:
        if told[place] is not None:
            fewer = replace(snapshot.state, addresses=(*told[:place], None, *told[place + 1 :]))
            yield f"state.addresses[{place}]", replace(snapshot, state=fewer)
    if hardware.nics:
        nics_gone = replace(hardware, nics=(), matrix=replace(matrix, nics=()) if matrix.gpus else None)
        gone = replace(
            snapshot,
            hardware=nics_gone,
            identity=replace(identity, nics=()),
            network=replace(snapshot.network, nics=()),
            state=replace(snapshot.state, ports=()),
        )
        yield "hardware.nics", uncovered(gone, ["nics"])
    if identity.gpus:
        yield "identity.gpus", nameless(replace(snapshot, hardware=gpus_gone))


def nameless(snapshot: FullSnapshot) -> FullSnapshot:
    """A snapshot whose GPUs are not listed, and to which nothing points."""
    seen = snapshot.observed
    if seen is not None:
        seen = replace(seen, comms=tuple(replace(member, gpu=None) for member in seen.comms))
    bare = replace(
        snapshot,
        identity=replace(snapshot.identity, gpus=()),
        ranks=tuple(replace(claim, gpu=None) for claim in snapshot.ranks),
        fabric=tuple(replace(fabric, gpus=()) for fabric in snapshot.fabric),
        state=replace(snapshot.state, gpus=()),
        observed=seen,
    )
    return uncovered(bare, ["gpus", "links"])


def uncovered(snapshot: FullSnapshot, parts: Sequence[str], extent: str | None = None) -> FullSnapshot:
    """The snapshot, from these parts of which nothing may be concluded by absence."""
    known = snapshot.coverage
    fewer: dict[str, Any] = {part: extent for part in parts if getattr(known, part) is not None}
    return replace(snapshot, coverage=replace(known, **fewer)) if fewer else snapshot


def records(value: Any, path: str, only: str = "") -> Iterator[tuple[str, Any]]:
    """A record without each of its fields, and with each of the records inside it thinned."""
    for field in fields(value):
        held, name, empty = getattr(value, field.name), f"{path}.{field.name}".lstrip("."), empty_of(field)
        if (only and field.name != only) or field.name in SAYS_SOMETHING or held in (None, empty):
            continue
        if empty in (None, (), {}):
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
    if name in SINGLE and len(held) > 1:
        for place in list(dict.fromkeys((*range(len(held))[: MOST_ENTRIES - 1], len(held) - 1))):
            yield f"{name}[{place}]", (*held[:place], *held[place + 1 :])


def odd_ones(held: Sequence[Any], entries: dict[int, Any]) -> list[int]:
    """The first entry, and those that are not like it."""
    first = min(entries)
    return [place for place in entries if place == first or held[place] != held[first]][:MOST_ENTRIES]
