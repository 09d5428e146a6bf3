"""What launch commands, hostfiles and start-up lines prove wrong, as the rules tell it."""

from __future__ import annotations

import msgspec
import pytest
from build import TWO, answer, claims, log, report, running, snap, text_of
from stating import Fact, launch, of, said

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot

FREE = TWO.replace("[node-a, node-b]", "2")
DATA = "engine: torch\nparallel: {data: 8}\nnodes: 2\n"
MEGATRON = "engine: megatron\nparallel: {tensor: 4, pipeline: 2, data: 1}\nnodes: [node-a, node-b]\n"
SHARED = "engine: deepspeed\nparallel: {data: 8}\nnodes: [node-a, node-b]\n"


def bare(rule: str, *views: FullSnapshot, text: str = DATA) -> RuleReport:
    """A rule of texts that nothing else accompanies."""
    return of(rule, *views, text=text, healthy=False)


def ranks(*numbers: int, source: str = "run.log", host: str = "") -> FullSnapshot:
    """A log in which these ranks announce themselves in this order."""
    return said(*[("rank", host, f"{number}") for number in numbers], source=source)


# ID001


def test_ranks_that_announce_themselves_twice_in_a_mixture_are_several_launches() -> None:
    found = bare("ID001", ranks(1, 1, 2, 2, 3, 3, 0, 0))
    assert "ranks 0..3 announced themselves more than once, and ranks 4..7 were not seen" in text_of(found)
    assert "run.log:1 rank 1" in text_of(found)


@pytest.mark.parametrize(
    "views",
    [
        [ranks(0, 1, 2, 3, 0, 1, 2, 3)],
        [ranks(2, 0, 1, 3, 3, 2, 1, 0)],
        [ranks(0, 1, 2, 3, source="a.log"), ranks(0, 1, 2, 3, source="b.log")],
    ],
)
def test_a_node_that_may_have_restarted_in_an_excerpt_is_unknown(views: list[FullSnapshot]) -> None:
    found = report(DATA, *views)
    assert answer(found, "ID001").verdict == "unknown"
    assert any("started again" in gap.need for gap in found.gaps)


def test_all_ranks_twice_are_a_restart() -> None:
    everyone = ranks(*range(8), *range(8))
    assert bare("ID001", everyone).verdict == "pass"
    mixed = ranks(*[rank for rank in range(8) for _ in range(2)])
    assert bare("ID001", mixed).verdict == "pass"


def test_one_rank_on_two_hosts_is_no_restart() -> None:
    views = [ranks(0, 1, source=f"{host}.log", host=host) for host in ("h1", "h2")]
    assert bare("ID001", *views).verdict == "fail"


def test_ranks_once_each_say_nothing() -> None:
    assert bare("ID001", ranks(0, 1, 2)).verdict == "pass"


# ID002


def test_a_world_that_is_stated_is_compared_with_the_product() -> None:
    world = said(("world", "", "16"), source="train.log")
    found = of("ID002", world, text=MEGATRON)
    assert "a world of 16 ranks, the plan declares tensor 4 x pipeline 2 = 8" in text_of(found)
    assert "train.log:1" in text_of(found)
    assert of("ID002", said(("world", "", "8")), text=MEGATRON).verdict == "pass"
    assert of("ID002", said(("world", "", "4")), text=MEGATRON).verdict == "fail"


def test_a_smaller_world_of_an_engine_that_starts_its_own_ranks_may_be_a_replica() -> None:
    declared = TWO.replace("pipeline: 2", "pipeline: 2, data: 1")
    assert of("ID002", said(("world", "", "4")), text=declared).verdict == "pass"
    assert of("ID002", said(("world", "", "16")), text=declared).verdict == "fail"


def test_a_plan_without_data_size_leaves_multiples_to_the_world() -> None:
    open_ = MEGATRON.replace(", data: 1", "")
    assert of("ID002", said(("world", "", "16")), text=open_).verdict == "pass"
    assert of("ID002", said(("world", "", "12")), text=open_).verdict == "fail"


def test_the_world_of_another_engines_log_is_not_the_jobs() -> None:
    assert of("ID002", said(("world", "", "16"), engine="vllm"), text=MEGATRON).verdict == "pass"


@pytest.mark.parametrize(
    ("chain", "facts", "verdict"),
    [
        ("mpirun", [("processes", "launcher", "8")], "pass"),
        ("mpirun", [("processes", "launcher", "4")], "fail"),
        ("torchrun", [("nodes", "agent", "2"), ("processes-per-node", "agent", "4")], "pass"),
        ("srun torchrun", [("nodes", "agent", "2"), ("processes-per-node", "agent", "8")], "fail"),
        ("srun torchrun", [("processes", "launcher", "2"), ("processes-per-node", "agent", "4")], "pass"),
        ("srun", [("processes-per-node", "launcher", "4")], "pass"),
    ],
)
def test_processes_of_the_command_are_the_world(chain: str, facts: list[Fact], verdict: str) -> None:
    command = launch(("launcher", "train.py", chain), *facts)
    assert of("ID002", command, text=MEGATRON).verdict == verdict
    assert of("ID002", command).verdict == "pass"  # vLLM starts its ranks itself


def test_of_several_commands_only_the_engines_own_counts() -> None:
    other = launch(("launcher", "convert.py", "srun"), ("processes", "launcher", "1"), line=3)
    ours = launch(("launcher", "train.py", "srun"), ("processes", "launcher", "4"), line=9)
    assert of("ID002", other, ours, text=MEGATRON).verdict == "pass"
    named = launch(
        ("launcher", "train.py", "srun"), ("processes", "launcher", "4"), ("engine", "", "megatron"), line=9
    )
    assert of("ID002", other, named, text=MEGATRON).verdict == "fail"


# ID003


def test_an_invalid_device_names_ranks_host_and_slots() -> None:
    failed = [("device-error", "10.0.0.1", f"{rank}") for rank in (5, 4)]
    slots = said(("host-slots", "10.0.0.1", "4"), ("host-slots", "10.0.0.2", "4"), source="hosts")
    found = bare("ID003", said(*failed), slots)
    assert "ranks 4, 5 on 10.0.0.1 drive no GPU" in text_of(found)
    assert "told 4 slots there and 10.0.0.2 was to take the rest" in text_of(found)


NARROW: list[Fact] = [("gpus-per-task", "launcher", "1"), ("processes-per-node", "launcher", "4")]


def test_one_gpu_a_task_and_the_local_rank_as_device_do_not_go_together() -> None:
    found = of("ID003", said(*NARROW), text=MEGATRON)
    assert "local ranks 1..3 point past the only one" in text_of(found)
    for more in (("option", "gpu-bind", "none"), ("launcher", "train.py", "srun torchrun")):
        assert of("ID003", said(*NARROW, more), text=MEGATRON).verdict == "pass"
    one = said(NARROW[0], ("processes-per-node", "launcher", "1"))
    assert of("ID003", one, text=MEGATRON).verdict == "pass"
    four = said(("gpus-per-task", "launcher", "4"), NARROW[1])
    assert of("ID003", four, text=MEGATRON).verdict == "pass"
    assert of("ID003", said(*NARROW)).verdict == "pass"  # vLLM does not go by LOCAL_RANK


# ID015


def test_an_include_beyond_the_slots_is_told_once() -> None:
    hosts = ("host-slots", "work1", "2"), ("include", "work1", "1,2,3")
    refused = ("refused", "", "No slot '2' specificied on host 'work1'")
    found = of("ID015", said(*hosts, refused), text=SHARED)
    causes = [finding.cause for finding in found.findings]
    assert causes == ["include beyond the slots", "too few slots"]
    assert "slots 2, 3 are asked for on work1, and the hostfile gives it 2 (0..1)" in text_of(found)
    assert of("ID015", said(("include", "work1", "9")), text=SHARED).findings == []
    none = said(("host-slots", "work1", "0"), ("include", "work1", "0"))
    assert "gives it none" in text_of(of("ID015", none, text=SHARED))


def test_of_two_hostfiles_the_larger_number_counts() -> None:
    lists = ("host-slots", "work1", "8"), ("host-slots", "work1", "2"), ("include", "work1", "3")
    assert of("ID015", said(*lists), text=SHARED).findings == []


def test_slots_of_all_hosts_hold_the_world_where_each_rank_takes_one() -> None:
    few = said(("host-slots", "a", "2"), ("host-slots", "b", "2"), ("node-order", "", "a b"))
    assert "the hosts have 4 slots (a, b) and the job needs 8" in text_of(of("ID015", few, text=SHARED))
    assert of("ID015", few).findings == []  # vLLM needs one slot a node
    agents = launch(("launcher", "train.py", "mpirun torchrun"))
    assert of("ID015", few, agents, text=SHARED).findings == []
    part = said(("host-slots", "a", "2"), ("node-order", "", "a b"))
    assert of("ID015", part, text=SHARED).findings == []


def test_a_cluster_that_offers_too_few_gpus_is_told_by_its_largest_statement() -> None:
    assert "the cluster offers 4 GPUs" in text_of(of("ID015", said(("cluster-gpus", "ray", "4"))))
    grown = said(("cluster-gpus", "ray", "4"), ("cluster-gpus", "ray", "8"))
    assert of("ID015", grown).findings == []


def test_a_bundle_on_an_address_that_the_cluster_lacks_is_told() -> None:
    lost = ("bundles", "10.0.0.9", "2")
    known = said(("cluster-node", "10.0.0.1", ""), ("cluster-node", "10.0.0.2", ""), lost)
    assert "a bundle on 10.0.0.9, and the cluster has 10.0.0.1, 10.0.0.2" in text_of(of("ID015", known))
    ids = said(("cluster-node", "node_0123456789abcdef", ""), lost)
    assert of("ID015", ids).findings == []
    there = said(("cluster-node", "10.0.0.9", ""), lost)
    assert of("ID015", there).findings == []


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (
            "please ensure that world_size (2) is less than than max local gpu count (1)",
            "executor confined to one node",
        ),
        (
            "World size (16) is larger than the number of available GPUs (8) in this node",
            "executor confined to one node",
        ),
        ("There are not enough slots available in the system to satisfy the 16", "refused for space"),
        ("hostname 'w9' not found in hostfile", "refused for space"),
    ],
)
def test_a_refusal_for_want_of_room_is_id015s_and_not_obs006s(words: str, cause: str) -> None:
    found = report(TWO, *running(), said(("refused", "", words)))
    assert [finding.cause for finding in answer(found, "ID015").findings] == [cause]
    assert answer(found, "OBS006").findings == []


def test_an_index_past_the_last_gpu_does_not_fit() -> None:
    text = "engine: sglang\nparallel: {tensor: 2}\nnodes: [node-a]\n"
    far = report(text, snap("node-a", count=4), launch(("option", "base-gpu-id", "3")))
    assert "node-a has 4 GPUs and must hold 2 ranks (0, 1), up to GPU 4" in text_of(answer(far, "ID015"))
    near = report(text, snap("node-a", count=4), launch(("option", "base-gpu-id", "2")))
    assert answer(near, "ID015").verdict == "pass"


# OBS006


def test_a_refusal_that_no_rule_explains_is_the_end_of_initialisation() -> None:
    words = "ValueError: Free memory on device is less than desired GPU memory utilization"
    found = of("OBS006", said(("refused", "", words), host="node-a"))
    assert found.verdict == "fail"
    assert f"aborted on node-a: {words}" in text_of(found)


def test_an_abort_without_a_host_is_told_and_one_that_loopback_explains_is_not() -> None:
    store = said(("abort", "", "DistStoreError: Timed out after 601 seconds. 2/8 clients joined."))
    assert "aborted on a host" in text_of(of("OBS006", store))
    both = launch(("rendezvous", "master", "127.0.0.1:29500")), store
    assert of("OBS006", *both).verdict == "not-applicable"
    assert of("ID014", *both).verdict == "fail"
    other = said(("abort", "", "ChildFailedError"))
    assert of("OBS006", *both, other).verdict == "fail"


# SGLang before the launch

SGLANG = "engine: sglang\nparallel: {{tensor: {}, pipeline: {}}}\nnodes: {}\n"


def sglang(tensor: int, stages: int, nodes: int, *facts: Fact, data: int = 1) -> dict[str, RuleReport]:
    """All rules of a plan for SGLang before anything runs."""
    text = SGLANG.format(tensor, stages, nodes).replace("{tensor", f"{{data: {data}, tensor")
    views = [snap(f"node-{n}", count=8) for n in range(nodes)]
    return {rule.id: rule for rule in report(text, *views, launch(*facts, engine="sglang")).rules}


def test_gpu_id_step_puts_ranks_of_two_stages_on_one_gpu() -> None:
    found = sglang(2, 2, 1, ("option", "gpu-id-step", "2"))["ID004"]
    assert found.basis == "predicted"
    assert "ranks 1, 2 share" in text_of(found)
    assert "launch.sh:1 gpu_id_step 2" in text_of(found)
    assert "leave --gpu-id-step at 1" in text_of(found)
    assert sglang(2, 1, 1, ("option", "--gpu-id-step", "2"))["ID004"].verdict == "pass"
    assert sglang(2, 2, 1)["ID004"].verdict == "pass"


def test_servers_that_say_different_things_of_gpus_say_nothing() -> None:
    both = ("option", "gpu-id-step", "2"), ("option", "gpu-id-step", "1")
    assert sglang(2, 2, 1, *both)["ID004"].verdict == "pass"


def test_what_the_prediction_rests_on_is_printed() -> None:
    text = SGLANG.format(2, 2, 1)
    found = report(text, snap("node-0", count=8), launch(("option", "base-gpu-id", "4")))
    assert any("base_gpu_id 4" in line for line in found.assumptions)


@pytest.mark.parametrize(("tensor", "stages", "nodes"), [(8, 3, 2), (6, 2, 3), (4, 4, 3)])
def test_sizes_for_which_a_stage_starts_nowhere_are_told_in_the_engines_words(
    tensor: int, stages: int, nodes: int
) -> None:
    found = sglang(tensor, stages, nodes)
    assert found["PP001"].verdict == "fail"
    assert f"cannot start tensor {tensor} x pipeline {stages} on {nodes} nodes" in text_of(found["PP001"])
    assert found["TP001"].findings == []
    assert found["ID010"].verdict == "unknown"


@pytest.mark.parametrize(("tensor", "stages", "nodes"), [(8, 2, 2), (4, 4, 2), (8, 1, 2), (8, 2, 4)])
def test_sizes_that_start_every_stage_pass(tensor: int, stages: int, nodes: int) -> None:
    assert sglang(tensor, stages, nodes)["PP001"].verdict == "pass"


def test_replicas_that_may_be_servers_of_their_own_and_ray_are_not_accused() -> None:
    assert sglang(8, 1, 2, data=2)["PP001"].verdict == "unknown"
    assert sglang(8, 3, 2, ("option", "use-ray", "true"))["PP001"].verdict == "unknown"


def test_vllm_on_nodes_that_do_not_divide_its_ranks_is_open_and_says_why() -> None:
    found = report(TWO.replace("[node-a, node-b]", "3"), *[snap(f"n{n}") for n in range(3)])
    assert answer(found, "PP001").verdict == "unknown"
    assert any("8 ranks do not divide over 3 nodes" in gap.supply for gap in found.gaps)


def test_ranks_that_are_claimed_are_judged_by_their_claims() -> None:
    text = SGLANG.format(8, 1, 2)
    views = [snap("node-0", count=8), snap("node-1", count=8)]
    held = [claims(range(4), size=8), claims(range(4, 8), size=8)]
    claimed = [msgspec.structs.replace(view, ranks=part) for view, part in zip(views, held, strict=True)]
    found = report(text, *claimed, launch(("option", "gpu-id-step", "2")))
    assert answer(found, "ID004").verdict == "pass"
    assert answer(found, "PP001").verdict == "pass"


def test_a_log_without_any_statement_asks_the_launch_nothing() -> None:
    found = report(FREE, log("node-a"))
    assert answer(found, "ID003").verdict == "unknown"
