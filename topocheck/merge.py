"""Two partial views of one node made one."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from topocheck.snapshot import (
    Coverage,
    GpuShape,
    Hardware,
    Host,
    Identity,
    LinkMatrix,
    NicId,
    NicShape,
    PeerAccess,
    Snapshot,
    Software,
)

__all__ = [
    "agree",
    "join_coverage",
    "join_hosts",
    "join_nics",
    "labelled",
    "merge_hardware",
    "speaks_of_the_job_only",
]

NOBODY, NOTHING, NO_VERSIONS = Identity(host=Host()), (b"{}", b""), Software()

Record = TypeVar("Record", GpuShape, NicShape)

MEMORY_TOLERANCE = 0.05
"""Share of the memory that CUDA, NVML and nvidia-smi count differently on one GPU."""

WORD = re.compile(r"[^\W_]+")
"""A word of a model's name: an H20 is no H200."""

Disagreement = tuple[str, tuple[str, str]]
"""(what about, the two values)."""


def merge_hardware(
    known: Hardware, seen: Hardware, ties: list[int], gpus: int
) -> tuple[Hardware, tuple[NicShape, ...], list[Disagreement]]:
    """Join a further view into a known one.

    `ties` maps GPU ordinals of `seen` to ordinals of the result, which has `gpus` GPUs. A value that
    both give and that differs is a disagreement; the first stays.
    """
    wrong: list[Disagreement] = []
    shapes = [*known.gpus, *[GpuShape()] * (gpus - len(known.gpus))]
    for ordinal, gpu in zip(ties, seen.gpus, strict=False):
        shapes[ordinal] = join(shapes[ordinal], renumber(gpu, ties), f"GPU {ordinal}", wrong)
    nics, columns = merge_nics(known.nics, seen.nics, wrong)
    result = Hardware(
        gpus=tuple(shapes),
        nics=nics,
        pci=known.pci or seen.pci,
        matrix=merge_matrix(known.matrix, seen.matrix, ties, columns, gpus, len(nics), wrong),
        peers=merge_peers(known.peers, seen.peers, ties, wrong),
    )
    return result, nics, wrong


def renumber(gpu: GpuShape, ties: list[int]) -> GpuShape:
    """Peers of a GPU's links in the result's ordinals."""
    if not gpu.links or all(link.peer is None for link in gpu.links):
        return gpu
    links = tuple(
        link if link.peer is None else msgspec.structs.replace(link, peer=ties[link.peer])
        for link in gpu.links
    )
    return msgspec.structs.replace(gpu, links=links)


def join(known: Record, seen: Record, about: str, wrong: list[Disagreement]) -> Record:
    """Fill what `known` does not say from `seen`; note what differs. PCI ids are each view's own."""
    fields = {}
    for name in known.__struct_fields__:
        old, new = getattr(known, name), getattr(seen, name)
        if old in (None, ()) and new not in (None, ()):
            fields[name] = new
        elif name not in ("pci", "links", "ports") and new is not None and not agree(name, old, new):
            wrong.append((f"{name} of {about}", (str(old), str(new))))
    return msgspec.structs.replace(known, **fields) if fields else known


def agree(name: str, old: object, new: object) -> bool:
    """Two tools mean the same value: one leaves the vendor out of a model, one the reserve out of memory."""
    if name == "model":
        one, other = (f" {' '.join(WORD.findall(str(model)))} " for model in (old, new))
        return one in other or other in one
    if name == "memory_bytes" and isinstance(old, int) and isinstance(new, int):
        return abs(old - new) <= MEMORY_TOLERANCE * max(old, new)
    return old == new


def merge_nics(
    known: tuple[NicShape, ...], seen: tuple[NicShape, ...], wrong: list[Disagreement]
) -> tuple[tuple[NicShape, ...], list[int]]:
    """Join devices by name. Gives the result and where each of `seen` went."""
    nics = list(known)
    places = {nic.name: place for place, nic in enumerate(nics)}
    columns = []
    for nic in seen:
        place = places.setdefault(nic.name, len(nics))
        if place == len(nics):
            nics.append(nic)
        else:
            nics[place] = join(nics[place], nic, nic.name, wrong)
        columns.append(place)
    return tuple(nics), columns


def merge_matrix(  # noqa: PLR0917 - one private step of merge_hardware
    known: LinkMatrix | None,
    seen: LinkMatrix | None,
    ties: list[int],
    columns: list[int],
    gpus: int,
    nics: int,
    wrong: list[Disagreement],
) -> LinkMatrix | None:
    """Join two tables of link classes in the result's ordinals."""
    if seen is None and (known is None or (len(known.gpus) == gpus and nics == 0)):
        return known
    square: list[list[str | None]] = [[None] * gpus for _ in range(gpus)]
    wide: list[list[str | None]] = [[None] * nics for _ in range(gpus)]
    same = list(range(max(gpus, nics)))
    for matrix, rows, cols in ((known, same, same), (seen, ties, columns)):
        if matrix is not None:
            fill(square, matrix.gpus, rows, rows, wrong)
            fill(wide, matrix.nics, rows, cols, wrong)
    shown = nics and any(cell is not None for row in wide for cell in row)
    return LinkMatrix(gpus=tuple(map(tuple, square)), nics=tuple(map(tuple, wide)) if shown else ())


def fill(
    table: list[list[str | None]],
    cells: tuple[tuple[str | None, ...], ...],
    rows: list[int],
    columns: list[int],
    wrong: list[Disagreement],
) -> None:
    """Put a view's cells into the joined table."""
    for row, line in zip(rows, cells, strict=False):
        for column, cell in zip(columns, line, strict=False):
            old = table[row][column]
            if old is None:
                table[row][column] = cell
            elif cell is not None and cell != old:
                wrong.append((f"link class of devices {row} and {column}", (old, cell)))


def merge_peers(
    known: tuple[PeerAccess, ...], seen: tuple[PeerAccess, ...], ties: list[int], wrong: list[Disagreement]
) -> tuple[PeerAccess, ...]:
    """Join peer access by pair."""
    peers = {(peer.a, peer.b): peer for peer in known}
    for peer in seen:
        pair = ties[peer.a], ties[peer.b]
        old = peers.setdefault(pair, PeerAccess(a=pair[0], b=pair[1], status=peer.status))
        if old.status != peer.status:
            wrong.append((f"peer access of GPUs {pair[0]} and {pair[1]}", (old.status, peer.status)))
    return tuple(peers.values())


def join_coverage(known: Coverage, seen: Coverage) -> Coverage:
    """A part is known whole as soon as one view shows it whole."""
    fields = {
        name: getattr(seen, name)
        for name in Coverage.__struct_fields__
        if getattr(known, name) is None or getattr(seen, name) == "all"
    }
    return msgspec.structs.replace(known, **fields)


def labelled(host: Host, label: str) -> Host:
    """The host under the name that the user gave to its file."""
    if host.name is None:
        return msgspec.structs.replace(host, name=label)
    if label in (host.name, *host.aliases):
        return host
    return msgspec.structs.replace(host, aliases=(label, *host.aliases))


def join_nics(known: tuple[NicId, ...], seen: tuple[NicId, ...]) -> tuple[NicId, ...]:
    """RDMA devices of both views by name; what both say stays as it was first."""
    if not seen or seen == known:
        return known
    found = {nic.name: nic for nic in known}
    for nic in seen:
        old = found.get(nic.name, nic)
        found[nic.name] = NicId(
            name=nic.name, bus=old.bus or nic.bus, guid=old.guid or nic.guid, card=old.card or nic.card
        )
    return tuple(found.values())


def join_hosts(known: Host, seen: Host) -> Host:
    """Two views of one host."""
    names = dict.fromkeys(
        name for name in (known.name, seen.name, *known.aliases, *seen.aliases) if name is not None
    )
    first, *others = names or (None,)
    return Host(
        name=first,
        boot_id=known.boot_id or seen.boot_id,
        machine_id=known.machine_id or seen.machine_id,
        aliases=tuple(name for name in others if name is not None),
    )


def speaks_of_the_job_only(snapshot: Snapshot) -> bool:
    """It names no host and shows nothing of one: a launch command is no evidence of a node."""
    return (
        bool(snapshot.job)
        and snapshot.identity == NOBODY
        and not (snapshot.ranks or snapshot.observed or snapshot.fabric or snapshot.faults)
        and bytes(snapshot.hardware) in NOTHING
        and bytes(snapshot.environment) in NOTHING
        and snapshot.software == NO_VERSIONS
    )
