"""What launchers that number one process disagree about, and which started which, by their variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from topocheck.launchers.launcher import Environment
from topocheck.launchers.resolve import Number, Resolution
from topocheck.snapshot import At, FamilyDisagreement, NestedLaunch

__all__ = ["NUMBERED_BY", "disagreements", "nested", "variable_of"]

TORCH: Mapping[Number, tuple[str, ...]] = {
    "rank": ("RANK",),
    "local_rank": ("LOCAL_RANK",),
    "size": ("WORLD_SIZE",),
}
HYDRA: Mapping[Number, tuple[str, ...]] = {
    "rank": ("PMI_RANK", "PMI_ID"),
    "local_rank": ("MPI_LOCALRANKID",),
    "size": ("PMI_SIZE",),
}

NUMBERED_BY: dict[str, Mapping[Number, tuple[str, ...]]] = {
    "torchrun": TORCH,
    "deepspeed": TORCH,
    "script": TORCH,
    "openmpi": {
        "rank": ("OMPI_COMM_WORLD_RANK",),
        "local_rank": ("OMPI_COMM_WORLD_LOCAL_RANK",),
        "size": ("OMPI_COMM_WORLD_SIZE",),
    },
    "mvapich2": {
        "rank": ("MV2_COMM_WORLD_RANK",),
        "local_rank": ("MV2_COMM_WORLD_LOCAL_RANK",),
        "size": ("MV2_COMM_WORLD_SIZE",),
    },
    "intel_mpi": HYDRA,
    "mpich": HYDRA,
    "pals": {
        "rank": ("PMI_RANK", "PALS_RANKID"),
        "local_rank": ("PALS_LOCAL_RANKID",),
        "size": ("PMI_SIZE",),
    },
    "pmi": {"rank": ("PMI_RANK", "PMI_ID"), "size": ("PMI_SIZE",)},
    "pmix": {"rank": ("PMIX_RANK",)},
    "slurm": {
        "rank": ("SLURM_PROCID",),
        "local_rank": ("SLURM_LOCALID",),
        "size": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
    },
}
"""Variables of each family that numbers processes, in the order in which its claim reads them."""


def variable_of(env: Environment, family: str, what: Number) -> str:
    """The variable that holds a number of a family in this environment."""
    names = NUMBERED_BY.get(family, {}).get(what, ())
    return next((name for name in names if name in env), f"{what.replace('_', ' ')} of {family}")


def disagreements(
    found: Resolution, env: Environment, *, pid: int | None = None, at: Callable[[str], At | None]
) -> tuple[FamilyDisagreement, ...]:
    """Numbers in which the launchers of one process differ. `at` says where a variable was read.

    A launcher with another world size numbers something else: what the inner one was started by.
    """
    sizes = {claim.family: claim.size for claim in found.others}
    own = found.chosen.size if found.chosen else None
    return tuple(
        FamilyDisagreement(
            what=odd.what,
            family=odd.family,
            variable=(name := variable_of(env, odd.family, odd.what)),
            value=odd.value,
            other_family=odd.other_family,
            other_variable=variable_of(env, odd.other_family, odd.what),
            other_value=odd.other_value,
            pid=pid,
            at=at(name),
        )
        for odd in found.disagreements
        if odd.what != "size" and sizes.get(odd.other_family) in (None, own)
    )


def nested(found: Resolution, at: At | None = None) -> tuple[NestedLaunch, ...]:
    """The launcher that started the agents of the chosen one; () where nothing is nested, or counts lack."""
    chosen = found.chosen
    counted = [(claim.local_size, claim.family) for claim in found.outer if claim.local_size is not None]
    if chosen is None or chosen.local_size is None or not counted:
        return ()
    tasks, outer = max(counted)
    return (NestedLaunch(family=chosen.family, processes=chosen.local_size, outer=outer, tasks=tasks, at=at),)
