"""What a process claims to be: its rank, its node's rank, and the GPU that it will drive.

A claim is read from the launchers' variables (`topocheck.launchers.resolve`) and from the visibility
lists. Whatever cannot be told becomes a fault with its reason, never a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from topocheck.launchers import claims
from topocheck.launchers.allowed import PREFIXES, allowed
from topocheck.launchers.launcher import Claim
from topocheck.launchers.numbering import disagreements, nested
from topocheck.launchers.resolve import RANK_FAMILIES, Resolution, resolve
from topocheck.probes.node.reader import Kind, printable
from topocheck.probes.node.visibility import Visible
from topocheck.snapshot import FamilyDisagreement, NestedLaunch, NodeClaim, ProbeFault, RankClaim

__all__ = ["Claimed", "claim", "job_variables", "local_rank", "scrubbed"]

OWN_NUMBERS = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "ROLE_RANK",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_NODE_RANK",
        "PMI_RANK",
        "PMI_ID",
        "PMIX_RANK",
        "MPI_LOCALRANKID",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "PALS_RANKID",
        "PALS_LOCAL_RANKID",
        "VLLM_DP_RANK",
        "VLLM_DP_RANK_LOCAL",
        "SGLANG_DP_RANK",
        "RAY_RAYLET_PID",
    }
)
"""Variables that number a process and so are its own: the claim holds what they say."""

IN_GROUPS = frozenset({"lws", "jobset"})
"""Launchers of several groups of pods or child jobs, each of which may be a world of its own."""

OF_IMAGES = frozenset({"NCCL_VERSION"})
"""What images of CUDA set by themselves."""
LONGEST = 4096
"""Characters kept of a value; lists of nodes of large jobs are the longest."""

PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s]*@")
"""User and password in a URL."""
NAMED_SECRET = re.compile(
    r"((?:api_?key|auth|credential|passw(?:or)?d|passphrase|secret|token)[\w-]*[=:])[^,;&\s]+", re.IGNORECASE
)
"""A secret among several settings in one value."""

NOTE_KINDS: Mapping[str, Kind] = {"malformed": "broken", "incomplete": "absent", "leaked": "absent"}
"""Notes of launchers that say why there is no number; the others are about numbers that there are."""


class Claimed(NamedTuple):
    """What one process claims."""

    rank: RankClaim | None = None
    """Its rank, if it is one of the job's processes."""
    node: NodeClaim | None = None
    """The node's rank, where the claim of the rank does not hold it."""
    whole: bool = False
    """Its launcher started no other process on this node."""
    faults: tuple[ProbeFault, ...] = ()
    """What cannot be told, and what contradicts itself."""
    disagreements: tuple[FamilyDisagreement, ...] = ()
    """Other launchers that number it differently."""
    nested: tuple[NestedLaunch, ...] = ()
    """The launcher that started its launcher."""


def claim(env: Mapping[str, str], visible: Visible, *, name: str, pid: int | None = None) -> Claimed:
    """Claim of a process with this environment and these devices.

    `name` says which process it is, for faults. The engine is not known here; a claim of RANK or of the
    MPI communicator is kept whatever engine may ignore it.
    """
    found = resolve(env)
    told = Claimed(disagreements=disagreements(found, env, pid=pid, at=by_probe), nested=nested(found))
    chosen, faults = found.chosen, list(numbers_at_odds(found, name))
    if chosen is None or chosen.rank is None:
        faults += why_not(found, name)
        return told._replace(node=node_claim(found.node), faults=tuple(faults))
    if is_agent(chosen, visible):
        faults.append(agent(chosen, visible, name))
        return told._replace(node=node_claim(chosen) or node_claim(found.node), faults=tuple(faults))
    gpu, reason = device_of(chosen, visible)
    if gpu is None:
        faults.append(ProbeFault(part="ranks", kind="not-supported", path=f"GPU of {name}", reason=reason))
    rank = RankClaim(
        rank=chosen.rank,
        world=world_of(env, found),
        size=chosen.size,
        local_rank=chosen.local_rank,
        node_rank=chosen.node_rank,
        gpu=gpu,
        pid=pid,
        family=chosen.family,
    )
    return told._replace(
        rank=rank,
        node=node_claim(found.node) if chosen.node_rank is None else None,
        whole=chosen.local_size == 1 and not found.outer,
        faults=tuple(faults),
    )


def world_of(env: Mapping[str, str], found: Resolution) -> str:
    """Name of the world that the environment shows the process to be of; empty if it shows none.

    It is a data replica of vLLM (vllm/envs.py VLLM_DP_RANK; the replicas of a dense model are worlds), or a
    group of pods or a child job, whose index its launcher tells.
    """
    rank, size = env.get("VLLM_DP_RANK", ""), env.get("VLLM_DP_SIZE", "")
    if all(text.isascii() and text.isdecimal() and len(text) < 10 for text in (rank, size)) and int(size) > 1:
        return f"dp{int(rank)}"
    claimed = (*((found.node,) if found.node else ()), *found.others)
    return next((printable(one.world) for one in claimed if one.family in IN_GROUPS and one.world), "")


def by_probe(variable: str) -> None:
    """Variables of a live process were read by the rank probe, which has no lines."""


def is_agent(chosen: Claim, visible: Visible) -> bool:
    """A launcher of tasks that starts one on each node of several GPUs starts agents, or only probes.

    `srun --ntasks-per-node=1` numbers what it starts: those are no ranks of a job that has one a GPU.
    """
    alone = chosen.local_size == 1 and chosen.family not in RANK_FAMILIES
    return alone and (visible.gpus is None or len(visible.gpus) != 1)


def agent(chosen: Claim, visible: Visible, name: str) -> ProbeFault:
    """Why a number of a launcher is no rank."""
    seen = "an unknown number of" if visible.gpus is None else len(visible.gpus)
    reason = (
        f"{chosen.family} started one process on this node, which has {seen} devices: its number is taken "
        "for the node's and not for a rank's"
    )
    return ProbeFault(part="ranks", kind="absent", path=name, reason=reason)


def device_of(chosen: Claim, visible: Visible) -> tuple[int | None, str]:
    """GPU of a rank: the device of its local rank, or the only one. None with the reason if not known."""
    if visible.gpus is None:
        return None, visible.reason
    if len(visible.gpus) == 1:
        return visible.gpus[0], ""
    if chosen.local_rank is None:
        return None, f"{chosen.family} gives no local rank, and {len(visible.gpus)} devices are visible"
    ordinal = visible.device(chosen.local_rank)
    if ordinal is not None:
        return ordinal, ""
    why = f" ({visible.reason})" if visible.reason else ""
    return None, f"local rank {chosen.local_rank} has no device: {len(visible.gpus)} are visible{why}"


def node_claim(found: Claim | None) -> NodeClaim | None:
    """A claim of a node or pod; None without its index."""
    if found is None or found.node_rank is None:
        return None
    return NodeClaim(
        node_rank=found.node_rank,
        nodes=found.nodes,
        local_size=found.local_size,
        world=printable(found.world),
        family=found.family,
    )


def numbers_at_odds(found: Resolution, name: str) -> Iterator[ProbeFault]:
    """Numbers of one launcher that exclude each other."""
    for note in found.chosen.notes if found.chosen else ():
        if note.kind == "contradictory":
            yield ProbeFault(part="ranks", kind="contradictory", path=name, reason=printable(note.text))


def why_not(found: Resolution, name: str) -> list[ProbeFault]:
    """Why a process in which launchers left their variables has no rank."""
    every = (*((found.chosen,) if found.chosen else ()), *found.others)
    return [
        ProbeFault(part="ranks", kind=NOTE_KINDS[note.kind], path=name, reason=printable(note.text))
        for claimed in every
        for note in claimed.notes
        if note.kind in NOTE_KINDS
    ]


def local_rank(env: Mapping[str, str]) -> int | None:
    """Local rank of a process that a launcher started; None for any other."""
    chosen = resolve(env).chosen
    return None if chosen is None else chosen.local_rank


def job_variables(
    env: Mapping[str, str], *, asked: bool = False
) -> tuple[dict[str, str], tuple[ProbeFault, ...]]:
    """Variables that the processes of a job share, by allow-list and without secrets.

    The shell of somebody who looks at a node says nothing about a job: without a trace of one nothing is
    taken, so that what is not set here is not held to be unset there. `asked` says that the process is a
    job's for certain.
    """
    if not asked and not speaks_of_job(env):
        reason = "no launcher's or library's variable is set: this may be no process of the job"
        return {}, (ProbeFault(part="environment", kind="absent", path="environment", reason=reason),)
    kept = sorted(name for name in env if allowed(name) and name not in OWN_NUMBERS)
    return {name: scrubbed(printable(env[name])[:LONGEST]) for name in kept}, ()


def speaks_of_job(env: Mapping[str, str]) -> bool:
    """A launcher started this process, or somebody set what communication libraries read."""
    return bool(claims(env)) or any(
        name.startswith(PREFIXES) and name not in OF_IMAGES and allowed(name) for name in env
    )


def scrubbed(value: str) -> str:
    """A value without passwords in URLs and secrets among settings."""
    return NAMED_SECRET.sub(r"\1***", PASSWORD.sub(r"\1***@", value))
