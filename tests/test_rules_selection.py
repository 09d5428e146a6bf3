"""NET: what variables select is there and meant; settings that select equivalents are healthy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import (
    TWO,
    answer,
    completed,
    fact,
    full,
    log,
    nics,
    pair,
    placed,
    report,
    results,
    running,
    snap,
    text_of,
)
from captured import answers
from made_network import Interface, with_interfaces
from made_selection import LOW, MAPPED, WELL, addressed, choosing, netted, table

from topocheck.report import RuleReport
from topocheck.rules.selection import meeting
from topocheck.snapshot import FullSnapshot, JobFact, NcclFile, Netdev, NicShape, Port

V1, V2 = "IB/RoCE v1", "RoCE v2"
ETH = Port(state="ACTIVE", physical="LinkUp", layer="Ethernet", rate_gbps=200)


def of(rule: str, views: Sequence[FullSnapshot], text: str = TWO) -> RuleReport:
    return answer(report(text, *views), rule)


def verdict(rule: str, views: Sequence[FullSnapshot], text: str = TWO) -> str:
    return of(rule, views, text).verdict


def device(name: str, *addresses: str, kind: str = "physical", state: str = "up") -> Interface:
    return Netdev(name=name, kind=kind, state=state), addresses


# NET004


def test_indexes_that_differ_and_are_right_on_each_node_are_healthy() -> None:
    shifted = table(((LOW, V1), (LOW, V2), (LOW, V1), (LOW, V2), (MAPPED, V1), (MAPPED, V2)))
    assert verdict("NET004", addressed("5", gids=shifted)) == "pass"


def test_no_index_with_a_new_nccl_and_a_usable_address_passes() -> None:
    assert verdict("NET004", addressed(None)) == "pass"
    assert verdict("NET004", addressed("-1")) == "pass"


def test_without_an_index_an_old_nccl_takes_entry_0_which_is_a_warning() -> None:
    [only] = of("NET004", addressed(None, nccl="2.18.5")).findings
    assert only.severity == "warning"
    assert "no NCCL_IB_GID_INDEX is set on node-a: entry 0 of mlx5_0 port 1, which NCCL takes" in only.message


def test_without_an_index_and_a_version_the_entry_in_use_is_unknown() -> None:
    assert verdict("NET004", addressed(None, nccl=None)) == "unknown"


def test_the_nccl_that_the_job_loaded_goes_before_the_one_that_is_installed() -> None:
    views = addressed(None)
    logs = [
        msgspec.structs.replace(
            one, observed=msgspec.structs.replace(one.observed, library="NCCL 2.18.5+cuda12.1")
        )
        for one in running()
        if one.observed
    ]
    assert verdict("NET004", [*views, *logs]) == "fail"


def test_a_port_without_an_ip_address_is_a_warning_whatever_the_version() -> None:
    bare = table(((LOW, V1), (LOW, V2)))
    for version in ("2.27.5", "2.18.5", None):
        [only] = of("NET004", addressed(None, gids=bare, nccl=version)).findings
        assert only.severity == "warning"
        assert "give its network device an IP address" in only.fix


def test_an_ipv6_fabric_is_healthy_where_its_family_is_asked_for() -> None:
    address = "2001:0db8:0000:0000:0000:0000:0000:0007"
    views = addressed(None, gids=table(((LOW, V1), (address, V2))), NCCL_IB_ADDR_FAMILY="AF_INET6")
    assert verdict("NET004", views) == "pass"


def test_an_entry_that_a_cut_table_does_not_show_is_unknown() -> None:
    assert verdict("NET004", addressed("7", cut=True)) == "unknown"
    assert "is empty" in text_of(of("NET004", addressed("7")))


def test_an_index_of_nccl_conf_counts_and_the_environment_goes_before_it() -> None:
    views = addressed(None)
    conf = (NcclFile(path="/etc/nccl.conf", kind="settings", settings={"NCCL_IB_GID_INDEX": "0"}),)
    first = msgspec.structs.replace(views[0], files=conf)
    found = of("NET004", [first, views[1]])
    assert "/etc/nccl.conf" in text_of(found)
    named = msgspec.structs.replace(addressed("3")[0], files=conf)
    assert verdict("NET004", [named, views[1]]) == "pass"


def test_infiniband_ports_need_no_gid() -> None:
    assert verdict("NET004", addressed("9", ports=nics())) == "pass"


def test_a_port_whose_link_layer_nobody_shows_may_need_a_gid() -> None:
    blank = (NicShape(name="mlx5_0", ports=(Port(state="ACTIVE"),)),)
    for ports in (blank, (NicShape(name="mlx5_0"),)):
        views = [
            snap(name, range(4 * n, 4 * n + 4), ports=ports, environment={"NCCL_IB_HCA": "=mlx5_0"})
            for n, name in enumerate(("node-a", "node-b"))
        ]
        assert verdict("NET004", views) == "unknown"


def test_only_ports_that_the_job_needs_are_asked() -> None:
    both = (NicShape(name="mlx5_0", ports=(ETH,)), NicShape(name="mlx5_1", ports=(ETH,)))
    views = [
        msgspec.structs.replace(view, environment=view.environment | {"NCCL_IB_HCA": "=mlx5_0"})
        for view in addressed(ports=both)
    ]
    assert verdict("NET004", views) == "pass"


def test_where_the_need_is_not_known_one_good_port_leaves_it_unknown() -> None:
    views = addressed("2", ports=(NicShape(name="mlx5_0", ports=(ETH,)), *nics(2)[1:]))
    far = [
        msgspec.structs.replace(
            view, hardware=msgspec.structs.replace(view.hardware, matrix=None), ranks=(), environment=own
        )
        for view, own in zip(views, ({"NCCL_IB_GID_INDEX": "2"}, {}), strict=True)
    ]
    assert verdict("NET004", far) == "unknown"


def test_sockets_by_wish_and_one_nvlink_domain_need_no_gid() -> None:
    off = [msgspec.structs.replace(v, environment={"NCCL_IB_DISABLE": "1"}) for v in addressed("2")]
    assert verdict("NET004", off) == "not-applicable"
    rack = [
        msgspec.structs.replace(
            view,
            fabric=completed(),
            hardware=msgspec.structs.replace(
                view.hardware,
                gpus=tuple(msgspec.structs.replace(g, model="NVIDIA GB200") for g in view.hardware.gpus),
            ),
        )
        for view in addressed("2")
    ]
    assert verdict("NET004", rack) == "not-applicable"


def test_one_wrong_index_on_both_nodes_is_one_finding() -> None:
    views = addressed("2")
    other = msgspec.structs.replace(views[1], environment=views[0].environment)
    [only] = of("NET004", [views[0], other]).findings
    assert (only.count, only.subjects) == (2, ["mlx5_0 port 1 of node-a", "mlx5_0 port 1 of node-b"])


# NET005


@pytest.mark.parametrize("value", ["=mlx5_0,mlx5_1", "mlx5", "^mlx5_bond_0", "mlx5_1,mlx5_10,mlx5_11"])
def test_filters_that_select_what_they_say_are_healthy(value: str) -> None:
    assert verdict("NET005", choosing(value)) == "pass"


def test_names_that_differ_from_node_to_node_are_healthy() -> None:
    here = snap("node-a", range(4), ports=nics(2), environment={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"})
    functions = tuple(
        msgspec.structs.replace(nic, name=f"mlx5_{18 + n}", virtual=True) for n, nic in enumerate(nics(2))
    )
    there = snap("node-b", range(4, 8), ports=functions, environment={"NCCL_IB_HCA": "=mlx5_18,mlx5_19"})
    assert verdict("NET005", [here, there]) == "pass"


def test_one_value_that_fits_only_one_node_is_accused_on_the_other() -> None:
    value = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}
    here = snap("node-a", range(4), ports=nics(2), environment=value)
    renamed = tuple(msgspec.structs.replace(nic, name=f"rocep{n}s0") for n, nic in enumerate(nics(2)))
    there = snap("node-b", range(4, 8), ports=renamed, environment=value)
    [only] = of("NET005", [here, there]).findings
    assert only.subjects == ["node-b"]
    assert "selects no RDMA device: there are rocep0s0, rocep1s0" in only.message


def test_marks_inside_the_list_are_told_with_the_right_value() -> None:
    text = text_of(of("NET005", choosing("^=mlx5_8,^=mlx5_10")))
    assert "'^=mlx5_10' in its list" in text
    assert "set NCCL_IB_HCA to `^=mlx5_8,mlx5_10`" in text


def test_a_name_that_a_part_of_a_listing_does_not_show_is_unknown() -> None:
    assert verdict("NET005", choosing("=mlx5_40", coverage=full(nics="part", ranks="all"))) == "unknown"


def test_the_log_of_the_job_shows_what_a_prefix_took_more() -> None:
    lines = [fact("env", "NCCL_IB_HCA=mlx5_1")] + [
        fact("hca", f"mlx5_{n}:1/IB", line=6 + n) for n in (1, 10, 11)
    ]
    assert "mlx5_10, mlx5_11" in text_of(of("NET005", [*running(), log("node-a", facts=lines)]))


def test_the_variable_says_nothing_to_a_plugin() -> None:
    port = Port(state="ACTIVE", physical="LinkUp")
    efa = (NicShape(name="rdmap16s27", kind="efa", ports=(port,)),)
    assert verdict("NET005", choosing("mlx5", ports=efa)) == "pass"


# NET006


@pytest.mark.parametrize("value", ["eth0", "eth", "=eth0", "^lo,docker", "ens,eth", "eth0:5000"])
def test_values_that_leave_the_interface_of_the_cluster_are_healthy(value: str) -> None:
    assert verdict("NET006", netted(value)) == "pass"


def test_a_prefix_that_matches_other_names_on_other_nodes_is_healthy() -> None:
    views = netted(
        "en", of_first=[device("ens5", "10.51.0.7/24")], of_second=[device("enp3s0", "10.52.0.8/24")]
    )
    assert verdict("NET006", views) == "pass"


def test_values_of_its_own_on_each_node_are_healthy() -> None:
    views = netted("eth0", of_second=[device("ens5", "10.51.0.8/24")])
    other = msgspec.structs.replace(views[1], environment={"NCCL_SOCKET_IFNAME": "ens5"})
    assert verdict("NET006", [views[0], other]) == "pass"


def test_an_interface_of_a_pod_is_healthy_though_it_is_virtual() -> None:
    pods = [[device("eth0", f"10.244.{n}.9/24", kind="virtual")] for n in (1, 2)]
    for value in ("eth0", None):
        assert verdict("NET006", netted(value, of_first=pods[0], of_second=pods[1])) == "pass"


@pytest.mark.parametrize(
    ("value", "devices", "words"),
    [
        ("ib0", [device("eth0", "10.51.0.7/24")], "names none of the interfaces lo, eth0"),
        ("eth0", [device("eth0")], "takes eth0, which has no address"),
        ("eth0", [device("eth0", "10.51.0.7/24", state="down")], "takes eth0, which is down"),
        ("lo", [device("eth0", "10.51.0.7/24")], "takes lo first, which no other node reaches"),
        ("^docker", [device("eth0", "10.51.0.7/24")], "takes lo first, which no other node reaches"),
        (
            "eth0",
            [device("eth0", "10.51.0.8/24")],
            "takes eth0 with address 10.51.0.8, which is there 2 times on 2 nodes",
        ),
    ],
)
def test_an_interface_that_nobody_reaches_is_an_error(
    value: str, devices: list[Interface], words: str
) -> None:
    found = [f for f in of("NET006", netted(value, of_first=devices)).findings if "node-a" in f.subjects]
    assert [(f.severity, words in f.message) for f in found] == [("error", True)]


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([device("eth0", "10.51.0.7/24"), device("virbr1-nic", "10.9.0.1/24")], ""),
        (
            [device("eth0", "10.51.0.7/24"), device("cni0", "10.244.1.1/24", kind="bridge")],
            "takes cni0 among",
        ),
        ([device("eth0", "10.51.0.7/24"), device("veth01", "fe80::1/64")], "takes veth01 among"),
        ([device("eth0", "fe80::7/64")], "link-local"),
        ([device("docker0", "172.17.0.1/16", kind="bridge")], "takes docker0 among"),
        ([], "takes lo first"),
        ([device("br0", "10.51.0.7/24", kind="bridge")], ""),
    ],
)
def test_what_nccl_takes_by_itself_is_a_warning_at_most(devices: list[Interface], words: str) -> None:
    found = of("NET006", netted(None, of_first=devices))
    assert [f.severity for f in found.findings] == ["warning"] * bool(words)
    assert words in text_of(found)


def test_a_bridge_of_one_address_on_all_hosts_is_told_of_both() -> None:
    bridges = [[device("docker0", "172.17.0.1/16", kind="bridge")]] * 2
    found = of("NET006", netted(None, of_first=bridges[0], of_second=bridges[1]))
    twice = next(f for f in found.findings if "address 172.17.0.1" in f.message)
    assert (twice.severity, twice.subjects) == ("warning", ["node-a", "node-b"])


def test_hosts_that_may_be_one_are_not_accused_of_one_address_as_an_error() -> None:
    views = [
        log(
            name,
            facts=[
                fact("env", "NCCL_SOCKET_IFNAME=eth0", host=name),
                fact("socket-interface", "eth0:10.0.0.9", host=name),
            ],
        )
        for name in ("node-a", "node-b")
    ]
    found = of("NET006", [*running(), *views])
    assert {f.severity for f in found.findings} == {"warning"}


def test_a_namespace_in_which_all_is_well_is_the_jobs() -> None:
    host, pod = netted("eth0", of_first=[device("ens5", "10.51.0.7/24")])[0], netted("eth0")
    assert verdict("NET006", [host, pod[0], pod[1]]) == "pass"


def test_gloo_takes_exact_names() -> None:
    assert verdict("NET006", netted(GLOO_SOCKET_IFNAME="eth0")) == "pass"
    text = text_of(of("NET006", netted(GLOO_SOCKET_IFNAME="eth")))
    assert "GLOO_SOCKET_IFNAME=eth on node-a names eth, and there are lo, eth0" in text
    assert "set GLOO_SOCKET_IFNAME on each node" in text


def test_gloo_on_loopback_is_told_by_the_rule_of_the_rendezvous() -> None:
    views = netted()
    fell = log("node-a", facts=[fact("gloo-loopback", "Using the loopback address as fallback")])
    found = results(placed(TWO, *views, fell))["NET006"]
    assert (found.verdict, found.findings) == ("unknown", [])
    assert [gap.because for gap in found.gaps] == ["ID014"]


def test_in_a_job_of_one_node_only_what_ends_it_is_told() -> None:
    alone = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"
    wrong = netted("ib0")[:1]
    first = msgspec.structs.replace(wrong[0], ranks=snap("node-a", range(4), size=4).ranks)
    assert verdict("NET006", [first], alone) == "fail"
    shared = msgspec.structs.replace(netted("lo")[0], ranks=first.ranks)
    assert verdict("NET006", [shared], alone) == "not-applicable"


def test_a_launch_command_counts_where_nothing_else_is_known() -> None:
    views = [msgspec.structs.replace(view, ranks=(), environment={}) for view in netted(None)]
    told = JobFact(kind="option", name="NCCL_SOCKET_IFNAME", value="ib0")
    stated = msgspec.structs.replace(views[0], job=(told,))
    assert "NCCL_SOCKET_IFNAME=ib0 on node-a" in text_of(of("NET006", [stated, views[1]]))
    computed = msgspec.structs.replace(told, value="$IFACE")
    unknown = msgspec.structs.replace(views[0], job=(computed,))
    assert verdict("NET006", [unknown, views[1]]) == "unknown"


def test_equal_nodes_are_one_situation_though_their_addresses_differ() -> None:
    names = [f"node-{n}" for n in range(6)]
    text = f"engine: torch\nparallel: {{data: 24}}\nnodes: [{', '.join(names)}]\n"
    sample = netted()[0]
    views = []
    for n, name in enumerate(names):
        made = snap(name, range(4 * n, 4 * n + 4), size=24, environment=sample.environment)
        lo = sample.network.netdevs[0], sample.state.addresses[0]
        views.append(with_interfaces(made, lo, device("eth0", f"10.51.0.{n + 1}/24")))
    situations = meeting(placed(text, *views))
    assert isinstance(situations, dict)
    assert [len(alike) for alike in situations.values()] == [6]
    twin = msgspec.structs.replace(views[5], state=views[0].state)
    found = of("NET006", [*views[:5], twin], text)
    assert [f.subjects for f in found.findings] == [["node-0", "node-5"]]


# What was really met


@pytest.fixture
def verified(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Answers of `topocheck verify` about files of real cases, by rule."""
    return partial(answers, tmp_path)


PODS = "engine: vllm\nparallel: {tensor: 1, pipeline: 2}\nnodes: [pod-a, pod-b]\n"
NODES = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n"


def test_one_index_for_two_pods_whose_tables_differ(verified: Callable[..., dict[str, Any]]) -> None:
    tables = "C40-show-gids-two-pods.txt"
    assert verified(PODS, tables)["NET004"]["verdict"] == "unknown"
    [only] = verified(PODS, tables, *(f"pod-{p}=inputs/env-gid-index-4.txt" for p in "ab"))["NET004"][
        "findings"
    ]
    assert only["subjects"] == ["mlx5_4 port 1 of pod-a", "mlx5_4 port 1 of pod-b"]
    [only] = verified(PODS, tables, *(f"pod-{p}=inputs/env-gid-index-5.txt" for p in "ab"))["NET004"][
        "findings"
    ]
    assert only["subjects"] == ["mlx5_4 port 1 of pod-b"]


def test_usable_addresses_without_an_index_accuse_nobody(verified: Callable[..., dict[str, Any]]) -> None:
    assert verified(NODES, "node-a=C41-show-gids-indented.txt")["NET004"]["verdict"] == "unknown"


def test_a_generic_prefix_and_a_bond_are_not_accused(verified: Callable[..., dict[str, Any]]) -> None:
    told = verified(NODES, "C45-nccl-gdr-disabled.log")
    assert told["NET005"]["findings"] == told["NET006"]["findings"] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("C36-nccl217-container-noib.log", ("virbr0", "10.2.0.201")),
        ("C49-nccl278-ansi-veth.log", ("veth0000001",)),
    ],
)
def test_bridges_and_addresses_that_are_there_twice_are_warned_of(
    name: str, words: tuple[str, ...], verified: Callable[..., dict[str, Any]]
) -> None:
    found = verified("engine: torch\nparallel: {data: 2}\nnodes: 2\n", name)["NET006"]["findings"]
    assert {f["severity"] for f in found} == {"warning"}
    assert all(word in " ".join(f["message"] for f in found) for word in words)


def test_healthy_nodes_without_any_such_variable_are_not_accused() -> None:
    whole = report(TWO, *pair())
    for rule in ("NET004", "NET005", "NET006"):
        assert answer(whole, rule).findings == []


def test_a_table_is_made_as_it_is_meant() -> None:
    assert [gid.index for gid in table(WELL, 4)] == [4, 5, 6, 7]
