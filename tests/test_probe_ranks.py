"""What a process claims by its environment, and what of it may leave the machine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.launchers import LAUNCHERS
from topocheck.probes.node.ranks import claim, job_variables, local_rank, scrubbed
from topocheck.probes.node.visibility import Visible
from topocheck.snapshot import NodeClaim, RankClaim

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "77",
    "RANK": "6",
    "LOCAL_RANK": "2",
    "GROUP_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_WORLD_SIZE": "2",
}
SRUN = {
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "2",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_NNODES": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}
ONE_TASK = SRUN | {
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
LWS = {
    "LWS_WORKER_INDEX": "1",
    "LWS_GROUP_SIZE": "2",
    "LWS_LEADER_ADDRESS": "serve-3.serve.prod",
}
FOUR = Visible((3, 2, 1, 0))
UNKNOWN = Visible(None, "the node's GPUs are not known")


def test_the_gpu_of_a_rank_is_the_device_of_its_local_rank() -> None:
    claimed = claim(TORCHRUN, FOUR, name="this process", pid=41)
    assert claimed.rank == RankClaim(
        rank=6, size=8, local_rank=2, node_rank=1, gpu=1, pid=41, family="torchrun"
    )
    assert (claimed.node, claimed.whole, claimed.faults) == (None, False, ())


def test_tasks_of_srun_claim_as_srun_counts() -> None:
    claimed = claim(SRUN, FOUR, name="this process").rank
    assert claimed == RankClaim(rank=6, size=8, local_rank=2, node_rank=1, gpu=1, family="slurm")


def test_one_visible_device_is_the_one_that_it_uses() -> None:
    """A launcher narrows the devices of each task to one, whatever the local rank is."""
    claimed = claim(TORCHRUN, Visible((3,)), name="this process").rank
    assert claimed is not None
    assert claimed.gpu == 3


@pytest.mark.parametrize(
    ("visible", "reason"),
    [
        (UNKNOWN, "the node's GPUs are not known"),
        (Visible(()), "local rank 2 has no device: 0 are visible"),
        (Visible((0, 1), "'x' is no device"), "local rank 2 has no device: 2 are visible ('x' is no device)"),
    ],
)
def test_a_gpu_that_cannot_be_told_has_its_reason(visible: Visible, reason: str) -> None:
    claimed = claim(TORCHRUN, visible, name="this process")
    assert claimed.rank is not None
    assert claimed.rank.gpu is None
    (fault,) = claimed.faults
    assert (fault.part, fault.kind, fault.path) == ("ranks", "not-supported", "GPU of this process")
    assert fault.reason == reason


def test_a_rank_without_a_local_rank_has_no_device() -> None:
    claimed = claim({"PMIX_RANK": "1", "PMIX_NAMESPACE": "job"}, FOUR, name="this process")
    assert claimed.rank is not None
    assert claimed.rank.gpu is None
    assert claimed.faults[0].reason == "pmix gives no local rank, and 4 devices are visible"


@pytest.mark.parametrize("visible", [FOUR, UNKNOWN, Visible(())])
def test_one_task_a_node_of_several_gpus_numbers_nodes(visible: Visible) -> None:
    """`srun --ntasks-per-node=1 topocheck probe` is no job of one rank a node."""
    claimed = claim(ONE_TASK, visible, name="this process")
    assert claimed.rank is None
    assert claimed.node == NodeClaim(node_rank=1, nodes=2, local_size=1, family="slurm")
    assert claimed.faults[0].reason.startswith("slurm started one process on this node, which has ")


def test_one_task_a_node_of_one_gpu_is_a_rank() -> None:
    claimed = claim(ONE_TASK, Visible((0,)), name="this process")
    assert claimed.rank == RankClaim(rank=1, size=2, local_rank=0, node_rank=1, gpu=0, family="slurm")
    assert claimed.whole


def test_a_pods_index_is_no_rank_and_counts_in_its_group() -> None:
    claimed = claim(LWS, FOUR, name="this process")
    assert claimed.rank is None
    assert claimed.node == NodeClaim(node_rank=1, nodes=2, world="serve-3", family="lws")
    assert claimed.faults == ()


def test_the_index_of_the_pod_stands_beside_a_rank_that_has_no_node_rank() -> None:
    script = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8"}
    claimed = claim(LWS | script, FOUR, name="this process")
    assert claimed.rank is not None
    assert (claimed.rank.family, claimed.rank.node_rank) == ("script", None)
    assert claimed.node is not None
    assert claimed.node.node_rank == 1


def test_launchers_that_disagree_about_one_process_are_told() -> None:
    script = {"RANK": "3", "LOCAL_RANK": "2", "WORLD_SIZE": "8"}
    claimed = claim(SRUN | script, FOUR, name="process 12", pid=12)
    (odd,) = claimed.disagreements
    assert (odd.variable, odd.value, odd.other_variable, odd.other_value) == ("RANK", 3, "SLURM_PROCID", 6)
    assert odd.pid == 12
    assert claimed.faults == ()


def test_a_launcher_of_another_world_numbers_something_else() -> None:
    """One task a node runs a script that starts four processes by hand."""
    script = {"RANK": "6", "LOCAL_RANK": "2", "WORLD_SIZE": "8"}
    claimed = claim(ONE_TASK | script, FOUR, name="this process")
    assert (claimed.faults, claimed.disagreements) == ((), ())


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        (TORCHRUN | {"RANK": "six"}, "broken"),
        ({name: text for name, text in TORCHRUN.items() if name != "RANK"}, "absent"),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, "absent"),
    ],
)
def test_numbers_that_are_none_are_faults(env: dict[str, str], kind: str) -> None:
    claimed = claim(env, FOUR, name="this process")
    assert claimed.rank is None
    assert [fault.kind for fault in claimed.faults] == [kind]


def test_the_local_rank_is_the_chosen_launchers() -> None:
    assert local_rank(TORCHRUN | ONE_TASK) == 2
    assert local_rank({}) is None


SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-geheim",
    "HF_TOKEN": "hf_geheim",
    "WANDB_API_KEY": "geheim",
    "NCCL_AUTH_TOKEN": "geheim",
    "MASTER_ADDR": "tcp://user:geheim@gpu-1:29500",
    "PET_RDZV_CONF": "timeout=900,password=geheim",
    "NCCL_PROXY": "http://geheim@proxy/",
}


def test_no_secret_leaves_the_process() -> None:
    variables, faults = job_variables(TORCHRUN | SECRETS)
    assert faults == ()
    assert "geheim" not in repr(variables)
    assert variables["MASTER_ADDR"] == "tcp://***@gpu-1:29500"
    assert variables["PET_RDZV_CONF"] == "timeout=900,password=***"
    assert set(variables) == {
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "NCCL_PROXY",
        "PET_RDZV_CONF",
        "TORCHELASTIC_RUN_ID",
        "WORLD_SIZE",
    }


def test_processes_of_one_node_share_their_variables_byte_by_byte() -> None:
    """What numbers a process is in its claim and nowhere else."""
    other = TORCHRUN | {"RANK": "7", "LOCAL_RANK": "3"}
    assert list(job_variables(TORCHRUN)[0].items()) == list(job_variables(other)[0].items())


@pytest.mark.parametrize(
    "env", [{}, {"HOSTNAME": "gpu-1"}, {"NVIDIA_VISIBLE_DEVICES": "all", "NCCL_VERSION": "2.27.5"}]
)
def test_a_shell_without_a_job_says_nothing_about_the_job(env: dict[str, str]) -> None:
    """Otherwise what is not set in it would pass for unset in the job."""
    variables, (fault,) = job_variables(env)
    assert variables == {}
    assert (fault.part, fault.kind) == ("environment", "absent")
    assert job_variables(env, asked=True) == (
        {name: text for name, text in sorted(env.items())},  # noqa: C416 - the order is the point
        (),
    )


def test_what_a_library_reads_speaks_of_a_job() -> None:
    assert job_variables({"NCCL_P2P_DISABLE": "1"}) == ({"NCCL_P2P_DISABLE": "1"}, ())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("mlx5_0:1,mlx5_1:1", "mlx5_0:1,mlx5_1:1"),
        ("https://gpu-1:8443/a", "https://gpu-1:8443/a"),
        ("https://a:b@c@gpu-1/", "https://***@gpu-1/"),
        ("x=1;api_key=abc;y=2", "x=1;api_key=***;y=2"),
        ("TOKEN:abc", "TOKEN:***"),
        ("user@gpu-1", "user@gpu-1"),
    ],
)
def test_values_lose_passwords_and_nothing_else(value: str, expected: str) -> None:
    assert scrubbed(value) == expected


EVERY = sorted({name for launcher in LAUNCHERS.values() for name in launcher.variables})


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(EVERY),
        st.one_of(st.integers(-2, 9).map(str), st.text(max_size=8), st.sampled_from(["1(x2)", "0,1", "2:4"])),
        max_size=12,
    ),
    st.sampled_from([FOUR, UNKNOWN, Visible(()), Visible((0,))]),
)
def test_any_environment_is_a_claim_or_says_why_not(env: dict[str, str], visible: Visible) -> None:
    claimed = claim(env, visible, name="this process")
    if claimed.rank is not None:
        assert claimed.rank.rank >= 0
        assert claimed.rank.gpu is None or claimed.rank.gpu in (visible.gpus or ())
        assert claimed.rank.gpu is not None or claimed.faults
    job_variables(env)
