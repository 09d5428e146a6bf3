"""The scenarios of `topocheck demo`: one job, as it should be and broken in one way each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from topocheck.demo.job import (
    BLOCK_SCRIPT,
    CYCLIC_SCRIPT,
    ENGINE_LOG,
    PLAN,
    TENSOR,
    Member,
    Node,
    healthy_nodes,
    snapshot_of,
)
from topocheck.demo.nccl import IB, SOCKET, nccl_log
from topocheck.snapshot import Coverage, FullSnapshot, Hardware, Network, ProbeFault, State

__all__ = ["EVIDENCE", "SCENARIOS", "Scenario"]

EVIDENCE = "evidence"
"""Folder of the evidence beside plan.yaml."""
BROKEN_GPU, DARK_LINKS = 2, 6

Texts = dict[str, str]
"""File name -> text."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One made job."""

    says: str
    """What is right or wrong with it."""
    evidence: Callable[[], Texts]
    """Makes its evidence, by file name."""

    def files(self) -> Texts:
        """Everything to write, by path below one folder."""
        plan = f"# topocheck demo: {self.says}\n{PLAN}"
        return {"plan.yaml": plan} | {f"{EVIDENCE}/{name}": text for name, text in self.evidence().items()}


def written(snapshots: Sequence[FullSnapshot], script: str | None = BLOCK_SCRIPT) -> Texts:
    """One file of one line for each node, and the script of the job."""
    return ({} if script is None else {"job.sbatch": script}) | {
        f"{shown.identity.host.name}.jsonl": msgspec.json.encode(shown).decode() + "\n" for shown in snapshots
    }


def healthy() -> Texts:
    """Every rank where it should be."""
    return written([snapshot_of(node) for node in healthy_nodes()])


def running(network: str = IB) -> Texts:
    """The same, and the logs of its start."""
    return healthy() | {"nccl.log": nccl_log(healthy_nodes(), network, TENSOR), "vllm.log": ENGINE_LOG}


def tp_split() -> Texts:
    """Ranks dealt out to the nodes in turn, as a cyclic distribution does."""
    nodes = healthy_nodes()
    split = [replace(node, members=dealt(node, len(nodes))) for node in nodes]
    return written([snapshot_of(node, "slurm") for node in split], CYCLIC_SCRIPT)


def dealt(node: Node, nodes: int) -> tuple[Member, ...]:
    """Every so many ranks, beginning with the node's own number."""
    return tuple(
        replace(member, rank=local * nodes + node.number) for local, member in enumerate(node.members)
    )


def nvlink_missing() -> Texts:
    """One GPU of the second node with a third of its NVLinks down."""
    first, second = healthy_nodes()
    dark = tuple((BROKEN_GPU, link) for link in range(DARK_LINKS))
    return written(
        [snapshot_of(first), snapshot_of(replace(second, server=replace(second.server, dark=dark)))]
    )


def shared_gpu() -> Texts:
    """The last process of the second node on the GPU of the one before it."""
    first, second = healthy_nodes()
    *others, last = second.members
    members = (*others, replace(last, gpu=others[-1].gpu))
    return written([snapshot_of(first), snapshot_of(replace(second, members=members))])


def missing_node() -> Texts:
    """Nothing of the second node."""
    return written([snapshot_of(healthy_nodes()[0])])


def thin_evidence() -> Texts:
    """A probe that ran beside the job, in a container without privileges: names of GPUs and no more."""
    return written([thinned(snapshot_of(node)) for node in healthy_nodes()], script=None)


def thinned(shown: FullSnapshot) -> FullSnapshot:
    """A snapshot without links, RDMA devices, ranks and their variables."""
    gpus = tuple(msgspec.structs.replace(gpu, links=None, nvswitch=None) for gpu in shown.hardware.gpus)
    return msgspec.structs.replace(
        shown,
        coverage=Coverage(gpus="all", links="part"),
        identity=msgspec.structs.replace(shown.identity, nics=()),
        hardware=Hardware(gpus=gpus, pci=shown.hardware.pci),
        environment={},
        network=Network(),
        fabric=(),
        ranks=(),
        verbs=None,
        state=State(),
        faults=(
            ProbeFault(
                part="links",
                kind="not-permitted",
                path="nvmlDeviceGetNvLinkState",
                reason="Insufficient Permissions",
            ),
            ProbeFault(
                part="nics",
                kind="absent",
                path="/sys/class/infiniband",
                reason="No such file or directory",
            ),
        ),
    )


SCENARIOS = {
    "healthy": Scenario("every rank, link and port where it should be", healthy),
    "running": Scenario("the same job seen while it runs, over RDMA", running),
    "tp-split": Scenario("ranks dealt out to the nodes in turn, so that TP groups cross nodes", tp_split),
    "nvlink-missing": Scenario("a GPU with a third of its NVLinks down", nvlink_missing),
    "sockets": Scenario("a running job whose stages talk over sockets, not RDMA", lambda: running(SOCKET)),
    "shared-gpu": Scenario("two ranks on one GPU", shared_gpu),
    "missing-node": Scenario("a node that never reported", missing_node),
    "thin-evidence": Scenario("evidence too thin to decide", thin_evidence),
}
"""Scenarios by name, the healthy job first."""
