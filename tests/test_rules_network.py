"""NET: the way between nodes is open, and the same at both ends."""

from __future__ import annotations

import pytest
from build import FOUR, TWO, answer, fact, nics, pair, report, running, snap, text_of

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot, LogFact

DATA = "engine: torch\nparallel: {data: 8}\nnodes: [node-a, node-b]\n"


def of(rule: str, *views: FullSnapshot, text: str = TWO) -> RuleReport:
    return answer(report(text, *views), rule)


def both(*facts: LogFact) -> list[LogFact]:
    """Facts of node-a, and a node-b that is well."""
    return [*facts, fact("hca", "mlx5_0:1/IB", host="node-b"), fact("network", "IB", host="node-b", line=6)]


def test_rdma_that_the_job_opened_passes_and_a_port_that_is_up_is_not_enough() -> None:
    assert of("NET009", *running()).verdict == "pass"
    assert of("NET009", *pair()).verdict == "unknown"


def test_one_node_that_failed_is_named_and_the_other_is_not() -> None:
    found = of(
        "NET009",
        *running("NET/Socket/0", facts=both(fact("no-verbs", "libibverbs"), fact("network", "Socket"))),
    )
    assert (found.passed, found.failed) == (1, 1)
    [only] = found.findings
    assert only.subjects == ["node-a"]
    assert "install libibverbs" in only.fix


def test_both_ends_of_one_cause_are_one_finding() -> None:
    told = [fact("no-verbs", "libibverbs", host=host) for host in ("node-a", "node-b")]
    found = of("NET009", *running("NET/Socket/0", facts=told))
    [only] = found.findings
    assert (only.count, only.subjects) == (2, ["node-a", "node-b"])


def test_a_refused_call_names_locked_memory_as_the_suspect() -> None:
    found = of("NET009", *running(facts=both(fact("verbs-call-failed", "ibv_create_cq"))))
    assert "ulimit -l" in text_of(found)


def test_a_boundary_by_any_way_makes_it_a_warning() -> None:
    told = both(fact("no-verbs", "libibverbs"), fact("network", "Socket"))
    found = of("NET009", *running("NET/Socket/0", facts=told), text=TWO + "policy: {boundary: any}\n")
    assert [finding.severity for finding in found.findings] == ["warning"]


def test_any_group_that_crosses_nodes_needs_the_network() -> None:
    told = both(fact("no-verbs", "libibverbs"), fact("network", "Socket"))
    assert of("NET009", *running("NET/Socket/0", facts=told), text=DATA).verdict == "fail"


def test_sockets_by_wish_say_nothing_about_rdma() -> None:
    told = both(fact("env", "NCCL_IB_DISABLE=1"), fact("network", "Socket"))
    assert of("NET009", *running("NET/Socket/0", facts=told)).verdict == "unknown"


def test_a_down_port_is_not_told_here() -> None:
    assert of("NET009", *pair(ports=nics(state="DOWN"))).findings == []


@pytest.mark.parametrize("rule", ["NET003", "NET009"])
def test_a_job_of_one_node_needs_no_network(rule: str) -> None:
    assert of(rule, snap("node-a", range(4)), text=FOUR).verdict == "not-applicable"


def test_a_list_of_one_layer_passes_and_a_mixed_one_is_told_with_its_devices() -> None:
    assert of("NET003", *running()).verdict == "pass"
    told = both(fact("hca", "mlx5_0:1/IB"), fact("hca", "mlx5_2:1/RoCE"), fact("hca", "mlx5_3:1/RoCE"))
    found = of("NET003", *running(facts=told))
    assert "mlx5_0:1 IB, mlx5_2:1, mlx5_3:1 RoCE" in text_of(found)
    assert [finding.severity for finding in found.findings] == ["warning"]


def test_a_suffix_of_the_device_is_no_layer_of_its_own() -> None:
    told = both(fact("hca", "mlx5_0:1/IB/SHARP"), fact("hca", "mlx5_1:1/IB"))
    assert of("NET003", *running(facts=told)).verdict == "pass"


def test_all_silent_nodes_are_in_the_gap() -> None:
    found = report(TWO, *pair())
    gap = next(gap for gap in found.gaps if "NET003" in gap.rules)
    assert gap.about == ["node-a", "node-b"]
