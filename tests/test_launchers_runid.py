"""The id of a launch is the launcher's own, changes with a restart, and names a file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topocheck.errors import UsageError
from topocheck.launchers.runid import NAME, checked_id, run_of

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "2",
    "SLURM_CLUSTER_NAME": "blue",
    "SLURM_JOB_NUM_NODES": "16",
}


def test_slurm_gives_cluster_job_step_and_restart() -> None:
    found = run_of(SLURM)
    assert (found.id, found.nodes) == ("blue-4711.2-r0", 16)
    assert run_of(SLURM | {"SLURM_RESTART_COUNT": "1"}).id == "blue-4711.2-r1"


def test_a_job_gives_its_uid_and_a_jobset_its_restarts_too() -> None:
    assert run_of({"JOB_UID": "aa11", "JOB_COMPLETION_INDEX": "3"}).id == "aa11"
    jobset = {"JOBSET_UID": "bb22", "JOB_UID": "aa11", "JOBSET_RESTART_ATTEMPT": "2"}
    assert run_of(jobset).id == "bb22-r2"
    assert run_of(jobset | {"JOB_RESTART_ATTEMPT": "2"}).id == "bb22-r2"  # restarts of all count in it too
    assert run_of(jobset | {"JOB_RESTART_ATTEMPT": ""}).id == "bb22-r2"  # a label that is absent


def test_a_job_of_a_jobset_that_was_restarted_alone_has_no_id_that_the_others_have() -> None:
    env = {"JOBSET_UID": "bb22", "JOBSET_RESTART_ATTEMPT": "1", "JOB_RESTART_ATTEMPT": "2"}
    assert run_of(env).id is None
    with pytest.raises(UsageError, match="restarted without the others"):
        checked_id(None, env)
    assert checked_id("mine-7", env)[0] == "mine-7"


def test_a_group_of_pods_goes_by_its_leaders_uid_and_by_nothing_else() -> None:
    env = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1", "TOPOCHECK_POD_UID": "77"}
    assert run_of(env).id is None
    found = run_of(env | {"TOPOCHECK_LEADER_UID": "99c3"})
    assert (found.id, found.nodes) == ("99c3", 2)


def test_a_pod_alone_goes_by_its_own_uid_and_a_pod_of_a_job_does_not() -> None:
    assert run_of({"TOPOCHECK_POD_UID": "77"}).id == "77"
    assert run_of({"TOPOCHECK_POD_UID": "77", "JOB_COMPLETION_INDEX": "0"}).id is None


def test_torchruns_own_default_is_no_id() -> None:
    assert run_of({"TORCHELASTIC_RUN_ID": "none"}).id is None
    assert run_of({"TORCHELASTIC_RUN_ID": "train-7", "TORCHELASTIC_RESTART_COUNT": "2"}).id == "train-7-2"


@pytest.mark.parametrize("given_id", ["none", "NONE", "default", "0"])
def test_a_constant_is_refused(given_id: str) -> None:
    with pytest.raises(UsageError, match="the same in every launch"):
        checked_id(given_id, {})


@pytest.mark.parametrize("given_id", ["../../etc", "a/b", ".hidden", "", "a b", "x" * 201, "a\n", "\u202e"])
def test_a_path_in_an_id_is_refused(given_id: str) -> None:
    with pytest.raises(UsageError, match="names a file"):
        checked_id(given_id, {})


def test_without_any_id_the_way_out_is_said() -> None:
    with pytest.raises(UsageError, match="give --run-id"):
        checked_id(None, {})


def test_the_option_goes_before_the_launcher() -> None:
    assert checked_id("mine-1", SLURM) == ("mine-1", "--run-id")


@pytest.mark.parametrize("given_id", [None, "mine-1"])
def test_workers_that_torchrun_started_again_are_another_launch(given_id: str | None) -> None:
    first, _ = checked_id(given_id, SLURM | {"TORCHELASTIC_RESTART_COUNT": "0"})
    second, _ = checked_id(given_id, SLURM | {"TORCHELASTIC_RESTART_COUNT": "1"})
    assert first == checked_id(given_id, SLURM)[0]
    assert second == f"{first}-e1"


def test_empty_variables_of_slurm_are_not_set() -> None:
    assert run_of(SLURM | {"SLURM_CLUSTER_NAME": "", "SLURM_RESTART_COUNT": ""}).id == "slurm-4711.2-r0"


@given(st.dictionaries(st.sampled_from(sorted(SLURM)), st.text(max_size=20)))
def test_any_values_give_an_id_that_names_a_file_or_none(env: dict[str, str]) -> None:
    found = run_of(env).id
    assert found is None or NAME.fullmatch(found)
