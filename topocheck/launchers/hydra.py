"""Hydra: MPICH's mpiexec and Intel MPI's, which set the same variables.

Facts from the source of mpich (src/pm/hydra) and from runs of MPICH 5.0 over several hosts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topocheck.errors import LayoutError
from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import MAX_RANKS, deal
from topocheck.launchers.variables import Variables, number_of

__all__ = ["INTEL_MPI", "MPICH", "is_proxy_child", "rank_nodes"]


def is_proxy_child(env: Environment) -> bool:
    """A Hydra proxy started the process: it alone sets MPI_LOCALRANKID, besides the rank."""
    return "MPI_LOCALRANKID" in env and ("PMI_RANK" in env or "PMI_ID" in env)


def _is_intel(env: Environment) -> bool:
    return any(name.startswith("I_MPI_") for name in env)


def claim(env: Environment) -> Claim | None:
    """A process of MPICH's mpiexec. With `-pmi-port` the rank is PMI_ID and no size is told."""
    return _claim(env, "mpich") if is_proxy_child(env) and not _is_intel(env) else None


def intel_claim(env: Environment) -> Claim | None:
    """A process of Intel MPI's mpiexec."""
    return _claim(env, "intel_mpi") if is_proxy_child(env) and _is_intel(env) else None


def _claim(env: Environment, family: str) -> Claim:
    read = Variables(env)
    return read.claim(
        family,
        rank=read.number("PMI_RANK", "PMI_ID"),
        local_rank=read.number("MPI_LOCALRANKID"),
        size=read.number("PMI_SIZE"),
        local_size=read.number("MPI_LOCALNRANKS"),
        node_name=read.text("PMI_HOSTNAME"),
    )


def rank_nodes(slots: Sequence[int], processes: int | None = None, policy: str | None = None) -> list[int]:
    """Entry of -hosts or the host file by rank: each entry filled in turn, then again from the first.

    Policy `ppn=N` is -ppn: N on each entry, whatever its own count. A host that stands in two entries
    apart from each other is two nodes to Hydra, each counting local ranks from 0. Raises LayoutError for
    another policy and for processes without a slot.
    """
    ppn = re.fullmatch(r"ppn=([0-9]{1,7})", policy.strip()) if policy else None
    if policy and not ppn:
        raise LayoutError(f"mpiexec has no placement {policy[:40]!r}: none, or ppn=N")
    each = [number_of(ppn[1]) or 0] * len(slots) if ppn else slots
    once = deal(each)
    wanted = len(once) if processes is None else processes
    if not 0 <= wanted <= MAX_RANKS or (wanted and not once):
        raise LayoutError(f"{wanted} processes cannot be placed on {len(slots)} hosts")
    return (once * (wanted // len(once) + 1))[:wanted] if once else []


MPICH = Launcher(
    name="mpich",
    title="MPICH",
    variables=("MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_HOSTNAME", "HYDRA_HOST_FILE"),
    claim=claim,
    rank_nodes=rank_nodes,
)
INTEL_MPI = Launcher(
    name="intel_mpi",
    title="Intel MPI",
    variables=(
        "I_MPI_HYDRA_HOST_FILE",
        "I_MPI_PERHOST",
        "I_MPI_FABRICS",
        "I_MPI_OFI_PROVIDER",
        "I_MPI_PIN",
        "I_MPI_PIN_DOMAIN",
        "I_MPI_HYDRA_BOOTSTRAP",
    ),
    claim=intel_claim,
    rank_nodes=rank_nodes,
)
