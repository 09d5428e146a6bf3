"""Labels of a pod, as the variables that the pod itself would see."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["pod_variables"]

VARIABLES = {
    "leaderworkerset.sigs.k8s.io/name": "LWS_NAME",
    "leaderworkerset.sigs.k8s.io/group-index": "LWS_GROUP_INDEX",
    "leaderworkerset.sigs.k8s.io/worker-index": "LWS_WORKER_INDEX",
    "leaderworkerset.sigs.k8s.io/size": "LWS_GROUP_SIZE",
    "jobset.sigs.k8s.io/jobset-name": "JOBSET_NAME",
    "jobset.sigs.k8s.io/replicatedjob-name": "REPLICATED_JOB_NAME",
    "jobset.sigs.k8s.io/job-index": "JOB_INDEX",
    "jobset.sigs.k8s.io/job-global-index": "JOB_GLOBAL_INDEX",
    "batch.kubernetes.io/job-completion-index": "JOB_COMPLETION_INDEX",
}


def pod_variables(labels: Mapping[str, str]) -> dict[str, str]:
    """What labels and annotations of a pod say about its index, for `claims({**env, **pod_variables(...)})`.

    Several of these indexes are in no variable of the container: the group of a LeaderWorkerSet and the
    job of a JobSet.
    """
    return {variable: labels[label] for label, variable in VARIABLES.items() if label in labels}
