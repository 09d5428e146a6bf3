"""GR001, GR002, GR004: where expert groups, context groups, prefill and decode lie."""

from __future__ import annotations

import msgspec
import pytest
from build import GB200, L40S, answer, completed, fact, full, log, nics, placed, plan, report, snap, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from made_experts import CONTEXT, EXPERTS, POOLS, RING, chosen, pools, silent, spread
from made_worlds import accused, told

from topocheck.alltoall import refusal
from topocheck.errors import PlanError
from topocheck.plan import Policy
from topocheck.probes.capture.recognise import read_capture
from topocheck.rules.experts import expert_groups
from topocheck.snapshot import FullSnapshot

INSIDE = (
    "engine: megatron\nparallel: {tensor: 1, data: 8, expert: 4}\nmodel: {layers: 8, experts: 16}\n"
    "nodes: [node-a, node-b]\n"
)
"""Expert groups of four ranks that follow each other."""
HIGH, LOW = "deepep_high_throughput", "deepep_low_latency"


def wide(*, cyclic: bool = False) -> tuple[str, list[FullSnapshot]]:
    """One expert group of sixteen ranks on two nodes of eight."""
    text = EXPERTS.replace("tensor: 4, data: 2, expert: 8", "tensor: 8, data: 2, expert: 16")
    dealt = (range(0, 16, 2), range(1, 16, 2)) if cyclic else (range(8), range(8, 16))
    return text, [snap(name, dealt[n], count=8, size=16) for n, name in enumerate(("node-a", "node-b"))]


# Set-ups that are right, and accuse nobody.


def test_experts_of_a_rack_pass_without_rdma() -> None:
    trays = spread(model=GB200, fabric=completed(), ports=nics(state="DOWN"))
    assert answer(report(EXPERTS, *trays), "GR001").verdict == "pass"


def test_experts_on_many_nodes_with_rdma_are_as_meant() -> None:
    text, nodes = wide()
    found = answer(report(text, *nodes), "GR001")
    assert (found.verdict, found.passed) == ("pass", 1)


def test_experts_inside_a_node_need_no_rdma() -> None:
    found = answer(report(INSIDE, *spread(ports=nics(state="DOWN"))), "GR001")
    assert (found.verdict, found.passed) == ("pass", 2)


def test_experts_without_nvlink_inside_a_node_pass() -> None:
    found = answer(report(INSIDE, *spread(model=L40S, switch=None)), "GR001")
    assert found.verdict == "pass"


def test_idle_gpus_are_no_room() -> None:
    idle = [snap("node-a", range(4), count=8), snap("node-b", range(4, 8), count=8)]
    assert answer(report(EXPERTS, *idle), "GR001").verdict == "pass"


# What is wrong.


def test_a_group_that_one_node_could_hold_is_told_to_move_in() -> None:
    cyclic = spread((0, 2, 4, 6), (1, 3, 5, 7))
    found = answer(report(INSIDE, *cyclic), "GR001")
    assert (found.verdict, len(found.findings), found.findings[0].count) == ("fail", 1, 2)
    assert "one node has room for its 4 ranks" in text_of(found)


def test_a_group_that_one_domain_may_hold_accuses_nobody() -> None:
    cyclic = spread((0, 2, 4, 6), (1, 3, 5, 7), model=GB200, fabric=())
    assert answer(report(INSIDE, *cyclic), "GR001").verdict == "unknown"


def test_sockets_that_the_log_shows_are_named() -> None:
    facts = [fact("no-verbs", "libibverbs"), fact("network", "Socket", line=6)]
    found = answer(report(EXPERTS, *spread(), log("node-a", facts=facts)), "GR001")
    assert found.verdict == "fail"
    assert "libibverbs cannot be opened (libibverbs) on node-a" in text_of(found)


@pytest.mark.parametrize(
    ("option", "value", "verdict"),
    [
        ("--all2all-backend", HIGH, "fail"),
        ("all2all-backend", HIGH, "fail"),
        ("VLLM_ALL2ALL_BACKEND", HIGH, "fail"),
        ("--moe-a2a-backend", "deepep", "fail"),
        ("--moe-flex-dispatcher-backend", "deepep", "fail"),
        ("--moe-enable-deepep", "True", "fail"),
        ("--all2all-backend", LOW, "pass"),
        ("--all2all-backend", "allgather_reducescatter", "pass"),
        ("--moe-a2a-backend", "mooncake", "pass"),
    ],
)
def test_kernels_that_send_in_blocks_of_eight_want_them_whole(option: str, value: str, verdict: str) -> None:
    found = answer(report(EXPERTS, *spread(), chosen(option, value)), "GR001")
    assert found.verdict == verdict
    assert ("0..7 of the group lies on node-a, node-b" in text_of(found)) == (verdict == "fail")


def test_low_latency_mode_has_no_blocks() -> None:
    words = [chosen("--moe-a2a-backend", "deepep"), chosen("--deepep-mode", "low_latency")]
    assert answer(report(EXPERTS, *spread(), *words), "GR001").verdict == "pass"


@pytest.mark.parametrize(("cyclic", "verdict"), [(False, "pass"), (True, "fail")])
def test_blocks_of_eight_follow_each_other_on_a_node(cyclic: bool, verdict: str) -> None:
    text, nodes = wide(cyclic=cyclic)
    assert answer(report(text, *nodes, chosen("--all2all-backend", HIGH)), "GR001").verdict == verdict


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([0] * 4, None),
        ([0] * 8 + [1] * 8, None),
        ([0, 1] * 4, "0..7"),
        ([0] * 12, "multiple of 8"),
        ([n // 8 for n in range(168)], "160 ranks at most"),
        ([0] * 8 + [1] * 4 + [2] * 4, "8..15"),
    ],
)
def test_what_the_kernels_refuse(places: list[int], words: str | None) -> None:
    found = refusal(places, lambda place: f"node {place}")
    assert (found is None) == (words is None)
    assert words is None or words in (found or "")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_whole_blocks_are_never_refused(nodes: list[int]) -> None:
    places = [node for node in nodes[:20] for _ in range(8)]
    assert refusal(places, str) is None


def test_options_of_commands_and_logs_are_read() -> None:
    for text, name, value in (
        ("vllm serve m --all2all-backend deepep_high_throughput -dp 2 -ep\n", "all2all-backend", HIGH),
        ("python -m sglang.launch_server --model-path m --deepep-mode normal\n", "deepep-mode", "normal"),
    ):
        facts = [
            known
            for reading in read_capture(text.encode(), "run.sh")
            for view in reading.snapshots
            for known in view.job
        ]
        assert [known.value for known in facts if known.name.lstrip("-") == name] == [value]


# Many groups are few situations.


def test_equal_groups_are_looked_at_once() -> None:
    nodes = [snap(f"n{n:02}", range(4 * n, 4 * n + 4), size=64) for n in range(16)]
    text = (
        "engine: megatron\nparallel: {tensor: 2, data: 32, expert: 8, expert_tensor: 1}\n"
        f"model: {{layers: 8, experts: 16}}\nnodes: [{', '.join(f'n{n:02}' for n in range(16))}]\n"
    )
    situations = expert_groups(placed(text, *nodes))
    assert isinstance(situations, dict)
    assert [len(members) for members in situations.values()] == [8]


# Context groups.


def test_a_context_group_in_one_domain_passes() -> None:
    trays = spread(model=GB200, fabric=completed())
    assert answer(report(RING, *trays), "GR002").verdict == "pass"


def test_policy_may_let_context_groups_lie_anywhere_or_in_nodes_alone() -> None:
    trays = spread(model=GB200, fabric=completed())
    anywhere, inside = Policy(tensor_domain="any"), Policy(tensor_domain="node")
    assert answer(report(plan(RING, policy=anywhere), *spread()), "GR002").verdict == "pass"
    assert answer(report(plan(RING, policy=inside), *trays), "GR002").verdict == "fail"


def test_a_context_group_that_no_node_holds_says_how_to_accept_it() -> None:
    found = answer(report(RING, *spread()), "GR002")
    assert found.verdict == "fail"
    assert "no node holds tensor 2 x context 4 = 8 ranks" in text_of(found)
    quiet = plan(RING, policy=Policy(severity={"GR002": "info"}))
    assert answer(report(quiet, *spread()), "GR002").findings[0].severity == "info"


def test_context_groups_inside_tensor_groups_are_those_of_tp001() -> None:
    text = "engine: sglang\nparallel: {tensor: 8, context: 2}\nnodes: [node-a, node-b]\n"
    found = answer(report(text, *spread()), "GR002")
    assert (found.verdict, "TP001" in found.reason) == ("not-applicable", True)


def test_unknown_fabric_of_boards_that_span_hosts_is_unknown() -> None:
    assert answer(report(RING, *silent(GB200)), "GR002").verdict == "unknown"
    assert answer(report(CONTEXT, *silent(GB200)), "GR002").verdict == "pass"


# Prefill and decode.


def keyed(text: str) -> str:
    return text.replace("prefill: {", "ingest: {role: prefill, ").replace(
        "decode: {", "tail: {role: decode, "
    )


def renamed(nodes: list[FullSnapshot]) -> list[FullSnapshot]:
    names = {"prefill": "ingest", "decode": "tail"}
    return [
        msgspec.structs.replace(
            view,
            ranks=tuple(msgspec.structs.replace(claim, world=names[claim.world]) for claim in view.ranks),
        )
        for view in nodes
    ]


def test_a_role_is_told_by_the_key_or_by_the_name() -> None:
    down = pools(ports=nics(state="DOWN"))
    assert answer(told(keyed(POOLS), *renamed(down)), "GR004").verdict == "fail"
    other = POOLS.replace("prefill", "ingest").replace("decode", "tail")
    assert answer(told(other, *renamed(down)), "GR004").verdict == "not-applicable"


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(PlanError, match="did you mean 'decode'"):
        plan(POOLS.replace("decode: {", "decode: {role: decod, "))


def test_pools_of_one_rack_need_no_rdma() -> None:
    down = nics(state="DOWN")
    trays = pools(model=GB200, fabric=completed(), ports=down)
    first = snap("node-a", range(4), size=4, model=GB200, fabric=completed(), ports=down)
    first = msgspec.structs.replace(first, ranks=trays[0].ranks)
    assert answer(told(POOLS, first, trays[1]), "GR004").verdict == "pass"


def test_pools_of_one_node_need_no_rdma() -> None:
    text = POOLS.replace("tensor: 4", "tensor: 2").replace("[node-b]", "[node-a]")
    view = snap("node-a", range(2), size=2, ports=nics(state="DOWN"), coverage=full(ranks="all"))
    first = [msgspec.structs.replace(claim, world="prefill") for claim in view.ranks]
    second = [
        msgspec.structs.replace(claim, world="decode", gpu=n + 2, pid=9900 + n)
        for n, claim in enumerate(view.ranks)
    ]
    found = told(text, msgspec.structs.replace(view, ranks=(*first, *second)))
    assert (answer(found, "GR004").verdict, accused(found)) == ("pass", [])


def test_what_binds_nccl_alone_does_not_bind_the_kv_cache() -> None:
    found = told(POOLS, *pools(environment={"NCCL_IB_DISABLE": "1"}))
    assert answer(found, "GR004").verdict == "pass"


def test_each_pool_is_told_once_whatever_the_number_of_others() -> None:
    text = "engine: vllm\nparallel: {tensor: 4}\nworlds:\n" + "".join(
        f"  {role}{n}: {{nodes: [{role}-{n}]}}\n" for role in ("prefill", "decode") for n in range(3)
    )
    nodes = []
    for role in ("prefill", "decode"):
        for n in range(3):
            down = nics(state="DOWN" if (role, n) == ("decode", 1) else "ACTIVE")
            view = snap(f"{role}-{n}", range(4), size=4, ports=down)
            claims = tuple(msgspec.structs.replace(claim, world=f"{role}{n}") for claim in view.ranks)
            nodes.append(msgspec.structs.replace(view, ranks=claims))
    found = answer(told(text, *nodes), "GR004")
    assert (found.verdict, len(found.findings), found.failed, found.passed) == ("fail", 1, 1, 5)
    assert "prefill0 on prefill-0" in text_of(found)


def test_nodes_that_never_reported_are_unknown() -> None:
    assert answer(told(POOLS, pools()[0]), "GR004").verdict == "unknown"


def test_a_pool_that_is_placed_in_part_is_asked_on_all_its_nodes() -> None:
    text = (
        "engine: vllm\nparallel: {tensor: 8}\nworlds:\n"
        "  prefill: {nodes: [node-a, node-b]}\n  decode: {nodes: [node-c, node-d]}\n"
    )
    nodes = []
    for world, name, ranks in (
        ("prefill", "node-a", range(4)),
        ("decode", "node-c", range(4)),
        ("decode", "node-d", range(4, 8)),
    ):
        view = snap(name, ranks, size=8)
        claims = tuple(msgspec.structs.replace(claim, world=world) for claim in view.ranks)
        nodes.append(msgspec.structs.replace(view, ranks=claims))
    assert answer(told(text, *nodes), "GR004").verdict == "unknown"
