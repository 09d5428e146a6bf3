"""Whose object a gate's leavings are: Kubernetes removes them with their owner.

What all gates of a run need outlives each pod of it, so that it is the job's, or the group leader's by whose
uid the run is known. A pod that shows neither owns its own entry alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from topocheck.gather.leader_pod import NAME

__all__ = ["Owner", "Owners", "owners"]

UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
CONTROLLERS = (
    ("jobset.x-k8s.io/v1alpha2", "JobSet", "JOBSET_NAME", "JOBSET_UID"),
    ("batch/v1", "Job", "TOPOCHECK_JOB_NAME", "JOB_UID"),
)
"""apiVersion, kind, and the variables of name and uid that manifests hand on (`kubernetes.wanted`)."""


class Owner(NamedTuple):
    """An object of the same namespace: one of another is taken for gone, and what it owns removed."""

    api: str
    kind: str
    name: str
    uid: str


class Owners(NamedTuple):
    """Owners of what one gate leaves; None where nothing shows one."""

    verdict: Owner | None
    entry: Owner | None


def owners(env: Mapping[str, str]) -> Owners:
    """Owners by the downward API's variables."""
    named = (owner(env, *known) for known in CONTROLLERS)
    whole = leader(env) or next((found for found in named if found is not None), None)
    return Owners(whole, whole or owner(env, "v1", "Pod", "POD_NAME", "TOPOCHECK_POD_UID"))


def leader(env: Mapping[str, str]) -> Owner | None:
    """The leader of a LeaderWorkerSet's group: a group that is made again has another."""
    if not env.get("TOPOCHECK_GROUP_KEY"):
        return None
    if env.get("LWS_WORKER_INDEX") == "0":
        return owner(env, "v1", "Pod", "POD_NAME", "TOPOCHECK_POD_UID")
    return owner(env, "v1", "Pod", "TOPOCHECK_LEADER", "TOPOCHECK_LEADER_UID")


def owner(env: Mapping[str, str], api: str, kind: str, name: str, uid: str) -> Owner | None:
    """One that two variables name; a name without its uid, or the other way, is nobody."""
    found = Owner(api, kind, env.get(name, ""), env.get(uid, ""))
    return found if NAME.fullmatch(found.name) and UID.fullmatch(found.uid) else None
