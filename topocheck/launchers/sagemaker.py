"""SageMaker: nodes of a training job. Processes are started by torchrun or Open MPI inside.

Facts from sagemaker-training-toolkit (src/sagemaker_training/environment.py).
"""

from __future__ import annotations

import msgspec

from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import block
from topocheck.launchers.variables import Variables

__all__ = ["LAUNCHER"]


def claim(env: Environment) -> Claim | None:
    """A node: the place of SM_CURRENT_HOST in the list SM_HOSTS."""
    if "SM_CURRENT_HOST" not in env:
        return None
    read = Variables(env)
    name, hosts = read.text("SM_CURRENT_HOST"), _hosts(read)
    if hosts is not None and name not in hosts:
        read.note("contradictory", "SM_CURRENT_HOST is not in SM_HOSTS", "SM_CURRENT_HOST")
    return read.claim(
        "sagemaker",
        "node",
        node_rank=hosts.index(name) if hosts and name in hosts else None,
        nodes=len(hosts) if hosts is not None else None,
        local_size=read.number("SM_NUM_GPUS"),
        node_name=name,
    )


def _hosts(read: Variables) -> list[object] | None:
    if "SM_HOSTS" not in read.env:
        read.note("incomplete", "SM_HOSTS is not set", "SM_HOSTS")
        return None
    try:
        hosts = msgspec.json.decode(read.env["SM_HOSTS"])
    except (ValueError, msgspec.MsgspecError, RecursionError):
        hosts = None
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        read.note("malformed", "SM_HOSTS is not a JSON list of host names", "SM_HOSTS")
        return None
    return hosts


LAUNCHER = Launcher(
    name="sagemaker",
    title="SageMaker",
    level="node",
    variables=("SM_CURRENT_HOST", "SM_HOSTS", "SM_NUM_GPUS"),
    claim=claim,
    rank_nodes=block,
)
