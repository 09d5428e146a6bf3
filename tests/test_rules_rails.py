"""PP005: rails are places and no names; what a running job shows goes before what distances predict."""

from __future__ import annotations

from typing import Any

import msgspec
from build import GB200, TWO, answer, completed, edge, fact, nics, pair, report, running, snap, text_of
from made_rails import RAILS, railed, two

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot, Hardware, LogFact, Port

SWAPPED = tuple(
    msgspec.structs.replace(nic, name=name)
    for nic, name in zip(RAILS, ("mlx5_1", "mlx5_0", "mlx5_2", "mlx5_3"), strict=True)
)
"""The same NICs after a reboot that exchanged two names."""
FIRST_RANKS = "engine: vllm\nparallel: {tensor: 2, pipeline: 4}\nnodes: [node-a, node-b]\n"


def of(*views: FullSnapshot, text: str = TWO) -> RuleReport:
    return answer(report(text, *views), "PP005")


def opened(*, names: tuple[str, ...] = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"), host: str) -> list[LogFact]:
    """Devices that a node's processes opened, in NCCL's order."""
    return [fact("hca", f"{name}:1/IB", host=host, line=5 + n) for n, name in enumerate(names)]


def crossing(sent: int, received: int, **of_second: Any) -> list[FullSnapshot]:
    """The job seen running; rank 0 sends by one device and rank 4 receives by another."""
    edges = {
        "node-a": [edge(0, 4, f"NET/IB/{sent}/GDRDMA", line=70)],
        "node-b": [edge(0, 4, f"NET/IB/{received}/GDRDMA", host="node-b", line=71, side="receive")],
    }
    facts = [*opened(host="node-a"), *opened(host="node-b")]
    views = [msgspec.structs.replace(view, ranks=()) for view in two(**of_second)]
    return [*views, *running(edges=edges, facts=facts)]


def test_exchanged_names_are_no_change_of_rail() -> None:
    assert of(*two(ports=SWAPPED)).verdict == "pass"


def test_a_list_by_name_that_names_other_places_is_told_with_name_address_and_rail() -> None:
    variables = {"NCCL_IB_HCA": "=mlx5_0"}
    found = of(
        *(
            railed(name, ports=ports, environment=variables)
            for name, ports in (("node-a", RAILS), ("node-b", SWAPPED))
        )
    )
    assert found.verdict == "unknown"  # the one device is far from all GPUs but one
    only = {"near": "PIX", "far": "PXB", "environment": variables}
    found = of(railed("node-a", ports=RAILS, **only), railed("node-b", ports=SWAPPED, **only))  # type: ignore[arg-type]
    assert "mlx5_0 (0000:2a:00.0, rail 0)" in text_of(found)
    assert "mlx5_0 (0000:3a:00.0, rail 1)" in text_of(found)


def test_one_nic_that_all_gpus_share_is_one_rail() -> None:
    assert of(*pair()).verdict == "pass"


def test_storage_and_management_nics_are_on_no_rail() -> None:
    storage = msgspec.structs.replace(
        nics(1)[0],
        name="mlx5_9",
        model="MT4125",
        pci="0000:01:00.0",
        ports=(Port(state="ACTIVE", layer="Ethernet"),),
    )
    assert of(*two(ports=(*RAILS, storage))).verdict == "pass"
    assert of(railed("node-a"), railed("node-b", ports=(*RAILS, storage))).verdict == "pass"


def test_nodes_with_different_numbers_of_nics_are_unknown() -> None:
    assert of(railed("node-a"), railed("node-b", ports=RAILS[:3])).verdict == "unknown"


def test_far_nics_are_no_proof_of_a_rail() -> None:
    far = [
        railed(name, gpus, near="NODE") for name, gpus in (("node-a", (0, 1, 2, 3)), ("node-b", (3, 2, 1, 0)))
    ]
    assert of(*far).verdict == "unknown"


def test_a_neighbour_that_may_pass_the_data_on_leaves_the_rail_open() -> None:
    assert of(*two(), text=FIRST_RANKS).verdict == "unknown"


def test_a_job_inside_one_domain_needs_no_rail() -> None:
    views = [
        snap(name, ranks, model=GB200, fabric=completed())
        for name, ranks in (("node-a", range(4)), ("node-b", range(4, 8)))
    ]
    assert of(*views).verdict == "not-applicable"


def test_edges_of_the_running_job_show_the_rail_at_both_ends() -> None:
    assert of(*crossing(0, 0)).findings == []
    found = of(*crossing(0, 1))
    assert [finding.severity for finding in found.findings] == ["warning"]
    assert (
        "rank 0 sends by mlx5_0 (0000:2a:00.0, rail 0), rank 4 receives by mlx5_1 (0000:3a:00.0, rail 1)"
        in text_of(found)
    )
    assert "node-a.log:70" in text_of(found)
    assert "node-b.log:71" in text_of(found)


def test_the_running_job_goes_before_the_prediction() -> None:
    assert "rank 0 sends" not in text_of(of(*crossing(1, 0, ports=SWAPPED)))


def test_devices_that_nccl_fused_are_not_taken_for_others() -> None:
    views = crossing(0, 1)
    fused = fact("nic-fused", "mlx5_0+mlx5_1", host="node-b")
    last = views[-1].observed
    assert last is not None
    views[-1] = msgspec.structs.replace(
        views[-1], observed=msgspec.structs.replace(last, facts=(*last.facts, fused))
    )
    assert of(*views).findings == []


def test_ports_of_one_card_are_a_rail_each_and_either_may_be_used() -> None:
    assert of(*(msgspec.structs.replace(view, hardware=doubled(view)) for view in two())).verdict == "pass"


def doubled(view: FullSnapshot) -> Hardware:
    """The hardware with two NICs near each GPU."""
    second = tuple(
        msgspec.structs.replace(nic, name=f"mlx5_{n + 4}", pci=f"0000:{0x2A + 0x10 * n:02x}:00.1")
        for n, nic in enumerate(RAILS)
    )
    matrix = view.hardware.matrix
    assert matrix is not None
    rows = tuple((*row, *row) for row in matrix.nics)
    return msgspec.structs.replace(
        view.hardware, nics=(*RAILS, *second), matrix=msgspec.structs.replace(matrix, nics=rows)
    )
