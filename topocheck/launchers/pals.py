"""Cray PALS: aprun and mpiexec of HPE Cray systems. Names as DeepSpeed's launcher_helper.py reads them."""

from __future__ import annotations

from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.variables import Variables

__all__ = ["LAUNCHER", "is_child"]


def is_child(env: Environment) -> bool:
    """PALS started the process."""
    return "PALS_LOCAL_RANKID" in env or "PALS_RANKID" in env


def claim(env: Environment) -> Claim | None:
    """The rank is PMI_RANK, which PALS_RANKID repeats."""
    if not is_child(env):
        return None
    read = Variables(env)
    rank = read.needed("PMI_RANK", "PALS_RANKID")
    read.same("PALS_RANKID", rank)
    return read.claim(
        "pals",
        rank=rank,
        local_rank=read.number("PALS_LOCAL_RANKID"),
        node_rank=read.number("PALS_NODEID"),
        size=read.number("PMI_SIZE"),
    )


LAUNCHER = Launcher(
    name="pals",
    title="Cray PALS",
    variables=("PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_NODEID"),
    claim=claim,
)
