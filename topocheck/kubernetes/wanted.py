"""What a manifest with a gate is to hold, checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from topocheck.errors import UsageError

__all__ = ["FIELDS", "GATE", "KINDS", "KIND_OF", "Kind", "Wanted", "checked"]

Kind = Literal["pod", "indexed-job", "jobset", "leaderworkerset"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of jobs as `--for` names them."""
KIND_OF: Mapping[str, Kind] = {
    "Pod": "pod",
    "Job": "indexed-job",
    "JobSet": "jobset",
    "LeaderWorkerSet": "leaderworkerset",
}
"""Kind of object -> the same as `--for` names it."""

GATE = "topocheck"
"""Name of the init container, and of its exit codes in a podFailurePolicy."""

EVERYWHERE = (
    ("NODE_NAME", "spec.nodeName"),
    ("POD_NAME", "metadata.name"),
    ("TOPOCHECK_NAMESPACE", "metadata.namespace"),
    ("TOPOCHECK_POD_UID", "metadata.uid"),
)
SET = "metadata.labels['jobset.sigs.k8s.io/{}']"
GROUP = "metadata.labels['leaderworkerset.sigs.k8s.io/{}']"
FIELDS: Mapping[Kind, Sequence[tuple[str, str]]] = {
    "pod": EVERYWHERE,
    "indexed-job": (
        *EVERYWHERE,
        ("JOB_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
        ("TOPOCHECK_JOB_NAME", "metadata.labels['batch.kubernetes.io/job-name']"),
    ),
    "jobset": (
        *EVERYWHERE,
        ("JOBSET_UID", SET.format("jobset-uid")),
        ("JOBSET_RESTART_ATTEMPT", SET.format("restart-attempt")),
        ("JOB_RESTART_ATTEMPT", SET.format("job-restart-attempt")),
        ("JOBSET_NAME", SET.format("jobset-name")),
        ("REPLICATED_JOB_NAME", SET.format("replicatedjob-name")),
        ("JOB_INDEX", SET.format("job-index")),
    ),
    "leaderworkerset": (
        *EVERYWHERE,
        ("TOPOCHECK_GROUP_KEY", GROUP.format("group-key")),
        ("TOPOCHECK_LEADER", "metadata.annotations['leaderworkerset.sigs.k8s.io/leader-name']"),
        ("LWS_NAME", GROUP.format("name")),
        ("LWS_GROUP_INDEX", GROUP.format("group-index")),
    ),
}
"""Variables that the downward API fills, by kind: `launchers.runid` makes the run's id of them, and
`gather.pod_owner` the owner of what gates leave.

A label that is absent gives an empty variable. Kubernetes sets JOB_COMPLETION_INDEX by itself, LWS
LWS_WORKER_INDEX, LWS_GROUP_SIZE and LWS_LEADER_ADDRESS, in init containers too (lws 060ab4da,
pkg/utils/pod/pod_utils.go; labels of JobSet: jobset 08dfbdfd, labelAndAnnotateObject). The Job's uid and
name are in these labels since Kubernetes 1.27.
"""

LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]{0,254}", re.ASCII)
RESOURCE = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9][\w.-]{0,62}", re.ASCII)
TOPOLOGY = re.compile(r"(?:[a-z0-9][a-z0-9.-]{0,252}/)?[A-Za-z0-9][\w.-]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a manifest is to hold. Text of it may come from anybody: it is checked, or quoted."""

    name: str
    """Name of the job and of what belongs to it; empty where the manifest's own is meant."""
    image: str
    """Image that has topocheck."""
    plan: str
    """Text of the plan file."""
    nodes: int
    """Pods of the job."""
    gpus: int
    """GPUs a pod."""
    main_image: str = "registry.example/engine:1"
    command: Sequence[str] = ()
    """What the main container runs."""
    resource: str = "nvidia.com/gpu"
    """Extended resource that stands for one GPU."""
    claim: str = "topocheck-gates"
    """Claim of the volume in which gates meet."""
    configmaps: bool = False
    """Gates meet in ConfigMaps of the job's namespace (`--store k8s:`), and no volume is needed."""
    topology: str | None = None
    """Label of nodes inside one value of which a whole group is to lie."""
    timeout_s: int = 300

    @property
    def alone(self) -> bool:
        """One pod has nobody to meet, and needs no store."""
        return self.nodes == 1

    @property
    def shares(self) -> bool:
        """Gates meet in ConfigMaps: their account has rights to them."""
        return self.configmaps and not self.alone

    def has_account(self, kind: Kind) -> bool:
        """The gate asks the API server for something."""
        return self.shares or kind == "leaderworkerset"


def checked(wanted: Wanted) -> Wanted:
    """The same. Raises UsageError for names that Kubernetes refuses."""
    for option, value, form, words in (
        ("--name", wanted.name, LABEL, "up to 40 of a-z, 0-9 and -"),
        ("--image", wanted.image, IMAGE, "an image: registry.example/topocheck:1"),
        ("--main-image", wanted.main_image, IMAGE, "an image: registry.example/engine:1"),
        ("--claim", wanted.claim, SUBDOMAIN, "the name of a PersistentVolumeClaim"),
        ("--gpu-resource", wanted.resource, RESOURCE, "a resource such as nvidia.com/gpu"),
        ("--topology", wanted.topology, TOPOLOGY, "a label of nodes such as cloud.example/nvlink-domain"),
    ):
        if value is not None and not form.fullmatch(value):
            raise UsageError(f"{option} {value[:80]!r}: expected {words}")
    for word in wanted.command:
        if "\0" in word or word != word.encode("utf-8", "replace").decode():
            raise UsageError(f"the command's word {word[:80]!r} is not UTF-8 text: no manifest can hold it")
    return wanted
