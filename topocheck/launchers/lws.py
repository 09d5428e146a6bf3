"""LeaderWorkerSet: groups of pods, each with a leader and workers.

Facts from lws (pkg/utils/pod/pod_utils.go, pkg/webhooks/pod_webhook.go).
"""

from __future__ import annotations

import re

from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.order import block
from topocheck.launchers.variables import Variables, number_of

__all__ = ["LAUNCHER", "pod_index"]

LEADER = re.compile(r"([^.]+-[0-9]+)(?:\.|$)")
"""`<lws>-<group>.<subdomain>.<namespace>`."""


def claim(env: Environment) -> Claim | None:
    """A pod of a group; its index counts within the group, which is the claim's world.

    The group's own index is only in a label and in the leader's name.
    """
    if not env.get("LWS_WORKER_INDEX"):  # a label that is absent gives an empty variable
        return None
    read = Variables(env)
    leader = LEADER.match(read.text("LWS_LEADER_ADDRESS") or "")
    world = leader[1] if leader else ""
    if leader:
        read.same("LWS_GROUP_INDEX", number_of(world.rpartition("-")[2]))
    elif "LWS_GROUP_INDEX" in env and read.number("LWS_GROUP_INDEX") is not None:
        world = "-".join(filter(None, (read.text("LWS_NAME"), read.text("LWS_GROUP_INDEX"))))
    else:
        read.note("incomplete", "LWS_LEADER_ADDRESS does not name the group", "LWS_LEADER_ADDRESS")
    return read.claim(
        "lws",
        "pod",
        node_rank=read.number("LWS_WORKER_INDEX"),
        nodes=read.needed("LWS_GROUP_SIZE"),
        world=world,
    )


def pod_index(group: int, index: int, group_size: int) -> int:
    """Index of a pod where one world spans all groups of a set: groups in order, leaders first."""
    return group * group_size + index


LAUNCHER = Launcher(
    name="lws",
    title="LeaderWorkerSet",
    level="pod",
    variables=(
        "LWS_WORKER_INDEX",
        "LWS_GROUP_SIZE",
        "LWS_LEADER_ADDRESS",
        "LWS_GROUP_INDEX",
        "LWS_NAME",
    ),
    claim=claim,
    rank_nodes=block,
)
