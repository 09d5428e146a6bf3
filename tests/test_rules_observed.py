"""OBS: what the running job shows of itself agrees with the plan."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from build import (
    FOUR,
    RING,
    TWO,
    answer,
    comm,
    edge,
    fact,
    log,
    members,
    pair,
    paired,
    report,
    running,
    snap,
    sockets,
    text_of,
)
from rule_cases import CROSSED, GROUPS

from topocheck.report import RuleReport
from topocheck.snapshot import CommRank, FullSnapshot

DATA = "engine: torch\nparallel: {data: 8}\nnodes: [node-a, node-b]\n"


def of(rule: str, *views: FullSnapshot, text: str = TWO) -> RuleReport:
    return answer(report(text, *views), rule)


def severities(found: RuleReport) -> list[str]:
    return [finding.severity for finding in found.findings]


def test_shared_memory_inside_a_group_is_a_warning_until_p2p_was_possible() -> None:
    assert severities(of("OBS002", *running(inside="SHM/direct"))) == ["warning"]
    assert severities(of("OBS002", *running(inside="SHM/direct"), *pair())) == ["error"]
    bare = [
        snap(
            name,
            links=sockets,
            switch=None,
            model="NVIDIA A40",
            refused=[(a, b) for a in range(4) for b in range(a)],
        )
        for name in ("node-a", "node-b")
    ]
    assert severities(of("OBS002", *running(inside="SHM/direct"), *bare)) == ["warning"]
    some = [snap(name, links=paired, switch=None, model="NVIDIA A40") for name in ("node-a", "node-b")]
    assert severities(of("OBS002", *running(inside="SHM/direct"), *some)) == ["error"]


def test_an_edge_between_two_groups_accuses_no_group() -> None:
    text = TWO.replace("tensor: 4, pipeline: 2", "tensor: 2, pipeline: 4")
    slow = {"node-a": [edge(1, 2, "SHM/direct", line=70)]}
    found = of("OBS002", *running(edges=slow), text=text)
    assert found.findings == []


def test_a_group_of_which_some_rank_shows_no_edge_is_unknown() -> None:
    views = [log("node-a", comm(RING, range(4)), edges=[edge(0, 1, "P2P/IPC")]), running()[1]]
    found = of("OBS002", *views)
    assert (found.passed, found.unknown) == (1, 1)


def test_sockets_between_nodes_name_edges_hosts_lines_and_the_reason() -> None:
    told = [fact("no-verbs", "libibverbs"), fact("network", "Socket", line=8)]
    found = of("OBS003", *running("NET/Socket/0", facts=told))
    text = text_of(found)
    assert all(words in text for words in ("3->4", "7->0", "node-a", "node-b", "node-a.log:60", "libibverbs"))
    assert found.findings[0].fix.startswith("install libibverbs")


def test_a_network_edge_without_its_network_proves_nothing() -> None:
    assert of("OBS003", *running(network=None)).verdict == "unknown"


def test_every_node_must_show_an_edge_to_another() -> None:
    views = [running()[0], log("node-b", comm(RING, range(4, 8), host="node-b"))]
    found = report(TWO, *views)
    assert answer(found, "OBS003").verdict == "pass"  # the edge has an end on each of the two
    three = TWO.replace("[node-a, node-b]", "[node-a, node-b, node-c, node-d]").replace(
        "pipeline: 2", "pipeline: 4"
    )
    assert of("OBS003", *running(), text=three).verdict == "unknown"


def test_multi_node_nvlink_is_no_socket() -> None:
    assert of("OBS003", *running("P2P/MNNVL")).verdict == "pass"


def test_sockets_inside_a_node_do_not_join_nodes() -> None:
    inside = {"node-a": [edge(0, 1, "NET/Socket/0", line=70)]}
    assert of("OBS003", *running(edges=inside)).verdict == "pass"


def test_before_the_launch_nothing_observed_is_asked() -> None:
    found = report(TWO, *pair())
    seen = ("OBS002", "OBS003", "OBS006", "OBS008", "OBS009")
    assert {answer(found, rule).verdict for rule in seen} == {"not-applicable"}


def test_edges_of_data_parallel_groups_count_too() -> None:
    assert of("OBS003", *running("NET/Socket/0"), text=DATA).verdict == "fail"


def test_staging_through_host_memory_is_told_by_edges_and_by_ncls_own_words() -> None:
    assert of("OBS009", *running()).verdict == "pass"
    assert "3->4" in text_of(of("OBS009", *running("NET/IB/0")))
    told = [fact("gdr-disabled", "mlx5_0", line=9)]
    found = of("OBS009", *running(facts=told))
    assert "NCCL disabled it on node-a for mlx5_0" in text_of(found)
    assert "node-a.log:9" in text_of(found)


def test_an_edge_that_does_not_say_whether_it_used_gpudirect_proves_nothing() -> None:
    assert of("OBS009", *running(gdr=None)).verdict == "unknown"


def test_a_node_whose_edges_nobody_logged_may_have_staged_them() -> None:
    assert of("OBS009", running()[0]).verdict == "unknown"


def test_every_rank_finished_or_it_is_unknown() -> None:
    assert of("OBS006", *running()).verdict == "pass"
    half = [log("node-a", comm(RING, range(4), phase="start")), running()[1]]
    found = report(TWO, *half)
    assert answer(found, "OBS006").verdict == "unknown"
    assert ["ranks 0..3"] in [gap.about for gap in found.gaps]


def test_an_abort_is_told_even_if_the_job_never_had_a_communicator() -> None:
    views = [snap("node-a"), snap("node-b"), log("node-a", facts=[fact("abort", "bootstrap failed", line=4)])]
    found = of("OBS006", *views)
    assert found.verdict == "fail"
    assert "node-a.log:4" in text_of(found)


@pytest.mark.parametrize(
    "words",
    ["Duplicate GPU detected : rank 0", "Call to ibv_reg_mr failed", "P2P is disabled", "RAS bind failed"],
)
def test_a_line_that_another_rule_claims_is_not_told_twice(words: str) -> None:
    assert of("OBS006", *running(facts=[fact("abort", words)])).findings == []


def test_a_warning_alone_is_no_abort() -> None:
    assert of("OBS006", *running(facts=[fact("warn", "something odd")])).verdict == "pass"


def test_groups_that_the_plan_has_pass_and_others_are_told() -> None:
    assert of("OBS008", *running(more=GROUPS)).verdict == "pass"
    found = of("OBS008", *running(more=CROSSED))
    assert "{0, 1, 4, 5}" in text_of(found)
    assert "{0..3}" in text_of(found)


def test_part_of_the_groups_is_unknown() -> None:
    part = {"node-a": GROUPS["node-a"]}
    assert of("OBS008", *running(more=part)).verdict == "unknown"


def test_communicators_of_two_neighbouring_stages_are_no_groups_of_another_order() -> None:
    text = TWO.replace("tensor: 4, pipeline: 2", "tensor: 2, pipeline: 4")
    ends: dict[str, Sequence[CommRank]] = {
        "node-a": [*members("0x1", [(0, 0), (1, 2)], host="node-a", size=2)],
        "node-b": [*members("0x2", [(0, 1), (1, 3)], host="node-b", size=2)],
    }
    assert of("OBS008", *running(more=ends), text=text).findings == []
    wrong: dict[str, Sequence[CommRank]] = {
        "node-a": [*members("0x1", [(0, 0), (1, 3)], host="node-a", size=2)],
    }
    assert of("OBS008", *running(more=wrong), text=text).verdict == "fail"


def test_a_group_as_large_as_the_world_is_the_world() -> None:
    views = [log("node-a", comm(RING, range(4), size=4))]
    assert of("OBS008", *views, text=FOUR).verdict == "pass"


def test_a_job_of_one_rank_has_no_groups() -> None:
    views = [log("node-a", comm(RING, [0], size=1))]
    assert of("OBS008", *views, text="engine: vllm\nnodes: [node-a]\n").verdict == "not-applicable"


def test_lines_given_twice_change_no_finding() -> None:
    once, twice = (of("OBS003", *running("NET/Socket/0"), *more) for more in ([], running("NET/Socket/0")))
    assert msgspec.structs.asdict(once) == msgspec.structs.asdict(twice)
