"""NET: the way between nodes is open, and the same at both ends."""

from __future__ import annotations

import msgspec
import pytest
from build import FOUR, TWO, answer, completed, fact, log, nics, pair, report, running, snap, text_of
from made_ports import DOWN, SILENT, STORAGE, bond, fabric, nic, node, rails, switched

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot, LogFact, Verbs, VerbsDevice

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
    found = report(TWO, *SILENT)
    gap = next(gap for gap in found.gaps if "NET003" in gap.rules)
    assert gap.about == ["node-a", "node-b"]


def test_ports_of_a_snapshot_show_their_layers_too() -> None:
    assert of("NET003", *fabric()).verdict == "pass"
    assert of("NET003", *SILENT).verdict == "unknown"


def test_a_needed_list_that_mixes_layers_is_told_from_ports() -> None:
    mixed = (nic("mlx5_0", STORAGE), *rails()[1:])
    found = of("NET003", *fabric(ports=mixed))
    assert "mlx5_0:1 RoCE, mlx5_1:1, mlx5_2:1, mlx5_3:1 IB" in text_of(found)
    assert [finding.severity for finding in found.findings] == ["warning"]


def test_storage_that_nobody_needs_does_not_mix_a_list() -> None:
    assert of("NET003", *fabric(ports=(*rails(), bond()))).verdict == "pass"


def test_ends_of_different_layers_are_an_error_told_once() -> None:
    roce = tuple(nic(f"mlx5_{n}", STORAGE) for n in range(4))
    found = of("NET003", *fabric(ports=roce))
    [only] = found.findings
    assert (only.severity, only.subjects) == ("error", ["node-a - node-b (rank 0 -> 4)"])
    assert "mlx5_0:1, mlx5_1:1, mlx5_2:1, mlx5_3:1 RoCE" in only.message
    assert (found.passed, found.failed) == (2, 1)


def test_ends_of_different_layers_are_told_from_logs() -> None:
    told = [fact("hca", "mlx5_0:1/IB"), fact("hca", "mlx5_0:1/RoCE", host="node-b")]
    assert [finding.severity for finding in of("NET003", *running(facts=told)).findings] == ["error"]


def test_ends_that_share_a_layer_can_reach_each_other() -> None:
    mixed = (nic("mlx5_0", STORAGE), *rails()[1:])
    assert "error" not in {finding.severity for finding in of("NET003", *fabric(ports=mixed)).findings}


def test_ends_in_one_nvlink_domain_need_no_common_layer() -> None:
    roce = tuple(nic(f"mlx5_{n}", STORAGE) for n in range(4))
    views = [
        msgspec.structs.replace(view, fabric=completed()) for view in fabric(ports=roce, model="NVIDIA GB200")
    ]
    gb200 = [views[0], node("node-b", model="NVIDIA GB200", fabric=completed())]
    assert of("NET003", *gb200).findings == []


def test_one_end_that_is_not_known_leaves_the_boundary_undecided() -> None:
    assert of("NET003", fabric()[0], SILENT[1]).verdict == "unknown"


OPENS = (VerbsDevice(name="uverbs0", nic="mlx5_0", openable=True),)
REFUSED = (VerbsDevice(name="uverbs0", nic="mlx5_0", openable=False, reason="Operation not permitted"),)


def having(first: Verbs, views: list[FullSnapshot] | None = None) -> list[FullSnapshot]:
    """The job's nodes; the first has these means of RDMA, the other all that it needs."""
    well = Verbs(scope="task", library=True, devices=OPENS)
    return [
        msgspec.structs.replace(view, verbs=verbs)
        for view, verbs in zip(views or fabric(), (first, well), strict=True)
    ]


def test_a_probe_in_the_place_of_the_ranks_that_opens_a_device_passes() -> None:
    assert of("NET009", *having(Verbs(scope="task", library=True, devices=OPENS))).verdict == "pass"
    assert of("NET009", *having(Verbs(scope="container", devices=OPENS))).verdict == "pass"


@pytest.mark.parametrize(
    ("verbs", "words"),
    [
        (Verbs(scope="task", library=False, devices=OPENS), "libibverbs.so.1 cannot be loaded"),
        (Verbs(scope="container", library=True, devices=()), "no device node of any in /dev/infiniband"),
        (Verbs(scope="host", library=True, devices=REFUSED), "uverbs0 of mlx5_0 (Operation not permitted)"),
    ],
)
def test_what_the_ranks_lack_is_told_before_they_start(verbs: Verbs, words: str) -> None:
    [only] = of("NET009", *having(verbs)).findings
    assert words in only.message
    assert (only.severity, only.subjects) == ("error", ["node-a"])
    assert only.fix
    whole = report(TWO, *having(verbs))
    assert "PP003" in {each.id for each in whole.rules if each.verdict == "fail"}


def test_the_view_of_somebody_elses_shell_accuses_nobody() -> None:
    lacking = Verbs(scope="host", library=False, devices=())
    views = [msgspec.structs.replace(view, ranks=()) for view in having(lacking)]
    assert of("NET009", *views).findings == []
    assert of("NET009", *having(Verbs(scope="unknown", library=False, devices=()))).findings == []


def test_means_that_were_not_looked_at_are_not_missing() -> None:
    assert of("NET009", *having(Verbs(scope="task", peer_memory="nvidia_peermem"))).verdict == "unknown"


def test_a_pod_that_was_given_some_of_the_devices_can_open_rdma() -> None:
    some = (*OPENS, *(VerbsDevice(name=f"uverbs{n}", nic=f"mlx5_{n}", openable=False) for n in (1, 2, 3)))
    assert of("NET009", *having(Verbs(scope="container", library=True, devices=some))).verdict == "pass"
    named = having(Verbs(scope="container", library=True, devices=some), fabric(hca="mlx5_0,mlx5_1"))
    assert "uverbs1 of mlx5_1" in text_of(of("NET009", *named))


def test_what_the_job_itself_opened_goes_before_a_probe() -> None:
    first, second = having(Verbs(scope="task", library=False, devices=OPENS))
    told = [log(name, facts=[fact("hca", "mlx5_0:1/IB", host=name)]) for name in ("node-a", "node-b")]
    assert of("NET009", first, second, *told).verdict == "pass"


def test_a_fabric_without_verbs_needs_no_library() -> None:
    cxi = tuple(nic(f"cxi{n}", STORAGE, kind="slingshot") for n in range(4))
    views = having(Verbs(scope="task", library=False, devices=()), fabric(ports=cxi))
    assert of("NET009", *views).findings == []


def test_ports_that_are_all_down_need_no_device_node() -> None:
    views = having(
        Verbs(scope="task", library=False, devices=()), fabric(ports=rails(dict.fromkeys(range(4), DOWN)))
    )
    assert of("NET009", *views).findings == []


def test_sockets_by_wish_say_nothing_about_what_could_be_opened() -> None:
    assert of("NET009", *having(Verbs(scope="task", library=False), switched())).verdict == "unknown"


def test_sockets_by_wish_on_one_node_excuse_no_other() -> None:
    fewer = rails(count=3)
    assert of("NET010", switched()[0], node("node-b", ports=fewer)).verdict == "fail"
    assert of("NET010", *switched(ports=fewer)).verdict == "not-applicable"


def test_a_prefix_takes_no_layer_of_devices_that_it_may_not_mean() -> None:
    ports = (*rails(), nic("irdma0", STORAGE))
    vague = [node(name, ports=ports, hca="mlx5_0,mlx5", near=None) for name in ("node-a", "node-b")]
    found = of("NET003", *vague)
    assert (found.verdict, found.findings) == ("unknown", [])
