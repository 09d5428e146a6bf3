"""Values of NVSentinel's Helm chart that make topocheck one of its preflight checks.

Facts from NVSentinel (charts/preflight/values.yaml and templates/configmap.yaml, docs/designs/026 and 034,
read at de54af50 and 44b3ba48): a check is an entry of `preflight.initContainers`, an image as repository and
tag and else a container as Kubernetes has it; it ends with 0 passed, 1 failed, 2 configuration error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from topocheck.errors import UsageError
from topocheck.kubernetes.wanted import IMAGE
from topocheck.kubernetes.written import rendered

__all__ = ["FIELDS", "Check", "checked", "values"]

SET = "metadata.labels['jobset.sigs.k8s.io/{}']"
GROUP = "metadata.{}['leaderworkerset.sigs.k8s.io/{}']"
FIELDS: Sequence[tuple[str, str]] = (
    ("TOPOCHECK_POD_UID", "metadata.uid"),
    ("POD_IP", "status.podIP"),
    ("HOST_IP", "status.hostIP"),
    ("TOPOCHECK_CONTROLLER_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
    ("JOB_COMPLETION_INDEX", "metadata.labels['batch.kubernetes.io/job-completion-index']"),
    ("JOBSET_NAME", SET.format("jobset-name")),
    ("REPLICATED_JOB_NAME", SET.format("replicatedjob-name")),
    ("JOB_INDEX", SET.format("job-index")),
    ("LWS_NAME", GROUP.format("labels", "name")),
    ("LWS_GROUP_INDEX", GROUP.format("labels", "group-index")),
    ("LWS_WORKER_INDEX", GROUP.format("labels", "worker-index")),
    ("LWS_GROUP_SIZE", GROUP.format("annotations", "size")),
    ("VOLCANO_JOB_VERSION", "metadata.annotations['volcano.sh/job-version']"),
)
"""Variables that the downward API fills: a container that a webhook adds gets none of its job's controller.

What a pod does not have gives an empty variable, which is the same as none. The webhook sets NODE_NAME, and
in a gang POD_NAME. The uid of a Job is no id of a run here: a pod that the Job makes in place of another
would adopt the verdict of before.
"""
TAGGED = re.compile(r"(?P<repository>.+):(?P<tag>[\w][\w.-]{0,127})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What the values are to hold."""

    image: str
    timeout_s: int
    """How long a gate waits for the others once the gang is whole."""


def checked(check: Check) -> Check:
    """The same. Raises UsageError for an image that the chart cannot name: it joins repository and tag."""
    found = TAGGED.fullmatch(check.image)
    if not IMAGE.fullmatch(check.image) or found is None or "/" in found["tag"]:
        raise UsageError(
            f"--image {check.image[:80]!r}: expected an image with its tag: registry.example/topocheck:1"
        )
    return check


def values(check: Check) -> str:
    """Values for `helm upgrade -f`."""
    repository, _, tag = check.image.rpartition(":")
    return rendered("preflight", repository=repository, tag=tag, timeout_s=check.timeout_s, fields=FIELDS)
