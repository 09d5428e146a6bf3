"""NET: GPUs and NICs reach each other directly; the fabric is reached by the plugin that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import RING, TWO, answer, comm, fact, log, pair, placed, report, results, running, snap, text_of
from captured import answers
from made_direct import PLUGIN, equipped, on_efa, pci_of, wired

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot, Library, NcclFile, NicShape, Port, Software

REDIRECTS = ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
LONELY = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n"


def of(rule: str, views: Sequence[FullSnapshot], text: str = TWO) -> RuleReport:
    return answer(report(text, *views), rule)


def verdict(rule: str, views: Sequence[FullSnapshot], text: str = TWO) -> str:
    return of(rule, views, text).verdict


def near(kind: str, views: Sequence[FullSnapshot] | None = None, **of_first: Any) -> list[FullSnapshot]:
    """The nodes of `equipped`, every GPU of the first so far from its NIC."""
    first, *others = views or equipped()
    matrix = first.hardware.matrix
    assert matrix is not None
    cells = tuple(tuple(kind for _ in row) for row in matrix.nics)
    hardware = msgspec.structs.replace(first.hardware, matrix=msgspec.structs.replace(matrix, nics=cells))
    return [msgspec.structs.replace(first, hardware=hardware, **of_first), *others]


def seen(*lines: tuple[str, str]) -> list[FullSnapshot]:
    """The running job, node-a's log with further statements."""
    return [*running(), log("node-a", facts=[fact(kind, value, line=7) for kind, value in lines])]


# NET007


@pytest.mark.parametrize(
    "means",
    [
        {"peer_memory": "nvidia_peermem"},
        {"peer_memory": "nv_peer_mem"},
        {"peer_memory": "", "dma_buf": True},
    ],
)
def test_either_way_to_gpu_memory_is_healthy(means: dict[str, Any]) -> None:
    assert verdict("NET007", equipped(**means)) == "pass"


def test_dma_buf_that_a_variable_forbids_is_none() -> None:
    text = text_of(of("NET007", equipped({"NCCL_DMABUF_ENABLE": "0"}, peer_memory="", dma_buf=True)))
    assert "NCCL_DMABUF_ENABLE=0 is set" in text
    assert verdict("NET007", equipped({"NCCL_DMABUF_ENABLE": "0"})) == "pass"


def test_a_driver_that_is_not_shown_is_unknown_and_a_closed_one_shares_nothing() -> None:
    views = equipped(peer_memory="", dma_buf=None)
    assert verdict("NET007", views) == "unknown"
    closed = msgspec.structs.replace(views[0], software=Software(open_driver=False))
    assert "not loaded" in text_of(of("NET007", [closed, views[1]]))


def test_gpus_of_another_maker_need_no_module_of_nvidia() -> None:
    views = [
        snap(name, ranks, model="AMD Instinct MI300X", verbs=view.verbs)
        for name, ranks, view in zip(
            ("node-a", "node-b"),
            (range(4), range(4, 8)),
            equipped(peer_memory="", dma_buf=False),
            strict=True,
        )
    ]
    assert verdict("NET007", views) == "pass"


@pytest.mark.parametrize("value", ["LOC", "0", "NVL"])
def test_a_level_that_allows_nothing_switches_it_off(value: str) -> None:
    assert f"NCCL_NET_GDR_LEVEL={value} on node-a switches" in text_of(
        of("NET007", equipped({"NCCL_NET_GDR_LEVEL": value}))
    )


def test_a_level_below_the_distance_is_told_and_one_above_it_is_healthy() -> None:
    narrow = near("PXB", equipped({"NCCL_NET_GDR_LEVEL": "PIX"}))
    assert "GPU0 (PXB)" in text_of(of("NET007", narrow))
    assert verdict("NET007", near("PHB", equipped({"NCCL_NET_GDR_LEVEL": "SYS"}))) == "pass"
    assert verdict("NET007", near("PXB", equipped({"NCCL_NET_GDR_LEVEL": "pix"}))) == "pass"


@pytest.mark.parametrize("kind", ["PHB", "NODE", "SYS"])
def test_a_table_in_which_all_is_far_may_be_a_virtual_machines(kind: str) -> None:
    assert verdict("NET007", near(kind)) == "unknown"


def test_a_far_nic_in_a_table_that_tells_distances_is_a_warning() -> None:
    first, second = near("PIX")
    matrix = first.hardware.matrix
    assert matrix is not None
    cells = (("PIX",), ("PIX",), ("NODE",), ("NODE",))
    hardware = msgspec.structs.replace(first.hardware, matrix=msgspec.structs.replace(matrix, nics=cells))
    [only] = of("NET007", [msgspec.structs.replace(first, hardware=hardware), second]).findings
    assert only.subjects == ["GPU2 (NODE) of node-a", "GPU3 (NODE) of node-a"]
    across = msgspec.structs.replace(matrix, nics=(("PIX",), ("PIX",), ("SYS",), ("SYS",)))
    far = msgspec.structs.replace(hardware, matrix=across)
    found = results(placed(TWO, msgspec.structs.replace(first, hardware=far), second))["NET007"]
    assert (found.findings, [gap.because for gap in found.gaps]) == ([], ["PP004"])


def test_a_topology_file_that_the_cloud_requires_decides_for_itself() -> None:
    file = NcclFile(path="/opt/microsoft/ndv5-topo.xml", kind="topology")
    assert verdict("NET007", near("NODE", files=(file,))) == "pass"
    assert verdict("NET007", near("NODE", equipped({"NCCL_TOPO_FILE": file.path}))) == "pass"


def test_gpus_on_a_processors_own_link_are_reached_through_it() -> None:
    views = [
        snap(name, ranks, model="NVIDIA GH200 480GB", verbs=view.verbs, near="PHB")
        for name, ranks, view in zip(("node-a", "node-b"), (range(4), range(4, 8)), equipped(), strict=True)
    ]
    assert verdict("NET007", views) == "pass"


def test_what_nccl_says_itself_counts_most() -> None:
    off = ("gdr-disabled", "mlx5_0")
    assert "NCCL disabled GPUDirect RDMA on node-a for mlx5_0: what" in text_of(of("NET007", seen(off)))
    loaded = text_of(of("NET007", [*seen(off), equipped()[0]]))
    assert "though nvidia_peermem is loaded" in loaded
    assert "dmesg" in loaded
    on = [fact("gdr-enabled", "mlx5_0", host=name, line=7) for name in ("node-a", "node-b")]
    views = [*running(), log("node-a", facts=on[:1]), log("node-b", facts=on[1:])]
    assert verdict("NET007", views) == "pass"


def test_far_pairs_of_a_gpu_that_has_a_near_nic_are_by_design() -> None:
    pairs = [("gdr-disabled", "GPU ca000 / HCA 0 (distance 7 > 4)"), ("gdr-enabled", "GPU ca000 / HCA 3")]
    assert of("NET007", seen(*pairs)).findings == []
    [only] = of("NET007", seen(pairs[0])).findings
    assert "distance 7 > 4" in only.message


def test_without_rdma_the_rule_of_rdma_tells() -> None:
    broken = running("NET/Socket/0", facts=[fact("no-verbs", "libibverbs"), fact("network", "Socket")])
    found = results(placed(TWO, *broken))["NET007"]
    assert found.findings == []
    assert "NET009" in {gap.because for gap in found.gaps}


# NET008


def test_access_control_at_root_ports_changes_nothing() -> None:
    first, second = wired()
    roots = {part.id for part in first.hardware.pci if part.kind == "root"}
    tree = tuple(
        msgspec.structs.replace(part, acs=REDIRECTS) if part.parent in roots else part
        for part in first.hardware.pci
    )
    hardware = msgspec.structs.replace(first.hardware, pci=tree)
    assert verdict("NET008", [msgspec.structs.replace(first, hardware=hardware), second]) == "pass"


@pytest.mark.parametrize(
    ("controls", "severity"),
    [
        (REDIRECTS, "error"),
        (("ReqRedir",), "error"),
        (("CmpltRedir",), "error"),
        (("SrcValid",), "warning"),
        ((*REDIRECTS, "DirectTrans"), "warning"),
        ((), None),
        (("TransBlk",), None),
    ],
)
def test_redirection_is_an_error_and_validation_a_warning(
    controls: tuple[str, ...], severity: str | None
) -> None:
    found = of("NET008", wired("bridge", acs=controls)).findings
    assert [finding.severity for finding in found] == ([severity] if severity else [])


def test_one_port_of_the_switch_is_enough_and_others_are_left_alone() -> None:
    first, second = wired()
    gpu = first.hardware.gpus[2].pci
    above = {part.id: part.parent for part in first.hardware.pci}
    port = above[gpu or ""]
    tree = tuple(
        msgspec.structs.replace(part, acs=REDIRECTS) if part.id == port else part
        for part in first.hardware.pci
    )
    hardware = msgspec.structs.replace(first.hardware, pci=tree)
    [only] = of("NET008", [msgspec.structs.replace(first, hardware=hardware), second]).findings
    assert only.subjects == ["GPU2 - mlx5_2 of node-a", "GPU2 - mlx5_3 of node-a"]


@pytest.mark.parametrize(
    ("kind", "verdict_of_it"), [("DMA", "fail"), ("DMA-FQ", "fail"), ("identity", "pass"), ("none", "pass")]
)
def test_an_iommu_that_translates_is_an_error_and_iommu_pt_is_healthy(kind: str, verdict_of_it: str) -> None:
    assert verdict("NET008", wired("nic", iommu=kind)) == verdict_of_it


def test_groups_whose_type_is_not_shown_are_unknown() -> None:
    assert verdict("NET008", wired("nic", iommu=None)) == "unknown"


def test_gpus_that_nvlink_joins_send_nothing_over_pcie() -> None:
    alone = [
        msgspec.structs.replace(wired("bridge", acs=REDIRECTS)[0], ranks=snap(ranks=range(4), size=4).ranks)
    ]
    assert verdict("NET008", alone, LONELY) == "not-applicable"


def test_gpus_without_nvlink_need_the_switch_in_one_node_too() -> None:
    [first] = [
        msgspec.structs.replace(wired("bridge", acs=REDIRECTS)[0], ranks=snap(ranks=range(4), size=4).ranks)
    ]
    bare = tuple(
        msgspec.structs.replace(gpu, model="NVIDIA L40S", links=(), nvswitch=None)
        for gpu in first.hardware.gpus
    )
    first = msgspec.structs.replace(first, hardware=msgspec.structs.replace(first.hardware, gpus=bare))
    [only] = of("NET008", [first], LONELY).findings
    assert only.subjects == ["GPU0 - GPU1 of node-a", "GPU2 - GPU3 of node-a"]
    translated = pci_of(pci_of(first, "bridge", acs=()), "gpu", iommu="DMA")
    assert "IOMMU of node-a translates" in text_of(of("NET008", [translated], LONELY))


def test_lines_of_grep_tell_of_no_bridge_where_it_is() -> None:
    whole = report(TWO, *seen(("acs", "SrcValid ReqRedir")))
    found = answer(whole, "NET008")
    assert (found.verdict, found.findings) == ("unknown", [])
    needs = [whole.gaps[index].need for index in found.gaps]
    assert "whether the bridges with SrcValid ReqRedir lie between GPUs and NICs" in needs


def test_a_virtual_machine_shows_nothing_of_its_hosts_bridges() -> None:
    views = [msgspec.structs.replace(view, software=Software(hypervisor="KVM")) for view in pair()]
    whole = report(TWO, *views)
    found = answer(whole, "NET008")
    assert "below this virtual machine (KVM)" in whole.gaps[found.gaps[0]].need


def test_a_whole_listing_of_lspci_shows_the_nics_of_the_tree() -> None:
    first, second = wired("bridge", acs=REDIRECTS)
    hardware = msgspec.structs.replace(first.hardware, nics=())
    views = [msgspec.structs.replace(first, hardware=hardware), second]
    assert "ReqRedir" in text_of(of("NET008", views))


# NET011


def test_a_plugin_where_the_loader_looks_is_healthy() -> None:
    for name in ("libnccl-net.so", "libnccl-net-ofi.so", "libnccl-net-aws-ofi.so.1"):
        assert verdict("NET011", on_efa(Library(name=name, folder="/usr/lib"))) == "pass"


def test_a_plugin_where_the_loader_does_not_look_is_missing() -> None:
    lost = msgspec.structs.replace(PLUGIN, searched=False)
    text = text_of(of("NET011", on_efa(lost)))
    assert "/opt/amazon/ofi-nccl/lib/libnccl-net.so lies where the loader does not look" in text
    assert "LD_LIBRARY_PATH" in text


def test_libfabric_alone_is_no_plugin() -> None:
    assert verdict("NET011", on_efa(Library(name="libfabric.so.1", folder="/usr/lib"))) == "fail"


def test_what_a_login_shell_sees_is_not_the_ranks() -> None:
    views = on_efa(scope="unknown")
    assert verdict("NET011", views) == "unknown"


def test_slingshot_needs_the_plugin_too() -> None:
    port = Port(state="ACTIVE", physical="LinkUp", layer="Ethernet", rate_gbps=200)
    views = [
        snap(
            view.identity.host.name,
            ranks,
            ports=(NicShape(name="cxi0", kind="slingshot", ports=(port,)),),
            verbs=view.verbs,
        )
        for view, ranks in zip(on_efa(), (range(4), range(4, 8)), strict=True)
    ]
    assert "cxi provider" in text_of(of("NET011", views))


def test_a_plugin_that_is_not_found_on_infiniband_is_no_fault() -> None:
    missing = [fact("plugin-missing", "libnccl-net.so"), fact("network", "IB"), fact("hca", "mlx5_0:1/IB")]
    assert of("NET011", running(facts=missing)).findings == []
    opened = [fact("hca", "mlx5_0:1/IB", host=name) for name in ("node-a", "node-b")]
    assert verdict("NET011", running(facts=opened)) == "not-applicable"


def test_a_network_that_the_job_asks_for_needs_its_plugin() -> None:
    views = [msgspec.structs.replace(view, environment={"NCCL_NET": "AWS Libfabric"}) for view in equipped()]
    assert "NCCL_NET=AWS Libfabric asks for it" in text_of(of("NET011", views))
    for own in ("IB", "ib"):
        plain = [msgspec.structs.replace(view, environment={"NCCL_NET": own}) for view in equipped()]
        assert verdict("NET011", plain) == "not-applicable"


def test_a_plugin_that_is_kept_away_is_missing() -> None:
    views = on_efa(PLUGIN)
    kept = msgspec.structs.replace(views[0], environment={"NCCL_NET_PLUGIN": "none"})
    assert "NCCL_NET_PLUGIN=none keeps it away" in text_of(of("NET011", [kept, views[1]]))


def on_amazon(*lines: tuple[str, str]) -> list[FullSnapshot]:
    """The job on Amazon's machines, as its log shows it."""
    told = [
        fact(kind, value, host=name, line=3)
        for name in ("node-a", "node-b")
        for kind, value in (("ofi-platform", "P4d"), *lines)
    ]
    return running("NET/Socket/0", facts=told)


def test_a_missing_provider_is_told_once_and_sockets_follow_from_it() -> None:
    views = on_amazon(("ofi-no-provider", "no optimal provider"), ("network", "Socket"))
    whole = report(TWO, *views)
    assert "Amazon's P4d platform" in text_of(answer(whole, "NET011"))
    assert answer(whole, "NET009").findings == []
    assert answer(whole, "OBS003").verdict == "fail"


def test_another_provider_than_the_fabrics_is_told() -> None:
    views = on_amazon(("network", "AWS Libfabric"), ("ofi-provider", "tcp;ofi_rxm"))
    assert "runs over the provider tcp;ofi_rxm" in text_of(of("NET011", views))
    good = on_amazon(("network", "AWS Libfabric"), ("ofi-provider", "efa"))
    assert verdict("NET011", good) == "pass"


def test_sockets_between_nodes_that_the_plan_allows_are_a_warning() -> None:
    views = on_amazon(("ofi-no-provider", "no optimal provider"), ("network", "Socket"))
    [only] = of("NET011", views, f"{TWO}policy: {{boundary: any}}\n").findings
    assert only.severity == "warning"


def test_a_node_of_which_nothing_is_known_is_unknown() -> None:
    silent = log("node-b", comm(RING, range(4, 8), host="node-b"))
    for rule in ("NET007", "NET008", "NET011"):
        found = of(rule, [pair()[0], silent])
        assert (found.verdict, found.findings) == ("unknown", [])


# What was really met


@pytest.fixture
def verified(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Answers of `topocheck verify` about files of real cases, by rule."""
    return partial(answers, tmp_path)


NODES = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n"


def test_gpudirect_that_nccl_disabled_is_a_warning_of_both_nodes(
    verified: Callable[..., dict[str, Any]],
) -> None:
    told = verified(NODES, "C45-nccl-gdr-disabled.log")["NET007"]["findings"]
    assert {f["severity"] for f in told} == {"warning"}
    words = " ".join(f["message"] for f in told)
    assert "node-a for mlx5_0, mlx5_1" in words
    assert "distance 7 > 4" in words


@pytest.mark.parametrize("name", ["C45-nccl225-roce-ok.log", "C47-topo8-h100-9nic.txt"])
def test_healthy_nodes_are_not_accused(name: str, verified: Callable[..., dict[str, Any]]) -> None:
    told = verified(NODES, f"vm-a={name}" if name.startswith("C47") else name)
    assert [told[rule]["findings"] for rule in ("NET007", "NET008", "NET011")] == [[], [], []]


def test_a_table_without_access_control_is_unknown(verified: Callable[..., dict[str, Any]]) -> None:
    alone = "engine: vllm\nparallel: {tensor: 4, pipeline: 1}\nnodes: 1\n"
    assert verified(alone, "C23-topo4-pxb-pix.txt")["NET008"]["verdict"] == "unknown"


def test_efa_without_a_provider_is_told_of_the_node(verified: Callable[..., dict[str, Any]]) -> None:
    told = verified(NODES, "C51-ofi-old-mpirun.log")
    [only] = told["NET011"]["findings"]
    assert "10.0.35.83" in only["message"]
    assert told["NET009"]["findings"] == []
