"""MVAPICH2: mpirun_rsh. Names as accelerate reads them."""

from __future__ import annotations

from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.variables import Variables

__all__ = ["LAUNCHER"]


def claim(env: Environment) -> Claim | None:
    """A process of mpirun_rsh."""
    if "MV2_COMM_WORLD_RANK" not in env:
        return None
    read = Variables(env)
    return read.claim(
        "mvapich2",
        rank=read.number("MV2_COMM_WORLD_RANK"),
        local_rank=read.needed("MV2_COMM_WORLD_LOCAL_RANK"),
        size=read.needed("MV2_COMM_WORLD_SIZE"),
        local_size=read.number("MV2_COMM_WORLD_LOCAL_SIZE"),
    )


LAUNCHER = Launcher(
    name="mvapich2",
    title="MVAPICH2",
    variables=(
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    claim=claim,
)
