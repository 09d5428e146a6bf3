"""ENV001-ENV003: variables that differ, mean nothing, or are hidden in a file."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from build import FOUR, TWO, answer, fact, log, nics, pair, report, running, snap, text_of
from captured import of_capture, read_text
from made_fabric import both
from made_network import with_interfaces, with_ports
from made_path import told
from made_settings import CONF, holding, reading

from topocheck.portreading import GidReading, PortReading
from topocheck.report import RuleReport
from topocheck.snapshot import (
    SCHEMA,
    At,
    FullSnapshot,
    Host,
    Identity,
    JobFact,
    NcclFile,
    Netdev,
    Software,
)

FOUR_NODES = "engine: vllm\nparallel: {tensor: 4, pipeline: 4}\nnodes: [node-a, node-b, node-c, node-d]\n"
TOPOLOGY = "/var/run/nvidia-topologyd/virtualTopology.xml"


def of(rule: str, *views: FullSnapshot, text: str = TWO) -> RuleReport:
    return answer(report(text, *views), rule)


def each(*variables: dict[str, str], **parts: Any) -> list[FullSnapshot]:
    """Nodes whose ranks have these variables."""
    names = ("node-a", "node-b", "node-c", "node-d")
    return [
        snap(
            name,
            range(4 * n, 4 * n + 4),
            size=4 * len(variables),
            environment={"NCCL_DEBUG": "INFO"} | own,
            **parts,
        )
        for n, (name, own) in enumerate(zip(names, variables, strict=False))
    ]


def test_the_odd_node_is_named_against_the_majority() -> None:
    found = of("ENV001", *each({}, {}, {"NCCL_CROSS_NIC": "0"}, {}), text=FOUR_NODES)
    assert found.findings[0].subjects == ["node-c"]
    assert "0 on node-c, and 2 on the other 3 nodes" in text_of(found)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"NCCL_P2P_DISABLE": "0"}, {}),
        ({"NCCL_P2P_DISABLE": "true"}, {"NCCL_P2P_DISABLE": "0"}),
        ({"NCCL_NVLS_ENABLE": "2"}, {}),
        ({"NCCL_P2P_LEVEL": "nvl"}, {}),
        ({"NCCL_P2P_LEVEL": "5"}, {"NCCL_P2P_LEVEL": "SYS"}),
        ({"NCCL_DEBUG_SUBSYS": "INIT"}, {}),
    ],
)
def test_values_that_come_to_the_same_are_equal(first: dict[str, str], second: dict[str, str]) -> None:
    assert of("ENV001", *each(first, second)).verdict == "pass"


def test_a_file_of_one_node_differs_as_a_variable_does() -> None:
    first, second = pair()
    hidden = reading(NCCL_PROTO="Simple")
    found = of("ENV001", msgspec.structs.replace(first, files=(hidden,)), second)
    assert "NCCL_PROTO" in text_of(found)


def test_ranks_of_one_node_may_differ_too() -> None:
    first, second = each({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"})
    again = msgspec.structs.replace(first, ranks=first.ranks[:1], environment={"NCCL_ALGO": "Tree"})
    assert "NCCL_ALGO" in text_of(of("ENV001", first, again, second))


def some_with(name: str, value: str, **parts: Any) -> list[FullSnapshot]:
    """Two nodes; a variable is set for two ranks of the first and for no others."""
    own: tuple[dict[str, str], ...] = ({name: value}, {})
    first, second = pair()
    return [msgspec.structs.replace(first, own_environments=own, **parts), second]


def test_a_variable_that_one_rank_of_a_node_has_and_another_has_not_differs() -> None:
    found = of("ENV001", *some_with("NCCL_ALGO", "Ring"))
    assert found.verdict == "fail"
    assert "Ring and not set on node-a" in text_of(found)
    first, second = each({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"})
    lacking = msgspec.structs.replace(first, ranks=first.ranks[1:2], environment={"NCCL_DEBUG": "INFO"})
    assert "NCCL_ALGO" in text_of(of("ENV001", first, lacking, second))
    alone = report(FOUR, *some_with("NCCL_ALGO", "Ring")[:1])
    assert answer(alone, "ENV001").verdict == "fail"


def test_a_rank_without_a_variable_has_what_it_comes_to_there() -> None:
    assert of("ENV001", *some_with("NCCL_P2P_DISABLE", "0")).verdict == "pass"
    file = reading(NCCL_ALGO="Ring")
    first, second = some_with("NCCL_ALGO", "Ring", files=(file,))
    assert of("ENV001", first, msgspec.structs.replace(second, files=(file,))).verdict == "pass"
    assert of("ENV001", first, second).verdict == "fail"


def test_a_shell_beside_the_job_lacks_nothing() -> None:
    first, second = each({"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"})
    shell = msgspec.structs.replace(first, ranks=(), environment={"NCCL_DEBUG": "INFO"})
    assert of("ENV001", first, shell, second).verdict == "pass"
    claimed = msgspec.structs.replace(first, environment={})
    assert of("ENV001", claimed, shell, second).verdict == "unknown"


def test_a_log_that_shows_a_variable_on_one_node_alone_accuses_nobody() -> None:
    facts = [fact("env", "NCCL_ALGO=Ring")]
    assert of("ENV001", *running(facts=facts)).findings == []
    both_told = [*facts, fact("env", "NCCL_ALGO=Tree", host="node-b")]
    assert of("ENV001", *running(facts=both_told)).verdict == "fail"


def test_lists_of_devices_may_have_other_names_if_they_select_alike() -> None:
    first, second = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}, {"NCCL_IB_HCA": "=mlx5_2,mlx5_3"}
    assert of("ENV001", *each(first, second, ports=nics(4))).verdict == "pass"
    found = of("ENV001", *each(first, {"NCCL_IB_HCA": "=mlx5_2"}, ports=nics(4)))
    assert "2 InfiniBand ports on node-a" in text_of(found)
    assert "1 InfiniBand port on node-b" in text_of(found)


def test_a_prefix_that_takes_more_than_it_says_is_seen_by_what_it_selects() -> None:
    wide, narrow = {"NCCL_IB_HCA": "mlx5_1"}, {"NCCL_IB_HCA": "=mlx5_1"}
    assert of("ENV001", *each(wide, narrow, ports=nics(4))).findings == []
    assert of("ENV001", *each(wide, narrow, ports=nics(12))).verdict == "fail"


def test_lists_whose_devices_nobody_shows_are_unknown() -> None:
    first, second = {"NCCL_IB_HCA": "mlx5_0"}, {"NCCL_IB_HCA": "mlx5_3"}
    bare = [
        msgspec.structs.replace(view, coverage=msgspec.structs.replace(view.coverage, nics="part"))
        for view in each(first, second)
    ]
    assert of("ENV001", *bare).verdict == "unknown"


def addressed(view: FullSnapshot, *devices: tuple[str, str]) -> FullSnapshot:
    """The node with these interfaces: name and layer."""
    return with_interfaces(
        view,
        *(
            (Netdev(name=name, kind="physical", layer=layer, state="up"), (f"10.0.{n}.7/24",))
            for n, (name, layer) in enumerate(devices)
        ),
    )


def test_interfaces_may_have_other_names_and_not_lead_to_another_kind_of_network() -> None:
    first, second = each({"NCCL_SOCKET_IFNAME": "eth0"}, {"NCCL_SOCKET_IFNAME": "bond0"})
    here = addressed(first, ("eth0", "ethernet"), ("ib0", "infiniband"))
    assert of("ENV001", here, addressed(second, ("bond0", "ethernet"))).verdict == "pass"
    assert of("ENV001", here, addressed(second, ("bond0", "infiniband"))).verdict == "fail"
    assert of("ENV001", here, second).verdict == "unknown"


def gids(view: FullSnapshot, types: dict[int, str], *, cut: bool = False) -> FullSnapshot:
    """The node with a GID table of its first device."""
    table = tuple(
        GidReading(index=index, digits=f"0000:0000:0000:0000:0000:ffff:0a14:01{index:02x}", type=kind)
        for index, kind in types.items()
    )
    return with_ports(view, {0: (PortReading(gids=table, gids_cut=cut),)})


def test_indexes_may_differ_if_they_mean_one_kind_of_gid() -> None:
    first, second = each(
        {"NCCL_IB_GID_INDEX": "5"}, {"NCCL_IB_GID_INDEX": "7"}, ports=nics(1, layer="Ethernet")
    )
    here = gids(first, {4: "IB/RoCE v1", 5: "RoCE v2"})
    assert of("ENV001", here, gids(second, {6: "IB/RoCE v1", 7: "RoCE v2"})).verdict == "pass"
    found = of("ENV001", here, gids(second, {6: "RoCE v2", 7: "IB/RoCE v1"}))
    assert "IB/RoCE v1 GIDs on node-b" in text_of(found)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("NCCL_P2P_DISABLE", "true", "switches nothing"),
        ("NCCL_P2P_DISABLE", "2", "only 1 counts"),
        ("NCCL_SHM_DISABLE", '"1"', "the number 0"),
        ("NCCL_IB_DISABLE", "yes", "switches nothing"),
        ("NCCL_NVLS_ENABLE", "true", "switches it off"),
        ("NCCL_MNNVL_ENABLE", "on", "switches it off"),
        ("NCCL_NET_GDR_LEVEL", "phb", "PHB is meant"),
        ("NCCL_P2P_LEVEL", "NVLINK", "is no path type:"),
        ("NCCL_P2P_LEVEL", "-1", "is no path type:"),
        ("NCCL_COLLNET_ENABLE", "TRUE", "switches it off"),
    ],
)
def test_what_nccl_reads_otherwise_is_told(name: str, value: str, words: str) -> None:
    found = of("ENV002", *told(**{name: value}))
    assert [finding.severity for finding in found.findings] == ["warning"]
    assert words in text_of(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "1"),
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_P2P_LEVEL", "4"),
        ("NCCL_CUMEM_ENABLE", "-2"),
        ("NCCL_IB_DISABLE", ""),
        ("NCCL_NET", "Socket"),
        ("NCCL_SOCKET_IFNAME", "true0"),
        ("NCCL_FASTRAK_CTRL_ENABLE", "yes"),
    ],
)
def test_what_nccl_or_a_plugin_understands_is_not_told(name: str, value: str) -> None:
    assert of("ENV002", *told(**{name: value})).verdict == "pass"


def test_a_value_on_all_nodes_is_one_finding() -> None:
    found = of("ENV002", *both(environment={"NCCL_P2P_LEVEL": "nvl"}))
    assert [finding.count for finding in found.findings] == [2]


def test_a_value_that_nccl_itself_calls_invalid_is_told_with_its_line() -> None:
    facts = [fact("env-invalid", "NCCL_BUFFSIZE=99999999999999999999", line=12)]
    assert "node-a.log:12" in text_of(of("ENV002", *running(facts=facts)))


def test_a_script_is_read_before_anything_runs() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=2\nexport NCCL_P2P_DISABLE=true\n"
        "srun vllm serve m --tensor-parallel-size 8\n"
    )
    assert "NCCL_P2P_DISABLE=true" in text_of(of("ENV002", *read_text(script)))


def test_a_graph_file_that_names_a_gpu_too_many_is_an_error() -> None:
    whole = of_capture("C52-nccl218-topofile.log", "engine: vllm\nparallel: {tensor: 1}\nnodes: 1\n")
    found = answer(whole, "ENV003")
    assert [finding.severity for finding in found.findings] == ["error"]
    assert "/graph.xml" in text_of(found)
    assert answer(whole, "OBS006").findings == []


def test_any_import_that_nccl_refuses_is_told_here_and_not_as_an_abort() -> None:
    lines = [
        fact("hca", "mlx5_0:1/IB"),
        fact("env", "NCCL_TOPO_FILE=/images/other.xml"),
        fact("abort", "XML Import : unrecognised graph type 7", line=22),
    ]
    whole = report(TWO, *running(facts=lines))
    assert "/images/other.xml" in text_of(answer(whole, "ENV003"))
    assert answer(whole, "OBS006").findings == []


def test_the_topology_of_a_virtual_machine_is_required_there() -> None:
    variables = {"NCCL_TOPO_FILE": "/opt/microsoft/ndv5-topo.xml"}
    file = NcclFile(path="/opt/microsoft/ndv5-topo.xml", kind="topology")
    azure = both(environment=variables, files=(file,), software=Software(hypervisor="Hyper-V"))
    assert of("ENV003", *azure).verdict == "pass"
    daemon = both(files=(NcclFile(path=TOPOLOGY, kind="topology"),))
    assert of("ENV003", *daemon).verdict == "pass"
    own = NcclFile(path="/images/topo.xml", kind="topology")
    assert of("ENV003", *both(files=(own,), software=Software(hypervisor="KVM"))).verdict == "pass"
    assert of("ENV003", *both(files=(own,))).verdict == "fail"


def test_a_plugins_own_topology_is_no_fault() -> None:
    found = of_capture("C51-ofi-old-mpirun.log", "engine: torch\nparallel: {data: 2}\nnodes: 2\n")
    assert answer(found, "ENV003").findings == []


def test_a_conf_that_the_environment_outdoes_or_that_sets_no_path_is_harmless() -> None:
    conf = reading(NCCL_P2P_LEVEL="PHB", NCCL_DEBUG="INFO", NCCL_SOCKET_NTHREADS="4")
    outdone = [msgspec.structs.replace(view, environment={"NCCL_P2P_LEVEL": "SYS"}) for view in holding(conf)]
    assert of("ENV003", *outdone).verdict == "pass"
    assert of("ENV003", *holding(conf)).verdict == "fail"


def test_of_two_files_the_users_own_is_the_one_in_force() -> None:
    own = NcclFile(path="/root/.nccl.conf", kind="settings", settings={"NCCL_CROSS_NIC": "0"})
    found = of("ENV003", *holding(own, reading(NCCL_CROSS_NIC="1")))
    assert "/root/.nccl.conf" in text_of(found)
    assert CONF not in text_of(found)


@pytest.mark.parametrize("kind", ["settings", "topology", "graph"])
def test_a_file_that_is_named_and_missing_is_told(kind: str) -> None:
    found = of("ENV003", *holding(NcclFile(path="/images/x", kind=kind, exists=False)))  # type: ignore[arg-type]
    assert "/images/x" in text_of(found)


def test_a_probe_that_found_no_file_passes_and_a_listing_says_nothing() -> None:
    probed = [
        snap(name, ranks, source="topocheck probe")
        for name, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]
    assert of("ENV003", *probed).verdict == "pass"
    assert of("ENV003", log("node-a"), text=FOUR).verdict == "unknown"


def test_a_node_that_no_probe_looked_at_is_not_like_one_that_it_did() -> None:
    probed = snap("node-a", range(4), source="topocheck probe")
    assert of("ENV003", probed, snap("node-b", range(4, 8))).verdict == "unknown"


def test_a_node_whose_variables_nobody_shows_is_not_taken_for_one_without_them() -> None:
    first, second = {"NCCL_IB_HCA": "=mlx5_0"}, {"NCCL_IB_HCA": "=mlx5_1"}
    views = each(first, second, first, second, ports=nics(4))
    views[3] = msgspec.structs.replace(views[3], environment={})
    found = of("ENV001", *views, text=FOUR_NODES)
    assert (found.verdict, found.findings) == ("unknown", [])


@pytest.mark.parametrize("value", ["-1", "auto"])
def test_an_index_that_leaves_the_choice_to_nccl_selects_no_missing_entry(value: str) -> None:
    first, second = each(
        {"NCCL_IB_GID_INDEX": "5"}, {"NCCL_IB_GID_INDEX": value}, ports=nics(1, layer="Ethernet")
    )
    table = {0: "IB/RoCE v1", 5: "RoCE v2"}
    found = of("ENV001", gids(first, table), gids(second, table))
    assert (found.verdict, found.findings) == ("unknown", [])


def test_an_entry_beyond_what_is_listed_of_a_table_is_not_missing() -> None:
    first, second = each(
        {"NCCL_IB_GID_INDEX": "5"}, {"NCCL_IB_GID_INDEX": "7"}, ports=nics(1, layer="Ethernet")
    )
    here, there = gids(first, {5: "RoCE v2"}), gids(second, {5: "RoCE v2"})
    assert of("ENV001", here, there).verdict == "fail"
    assert of("ENV001", here, gids(second, {5: "RoCE v2"}, cut=True)).findings == []


def commanding(*facts: tuple[str, str | None, str, str]) -> FullSnapshot:
    """A text with commands: kind, host, name, value."""
    job = tuple(
        JobFact(kind=kind, host=host, name=name, value=value, at=At(source="shell.txt", line=n))
        for n, (kind, host, name, value) in enumerate(facts, 1)
    )
    return FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=job)


def test_what_is_set_on_one_node_is_not_set_on_the_others() -> None:
    one = ("option", "node-a", "NCCL_IB_DISABLE", "yes")
    bare = [msgspec.structs.replace(view, environment={}) for view in pair()]
    for launcher in ((), (("launcher", "node-a", "vllm", "torchrun"),)):
        found = of("ENV002", *bare, commanding(one, *launcher))
        assert [finding.subjects for finding in found.findings] == [["node-a"]]
    carried = ("launcher", "node-a", "vllm", "mpirun")
    for said in ((one, carried), (("option", "login-1", *one[2:]),), (("option", None, *one[2:]),)):
        (finding,) = of("ENV002", *bare, commanding(*said)).findings
        assert finding.subjects == ["node-a", "node-b"]
    both_said = commanding(one, ("option", "node-b", "NCCL_IB_DISABLE", "0"))
    assert of("ENV001", *bare, both_said).verdict == "unknown"
    apart = commanding(("option", "node-a", "NCCL_ALGO", "Ring"), ("option", "node-b", "NCCL_ALGO", "Tree"))
    assert "Ring on node-a" in text_of(of("ENV001", *bare, apart))
