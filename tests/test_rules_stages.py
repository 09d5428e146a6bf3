"""PP007, PP009, PP010: the pipeline's arithmetic, over the links that the placement really uses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import GB200, L40S, completed, fact, placed, report, results, running, snap, sockets
from made_capacity import DENSE, PREFILL, SIZES, plan_of, rated, sized, two

from topocheck.ask import Ask
from topocheck.pipeline.bounds import Bounds
from topocheck.report import Report, RuleReport
from topocheck.snapshot import FullSnapshot, NvLink, PciNode, Verbs
from topocheck.stagelinks import StageLink, find_crossings, selected, stage_link

ONE_NODE = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [node-a]\n"
LIMIT = f"model: {SIZES}\nworkload: {PREFILL}\npolicy: {{prefill_boundary_ms: 20}}\n"


def of(found: Report, rule: str) -> RuleReport:
    return next(one for one in found.rules if one.id == rule)


def way(plan: str, snapshots: Sequence[FullSnapshot]) -> StageLink | None:
    """The link of the first boundary."""
    placement = placed(plan, *snapshots)
    crossing = next(iter(find_crossings(placement).values()))[0]
    return stage_link(Ask(placement), crossing)


def known(plan: str, snapshots: Sequence[FullSnapshot]) -> StageLink:
    found = way(plan, snapshots)
    assert found is not None
    return found


def shaped(snapshot: FullSnapshot, **fields: Any) -> FullSnapshot:
    """The same node with other fields of its hardware."""
    return msgspec.structs.replace(snapshot, hardware=msgspec.structs.replace(snapshot.hardware, **fields))


def linked(snapshot: FullSnapshot, version: int | None) -> FullSnapshot:
    """The same node, its NVLinks one by one, of one generation."""
    links = tuple(NvLink(link=n, active=True, remote="switch", version=version) for n in range(18))
    gpus = tuple(msgspec.structs.replace(gpu, links=links) for gpu in snapshot.hardware.gpus)
    return shaped(snapshot, gpus=gpus)


def test_inside_a_node_the_link_is_nvlink_of_its_generation() -> None:
    found = known(ONE_NODE, [linked(snap(), 6)])
    assert found.link.bytes_per_s.high == 18 * 25e9
    assert "GPU0 - GPU2: NV18" in found.evidence[0].fact
    assert "20 to 50 GB/s" in known(ONE_NODE, [snap()]).link.name


def test_without_nvlink_it_is_pcie_of_the_gpus_own_lanes() -> None:
    tree = (
        PciNode(id="root", kind="root"),
        PciNode(id="port", parent="root", kind="bridge", max_width=16, max_speed_gts=16.0),
        *(
            PciNode(id=f"gpu{n}", parent="port", kind="gpu", max_width=16, max_speed_gts=32.0)
            for n in range(4)
        ),
    )
    plain = snap(links=sockets, model=L40S, switch=None)
    gpus = tuple(msgspec.structs.replace(gpu, pci=f"gpu{n}") for n, gpu in enumerate(plain.hardware.gpus))
    found = known(ONE_NODE, [shaped(plain, pci=tree, gpus=gpus)])
    assert found.link.bytes_per_s.high == pytest.approx(31.5e9, rel=1e-3)  # the port is PCIe 4.0
    assert "peer to peer" in found.link.name
    refused = snap(links=sockets, model=L40S, switch=None, refused=[(0, 2), (1, 3)])
    assert "staged through shared memory" in known(ONE_NODE, [refused]).link.name


def test_a_pair_without_link_evidence_is_a_gap() -> None:
    assert way(ONE_NODE, [snap(links=None, nvlinks=[None] * 4)]) is None
    found = report(ONE_NODE + LIMIT, snap(links=None, nvlinks=[None] * 4))
    assert of(found, "PP010").verdict == "unknown"


def test_stages_in_one_nvlink_domain_use_nvlink() -> None:
    nodes = [linked(msgspec.structs.replace(one, fabric=completed()), 7) for one in two(model=GB200)]
    assert known(plan_of(), nodes).link.bytes_per_s.high == 18 * 50e9


def test_in_an_nvlink_domain_the_gpu_with_the_slowest_links_of_either_end_counts() -> None:
    near, far = [linked(msgspec.structs.replace(one, fabric=completed()), 7) for one in two(model=GB200)]
    last = far.hardware.gpus[3]
    down = tuple(msgspec.structs.replace(one, active=False) for one in last.links or ())
    fewer = msgspec.structs.replace(last, links=(*(last.links or ())[:9], *down[9:]))
    found = known(plan_of(), [near, shaped(far, gpus=(*far.hardware.gpus[:3], fewer))])
    assert found.link.bytes_per_s.high == 9 * 50e9


def test_between_nodes_the_near_nics_are_shared_by_their_senders() -> None:
    assert known(plan_of(), two()).link.bytes_per_s == Bounds(400 / 4 * 0.8 * 1e9 / 8, 400 / 4 * 1e9 / 8)


def rails(far: str = "SYS") -> list[FullSnapshot]:
    """A NIC of its own near each GPU."""
    found = []
    for one in two(ports=rated(200, 4)):
        matrix = one.hardware.matrix
        assert matrix is not None
        cells = tuple(tuple("PIX" if gpu == nic else far for nic in range(4)) for gpu in range(4))
        found.append(shaped(one, matrix=msgspec.structs.replace(matrix, nics=cells)))
    return found


def test_a_nic_of_its_own_gives_its_whole_rate() -> None:
    found = known(plan_of(), rails())
    assert found.link.bytes_per_s == Bounds(200 * 0.8 * 1e9 / 8, 200 * 1e9 / 8)
    assert "mlx5_0 at 200 Gb/s" in found.link.name
    assert "(near GPU0)" in found.evidence[0].fact


def test_nearness_that_is_not_known_widens_the_bounds_and_is_said() -> None:
    found = known(plan_of(), two(ports=rated(200, 4), near=None))
    assert found.link.bytes_per_s == Bounds(200 / 4 * 0.8 * 1e9 / 8, 200 * 1e9 / 8)
    assert any("near each GPU is not known" in word for word in found.link.assumptions)


def test_the_slower_end_counts() -> None:
    fast, slow = two()
    found = known(plan_of(), [fast, shaped(slow, nics=rated(100))])
    assert found.link.bytes_per_s.high == 100 / 4 * 1e9 / 8
    assert "at 100 Gb/s" in found.link.name


def test_only_selected_nics_count() -> None:
    chosen = {"environment": {"NCCL_IB_HCA": "=mlx5_1"}}
    nodes = [msgspec.structs.replace(one, **chosen) for one in two(ports=rated(200, 2))]
    assert "mlx5_1 at 200 Gb/s" in known(plan_of(), nodes).link.name


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ("", "mlx5_0 mlx5_1 mlx5_10"),
        ("mlx5_1", "mlx5_1 mlx5_10"),
        ("=mlx5_1", "mlx5_1"),
        ("=mlx5_1:1,mlx5_0:1", "mlx5_0 mlx5_1"),
        ("^mlx5_1", "mlx5_0"),
        ("^=mlx5_1", "mlx5_0 mlx5_10"),
        ("^", ""),
    ],
)
def test_nccl_ib_hca_selects_by_prefix_exactly_or_all_but(wish: str, names: str) -> None:
    assert [n for n in ("mlx5_0", "mlx5_1", "mlx5_10") if selected(n, wish)] == names.split()


def test_the_log_says_which_nics_and_whether_gpudirect() -> None:
    opened = [fact("hca", "mlx5_1:1/IB", host=host) for host in ("node-a", "node-b")]
    logs = running(facts=opened)
    direct = known(plan_of(), [*two(ports=rated(200, 2)), *logs])
    assert "mlx5_1 at 200 Gb/s" in direct.link.name
    assert direct.link.copies.high == 0
    staged = known(plan_of(), [*two(ports=rated(200, 2)), *running("NET/IB/0", facts=opened)])
    assert staged.link.copies.high > 0
    assert any("staged" in word for word in staged.link.assumptions)


def test_a_log_of_one_end_does_not_show_gpudirect_at_the_other() -> None:
    near, far = running()
    assert far.observed is not None
    inside = tuple(one for one in far.observed.edges if one.via != "NET")
    silent = msgspec.structs.replace(far, observed=msgspec.structs.replace(far.observed, edges=inside))
    assert known(plan_of(), [*two(), near, far]).link.copies.high == 0
    assert known(plan_of(), [*two(), near, silent]).link.copies.high > 0


def test_without_a_driver_for_it_data_is_staged() -> None:
    lacking = Verbs(scope="task", peer_memory="", dma_buf=False)
    found = known(plan_of(), [msgspec.structs.replace(one, verbs=lacking) for one in two()])
    assert any(word.startswith("Data is staged") for word in found.link.assumptions)


def test_with_a_driver_and_a_close_nic_gpudirect_is_what_nccl_does() -> None:
    able = Verbs(scope="task", peer_memory="nvidia_peermem")

    def copies(**parts: Any) -> float:
        nodes = [msgspec.structs.replace(one, verbs=able) for one in two(**parts)]
        return known(plan_of(), nodes).link.copies.high

    assert copies() == copies(near="PXB") == 0
    assert copies(near="PHB") > 0
    assert copies(near=None) > 0
    assert copies(environment={"NCCL_NET_GDR_LEVEL": "LOC"}) > 0


def test_over_sockets_the_time_is_unknown_because_of_pp003() -> None:
    nodes = two(environment={"NCCL_IB_DISABLE": "1"})
    found = results(placed(plan_of() + LIMIT, *nodes))
    assert (found["PP003"].verdict, found["PP010"].verdict) == ("fail", "unknown")
    assert {gap.because for gap in found["PP010"].gaps} == {"PP003"}


def test_prefill_and_decode_are_bounded_apart() -> None:
    def verdict(policy: str) -> str:
        keys = f"model: {SIZES}\nworkload: {PREFILL}\npolicy: {{{policy}}}\n"
        return of(report(plan_of() + keys, *two()), "PP010").verdict

    assert verdict("decode_boundary_ms: 2") == "pass"
    assert verdict("prefill_boundary_ms: 2") == "fail"
    assert verdict("prefill_boundary_ms: 2, decode_boundary_ms: 2") == "fail"
    assert verdict("prefill_boundary_ms: 5") == "unknown"  # 3.4 ms at least, 11 ms at most


@pytest.mark.parametrize(
    ("workload", "model", "need"),
    [
        ("{max_sequences: 8}", SIZES, "rows of a prefill microbatch"),
        (PREFILL, "{layers: 48}", "the model's hidden size"),
    ],
)
def test_what_the_plan_leaves_out_is_a_gap_that_names_the_key(workload: str, model: str, need: str) -> None:
    keys = {"model": model, "workload": workload, "policy": "{prefill_boundary_ms: 20}"}
    found = report(plan_of(**keys), *two())
    assert need in {gap.need for gap in found.gaps if "PP010" in gap.rules}


def test_the_plan_may_say_what_is_sent() -> None:
    keys = {"model": SIZES, "policy": "{prefill_boundary_ms: 0.1}"}
    more = "max_batched_tokens: 4096, boundary_tensors: 1, boundary_split: none"
    found = of(report(plan_of(workload=f"{{{more}}}", **keys), *two()), "PP010")
    assert "4,096 rows (40 MiB) takes" in found.findings[0].message


def test_equal_boundaries_are_one_situation() -> None:
    plan = "engine: vllm\nparallel: {tensor: 4, pipeline: 2, data: 50}\nnodes: 100\n" + LIMIT.replace(
        "ms: 20", "ms: 0.1"
    )
    nodes = [sized(snap(f"n{n:03}", range(4 * n, 4 * n + 4), size=400)) for n in range(100)]
    placement = placed(plan, *nodes)
    assert [len(members) for members in find_crossings(placement).values()] == [50]
    found = of(report(plan, *nodes), "PP010")
    assert [finding.count for finding in found.findings] == [50]


def test_ranks_without_a_node_are_a_gap() -> None:
    found = of(report(plan_of() + LIMIT, two()[0]), "PP010")
    assert found.verdict == "unknown"


def balance(model: str | Path, **keys: str) -> RuleReport:
    return of(report(plan_of(model=str(model), **keys), *two()), "PP007")


def test_the_head_counts_as_time_and_the_embedding_as_memory(tmp_path: Path) -> None:
    """Few layers and a large vocabulary: the last stage reads the head, the first holds the embedding."""
    config = json.loads(DENSE.read_text()) | {"num_hidden_layers": 4, "vocab_size": 512_000}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    found = balance(path)
    assert "a rank of stage 1 reads 1.48 GiB (2 layers, norm, head)" in found.findings[0].message
    assert "use fewer stages" in found.findings[0].fix
    path.write_text(json.dumps(config | {"tie_word_embeddings": True}))
    assert "1.48 GiB" in balance(path).findings[0].message  # the last stage has a copy


def test_policy_moves_the_limit() -> None:
    assert balance(DENSE, layers="[26, 22]").verdict == "pass"
    assert balance(DENSE, layers="[26, 22]", policy="{imbalance: 0.02}").verdict == "fail"


def test_the_proposed_cut_is_within_the_limit() -> None:
    found = balance(DENSE, layers="[38, 10]")
    assert "25,23" in found.findings[0].fix
    assert balance(DENSE, layers="[25, 23]").verdict == "pass"


def test_layers_that_the_engine_refuses_are_told_by_pp002() -> None:
    placement = placed(plan_of(model=str(DENSE), layers="[38, 11]"), *two())
    found = results(placement)
    assert (found["PP002"].verdict, found["PP007"].verdict) == ("fail", "unknown")
    assert found["PP007"].gaps[0].because == "PP002"


def test_an_unknown_architecture_asks_for_the_files(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(DENSE.read_text()) | {"model_type": "new_model"}))
    whole = report(plan_of(model=str(path)), *two())
    assert of(whole, "PP007").verdict == "unknown"
    gap = next(gap for gap in whole.gaps if "PP007" in gap.rules)
    assert "new_model" in gap.need
    assert "safetensors" in gap.supply


@pytest.mark.parametrize(
    ("workload", "verdict"),
    [
        ("{microbatches: 3}", "pass"),  # 25 %
        ("{microbatches: 2}", "fail"),  # 33.3 %
        ("{microbatches: 2, virtual_stages: 2}", "pass"),  # 20 %
        ("{microbatches: 5, virtual_stages: 2}", "unknown"),  # the schedule does not take 5
        ("{input_tokens: 5}", "unknown"),
    ],
)
def test_the_bubble_is_that_of_the_microbatches_and_virtual_stages(workload: str, verdict: str) -> None:
    found = report(plan_of(workload=workload, policy="{bubble: 0.3}"), *two())
    assert of(found, "PP009").verdict == verdict


def test_the_fix_of_a_bubble_is_enough() -> None:
    plan = "engine: vllm\nparallel: {pipeline: 8}\nnodes: [node-a]\npolicy: {bubble: 0.2}\n"
    found = of(report(f"{plan}workload: {{microbatches: 27}}\n", snap(count=8)), "PP009")
    assert "at least 28 microbatches" in found.findings[0].fix
    assert of(report(f"{plan}workload: {{microbatches: 28}}\n", snap(count=8)), "PP009").verdict == "pass"
