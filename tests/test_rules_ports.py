"""NET: ports that the job needs are up, alike and managed; ports that nobody needs are left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import answer, completed, fact, full, log, placed, plan, report, text_of
from made_ports import DOWN, PLAN, SILENT, STORAGE, UP, WAITING, bond, fabric, nic, node, rails, switched
from rooted import unpack_ttar

from topocheck.cli.main import run
from topocheck.probes.node.nics import read_nics
from topocheck.probes.node.pci import PciTree
from topocheck.report import RuleReport
from topocheck.rules.ports import by_need
from topocheck.snapshot import FullSnapshot, Hardware, Network, Port, State

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
RULES = ("NET001", "NET002", "NET003", "NET009", "NET010", "NET012")

DARK = msgspec.structs.replace(STORAGE, state="DOWN", physical="Disabled", rate_gbps=40)


def of(rule: str, *views: FullSnapshot, text: str = PLAN) -> RuleReport:
    return answer(report(text, *views), rule)


def both(**fields: object) -> list[FullSnapshot]:
    """Two equal nodes."""
    return [node(name, **fields) for name in ("node-a", "node-b")]  # type: ignore[arg-type]


def found(*views: FullSnapshot, text: str = PLAN) -> dict[str, str]:
    whole = report(text, *views)
    return {rule: answer(whole, rule).verdict for rule in RULES}


def test_a_bonded_storage_nic_a_dark_port_and_a_management_port_are_not_accused() -> None:
    ports = (
        *rails(),
        bond(),
        nic("mlx5_8", DARK, model="MT4125"),
        nic("mlx5_9", DARK, STORAGE, model="MT4117"),
    )
    near = lambda gpu, n, each: "PIX" if gpu == n else "SYS" if each.kind == "bond" else "NODE"  # noqa: E731
    healthy = found(*both(ports=ports, near=near))
    assert {healthy[rule] for rule in RULES if rule != "NET009"} == {"pass"}


def test_a_second_port_without_a_cable_is_no_fault() -> None:
    card = nic("mlx5_0", UP, msgspec.structs.replace(DOWN, port=2))
    assert of("NET001", *both(ports=(card, *rails()[1:]))).verdict == "pass"


def test_all_ports_of_one_reason_are_one_finding() -> None:
    [only] = of("NET001", *fabric(ports=rails({1: DOWN, 2: DOWN}), hca="mlx5_1,mlx5_2")).findings
    assert only.subjects == ["mlx5_1 of node-a", "mlx5_2 of node-a"]
    assert "mlx5_1 DOWN/Polling, mlx5_2 DOWN/Polling (selected by NCCL_IB_HCA=mlx5_1,mlx5_2)" in only.message
    assert "cable" in only.fix


def test_a_whole_listing_without_an_active_port_fails_whatever_is_needed() -> None:
    dark = fabric(ports=rails(dict.fromkeys(range(4), DOWN)), near=None)
    assert "node-a has no active port" in text_of(of("NET001", *dark))
    part = msgspec.structs.replace(dark[0], coverage=full(nics="part"))
    assert of("NET001", part, dark[1]).verdict == "unknown"


def test_a_whole_listing_of_active_ports_passes_whatever_is_needed() -> None:
    assert of("NET001", *both(near=None)).verdict == "pass"


def test_without_a_hint_of_the_need_a_dark_port_among_others_is_unknown() -> None:
    assert of("NET001", *fabric(ports=rails({1: DOWN}), near=None)).verdict == "unknown"


def test_a_state_that_is_not_shown_is_unknown() -> None:
    assert of("NET001", *fabric(ports=rails({1: Port(layer="InfiniBand")}))).verdict == "unknown"


def test_a_port_that_the_job_opened_was_active() -> None:
    views = fabric(ports=rails({n: Port(layer="InfiniBand") for n in range(4)}), hca="mlx5_1")
    opened = log("node-a", facts=[fact("hca", "mlx5_1:1/IB")])
    assert of("NET001", *views).verdict == "unknown"
    assert of("NET001", views[0], opened, views[1]).verdict == "pass"


def test_a_name_that_the_machine_lacks_is_told_by_the_rule_of_the_filter() -> None:
    one = of("NET001", *fabric(hca="mlx5_0,mlx5_9"))
    assert (one.verdict, one.findings) == ("unknown", [])


def test_sockets_by_wish_need_no_port() -> None:
    dark = rails({0: DOWN, 1: DOWN})
    views = switched(ports=dark)
    for rule in ("NET001", "NET002", "NET010", "NET012"):
        one = of(rule, *views)
        assert (one.verdict, one.reason) == ("not-applicable", "NCCL_IB_DISABLE=1 is set")


def test_nodes_of_one_nvlink_domain_need_no_port() -> None:
    views = [
        msgspec.structs.replace(view, fabric=completed())
        for view in both(ports=rails({0: DOWN}), model="NVIDIA GB200")
    ]
    for rule in ("NET001", "NET002", "NET010", "NET012"):
        assert of(rule, *views).verdict == "not-applicable"


def test_nodes_without_an_rdma_device_have_no_port_to_ask_for() -> None:
    views = both(ports=())
    for rule in ("NET001", "NET002", "NET010", "NET012"):
        assert of(rule, *views).verdict == "not-applicable"
    assert of("NET001", views[0], node("node-b")).verdict == "pass"


def test_a_node_that_carries_no_rank_needs_nothing() -> None:
    data = "engine: torch\nparallel: {data: 8}\nnodes: [node-a, node-b, node-c]\n"
    views = [*fabric(), node("node-c", rails({0: DOWN, 1: DOWN}))]
    assert of("NET001", *views, text=data).verdict == "pass"


def test_rates_of_down_ports_mean_nothing() -> None:
    views = fabric(ports=rails({1: DOWN}))
    assert of("NET002", *views).findings == []
    assert of("NET010", *views).verdict == "pass"


def test_rates_are_asked_of_needed_ports_alone() -> None:
    assert of("NET002", *fabric(ports=(*rails(), bond()))).verdict == "pass"


def test_without_a_majority_both_rates_are_named() -> None:
    slow = rails(dict.fromkeys(range(4), msgspec.structs.replace(UP, rate_gbps=200)))
    text = text_of(of("NET002", *fabric(ports=slow)))
    assert "mlx5_0, mlx5_1, mlx5_2, mlx5_3 of node-a at 200 Gb/s" in text
    assert "of node-b at 400 Gb/s" in text


def test_a_policy_bounds_the_rate_and_tells_a_slow_port_once() -> None:
    text = PLAN + "policy: {min_rate_gbps: 300}\n"
    assert plan(text).policy.min_rate_gbps == 300
    assert of("NET002", *fabric(), text=text).verdict == "pass"
    slow = rails({1: msgspec.structs.replace(UP, rate_gbps=200)})
    [only] = of("NET002", *fabric(ports=slow), text=text).findings
    assert "mlx5_1 of node-a at 200 Gb/s: the policy asks for 300 Gb/s" in only.message
    assert (only.severity, only.count) == ("warning", 1)


def test_a_rate_that_the_kernel_does_not_know_is_unknown() -> None:
    views = fabric(ports=rails({1: msgspec.structs.replace(UP, rate_gbps=None)}))
    assert of("NET002", *views).verdict == "unknown"


def test_names_may_differ_from_node_to_node() -> None:
    renamed = tuple(nic(f"mlx5_{18 + n}", virtual=True) for n in range(4))
    assert of("NET010", *fabric(ports=renamed)).verdict == "pass"


def test_one_name_in_another_place_is_told_with_both_places() -> None:
    swap = {0: 0, 1: 2, 2: 1, 3: 3}
    moved = of("NET010", *fabric(near=lambda gpu, n, _: "PIX" if gpu == swap[n] else "NODE"))
    text = text_of(moved)
    assert "mlx5_1 (PIX to GPU 2)" in text
    assert "mlx5_1 (PIX to GPU 1)" in text
    assert "mlx5_0" not in text


def test_names_that_swapped_addresses_are_told_though_one_switch_holds_both() -> None:
    rows = [(f"mlx5_{n}", f"0000:{0x1A + n:02x}:00.0") for n in range(4)]
    devices = tuple(nic(name, pci=bus) for name, bus in rows)
    moved = tuple(nic(name, pci=rows[(1, 0, 2, 3)[n]][1]) for n, (name, _) in enumerate(rows))
    views = [node("node-a", moved, near=None), node("node-b", devices, near=None)]
    text = text_of(of("NET010", *views))
    assert "mlx5_0 at 0000:1b:00.0" in text
    assert "mlx5_0 at 0000:1a:00.0" in text


def test_other_bus_numbers_of_another_firmware_are_no_difference() -> None:
    views = [
        node(name, tuple(nic(f"mlx5_{n}", pci=f"0000:{first + n:02x}:00.0") for n in range(4)))
        for name, first in (("node-a", 0x1A), ("node-b", 0x3B))
    ]
    assert of("NET010", *views).verdict == "pass"


def test_equal_names_alone_do_not_pass() -> None:
    assert of("NET010", *both(near=None)).verdict == "unknown"


def test_what_the_filter_leaves_out_is_not_compared() -> None:
    views = fabric(ports=(*rails(), bond()), hca="^mlx5_bond")
    assert of("NET010", *views).verdict == "pass"
    assert of("NET010", *fabric(ports=(*rails(), bond()))).verdict == "fail"


def test_kinds_that_one_tool_does_not_show_are_no_difference() -> None:
    bare = tuple(nic(f"mlx5_{n}", kind=None) for n in range(4))  # type: ignore[arg-type]
    assert of("NET010", *fabric(ports=bare)).verdict == "pass"


def test_the_odd_node_of_many_is_named() -> None:
    data = "engine: torch\nparallel: {data: 16}\nnodes: [node-a, node-b, node-c, node-d]\n"
    names = ("node-a", "node-b", "node-c", "node-d")
    views = [node(name, rails(count=3 if name == "node-c" else 4)) for name in names]
    [only] = of("NET010", *views, text=data).findings
    assert only.subjects == ["node-c"]
    assert "the other 3 nodes" in only.message


def test_ethernet_has_no_subnet_manager() -> None:
    roce = tuple(nic(f"mlx5_{n}", STORAGE) for n in range(4))
    assert of("NET012", *both(ports=roce)).verdict == "not-applicable"
    assert of("NET012", *fabric(ports=roce)).verdict == "pass"


def test_a_port_without_a_manager_is_told_once() -> None:
    views = fabric(ports=rails({2: WAITING}), sm_lids={2: 0})
    assert of("NET012", *views).verdict == "fail"
    assert of("NET001", *views).findings == []


def test_a_port_that_waits_under_a_manager_is_told_as_not_active() -> None:
    views = fabric(ports=rails({2: WAITING}))
    assert of("NET012", *views).verdict == "pass"
    assert "mlx5_2 INIT/LinkUp" in text_of(of("NET001", *views))


def test_a_port_without_a_link_is_not_asked_for_its_manager() -> None:
    views = fabric(ports=rails(dict.fromkeys(range(4), DOWN)), sm_lids=dict.fromkeys(range(4), 0))
    assert of("NET012", *views).findings == []


def test_a_manager_that_nothing_shows_is_unknown() -> None:
    assert of("NET012", *fabric(sm_lids={1: None})).verdict == "unknown"


def test_the_manager_is_found_by_the_name_of_the_device_whatever_the_order_of_two_views() -> None:
    first = node("node-a", sm_lids=dict.fromkeys(range(4), None))
    devices = tuple(reversed(rails({2: WAITING})))
    second = msgspec.structs.replace(
        node("node-a", devices, near=None, sm_lids={1: 0}), hardware=Hardware(nics=devices)
    )
    third = msgspec.structs.replace(first, hardware=node("node-a", rails({2: WAITING})).hardware)
    text = text_of(of("NET012", third, second, node("node-b")))
    assert "mlx5_2:1 of node-a" in text
    assert "mlx5_1" not in text


@pytest.mark.parametrize("rule", ["NET001", "NET002", "NET010", "NET012"])
def test_silence_is_unknown(rule: str) -> None:
    one = of(rule, *SILENT)
    assert (one.verdict, one.findings) == ("unknown", [])


def test_equal_nodes_are_asked_once() -> None:
    names = [f"node-{n}" for n in range(6)]
    text = f"engine: torch\nparallel: {{data: 24}}\nnodes: [{', '.join(names)}]\n"
    placement = placed(text, *(node(name, boot=f"boot-{name}") for name in names))
    shapes = {id(each.shape) for each in placement.nodes}
    assert len(shapes) == 1
    situations = by_need(placement)
    assert isinstance(situations, dict)
    assert [len(alike) for alike in situations.values()] == [6]


@pytest.fixture
def verified(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Answers of `topocheck verify` about files of real cases, TP 8 x PP 2 on two nodes, by rule."""

    def run_over(*evidence: str) -> dict[str, Any]:
        if not CASES.is_dir():
            pytest.skip("the collected cases are not here")
        place, out = tmp_path / "plan.yaml", tmp_path / "report.json"
        place.write_text("engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n")
        named = [label + sign + str(CASES / path) for label, sign, path in map(parted, evidence)]
        run(["verify", "--plan", str(place), "--json", str(out), *named])
        capfd.readouterr()
        return {each["id"]: each for each in json.loads(out.read_text())["rules"]}

    return run_over


def parted(evidence: str) -> tuple[str, str, str]:
    """Label, sign and path of evidence."""
    return evidence.rpartition("=")


def test_ports_that_the_variable_names_and_that_are_disabled_are_accused_and_no_others(
    verified: Callable[..., dict[str, Any]],
) -> None:
    told = verified("node-a=C42-ibstatus-down.txt", "node-a=inputs/env-hca-mlx5_3-4.txt")
    [only] = told["NET001"]["findings"]
    assert only["subjects"] == ["mlx5_3 of node-a", "mlx5_4 of node-a"]
    assert told["NET002"]["findings"] == told["NET012"]["findings"] == []


@pytest.mark.parametrize(
    "evidence",
    [
        "node-a=C42-ibstatus-down.txt",
        "node-a=C42-ibv-devinfo-mixed.txt",
        "node-a=C37-ibstatus-openfail.txt",
        "C43-ibstat-topo-partial.txt",
        "node-a=C46-topo4-mlx5cols.txt",
        "node-a=C47-topo8-h100-9nic.txt",
        "C63-nccl2x-h100-2node-ib.log",
    ],
)
def test_what_does_not_show_the_need_accuses_no_port(
    evidence: str, verified: Callable[..., dict[str, Any]]
) -> None:
    told = verified(evidence)
    for rule in ("NET001", "NET002", "NET003", "NET010", "NET012"):
        assert told[rule]["findings"] == []


def test_real_h100_hosts_with_eight_rails_and_a_bond_are_well(tmp_path: Path) -> None:
    nics, _ = read_nics(unpack_ttar("sysfs_ib/gpud-h100-class-infiniband.ttar", tmp_path), PciTree())
    views = [
        msgspec.structs.replace(
            view,
            hardware=Hardware(nics=nics.shapes),
            network=Network(nics=nics.networks),
            state=State(ports=nics.ports),
        )
        for view in fabric()
    ]
    assert found(*views) == {
        "NET001": "pass",
        "NET002": "unknown",
        "NET003": "unknown",
        "NET009": "unknown",
        "NET010": "unknown",
        "NET012": "unknown",  # the capture holds no sm_lid
    }
    compute = "^mlx5_bond_0"
    chosen = [msgspec.structs.replace(view, environment={"NCCL_IB_HCA": compute}) for view in views]
    assert not [rule for rule, verdict in found(*chosen).items() if verdict == "fail"]
    named = ",".join(nic.name for nic in nics.shapes if nic.kind == "rdma")
    chosen = [msgspec.structs.replace(view, environment={"NCCL_IB_HCA": f"={named}"}) for view in views]
    verdicts = found(*chosen)
    assert [verdicts[rule] for rule in ("NET001", "NET002", "NET003")] == ["pass"] * 3
