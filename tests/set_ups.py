"""What a healthy set-up is: plan, evidence, and the rules that have to pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from boxes import Box
from build import AT, inventory, plan
from healthy import launched, nodes

from topocheck.answer import Declared, answer
from topocheck.checklist import Gate
from topocheck.report import Report
from topocheck.snapshot import FullSnapshot, Hardware

__all__ = [
    "ALIKE",
    "DENSE",
    "GROUP",
    "KNOWN",
    "NETWORK",
    "NVLINK",
    "ONE_NODE",
    "SEVERAL",
    "STAGES",
    "TWO",
    "SetUp",
    "every",
    "filled",
    "verified",
    "vllm",
]

TWO = ("gpu-1", "gpu-2")
DENSE = Path(__file__).resolve().parent / "models" / "dense.json"
SIZES = "{layers: 80, hidden: 8192, heads: 64, kv_heads: 8}"

KNOWN = {"EV001", "EV004", "ID001", "ID002", "ID003", "ID004", "ID008", "ID011", "ID012", "ID015", "OBS001"}
"""What any job with whole evidence shows: who is where, and that it is so."""
ALIKE = {
    "ID005",
    "ID006",
    "ID007",
    "ID010",
    "ENV001",
    "ENV006",
    "VER001",
    "VER002",
    "VER003",
    "VER005",
    "VER007",
}
"""What nodes of one job have in common."""
GROUP = {"ID013", "TP001", "TP003", "TP005", "TP006", "TP007", "ENV002", "ENV005", "CAP001"}
"""What a tensor group needs."""
NVLINK = {"TP002", "TP004", "TP008", "NV001", "NV005"}
"""The same where NVLink joins its members."""
NETWORK = {"NET001", "NET002", "NET003", "NET005", "NET006", "NET007", "NET008", "NET009", "NET010", "ENV004"}
"""What leaves a node."""
STAGES = {"PP001", "PP002", "PP003", "PP004"}
"""What a pipeline over nodes needs."""
ONE_NODE = KNOWN | GROUP
SEVERAL = KNOWN | ALIKE | GROUP | NETWORK


Change = Callable[[FullSnapshot], FullSnapshot]


@dataclass(frozen=True)
class SetUp:
    """A healthy job."""

    plan: str
    evidence: Sequence[FullSnapshot]
    passing: set[str]
    """Rules that have to pass."""
    warns: frozenset[str] = frozenset()
    """Rules whose warning belongs to the machine."""
    undecided: frozenset[str] = frozenset()
    """Required rules that nothing before launch, or of this kind, can decide."""


def vllm(tensor: int, pipeline: int, hosts: Sequence[str] = TWO, **keys: str) -> str:
    """A plan with named nodes and further keys."""
    more = {"model": SIZES} | keys
    lines = [f"{key}: {value}\n" for key, value in more.items()]
    head = (
        f"engine: vllm\nparallel: {{tensor: {tensor}, pipeline: {pipeline}}}\nnodes: [{', '.join(hosts)}]\n"
    )
    return head + "".join(lines)


def filled(
    box: Box, tensor: int, pipeline: int, hosts: Sequence[str] = TWO, **seat: object
) -> list[FullSnapshot]:
    """Nodes of a job that fills them, and its launch."""
    each = tensor * pipeline // len(hosts)
    return [*nodes(box, *hosts, each=each, **seat), launched(each, len(hosts), tensor, pipeline)]


def every(views: Sequence[FullSnapshot], change: Change) -> list[FullSnapshot]:
    """The same nodes changed; what is no node stays."""
    return [change(view) if view.hardware != Hardware() else view for view in views]


def verified(text: str, *evidence: FullSnapshot) -> Report:
    """What verify says about a plan and evidence."""
    return answer(Declared(plan(text)), inventory(*evidence), [], Gate(), at=AT, whole=True)
