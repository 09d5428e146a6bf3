"""Which of several launchers' numbers a process goes by. Families are chosen whole and never mixed.

The engine decides first: some take RANK and LOCAL_RANK, some the MPI communicator, some neither, their
ranks coming from the node rank on their own command line. Then the innermost launcher wins, because outer
ones number what they started: an agent on each node, or a shell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from topocheck.launchers import claims
from topocheck.launchers.launcher import Claim, Environment

__all__ = ["READS", "Disagreement", "Reads", "Resolution", "reads", "resolve"]

Number = Literal["rank", "local_rank", "size"]
Reads = Literal["rank", "mpi", "nothing"]
"""Where an engine takes the rank of a process from: RANK and LOCAL_RANK, the MPI communicator, neither."""

READS: dict[str, Reads] = {
    "vllm": "nothing",
    "sglang": "nothing",
    "tensorrt_llm": "mpi",
    "megatron": "rank",
    "deepspeed": "rank",
    "torch": "rank",
    "torchtitan": "rank",
    "accelerate": "rank",
}
"""By the engine's name in a plan. Engines that are not listed are taken to read RANK."""

RANK_FAMILIES = ("torchrun", "deepspeed", "script")
MPI_FAMILIES = ("openmpi", "mvapich2", "intel_mpi", "mpich", "pals", "pmi", "pmix")
NODE_FAMILIES = (
    "torchrun",
    "deepspeed",
    "kubeflow_trainer",
    "kubeflow_pytorchjob",
    "lws",
    "jobset",
    "indexed_job",
    "slurm",
    "pals",
    "sagemaker",
    "script",
)
"""Families with an index of the node or pod, the more telling ones first."""
INTERFACES = ("pmi", "pmix")
"""Not launchers but the way in which one hands over the rank."""
AGENTS = ("torchrun", "deepspeed")
"""Launchers with an agent on each node, which another launcher may have started."""
COMPARED: tuple[Number, ...] = ("rank", "local_rank", "size")
DAEMONS = ("openmpi", "mvapich2", "intel_mpi", "mpich")
"""Launchers whose daemons srun starts inside a Slurm job: a step's numbers are then the daemons'."""
MPI_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
"""DeepSpeed asks MPI if any of these is missing (comm.py, init_distributed)."""


class Disagreement(msgspec.Struct, frozen=True, gc=False):
    """Two families that number the same process differently."""

    what: Number
    """Which number."""
    family: str
    """The chosen family."""
    value: int
    """What it says."""
    other_family: str
    """The other family."""
    other_value: int
    """What that one says."""


class Resolution(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One process among its launchers."""

    reads: Reads
    """Where the engine takes the rank from."""
    chosen: Claim | None
    """The claim that the engine goes by; None if it reads none or none is there."""
    node: Claim | None
    """The claim that tells the index of the node or pod; it may be of another family than `chosen`."""
    outer: tuple[Claim, ...] = ()
    """Launchers that started the chosen one's agents: their numbers count agents, not ranks."""
    others: tuple[Claim, ...] = ()
    """All claims but `chosen`, `outer` included."""
    disagreements: tuple[Disagreement, ...] = ()
    """Where claims that number the same processes differ: a finding, not a choice."""

    @property
    def processes_here(self) -> int | None:
        """Processes on this node if each outer task starts as many: more than GPUs is one launcher too many.

        None if a number is not known or nothing is nested.
        """
        counts = [claim.local_size for claim in self.outer]
        inner = self.chosen.local_size if self.chosen else None
        known = [count for count in counts if count is not None]
        return None if inner is None or not known else inner * max(known)


def resolve(env: Environment, engine: str | None = None, *, external_launcher: bool = False) -> Resolution:
    """Choose for one process. `engine` is the plan's name of it, None if unknown.

    `external_launcher` is vLLM's executor of that name, which takes RANK and LOCAL_RANK.
    """
    found = claims(env)
    source = "rank" if external_launcher else reads(env, engine)
    chosen = _choose(found, source, from_step=engine != "tensorrt_llm")
    others = tuple(claim for claim in found if claim is not chosen)
    outer = tuple(other for other in others if chosen and _is_outer(chosen, other))
    return Resolution(
        reads=source,
        chosen=chosen,
        node=_node(found),
        outer=outer,
        others=others,
        disagreements=tuple(
            difference
            for other in others
            if chosen and other not in outer and not (source == "mpi" and other.family in RANK_FAMILIES)
            for difference in _differences(chosen, other)
        ),
    )


def reads(env: Environment, engine: str | None) -> Reads:
    """Where this engine, in this environment, takes a process's rank from."""
    if engine == "tensorrt_llm" and env.get("TLLM_DISABLE_MPI") == "1":
        return "nothing"  # its Ray orchestrator places the workers
    if engine == "deepspeed" and any(name not in env for name in MPI_NEEDED):
        return "mpi"
    return READS.get(engine or "", "rank")


def _choose(found: Sequence[Claim], source: Reads, *, from_step: bool) -> Claim | None:
    """The first family in the engine's order, even if its rank is broken: another one would be a guess.

    `from_step` allows Slurm's own numbers where nothing else is set: scripts hand them on inside Python.
    """
    if source == "nothing":
        return None
    ranked = {claim.family: claim for claim in found if claim.level == "process" and claim.family != "ray"}
    families = MPI_FAMILIES if source == "mpi" else (*RANK_FAMILIES, *MPI_FAMILIES)
    chosen = next((ranked[family] for family in families if family in ranked), None)
    step = ranked.get("slurm")
    if step is None or (chosen and chosen.family not in INTERFACES):
        return chosen
    if chosen is None:
        return step if from_step and step.size != 1 else None
    return chosen if _differences(chosen, step) else step  # Slurm handed the rank over; it knows more of it


def _node(found: Sequence[Claim]) -> Claim | None:
    indexed = {claim.family: claim for claim in found if claim.node_rank is not None}
    return next((indexed[family] for family in NODE_FAMILIES if family in indexed), None)


def _is_outer(chosen: Claim, other: Claim) -> bool:
    """The other launcher started agents or daemons that then started this process."""
    if other.level != "process" or other.family in (*RANK_FAMILIES, "ray"):
        return False
    return chosen.family in AGENTS or (chosen.family in DAEMONS and other.family == "slurm")


def _differences(chosen: Claim, other: Claim) -> list[Disagreement]:
    """Numbers that both know and that differ. Claims of nodes and pods number something else."""
    if {chosen.level, other.level} != {"process"}:
        return []
    found = []
    for what in COMPARED:
        ours, theirs = getattr(chosen, what), getattr(other, what)
        if ours is not None and theirs is not None and ours != theirs:
            found.append(Disagreement(what, chosen.family, ours, other.family, theirs))
    return found
