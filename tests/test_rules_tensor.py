"""TP: tensor groups stay where the fast links are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from build import (
    A40,
    FOUR,
    GB200,
    H100,
    L40S,
    RING,
    TWO,
    answer,
    comm,
    completed,
    full,
    gpus,
    log,
    pair,
    paired,
    report,
    running,
    snap,
    sockets,
    text_of,
)

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot, Hardware, Host, Identity, LinkMatrix

WIDE = "engine: vllm\nparallel: {tensor: 8}\nnodes: [node-a, node-b]\n"
PAIRS = "engine: vllm\nparallel: {tensor: 2, pipeline: 2}\nnodes: [node-a]\n"


def policy(domain: str, text: str = WIDE) -> str:
    return f"{text}policy: {{tensor_domain: {domain}}}\n"


def of(rule: str, text: str, *views: FullSnapshot) -> RuleReport:
    return answer(report(text, *views), rule)


def severities(found: RuleReport) -> list[str]:
    return [finding.severity for finding in found.findings]


def trays(**parts: Any) -> list[FullSnapshot]:
    known = {"model": GB200, "fabric": completed()} | parts
    return [snap("node-a", range(4), **known), snap("node-b", range(4, 8), **known)]


def test_a_group_over_two_nodes_is_an_error_where_half_of_it_would_fit() -> None:
    found = of("TP001", WIDE, *pair())
    assert severities(found) == ["error"]
    assert "use tensor 4 x pipeline 2" in found.findings[0].fix


def test_a_group_that_a_better_order_keeps_in_a_node_is_an_error_with_the_order() -> None:
    found = of("TP001", TWO, snap("node-a", [0, 1, 4, 5]), snap("node-b", [2, 3, 6, 7]))
    assert severities(found) == ["error"]
    assert "blocks of 4 share a node" in found.findings[0].fix


def test_one_gpu_a_node_leaves_no_choice() -> None:
    text = "engine: vllm\nparallel: {tensor: 2}\nnodes: [node-a, node-b]\n"
    found = of("TP001", text, snap("node-a", [0], count=1), snap("node-b", [1], count=1))
    assert severities(found) == ["warning"]
    assert "no node has more than one GPU" in found.findings[0].fix


def test_a_size_without_a_divisor_is_not_told_that_nodes_have_one_gpu() -> None:
    text = "engine: vllm\nparallel: {tensor: 3}\nnodes: [node-a, node-b]\n"
    found = of("TP001", text, snap("node-a", [0, 1], count=2), snap("node-b", [2], count=2))
    assert "3 leaves no whole group inside" in found.findings[0].fix


@pytest.mark.parametrize(("domain", "expected"), [("node", ["error"]), ("nvlink", []), ("any", ["warning"])])
def test_one_nvlink_domain_is_judged_by_the_policy(domain: str, expected: list[str]) -> None:
    found = of("TP001", policy(domain), *trays())
    assert severities(found) == expected
    assert found.verdict == ("fail" if expected else "pass")


def test_without_a_policy_one_nvlink_domain_is_a_warning_that_names_the_key() -> None:
    assert of("TP001", f"{WIDE}policy: {{profile: nvl72}}\n", *trays()).verdict == "pass"
    found = of("TP001", WIDE, *trays())
    assert severities(found) == ["warning"]
    assert "tensor_domain: nvlink" in found.findings[0].fix


def test_a_domain_that_is_asked_for_must_be_proven() -> None:
    assert of("TP001", policy("nvlink"), *pair()).verdict == "fail"
    assert of("TP001", policy("nvlink"), *trays(fabric=())).verdict == "unknown"
    split = [trays()[0], snap("node-b", range(4, 8), model=GB200, fabric=completed("b" * 32))]
    assert severities(of("TP001", policy("nvlink"), *split)) == ["error"]


def test_a_domain_that_was_asked_for_takes_a_single_node_too() -> None:
    assert of("TP001", policy("nvlink", TWO), *pair()).verdict == "pass"


def containers(same_index: bool) -> list[FullSnapshot]:
    """Two hosts by name only, with two GPUs each at different places."""
    views = []
    for name, first in (("pod-a", 0), ("pod-b", 2)):
        own = gpus("x", 2, uuid=False, first=first)
        if same_index:
            own = tuple(msgspec.structs.replace(gpu, nvml=n) for n, gpu in enumerate(own))
        identity = Identity(host=Host(name=name), gpus=own)
        views.append(log(name, comm(RING, range(first, first + 2), size=4, host=name), identity=identity))
    return views


@pytest.mark.parametrize("same_index", [False, True])
def test_two_containers_that_may_share_a_machine_are_a_warning_that_asks_for_the_boot_id(
    same_index: bool,
) -> None:
    text = "engine: vllm\nparallel: {tensor: 4}\nnodes: [pod-a, pod-b]\n"
    found = of("TP001", text, *containers(same_index))
    assert severities(found) == ["warning"]
    assert "boot id" in found.findings[0].fix
    assert "by name only" in found.findings[0].message


def test_a_group_whose_rest_is_not_seen_is_unknown() -> None:
    assert of("TP001", WIDE, snap("node-a", range(4))).verdict == "unknown"


def test_every_crossing_group_is_in_one_finding() -> None:
    views = [snap("node-a", [0, 1, 4, 5]), snap("node-b", [2, 3, 6, 7])]
    [only] = of("TP001", TWO, *views).findings
    assert only.count == 2
    assert "ranks 4..7" in only.subjects[1]


def test_pairs_that_another_order_would_link_are_an_error_with_the_order() -> None:
    found = of("TP002", PAIRS, snap(links=paired, switch=None, model=A40))
    assert severities(found) == ["error"]
    assert "CUDA_VISIBLE_DEVICES=0,2,1,3 on node-a" in found.findings[0].fix
    assert found.findings[0].count == 2


def test_the_order_is_of_indexes_and_not_of_ordinals() -> None:
    turned = Identity(host=Host(name="node-a", boot_id="b"), gpus=gpus()[::-1])
    found = of("TP002", PAIRS, snap(links=paired, switch=None, model=A40, identity=turned))
    assert "CUDA_VISIBLE_DEVICES=3,1,2,0" in found.findings[0].fix


def test_pairs_that_no_order_links_are_a_warning_with_smaller_groups() -> None:
    found = of("TP002", FOUR, snap(links=paired, switch=None, model=A40))
    assert severities(found) == ["warning"]
    assert "4 of 6 pairs" in found.findings[0].message
    assert "TP2 x PP2 with CUDA_VISIBLE_DEVICES=0,2,1,3" in found.findings[0].fix


def test_no_nvlink_anywhere_is_a_warning() -> None:
    found = of("TP002", FOUR, snap(links=sockets, switch=None, model=A40))
    assert severities(found) == ["warning"]
    assert "prefer pipeline" in found.findings[0].fix


def test_on_an_nvswitch_board_a_bare_pair_is_an_error() -> None:
    found = of("TP002", FOUR, snap(links=lambda a, b: "SYS" if 0 in {a, b} else "NV18"))
    assert severities(found) == ["error"]
    assert "drain node-a" in found.findings[0].fix
    assert "GPU 0" in found.findings[0].message
    assert "3 of its 3 TP peers" in found.findings[0].message


def test_a_gpu_that_lacks_some_of_its_peers_is_not_said_to_lack_all() -> None:
    found = of(
        "TP002", FOUR, snap(links=lambda a, b: "SYS" if (a, b) in {(0, 1), (1, 0), (0, 2), (2, 0)} else "NV4")
    )
    assert "no NVLink to 2 of its 3 TP peers" in found.findings[0].message


def partial(*shown: int) -> FullSnapshot:
    """A table without NVLink of which only some rows are shown."""
    rows = tuple(
        tuple("X" if a == b else "SYS" if a in shown or b in shown else None for b in range(4))
        for a in range(4)
    )
    hardware = Hardware(
        gpus=snap(switch=None, model=A40, nvlinks=[None] * 4).hardware.gpus, matrix=LinkMatrix(gpus=rows)
    )
    return snap(hardware=hardware)


def test_a_warning_stays_undecided_while_links_that_might_help_are_not_shown() -> None:
    text = PAIRS.replace("tensor: 2, pipeline: 2", "tensor: 2")
    found = report(text, partial(0))
    assert severities(answer(found, "TP002")) == ["warning"]
    assert "TP002" in next(gap.rules for gap in found.gaps if gap.need == "link of each pair of GPUs")
    assert found.exit_code == 3


def test_a_group_over_two_nodes_is_judged_node_by_node() -> None:
    views = [
        snap("node-a", range(4), links=paired, switch=None, model=A40),
        snap("node-b", range(4, 8), links=sockets, switch=None, model=A40),
    ]
    found = of("TP002", WIDE, *views)
    text = text_of(found)
    assert "on node-a" in text
    assert "on node-b" in text or "node-b.json" in text
    assert all(finding.severity == "warning" for finding in found.findings)


def test_p2p_in_a_log_is_no_link() -> None:
    assert of("TP002", TWO, *running()).verdict == "unknown"


def test_no_nvlink_by_design_needs_the_models_of_every_node() -> None:
    both = [snap("node-a", range(4), model=L40S, links=sockets, switch=None)]
    assert (
        of("TP002", TWO, *both, snap("node-b", range(4, 8), model=L40S, links=sockets, switch=None)).verdict
        == "not-applicable"
    )
    assert (
        of("TP002", TWO, *both, log("node-b", ranks=snap("x", range(4, 8)).ranks)).verdict != "not-applicable"
    )


def test_nodes_of_one_shape_that_number_their_gpus_otherwise_are_judged_apart() -> None:
    loose = Identity(host=Host(name="node-b", boot_id="b"), gpus=gpus("node-b", nvml=False))
    found = of("TP002", TWO, snap("node-a"), snap("node-b", identity=loose, coverage=full(gpus="part")))
    assert (found.passed, found.unknown) == (1, 1)


def test_models_widths_and_memory_of_a_group_are_one() -> None:
    assert severities(of("TP003", FOUR, snap(models=[H100, H100, H100, A40]))) == ["error"]
    found = of("TP003", FOUR, snap(nvlinks=[18, 18, 18, 12]))
    assert severities(found) == ["error"]
    assert "ranks 3 on 12 NVLinks" in found.findings[0].message
    shapes = snap().hardware.gpus
    big, small = (msgspec.structs.replace(shapes[0], memory_bytes=size) for size in (80 << 30, 64 << 30))
    mixed = snap(hardware=Hardware(gpus=(big, big, big, small)))
    found = of("TP003", FOUR, mixed)
    assert severities(found) == ["warning"]
    assert "64.0 GiB" in found.findings[0].message
    near = msgspec.structs.replace(big, memory_bytes=78 << 30)
    assert of("TP003", FOUR, snap(hardware=Hardware(gpus=(big, big, big, near)))).verdict == "pass"


def test_models_that_are_not_shown_are_not_equal() -> None:
    assert of("TP003", TWO, *running()).verdict == "unknown"
    assert of("TP003", FOUR, snap(model=None)).verdict == "unknown"


def test_memory_that_is_not_shown_is_not_equal() -> None:
    boards = [msgspec.structs.replace(snap().hardware.gpus[0], model="NVIDIA A40", memory_bytes=48 << 30)] * 4
    boards[2] = msgspec.structs.replace(boards[2], memory_bytes=None)
    assert of("TP003", FOUR, snap(hardware=Hardware(gpus=tuple(boards)))).verdict == "unknown"
    boards[1] = msgspec.structs.replace(boards[1], memory_bytes=24 << 30)
    assert severities(of("TP003", FOUR, snap(hardware=Hardware(gpus=tuple(boards))))) == ["warning"]
    told = msgspec.structs.replace(boards[0], model="NVIDIA A100-SXM4-40GB", memory_bytes=None)
    assert of("TP003", FOUR, snap(hardware=Hardware(gpus=(told,) * 4))).verdict == "pass"


def test_numa_nodes_matter_only_without_nvlink_and_only_inside_a_node() -> None:
    assert of("TP004", FOUR, snap()).verdict == "pass"
    assert of("TP004", FOUR, snap(links=sockets, switch=None, model=A40)).verdict == "fail"
    assert of("TP004", PAIRS, snap(links=sockets, switch=None, model=A40)).verdict == "pass"
    views = [
        snap("node-a", range(4), links=sockets, switch=None, model=A40, numa=[0] * 4),
        snap("node-b", range(4, 8), links=sockets, switch=None, model=A40, numa=[1] * 4),
    ]
    assert of("TP004", WIDE, *views).findings == []


def test_refused_peer_access_is_an_error_over_nvlink_and_a_warning_else() -> None:
    assert severities(of("TP008", FOUR, snap(refused=[(0, 1)]))) == ["error"]
    found = of("TP008", FOUR, snap(refused=[(0, 1), (2, 3)], links=sockets, switch=None, model=A40))
    assert severities(found) == ["warning"]
    assert "2 pairs" in found.findings[0].message


@pytest.mark.parametrize(
    ("model", "link", "found"),
    [
        ("NVIDIA GeForce RTX 3090", "PHB", ["warning"]),
        ("NVIDIA GeForce RTX 3090", "NV4", []),
        ("NVIDIA GeForce GTX 1080 Ti", "PHB", []),
        ("NVIDIA L40S", "PIX", []),
    ],
)
def test_peer_access_that_only_a_patched_driver_grants(model: str, link: str, found: list[str]) -> None:
    view = snap(model=model, links=lambda _a, _b: link, switch=None)
    assert severities(of("TP008", FOUR, view)) == found
