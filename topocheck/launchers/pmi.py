"""PMI and PMIx: how a launcher hands a rank to a process; neither says on which node it is."""

from __future__ import annotations

from topocheck.launchers import hydra, pals
from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.variables import Variables

__all__ = ["PMI", "PMIX"]


def claim(env: Environment) -> Claim | None:
    """A PMI rank that neither Hydra nor PALS gave: Slurm's --mpi=pmi2 and --mpi=cray_shasta do."""
    if not ("PMI_RANK" in env or "PMI_ID" in env) or hydra.is_proxy_child(env) or pals.is_child(env):
        return None
    read = Variables(env)
    return read.claim("pmi", rank=read.number("PMI_RANK", "PMI_ID"), size=read.number("PMI_SIZE"))


def pmix_claim(env: Environment) -> Claim | None:
    """A rank within a namespace. Processes spawned later have a namespace of their own, from rank 0."""
    if "PMIX_RANK" not in env:
        return None
    read = Variables(env)
    return read.claim(
        "pmix",
        rank=read.number("PMIX_RANK"),
        node_name=read.text("PMIX_HOSTNAME"),
        world=read.text("PMIX_NAMESPACE") or "",
    )


PMI = Launcher(
    name="pmi", title="PMI", variables=("PMI_RANK", "PMI_ID", "PMI_SIZE", "PMI_JOBID"), claim=claim
)
PMIX = Launcher(
    name="pmix",
    title="PMIx",
    variables=("PMIX_RANK", "PMIX_NAMESPACE", "PMIX_HOSTNAME", "PMIX_VERSION"),
    claim=pmix_claim,
)
