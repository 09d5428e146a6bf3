"""NV003-NV005 and TP001 by telemetry: domains, fabric managers, peer access over NVLink."""

from __future__ import annotations

import msgspec
import pytest
from build import (
    GB200,
    H100,
    RING,
    TWO,
    answer,
    comm,
    completed,
    fact,
    log,
    pair,
    report,
    running,
    snap,
    text_of,
)
from captured import of_capture, read_text
from made_fabric import RACK, SWITCHED, both, joined, managed, trays

from topocheck.report import RuleReport
from topocheck.snapshot import At, FullSnapshot, Host, Identity, JobFact, Software

THREE = "engine: torch\nparallel: {tensor: 3}\nnodes: 3\npolicy: {tensor_domain: nvlink}\n"
ZERO, OTHER = "0" * 32, "b" * 32


def of(rule: str, *views: FullSnapshot, text: str = TWO) -> RuleReport:
    return answer(report(text, *views), rule)


def telling(*domains: str) -> FullSnapshot:
    """Telemetry of ranks 0, 1 ...: cluster UUID and clique of each."""
    facts = tuple(
        JobFact(
            kind="nvlink-domain", name=str(rank), value=domain, at=At(source="telemetry.txt", line=rank + 1)
        )
        for rank, domain in enumerate(domains)
    )
    return FullSnapshot(schema="topocheck.snapshot/1", identity=Identity(host=Host()), job=facts)


def test_equal_cliques_of_three_clusters_are_three_domains() -> None:
    found = answer(of_capture("C33-clique-telemetry.txt", THREE), "TP001")
    assert found.verdict == "fail"
    assert "3 NVLink domains" in text_of(found)
    assert "ranks 0..2" in text_of(found)


@pytest.mark.parametrize("domains", [("c" * 32 + ".1",) * 3, (ZERO + ".0",) * 3, ()])
def test_telemetry_never_acquits(domains: tuple[str, ...]) -> None:
    assert of("TP001", telling(*domains), text=THREE).verdict == "unknown"


def test_a_rank_that_is_told_two_domains_accuses_nobody() -> None:
    twice = telling("c" * 32 + ".1"), telling("d" * 32 + ".1")
    assert of("TP001", *twice, text=THREE).verdict == "unknown"


def test_a_data_parallel_job_over_three_domains_is_legal() -> None:
    found = of_capture("C33-clique-telemetry.txt", "engine: torch\nparallel: {data: 3}\nnodes: 3\n")
    assert [rule.id for rule in found.rules if rule.findings and rule.id in ("TP001", "NV003")] == []


def test_groups_that_each_lie_in_a_domain_of_their_own_are_no_fault() -> None:
    plan = RACK.replace("8}", "8, pipeline: 2}").replace(
        "node-a, node-b", '"10.0.53.1", "10.0.61.1", "10.0.58.1", "10.0.63.1"'
    )
    assert answer(of_capture("C34-kubectl-clique.txt", plan), "NV003").findings == []


def test_a_group_in_two_racks_is_told_by_tp001_alone() -> None:
    whole = report(RACK, *trays(completed(), completed(OTHER)))
    assert answer(whole, "TP001").verdict == "fail"
    found = answer(whole, "NV003")
    assert (found.verdict, found.findings) == ("unknown", [])


def test_two_hosts_with_a_zero_cluster_uuid_rely_on_no_domain() -> None:
    views = [
        snap("node-a", range(4), fabric=SWITCHED, model=H100),
        snap("node-b", range(4, 8), fabric=SWITCHED, model=H100),
    ]
    assert of("NV003", *views, text=RACK).verdict == "not-applicable"


def test_a_node_that_is_kept_inside_by_policy_relies_on_no_domain() -> None:
    text = RACK.replace("nvlink", "node")
    assert of("NV003", *trays(completed(), completed(clique=8)), text=text).verdict == "not-applicable"


def test_gpus_of_one_tray_in_two_cliques() -> None:
    halves = tuple(
        msgspec.structs.replace(completed(clique=clique)[0], gpus=gpus)
        for clique, gpus in ((7, (0, 1)), (8, (2, 3)))
    )
    found = of("NV003", *trays(halves, completed()), text=RACK)
    assert "GPUs of node-a report several NVLink domains" in text_of(found)


def test_a_domain_whose_imex_does_not_work_is_told_with_the_line() -> None:
    line = fact("mnnvl-failed", "MNNVL (cliqueSize 8) is available but not working on some system")
    views = [*trays(completed(), completed()), log("node-a", comm(RING, range(4)), facts=[line])]
    found = of("NV003", *views, text=RACK)
    assert [finding.severity for finding in found.findings] == ["error"]
    assert "node-a.log:5" in text_of(found)


def test_a_fabric_that_is_not_ready_is_told_by_nv002() -> None:
    whole = report(RACK, *trays(completed(), completed(state="In Progress")))
    assert answer(whole, "NV002").verdict == "fail"
    assert answer(whole, "NV003").findings == []


def test_a_boundary_with_rdma_relies_on_no_domain_and_one_without_does() -> None:
    text = TWO.replace("tensor: 4, pipeline: 2", "pipeline: 8")
    parts = trays(completed(clique=7), completed(clique=8))
    assert of("NV003", *parts, text=text).verdict == "not-applicable"
    sockets = [log(f.identity.host.name, facts=[fact("no-verbs", host="node-a")]) for f in parts[:1]]
    found = of("NV003", *parts, *sockets, text=text)
    assert found.verdict == "fail"
    assert "stage boundary" in text_of(found)


def test_nccls_own_clique_proves_that_imex_works() -> None:
    views = [*trays(completed(), completed()), *joined()]
    assert of("NV003", *views, text=RACK).verdict == "pass"


def test_two_trays_of_a_real_log_are_one_domain() -> None:
    text = "engine: vllm\nparallel: {tensor: 8}\nnodes: 2\npolicy: {tensor_domain: nvlink}\n"
    assert answer(of_capture("C65-nccl2297-gb300-2tray-mnnvl.log", text), "NV003").findings == []


@pytest.mark.parametrize("state", ["failed", "inactive"])
def test_a_manager_that_does_not_run_is_a_warning(state: str) -> None:
    view = log("node-a", facts=[fact("fabric-manager", state)])
    found = of("NV004", *pair(), view)
    assert [finding.severity for finding in found.findings] == ["warning"]
    assert "node-a" in text_of(found)


def test_the_last_word_about_the_manager_counts() -> None:
    words = [fact("fabric-manager", "failed"), fact("fabric-manager", "running", line=9)]
    assert of("NV004", *both(fabric=SWITCHED), log("node-a", facts=words)).findings == []


def test_a_manager_that_refused_the_driver_is_named_with_both_versions() -> None:
    text = (
        "[Mar 01 2026 10:00:00] [ERROR] [tid 812] fabric manager NVIDIA GPU driver interface version "
        "550.90.07 don't match with driver version 550.107.02.\n"
    )
    found = of("NV004", *pair(), *read_text(text, "node-a"))
    assert "550.90.07" in text_of(found)
    assert "550.107.02" in text_of(found)


def test_equal_versions_pass() -> None:
    same = Software(driver="570.86.15", fabric_manager="570.86.15")
    assert of("NV004", *both(software=same)).verdict == "pass"


def test_a_mesh_without_switches_needs_no_manager() -> None:
    views = both(links=lambda _a, _b: "NV6", switch=None)
    assert of("NV004", *views).verdict == "not-applicable"


def test_trays_of_a_rack_have_their_switches_elsewhere() -> None:
    assert of("NV004", *both(model=GB200, switch=True)).verdict == "not-applicable"


def test_a_version_on_a_board_without_switches_accuses_nobody() -> None:
    odd = Software(driver="570.86.15", fabric_manager="550.54.15")
    assert of("NV004", *both(model="NVIDIA A40", switch=None, links=None, software=odd)).findings == []


def test_a_system_that_is_not_ready_leaves_the_manager_unknown() -> None:
    text = "engine: vllm\nparallel: {tensor: 1}\nnodes: 1\n"
    assert answer(of_capture("C30-fabric-802.log", text), "NV004").findings == []


def test_a_completed_fabric_proves_its_manager() -> None:
    assert of("NV004", *managed()).verdict == "pass"


def test_all_refused_pairs_of_a_node_are_one_finding_with_the_drivers_reasons() -> None:
    found = of("NV005", *pair(refused=[(0, 1), (2, 3)]))
    assert len(found.findings) == 1
    assert "GPUs 0-1: not supported, GPUs 2-3: not supported" in text_of(found)


def test_a_refusal_without_nvlink_is_not_told_here() -> None:
    views = both(
        refused=[(0, 1)], links=lambda a, b: "PHB" if {a, b} == {0, 1} else "NV4", model="NVIDIA A40"
    )
    assert of("NV005", *views).findings == []


def test_an_answer_that_the_driver_does_not_know_is_no_refusal() -> None:
    views = []
    for view in pair():
        peers = tuple(msgspec.structs.replace(peer, status="U") for peer in view.hardware.peers)
        views.append(
            msgspec.structs.replace(view, hardware=msgspec.structs.replace(view.hardware, peers=peers))
        )
    assert of("NV005", *views).verdict == "unknown"


def test_nccls_own_warning_is_told_here_and_not_as_an_abort() -> None:
    words = "P2P is disabled between NVLINK connected GPUs 2 and 3. This should not be the case"
    told = [
        fact("hca", "mlx5_0:1/IB"),
        fact("network", "IB"),
        fact("p2p-disabled", "NVLINK GPUs 2 and 3", line=30),
        fact("abort", words, line=31),
    ]
    whole = report(TWO, *pair(), *running(facts=told))
    assert "NVLINK GPUs 2 and 3" in text_of(answer(whole, "NV005"))
    assert answer(whole, "OBS006").findings == []


def test_a_warning_is_told_though_the_job_stopped_before_its_ranks_were_seen() -> None:
    facts = [
        fact("p2p-disabled", "NVLINK GPUs 2 and 3"),
        fact("abort", "P2P is disabled between NVLINK", line=6),
    ]
    assert "NVLINK GPUs 2 and 3" in text_of(of("NV005", *pair(), log("node-a", facts=facts)))
    alone = log("node-a", comm("0xfeed", [0, 1], size=2), facts=facts)
    assert "NVLINK GPUs 2 and 3" in text_of(of("NV005", alone))


def test_gpus_that_no_rank_uses_are_left_alone() -> None:
    views = [snap("node-a", [0, 1], size=4, refused=[(2, 3)]), snap("node-b", [2, 3], size=4)]
    text = TWO.replace("tensor: 4", "tensor: 2")
    assert of("NV005", *views, text=text).verdict == "pass"


def test_a_manager_that_came_back_runs() -> None:
    words = [
        fact("fabric-manager", state, line=line)
        for line, state in enumerate(("running", "failed", "running"))
    ]
    assert of("NV004", *both(fabric=SWITCHED), log("node-a", facts=words)).findings == []


def test_a_report_without_a_cluster_beside_one_with_it_leaves_the_domain_unknown() -> None:
    mixed = (*completed(), msgspec.structs.replace(completed()[0], cluster_uuid=None, clique=None))
    views = [*trays(mixed, completed()), *joined()]
    assert of("NV003", *views, text=RACK).verdict == "unknown"


def test_a_domain_that_one_gpu_reports_is_not_that_of_the_others() -> None:
    whole = trays(completed(), completed())
    half = msgspec.structs.replace(
        whole[0], fabric=tuple(msgspec.structs.replace(one, gpus=(0,)) for one in whole[0].fabric)
    )
    found = report(RACK, half, whole[1])
    gaps = [found.gaps[gap] for gap in answer(found, "NV003").gaps]
    assert any("cluster UUID" in gap.need and half.identity.host.name in gap.about for gap in gaps)
