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


def test_pods_give_the_uid_of_their_group_and_its_restart() -> None:
    env = {"LWS_GROUP_SIZE": "2", "TOPOCHECK_GROUP_UID": "1b4e28ba-2fa1", "TOPOCHECK_LEADER_UID": "99c3"}
    assert run_of(env).id == "1b4e28ba-2fa1-99c3"
    assert run_of(env).nodes == 2
    job = {"JOB_UID": "aa11", "JOB_COMPLETIONS": "4", "JOB_RESTART_ATTEMPT": "3"}
    assert (run_of(job).id, run_of(job).nodes) == ("aa11-3", 4)


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


@given(st.dictionaries(st.sampled_from(sorted(SLURM)), st.text(max_size=20)))
def test_any_values_give_an_id_that_names_a_file_or_none(env: dict[str, str]) -> None:
    found = run_of(env).id
    assert found is None or NAME.fullmatch(found)
