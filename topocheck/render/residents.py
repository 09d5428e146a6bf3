"""Who lives where: GPUs of each node with their ranks, and what a drawing says of them in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from topocheck.render.packed import number_of
from topocheck.render.text import printable, ranges, shorten
from topocheck.render.words import say
from topocheck.report import GpuReport, NodeReport, PlacementReport, RankReport, ShapeReport

__all__ = [
    "Quarter",
    "Resident",
    "Residents",
    "label_of",
    "links_of",
    "name_of",
    "note_of",
    "quarter_of",
    "settle",
    "title_of",
    "words_of",
]

Quarter = tuple[str, str]
"""What nodes lie in together: word for it, and its name."""


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
    return printable(residents.node.name) if residents.node else say("node_unknown")


def note_of(residents: Residents) -> str:
    """What is known of the node, in a few words."""
    node = residents.node
    if node is None:
        return say("ranks_in", count=len(residents.cells))
    number = len(node.gpus)
    words = [say("gpus_in", count=number) if number else say("gpus_unknown")]
    if not node.seen:
        words.insert(0, say("status_unseen"))
    quarter = quarter_of(node)
    if quarter is not None:
        words.append(words_of(quarter))
    return ", ".join(words)


def quarter_of(node: NodeReport | None) -> Quarter | None:
    """The NVLink domain of a node, else the switch that it hangs on; None if neither is shown."""
    if node is None or not (node.domain or node.switch):
        return None
    return ("in_domain", node.domain) if node.domain else ("below_switch", node.switch or "")


def words_of(quarter: Quarter) -> str:
    """`domain 0f3a...`, `switch leaf7`."""
    word, name = quarter
    return say(word, name=printable(name))


def links_of(residents: Residents, shapes: Sequence[ShapeReport]) -> str:
    """What joins the GPUs of the node, in a few words; empty where it has fewer than two."""
    node = residents.node
    if node is None or len(node.gpus) < 2:
        return ""
    links = [] if node.shape is None else shapes[node.shape].links
    kinds = [links[a][b] for a in range(len(links)) for b in range(a)]
    joined = [kind for kind in kinds if kind is not None and kind.startswith("NV")]
    numbers = {"some": len(joined), "all": len(kinds), "open": kinds.count(None)}
    if not kinds or numbers["open"] == len(kinds):
        return say("links_unknown")
    if len(joined) == len(kinds):
        alike = len(set(joined)) == 1
        return say("links_all", kind=printable(joined[0]) if alike else "NVLink")
    if numbers["open"]:
        return say("links_part", **numbers)
    return say("links_some", **numbers) if joined else say("links_none")


def title_of(resident: Resident, rule: str) -> str:
    """What the pointer shows."""
    gpu, report = resident.gpu, resident.report
    words = [say("tip_rank", ranks=ranges(resident.ranks)) if resident.ranks else say("tip_no_rank")]
    if report is not None:
        place = {"stage": report.stage, "group": report.tensor_group, "replica": report.replica}
        words.append(say("tip_position", **place))
    known = gpu and printable(gpu.uuid or gpu.bus or say("cell_gpu", number=number_of(gpu)))
    words.append(known or say("tip_gpu_unknown"))
    if rule:
        words.append(say("tip_marked", rule=rule))
    return shorten(", ".join(words), 200)


def label_of(ranks: Sequence[int]) -> str:
    """Ranks of one GPU in the space of one."""
    if not ranks:
        return say("cell_idle")
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}+{len(ranks) - 1}"
