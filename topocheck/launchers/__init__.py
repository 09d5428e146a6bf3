"""Launchers: what their variables claim, in which order they place ranks, and the way back."""

from __future__ import annotations

from topocheck.launchers import (
    deepspeed,
    hydra,
    job,
    kubeflow,
    lws,
    mvapich2,
    openmpi,
    pals,
    pmi,
    ray,
    sagemaker,
    script,
    slurm,
    torchrun,
)
from topocheck.launchers.launcher import Claim, Environment, Launcher, Note

__all__ = ["LAUNCHERS", "Claim", "Launcher", "Note", "claims"]

LAUNCHERS: dict[str, Launcher] = {
    launcher.name: launcher
    for launcher in (
        torchrun.LAUNCHER,
        deepspeed.LAUNCHER,
        script.LAUNCHER,
        openmpi.LAUNCHER,
        mvapich2.LAUNCHER,
        hydra.INTEL_MPI,
        hydra.MPICH,
        pals.LAUNCHER,
        pmi.PMI,
        pmi.PMIX,
        slurm.LAUNCHER,
        kubeflow.TRAINER,
        kubeflow.PYTORCHJOB,
        kubeflow.MPIJOB,
        lws.LAUNCHER,
        job.JOBSET,
        job.INDEXED_JOB,
        sagemaker.LAUNCHER,
        ray.LAUNCHER,
    )
}
"""Launchers by name, those first whose numbers go before the others' (see `topocheck.launchers.resolve`)."""


def claims(env: Environment) -> list[Claim]:
    """What every family found in this environment says, in the order of LAUNCHERS."""
    return [claim for launcher in LAUNCHERS.values() if (claim := launcher.claim(env)) is not None]
