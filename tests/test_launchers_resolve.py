"""Which launcher's numbers count, by engine, when several are present."""

from __future__ import annotations

import itertools

import pytest
from environments import RECORDED, environment
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.engines import ENGINES
from topocheck.launchers import claims
from topocheck.launchers.resolve import READS, Disagreement, Resolution, resolve

NAMES = sorted(path.stem for path in RECORDED.glob("*.env"))


def merged(*names: str) -> dict[str, str]:
    """Recorded environments over each other, the last one innermost."""
    return dict(itertools.chain.from_iterable(environment(name).items() for name in names))


def family(resolution: Resolution) -> str | None:
    """Family of the chosen claim."""
    return resolution.chosen.family if resolution.chosen else None


def test_every_engine_has_a_source_of_its_ranks() -> None:
    assert set(READS) == set(ENGINES)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("name", NAMES)
def test_engines_with_a_node_rank_of_their_own_take_no_rank_from_any_launcher(engine: str, name: str) -> None:
    resolution = resolve(environment(name), engine)
    assert resolution.chosen is None
    assert resolution.disagreements == ()


def test_vllms_external_launcher_takes_rank_and_local_rank() -> None:
    assert family(resolve(environment("torchrun"), "vllm", external_launcher=True)) == "torchrun"


def test_tensorrt_llm_goes_by_the_communicator_and_not_by_rank() -> None:
    env = merged("openmpi") | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    resolution = resolve(env, "tensorrt_llm")
    assert family(resolution) == "openmpi"
    assert resolution.disagreements == ()
    assert resolve(env | {"TLLM_DISABLE_MPI": "1"}, "tensorrt_llm").chosen is None


def test_a_step_of_slurm_without_pmi_is_no_communicator() -> None:
    assert resolve(environment("slurm-step"), "tensorrt_llm").chosen is None
    assert family(resolve(environment("slurm-pmi2"), "tensorrt_llm")) == "slurm"


@pytest.mark.parametrize(
    "outer", ["slurm-step", "slurm-batch", "openmpi", "mpich", "kubeflow_trainer", "lws"]
)
def test_torchrun_wins_whole_over_what_started_its_agents(outer: str) -> None:
    resolution = resolve(merged(outer, "torchrun"), "megatron")
    assert resolution.chosen is not None
    assert resolution.chosen.family == "torchrun"
    assert resolution.disagreements == ()


def test_an_agent_on_each_task_multiplies_processes() -> None:
    env = merged("slurm-step", "torchrun")
    resolution = resolve(env, "torch")
    assert [claim.family for claim in resolution.outer] == ["slurm"]
    assert resolution.processes_here == 2 * 4
    assert resolve(merged("slurm-batch", "torchrun"), "torch").processes_here is None


def test_mpirun_in_a_slurm_job_wins_over_the_step_of_its_daemons() -> None:
    resolution = resolve(merged("slurm-step", "openmpi"), "torch")
    assert family(resolution) == "openmpi"
    assert [claim.family for claim in resolution.outer] == ["slurm"]
    assert resolution.disagreements == ()


def test_one_process_a_node_under_daemons_in_another_order_is_no_disagreement() -> None:
    env = merged("slurm-pmi2", "openmpi") | {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}
    resolution = resolve({name: env[name] for name in env if not name.startswith("PM")}, "torch")
    assert family(resolution) == "openmpi"
    assert resolution.disagreements == ()


def test_the_leak_of_a_batch_script_is_no_disagreement() -> None:
    resolution = resolve(merged("slurm-batch", "openmpi"), "torch")
    assert family(resolution) == "openmpi"
    assert resolution.disagreements == ()
    leaked = [note.kind for claim in resolution.others for note in claim.notes]
    assert leaked == ["leaked"]


def test_a_batch_script_alone_gives_no_rank_and_no_node() -> None:
    resolution = resolve(environment("slurm-batch"), "megatron")
    assert resolution.chosen is None
    assert resolution.node is None


def test_ranks_exported_once_in_the_batch_script_disagree_with_the_step() -> None:
    env = environment("slurm-step") | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "7"}
    assert resolve(env, "torch").disagreements == (
        Disagreement("rank", "script", 0, "slurm", 4),
        Disagreement("local_rank", "script", 0, "slurm", 1),
    )


def test_a_script_that_hands_on_slurms_numbers_agrees_with_them() -> None:
    env = environment("slurm-step") | {"RANK": "4", "LOCAL_RANK": "1", "WORLD_SIZE": "7"}
    resolution = resolve(env, "torch")
    assert family(resolution) == "script"
    assert resolution.disagreements == ()


def test_slurm_speaks_for_the_pmi_that_it_offers() -> None:
    resolution = resolve(environment("slurm-pmi2"), "torch")
    assert resolution.chosen is not None
    assert (resolution.chosen.family, resolution.chosen.local_rank) == ("slurm", 1)


def test_a_pmi_rank_that_is_not_slurms_is_reported() -> None:
    resolution = resolve(environment("slurm-pmi2") | {"PMI_RANK": "1"}, "torch")
    assert family(resolution) == "pmi"
    assert resolution.disagreements == (Disagreement("rank", "pmi", 1, "slurm", 3),)


def test_a_step_of_one_task_ranks_nobody() -> None:
    env = environment("slurm-step") | {
        "SLURM_STEP_NUM_TASKS": "1",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "1",
        "SLURM_GTIDS": "0",
    }
    assert resolve(env, "torch").chosen is None


def test_a_broken_rank_is_not_replaced_by_another_family() -> None:
    resolution = resolve(merged("slurm-step", "torchrun") | {"RANK": "six"}, "torch")
    assert resolution.chosen is not None
    assert resolution.chosen.rank is None
    assert [note.variable for note in resolution.chosen.notes] == ["RANK"]


def test_a_pods_index_is_a_node_and_never_a_rank() -> None:
    for name in ("kubeflow_pytorchjob", "kubeflow_trainer", "indexed_job", "jobset", "lws", "sagemaker"):
        resolution = resolve(environment(name), "torch")
        assert resolution.chosen is None
        assert resolution.node is not None
        assert resolution.node.node_rank == next(
            claim.node_rank for claim in claims(environment(name)) if claim.family == resolution.node.family
        )


def test_an_agents_node_comes_before_that_of_what_started_it() -> None:
    assert resolve(merged("lws", "torchrun"), "torch").node == resolve(merged("torchrun"), "torch").chosen
    node = resolve(environment("lws") | environment("slurm-step"), "vllm").node
    assert node is not None
    assert node.family == "lws"


def test_deepspeed_asks_mpi_where_a_variable_of_its_own_is_missing() -> None:
    env = merged("openmpi", "deepspeed")
    assert family(resolve(env, "deepspeed")) == "deepspeed"
    del env["MASTER_ADDR"]
    assert family(resolve(env, "deepspeed")) == "openmpi"
    assert family(resolve(environment("slurm-step"), "deepspeed")) == "slurm"


def test_ray_gives_no_rank() -> None:
    assert resolve(environment("ray"), "torch").chosen is None
    with_train = environment("ray") | environment("script")
    assert family(resolve(with_train, "torch")) == "script"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(NAMES), max_size=4),
    st.sampled_from([None, "my-engine", *READS]),
    st.dictionaries(
        st.sampled_from(["RANK", "LOCAL_RANK", "PMI_RANK", "SLURM_STEP_ID"]), st.text(max_size=4)
    ),
)
def test_no_mixture_of_launchers_breaks_and_no_claim_is_lost(
    names: list[str], engine: str | None, extra: dict[str, str]
) -> None:
    env = merged(*names) | extra
    resolution = resolve(env, engine)
    everything = [*([resolution.chosen] if resolution.chosen else []), *resolution.others]
    assert sorted(map(repr, everything)) == sorted(map(repr, claims(env)))
    assert resolve(env, engine) == resolution
    assert all(difference.value != difference.other_value for difference in resolution.disagreements)
