"""PP: stages are whole, in order, and their boundaries have a fast way."""

from __future__ import annotations

from typing import Any

from build import (
    GB200,
    TWO,
    answer,
    completed,
    fact,
    full,
    log,
    nics,
    pair,
    report,
    running,
    snap,
    text_of,
)

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot, Hardware, LinkMatrix

REPLICAS = "engine: vllm\nparallel: {tensor: 2, pipeline: 2, data: 2}\nnodes: [node-a, node-b]\n"
LONG = "engine: vllm\nparallel: {tensor: 4, pipeline: 3}\nnodes: [node-a, node-b, node-c]\n"


def of(rule: str, text: str, *views: FullSnapshot) -> RuleReport:
    return answer(report(text, *views), rule)


def trays(**parts: Any) -> list[FullSnapshot]:
    known = {"model": GB200, "fabric": completed()} | parts
    return [snap("node-a", range(4), **known), snap("node-b", range(4, 8), **known)]


def test_a_replica_that_lacks_a_rank_is_named_with_stage_and_rank() -> None:
    found = of("PP001", REPLICAS, snap("node-a", range(4)), snap("node-b", [4, 5, 6]))
    assert (found.passed, found.failed) == (1, 1)
    assert "replica 1 lacks ranks 7 of stage 1" in text_of(found)
    assert "node-b.json" in text_of(found)


def test_a_replica_whose_ranks_were_not_seen_is_unknown_and_the_others_pass() -> None:
    found = of("PP001", REPLICAS, snap("node-a", range(4)))
    assert (found.verdict, found.passed, found.unknown) == ("unknown", 1, 1)


def test_each_end_of_a_boundary_needs_rdma() -> None:
    assert of("PP003", TWO, *pair()).verdict == "pass"
    assert of("PP003", TWO, *pair(ports=nics(state="DOWN"))).verdict == "fail"
    assert of("PP003", TWO, *pair(ports=())).verdict == "unknown"


def test_a_boundary_that_is_not_placed_keeps_the_rule_undecided() -> None:
    text = LONG
    views = [snap(f"node-{n}", range(4 * i, 4 * i + 4), size=12) for i, n in enumerate("ab")]
    found = of("PP003", text, *views)
    assert (found.verdict, found.passed, found.unknown) == ("unknown", 1, 1)
    assert of("PP004", text, *views).verdict == "unknown"


def test_one_nvlink_domain_needs_no_rdma_and_no_nic() -> None:
    found = report(TWO, *trays(ports=nics(state="DOWN"), near="SYS"))
    assert answer(found, "PP003").verdict == "pass"
    assert answer(found, "PP004").verdict == "not-applicable"


def test_sockets_by_wish_are_named_before_and_after_the_launch() -> None:
    before = of("PP003", TWO, *pair(environment={"NCCL_IB_DISABLE": "1"}))
    assert "NCCL_IB_DISABLE=1 is set" in text_of(before)
    assert before.findings[0].fix == "unset the variable"
    wish = [fact("env", "NCCL_NET=Socket"), fact("network", "Socket", line=6)]
    after = report(TWO, *running("NET/Socket/0", facts=wish))
    for rule in ("PP003", "OBS003"):
        assert "NCCL_NET=Socket is set" in text_of(answer(after, rule))
    assert answer(after, "NET009").findings == []


def test_a_boundary_by_any_way_is_a_warning() -> None:
    found = of("PP003", TWO + "policy: {boundary: any}\n", *pair(ports=nics(state="DOWN")))
    assert [finding.severity for finding in found.findings] == ["warning"]


def test_a_far_nic_is_named_with_gpu_rank_and_node() -> None:
    found = of("PP004", TWO, *pair(near="SYS"))
    assert (found.passed, found.failed) == (1, 1)
    assert "GPU0, GPU1, GPU2, GPU3 of node-a (ranks 0..3)" in text_of(found)


def mixed(*near: str) -> FullSnapshot:
    """node-a with two NICs, GPU 0 near the second."""
    base = snap("node-a", range(4), ports=nics(2))
    rows = (near, *[("PIX", "SYS")] * 3)
    return snap(
        "node-a",
        range(4),
        hardware=Hardware(gpus=base.hardware.gpus, nics=nics(2), matrix=LinkMatrix(nics=rows)),
    )


def test_the_nearest_of_several_nics_counts() -> None:
    other = snap("node-b", range(4, 8))
    assert of("PP004", TWO, mixed("SYS", "PIX"), other).verdict == "pass"
    assert of("PP004", TWO, mixed("SYS", "NODE"), other).verdict == "unknown"
    assert of("PP004", TWO, mixed("SYS", "SYS"), other).verdict == "fail"


INSIDE_OUT = [snap("node-a", [0, 1, 4, 5]), snap("node-b", [2, 3, 6, 7])]


def test_stages_that_share_a_node_while_tp_crosses_are_inside_out() -> None:
    found = report(TWO, *INSIDE_OUT)
    assert answer(found, "PP008").verdict == "fail"
    assert answer(found, "TP001").verdict == "fail"
    assert "node-a" in text_of(answer(found, "PP008"))
    assert "stage 0" in text_of(answer(found, "PP008"))


def test_inside_out_is_told_only_where_crossing_is_wrong_and_as_badly() -> None:
    crossed = [
        snap("node-a", [0, 1, 4, 5], model=GB200, fabric=completed()),
        snap("node-b", [2, 3, 6, 7], model=GB200, fabric=completed()),
    ]

    def told(domain: str) -> list[str]:
        found = of("PP008", f"{TWO}policy: {{tensor_domain: {domain}}}\n", *crossed)
        return [finding.severity for finding in found.findings]

    assert (told("nvlink"), told("any"), told("node")) == ([], ["warning"], ["error"])


def test_a_group_too_wide_for_a_node_is_not_inside_out() -> None:
    text = "engine: vllm\nparallel: {tensor: 8, pipeline: 1}\nnodes: [node-a, node-b]\n"
    assert of("PP008", text, *pair()).verdict == "not-applicable"


def test_a_log_that_opened_rdma_and_a_listing_without_a_port_agree_with_the_log() -> None:
    views = [*running(), snap("node-a", ports=nics(state="DOWN"), coverage=full())]
    assert of("PP003", TWO, *views).verdict == "pass"
    assert of("PP003", TWO, log("node-a"), log("node-b")).verdict == "unknown"
