"""What each launcher family's variables claim."""

from __future__ import annotations

import pytest
from environments import RECORDED, environment
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.launchers import LAUNCHERS, Claim, claims
from topocheck.launchers.allowed import VARIABLES
from topocheck.launchers.launcher import NoteKind
from topocheck.launchers.pod import pod_variables

FAMILIES = {
    "torchrun": Claim(family="torchrun", rank=6, local_rank=2, node_rank=1, size=8, local_size=4, nodes=2),
    "deepspeed": Claim(family="deepspeed", rank=6, local_rank=2, node_rank=1, size=10, local_size=4, nodes=2),
    "script": Claim(family="script", rank=3, local_rank=1, node_rank=1, size=4, local_size=2),
    "openmpi": Claim(family="openmpi", rank=3, local_rank=1, size=5, local_size=3, node_name="bolt-2"),
    "mpich": Claim(family="mpich", rank=2, local_rank=0, size=4, local_size=2, node_name="bolt-2"),
    "mpich-port": Claim(family="mpich", rank=1, local_rank=0, local_size=1, node_name="bolt-2"),
    "intel_mpi": Claim(family="intel_mpi", rank=13, local_rank=5, size=16, local_size=8),
    "mvapich2": Claim(family="mvapich2", rank=7, local_rank=3, size=8, local_size=4),
    "pals": Claim(family="pals", rank=14, local_rank=2, node_rank=3, size=16),
    "pmix": Claim(family="pmix", rank=5, node_name="bolt-9", world="slurm.pmix.77.0"),
    "slurm-step": Claim(
        family="slurm",
        rank=4,
        local_rank=1,
        node_rank=1,
        size=7,
        local_size=2,
        nodes=3,
        node_name="gpu-a08",
    ),
    "kubeflow_pytorchjob": Claim(
        family="kubeflow_pytorchjob", level="pod", node_rank=2, nodes=3, local_size=8
    ),
    "kubeflow_trainer": Claim(family="kubeflow_trainer", level="pod", node_rank=3, nodes=4),
    "indexed_job": Claim(family="indexed_job", level="pod", node_rank=4),
    "jobset": Claim(family="jobset", level="pod", node_rank=2, world="moe-workers-1"),
    "lws": Claim(family="lws", level="pod", node_rank=2, nodes=4, world="serve-1"),
    "sagemaker": Claim(
        family="sagemaker", level="node", node_rank=1, nodes=3, local_size=8, node_name="algo-2"
    ),
}


def of(env: dict[str, str], family: str) -> Claim:
    """The claim of one family, which must be there."""
    return next(claim for claim in claims(env) if claim.family == family)


def kinds(claim: Claim) -> list[NoteKind]:
    return [note.kind for note in claim.notes]


@pytest.mark.parametrize(("name", "expected"), FAMILIES.items(), ids=FAMILIES)
def test_a_recorded_environment_is_claimed_as_its_launcher_meant_it(name: str, expected: Claim) -> None:
    assert of(environment(name), expected.family) == expected


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.env")), ids=lambda path: path.stem)
def test_a_recorded_environment_is_claimed_by_no_family_that_is_not_in_it(path: object) -> None:
    name = getattr(path, "stem", "")
    also = {
        "openmpi": {"openmpi", "pmix"},
        "slurm-pmi2": {"slurm", "pmi"},
        "kubeflow_trainer": {"kubeflow_trainer", "torchrun", "indexed_job"},
    }
    family = name if name in LAUNCHERS else name.split("-")[0]
    assert {claim.family for claim in claims(environment(name))} == also.get(name, {family})


def test_every_family_has_a_recorded_environment() -> None:
    seen = {claim.family for path in RECORDED.glob("*.env") for claim in claims(environment(path.stem))}
    assert seen == set(LAUNCHERS)


def test_an_empty_environment_claims_nothing() -> None:
    assert claims({"PATH": "/usr/bin", "HOME": "/root"}) == []


def test_the_batch_script_of_slurm_claims_no_rank() -> None:
    claim = of(environment("slurm-batch"), "slurm")
    assert (claim.rank, claim.local_rank, claim.size, claim.node_rank) == (None, None, None, None)
    assert claim.node_name == "gpu-a07"
    assert kinds(claim) == ["leaked"]


@pytest.mark.parametrize("step", ["batch", "extern", "4294967291", "4294967292", "4294967290", "x"])
def test_steps_that_srun_did_not_start_are_leaks(step: str) -> None:
    claim = of(environment("slurm-batch") | {"SLURM_STEP_ID": step}, "slurm")
    assert claim.rank is None
    assert "leaked" in kinds(claim)


def test_slurms_tasks_here_come_from_the_list_of_task_ids_where_no_counts_are() -> None:
    env = environment("slurm-step")
    del env["SLURM_STEP_TASKS_PER_NODE"]
    assert of(env, "slurm").local_size == 2


def test_slurms_two_counts_of_tasks_here_that_differ_are_told() -> None:
    claim = of(environment("slurm-step") | {"SLURM_GTIDS": "1,4,6"}, "slurm")
    assert kinds(claim) == ["contradictory"]


@pytest.mark.parametrize("value", ["", "x", "-1", "1.0", "0x1", "1e3", " 1", "٣", "9" * 40, "None", "1\n"])
@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("torchrun", "RANK"),
        ("slurm-step", "SLURM_PROCID"),
        ("openmpi", "OMPI_COMM_WORLD_RANK"),
        ("mpich", "PMI_RANK"),
        ("deepspeed", "RANK"),
        ("script", "RANK"),
        ("pmix", "PMIX_RANK"),
        ("mvapich2", "MV2_COMM_WORLD_RANK"),
    ],
)
def test_a_rank_that_is_no_number_is_named_and_not_guessed(name: str, variable: str, value: str) -> None:
    family = FAMILIES[name].family
    claim = of(environment(name) | {variable: value}, family)
    assert claim.rank is None
    assert [note.variable for note in claim.notes if note.kind == "malformed"] == [variable]
    assert claim.local_rank == FAMILIES[name].local_rank


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("torchrun", "RANK", "8"),
        ("torchrun", "LOCAL_RANK", "4"),
        ("torchrun", "GROUP_RANK", "2"),
        ("openmpi", "OMPI_COMM_WORLD_RANK", "5"),
        ("slurm-step", "SLURM_LOCALID", "2"),
        ("lws", "LWS_WORKER_INDEX", "4"),
        ("sagemaker", "SM_CURRENT_HOST", "algo-9"),
        ("pals", "PALS_RANKID", "13"),
        ("kubeflow_trainer", "JOB_COMPLETION_INDEX", "1"),
        ("lws", "LWS_GROUP_INDEX", "0"),
    ],
)
def test_numbers_that_exclude_each_other_are_told(name: str, variable: str, value: str) -> None:
    claim = of(environment(name) | {variable: value}, FAMILIES[name].family)
    assert "contradictory" in kinds(claim)


def test_a_torchrun_rank_that_does_not_follow_from_its_local_rank_is_told() -> None:
    env = environment("torchrun")
    assert "contradictory" in kinds(of(env | {"RANK": "5"}, "torchrun"))
    assert "contradictory" in kinds(of(env | {"GROUP_RANK": "0"}, "torchrun"))


def test_unequal_nodes_in_the_middle_of_a_torchrun_job_are_no_contradiction() -> None:
    env = environment("torchrun") | {
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
        "WORLD_SIZE": "9",
        "RANK": "4",
        "LOCAL_RANK": "2",
    }
    assert kinds(of(env, "torchrun")) == []  # nodes of 2, 3 and 4


def test_virtual_local_ranks_of_torchrun_are_recognised() -> None:
    env = environment("torchrun") | {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "2"}
    assert kinds(of(env, "torchrun")) == ["devices"]


def test_a_restarted_torchrun_job_may_have_other_node_ranks() -> None:
    assert kinds(of(environment("torchrun") | {"TORCHELASTIC_RESTART_COUNT": "1"}, "torchrun")) == ["elastic"]


def test_torchruns_options_from_the_environment_name_the_agent() -> None:
    env = {"PET_NODE_RANK": "1", "PET_NNODES": "2:4", "PET_NPROC_PER_NODE": "gpu"}
    claim = of(env, "torchrun")
    assert (claim.level, claim.node_rank, claim.nodes, claim.local_size) == ("node", 1, None, None)
    assert kinds(claim) == ["elastic"]
    assert of(env | {"PET_NNODES": "4:4"}, "torchrun").nodes == 4
    assert kinds(of(env | {"PET_NNODES": "a:b"}, "torchrun")) == ["malformed"]


def test_rank_without_local_rank_counts_nodes_until_more_is_known() -> None:
    claim = of({"RANK": "1", "WORLD_SIZE": "2"}, "script")
    assert (claim.level, claim.rank, claim.node_rank, claim.nodes) == ("node", None, 1, 2)
    assert kinds(claim) == ["incomplete"]


def test_torchrun_in_a_pytorchjob_leaves_nothing_of_the_pods_rank() -> None:
    env = environment("kubeflow_pytorchjob") | environment("torchrun")
    assert [claim.family for claim in claims(env)] == ["torchrun"]


def test_the_group_of_a_leader_worker_set_comes_from_the_leader_or_from_the_label() -> None:
    env = environment("lws")
    del env["LWS_LEADER_ADDRESS"]
    assert kinds(of(env, "lws")) == ["incomplete"]
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": "1",
        "app": "x",
    }
    assert of(env | pod_variables(labels), "lws").world == "serve-1"


def test_a_jobset_without_its_job_index_says_so() -> None:
    env = environment("jobset")
    del env["JOB_INDEX"]
    claim = of(env, "jobset")
    assert (claim.world, kinds(claim)) == ("moe-workers", ["incomplete"])


def test_labels_make_a_jobset_of_an_indexed_job() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "moe", "jobset.sigs.k8s.io/job-global-index": "5"}
    env = environment("indexed_job") | pod_variables(labels)
    assert of(env, "jobset").world == "moe-5"


def test_ray_says_what_it_did_to_the_devices() -> None:
    narrowed = of(environment("ray"), "ray")
    left = of(environment("ray") | {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}, "ray")
    assert narrowed.rank is None
    assert "narrows" in narrowed.notes[0].text
    assert "leaves" in left.notes[0].text


@pytest.mark.parametrize("hosts", ["", "[", '{"a": 1}', '["a", 2]', "[" * 100_000])
def test_a_host_list_of_sagemaker_that_is_none_is_named(hosts: str) -> None:
    claim = of(environment("sagemaker") | {"SM_HOSTS": hosts}, "sagemaker")
    assert (claim.node_rank, claim.nodes, kinds(claim)) == (None, None, ["malformed"])


def test_the_launcher_pod_of_an_mpijob_has_no_gpu_and_no_rank() -> None:
    claim = of(environment("mpijob"), "mpijob")
    assert (claim.level, claim.rank, claim.local_size, kinds(claim)) == ("pod", None, 8, ["devices"])


values = st.one_of(
    st.integers(0, 40).map(str),
    st.sampled_from(["", "-1", "8(x2),4", "8(x", "a:b", "2:4", '["a"]', "auto", "x-1.y.z", "batch", "0"]),
    st.text(max_size=12),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(VARIABLES)), values, max_size=30))
def test_no_environment_breaks_a_claim_and_every_number_stands_in_a_variable(env: dict[str, str]) -> None:
    for claim in claims(env):
        assert claim.family in LAUNCHERS
        numbers = (claim.rank, claim.local_rank, claim.size)
        if claim.level != "process":
            assert numbers == (None, None, None)
        assert all(number is None or number >= 0 for number in numbers)
        assert all(
            number is None or str(number) in {v.lstrip("0") or "0" for v in env.values()}
            for number in numbers
        )


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.data())
def test_a_broken_value_never_becomes_another_number(name: str, data: st.DataObject) -> None:
    env = environment(name)
    variable = data.draw(st.sampled_from(sorted(env)))
    whole = of(env, FAMILIES[name].family)
    for claim in claims(env | {variable: "broken"}):
        if claim.family == whole.family and claim.level == whole.level:
            assert claim.rank in (None, whole.rank)
            assert claim.local_rank in (None, whole.local_rank)
            assert claim.node_rank in (None, whole.node_rank)
            assert claim.size in (None, whole.size)
