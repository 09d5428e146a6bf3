"""RANK and its companions without a known launcher: set by a script, by Ray Train, by hand."""

from __future__ import annotations

from topocheck.launchers import deepspeed, torchrun
from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import block
from topocheck.launchers.variables import Variables

__all__ = ["LAUNCHER", "is_alone"]


def is_alone(env: Environment) -> bool:
    """RANK is set, and neither torchrun nor deepspeed set it."""
    return "RANK" in env and not torchrun.is_worker(env) and not deepspeed.is_worker(env)


def claim(env: Environment) -> Claim | None:
    """With LOCAL_RANK a process; without it, in a pod Kubeflow's, elsewhere a node with a note.

    RANK alone is what PyTorchJob sets for each pod, and what people set for each node of an agent.
    """
    if not is_alone(env):
        return None
    read = Variables(env)
    if "LOCAL_RANK" in env:
        return read.claim(
            "script",
            rank=read.number("RANK"),
            local_rank=read.number("LOCAL_RANK"),
            node_rank=read.number("NODE_RANK", "GROUP_RANK"),
            size=read.needed("WORLD_SIZE"),
            local_size=read.number("LOCAL_WORLD_SIZE"),
            nodes=read.number("NNODES"),
        )
    if "KUBERNETES_SERVICE_HOST" in env:
        return None
    read.note("incomplete", "RANK without LOCAL_RANK may count nodes or processes", "LOCAL_RANK")
    return read.claim("script", "node", node_rank=read.number("RANK"), nodes=read.number("WORLD_SIZE"))


LAUNCHER = Launcher(
    name="script",
    title="RANK set by a script",
    variables=("NODE_RANK", "NNODES"),
    claim=claim,
    rank_nodes=block,
)
