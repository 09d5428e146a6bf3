"""A process names its world where its environment shows it, and only there."""

from __future__ import annotations

import pytest

from topocheck.probes.node.ranks import claim
from topocheck.probes.node.visibility import Visible

FOUR = Visible((0, 1, 2, 3))
RANK = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "0",
    "TORCHELASTIC_RUN_ID": "r",
}
REPLICA = {"VLLM_DP_RANK": "1", "VLLM_DP_SIZE": "2", "VLLM_DP_RANK_LOCAL": "1"}
PODS = {"LWS_WORKER_INDEX": "1", "LWS_GROUP_SIZE": "2", "LWS_LEADER_ADDRESS": "serve-3.serve.prod"}
CHILD = {
    "JOB_COMPLETION_INDEX": "1",
    "JOBSET_NAME": "train",
    "REPLICATED_JOB_NAME": "workers",
    "JOB_INDEX": "2",
}


def world(env: dict[str, str]) -> str | None:
    found = claim(env, FOUR, name="this process").rank
    return None if found is None else found.world


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, ""),
        (REPLICA, "dp1"),
        (REPLICA | {"VLLM_DP_RANK": "07"}, "dp7"),
        (REPLICA | {"VLLM_DP_SIZE": "1"}, ""),
        (REPLICA | {"VLLM_DP_RANK": "-1"}, ""),
        (REPLICA | {"VLLM_DP_RANK": "1" * 5000}, ""),
        ({"VLLM_DP_RANK": "1"}, ""),
        (PODS, "serve-3"),
        (CHILD, "train-workers-2"),
        (PODS | REPLICA, "dp1"),
        ({"JOB_COMPLETION_INDEX": "1"}, ""),
    ],
)
def test_the_world_is_that_of_the_environment(env: dict[str, str], name: str) -> None:
    assert world(RANK | env) == name


def test_a_process_without_a_rank_claims_no_world() -> None:
    assert world(REPLICA) is None
