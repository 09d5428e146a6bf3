"""Kubeflow: PyTorchJob v1, Trainer v2, MPIJob.

Facts from training-operator (pkg/controller.v1/pytorch/envvar.go), trainer (runtime framework plugins)
and mpi-operator (pkg/controller/mpi_job_controller.go).
"""

from __future__ import annotations

from msgspec.structs import replace

from topocheck.launchers import script, torchrun
from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import block
from topocheck.launchers.variables import Variables

__all__ = ["MPIJOB", "PYTORCHJOB", "TRAINER"]

ROLE = "K_MPI_JOB_ROLE"


def claim(env: Environment) -> Claim | None:
    """A pod of a PyTorchJob: RANK is the pod's index (master 0, worker i is i + 1), WORLD_SIZE counts pods.

    With torchrun inside, RANK is torchrun's, and nothing of the pod's own numbers is left.
    """
    if not script.is_alone(env) or "LOCAL_RANK" in env or "KUBERNETES_SERVICE_HOST" not in env:
        return None
    agent = torchrun.agent_claim(env, "kubeflow_pytorchjob", "pod")
    read = Variables(env)
    read.notes.extend(note for note in agent.notes if note.variable != "PET_NODE_RANK")
    if agent.local_size is None:
        read.note("incomplete", "RANK counts pods, unless each pod runs one process")
    return read.claim(
        "kubeflow_pytorchjob",
        "pod",
        node_rank=read.number("RANK"),
        nodes=read.number("WORLD_SIZE"),
        local_size=agent.local_size,
    )


def trainer_claim(env: Environment) -> Claim | None:
    """A pod of a TrainJob: torchrun's options, the node rank being the pod's completion index."""
    if "PET_NODE_RANK" not in env or "JOB_COMPLETION_INDEX" not in env:
        return None
    pod = torchrun.agent_claim(env, "kubeflow_trainer", "pod")
    read = Variables(env)
    read.same("JOB_COMPLETION_INDEX", pod.node_rank)
    return replace(pod, notes=(*pod.notes, *read.notes))


def mpijob_claim(env: Environment) -> Claim | None:
    """A pod of an MPIJob. Its processes have the numbers of their MPI; the host file gives the order."""
    if ROLE not in env:
        return None
    read = Variables(env)
    if env[ROLE] == "launcher" and env.get("NVIDIA_VISIBLE_DEVICES") == "":
        read.note("devices", "the launcher pod sees no GPU: NVIDIA_VISIBLE_DEVICES is empty")
    slots = ("OMPI_MCA_orte_set_default_slots", "I_MPI_PERHOST")
    return read.claim("mpijob", "pod", local_size=read.number(*slots))


PYTORCHJOB = Launcher(
    name="kubeflow_pytorchjob",
    title="Kubeflow PyTorchJob v1",
    level="pod",
    variables=("KUBERNETES_SERVICE_HOST",),
    claim=claim,
    rank_nodes=block,
)
TRAINER = Launcher(
    name="kubeflow_trainer",
    title="Kubeflow Trainer v2",
    level="pod",
    variables=(),
    claim=trainer_claim,
    rank_nodes=block,
)
MPIJOB = Launcher(
    name="mpijob",
    title="Kubeflow MPIJob",
    level="pod",
    variables=(ROLE, "OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_set_default_slots"),
    claim=mpijob_claim,
)
