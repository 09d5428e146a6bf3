"""Who lives where: GPUs of each node with their ranks, and what a drawing says of them in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from topocheck.render.text import printable, ranges, shorten
from topocheck.report import GpuReport, NodeReport, PlacementReport, RankReport

__all__ = ["Resident", "Residents", "label_of", "name_of", "note_of", "settle", "title_of"]


class Resident(msgspec.Struct, frozen=True):
    """One GPU of a node, or a rank whose GPU is not known, with the ranks that live there."""

    gpu: GpuReport | None
    ranks: list[int]
    report: RankReport | None
    """The first of these ranks, where the report lists it."""


class Residents(msgspec.Struct, frozen=True):
    """A node with everything that lives there; no node for ranks whose node is not known."""

    node: NodeReport | None
    cells: list[Resident]


def settle(placement: PlacementReport, nodes: Sequence[NodeReport], *, whole: bool) -> list[Residents]:
    """GPUs and ranks by node; with `whole`, ranks without a node in a box of their own at the end."""
    names = {node.name for node in nodes}
    reports: dict[int, RankReport] = {}
    by_node: dict[str | None, list[RankReport]] = {}
    for rank in placement.ranks:
        if rank.node in names or rank.node is None:
            reports[rank.rank] = rank
            by_node.setdefault(rank.node, []).append(rank)
    seated = {rank for node in nodes for gpu in node.gpus for rank in gpu.ranks}
    found: list[Residents] = []
    for node in nodes:
        # Two nodes may share a name; what is known by the name alone is then shown once.
        loose = [rank for rank in by_node.pop(node.name, []) if rank.rank not in seated]
        found.append(Residents(node, list(_cells(node, reports, loose))))
    lost = by_node.get(None, [])
    if whole and lost:
        found.append(Residents(None, [Resident(None, [rank.rank], rank) for rank in lost]))
    return found


def _cells(
    node: NodeReport, reports: Mapping[int, RankReport], loose: Iterable[RankReport]
) -> Iterator[Resident]:
    """GPUs of the node in its order, then ranks of which only the node is known."""
    for gpu in node.gpus:
        yield Resident(gpu, gpu.ranks, reports.get(gpu.ranks[0]) if gpu.ranks else None)
    for rank in loose:
        yield Resident(None, [rank.rank], rank)


def name_of(residents: Residents) -> str:
    """Name of the node as it may be shown."""
    return printable(residents.node.name) if residents.node else "node not known"


def note_of(residents: Residents) -> str:
    """What is known of the node, in a few words."""
    node = residents.node
    if node is None:
        return f"{len(residents.cells)} ranks"
    number = len(node.gpus)
    words = [f"{number} GPU{'' if number == 1 else 's'}" if number else "GPUs not known"]
    if not node.seen:
        words.insert(0, "no evidence seen")
    if node.domain:
        words.append(f"domain {printable(node.domain)}")
    return ", ".join(words)


def title_of(resident: Resident, rule: str) -> str:
    """What the pointer shows."""
    gpu, report = resident.gpu, resident.report
    words = [f"rank {ranges(resident.ranks)}" if resident.ranks else "no rank"]
    if report is not None:
        words.append(f"stage {report.stage}, TP group {report.tensor_group}, replica {report.replica}")
    words.append(printable(gpu.uuid or gpu.bus or f"GPU {gpu.ordinal}") if gpu else "GPU not known")
    if rule:
        words.append(f"marked by {rule}")
    return shorten(", ".join(words), 200)


def label_of(ranks: Sequence[int]) -> str:
    """Ranks of one GPU in the space of one."""
    if not ranks:
        return "idle"
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}+{len(ranks) - 1}"
