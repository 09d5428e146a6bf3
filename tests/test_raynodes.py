"""In which order the nodes of a Ray job get its ranks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from build import answer, claims, log, placed, report, snap, text_of
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.placement import Placement
from topocheck.snapshot import SCHEMA, FullSnapshot, Host, Identity, JobFact

A, B, C = "a" * 56, "b" * 56, "c" * 56
NODES = "engine: vllm\nlauncher: ray\nparallel: {tensor: 4, pipeline: 3}\nnodes: 3\n"
NAMED = NODES.replace("nodes: 3", "nodes: [node-x, node-y, node-z]")
"""Nodes of which the first runs the command."""
OLD = "engine_version: 0.19.1\n"


def said(kind: str, value: str, name: str = "", host: str | None = None) -> JobFact:
    return JobFact(kind=kind, name=name, value=value, engine="vllm", host=host)


DRIVER = said("rendezvous", "tcp://10.9.0.2:4100", "dist-init")
"""The workers of node-y's address wait for the driver."""


def stated(*facts: JobFact) -> FullSnapshot:
    """A text about the job alone."""
    return FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=facts)


def cluster(*nodes: tuple[str, str, int]) -> list[JobFact]:
    """Id, address and GPUs of each node, as Ray lists them."""
    found = [said("cluster-node", address, ident) for ident, address, _ in nodes]
    return [*found, *(said("cluster-node-gpus", f"{gpus}", ident) for ident, _, gpus in nodes)]


LISTED = cluster((C, "10.9.0.1", 4), (A, "10.9.0.2", 4), (B, "10.9.0.10", 4))


def host(name: str, address: str, count: int = 4, **parts: object) -> FullSnapshot:
    """A node that knows its own address."""
    known = Host(name=name, boot_id=f"boot-of-{name}", aliases=(address,))
    probed = snap(name, count=count)
    return snap(
        name,
        count=count,
        identity=Identity(host=known, gpus=probed.identity.gpus),
        **parts,  # type: ignore[arg-type]
    )


def three(*counts: int) -> list[FullSnapshot]:
    sizes = counts or (4, 4, 4)
    addresses = ("10.9.0.1", "10.9.0.2", "10.9.0.10")
    return [
        host(f"node-{letter}", address, count)
        for letter, address, count in zip("xyz", addresses, sizes, strict=True)
    ]


def order(placement: Placement) -> list[str]:
    return [node.name for node in placement.nodes]


def orders(placement: Placement) -> set[tuple[str, ...]]:
    return {tuple(order(variant)) for variant in placement.variants()}


def test_bundles_follow_by_node_id_after_the_drivers_node() -> None:
    found = placed(NODES, *three(), stated(DRIVER, *LISTED))
    assert order(found) == ["node-y", "node-z", "node-x"]
    assert len(found.variants()) == 1
    assert {node.bound_by for node in found.nodes} == {"Ray's order by id"}


def test_the_older_executor_sorts_addresses_as_text() -> None:
    found = placed(OLD + NODES, *three(), stated(DRIVER, *LISTED))
    assert order(found) == ["node-y", "node-x", "node-z"]


@pytest.mark.parametrize(("value", "third"), [("0", "node-z"), ("1", "node-x")])
def test_a_variable_chooses_the_executor_of_the_release_that_has_both(value: str, third: str) -> None:
    told = said("option", value, "VLLM_USE_RAY_V2_EXECUTOR_BACKEND")
    found = placed("engine_version: 0.24.0\n" + NODES, *three(), stated(DRIVER, told, *LISTED))
    assert order(found)[2] == third


def test_the_first_of_named_nodes_drives_the_engine_where_nothing_else_tells() -> None:
    found = placed(NAMED, *three(), stated(*LISTED))
    assert order(found) == ["node-x", "node-y", "node-z"]
    assert order(placed(NAMED, *three(), stated(DRIVER, *LISTED))) == ["node-y", "node-z", "node-x"]


def test_the_host_of_the_launch_command_is_the_drivers() -> None:
    told = said("option", "ray", "distributed-executor-backend", host="node-z")
    found = placed(NODES.replace("launcher: ray\n", ""), *three(), stated(told, *LISTED))
    assert order(found) == ["node-z", "node-y", "node-x"]


def test_a_driver_beside_a_head_without_gpus_takes_no_rank_and_leaves_the_order_by_id() -> None:
    head = said("rendezvous", "tcp://10.9.0.7:4100", "dist-init")
    listed = [*LISTED, *cluster(("d" * 56, "10.9.0.7", 0))]
    found = placed(NODES, *three(), stated(head, *listed))
    assert order(found) == ["node-y", "node-z", "node-x"]
    assert len(found.variants()) == 1
    assert "node-y first, as the driver's node 10.9.0.7 has no GPU" in " ".join(found.facts.assumptions)
    unlisted = placed(NODES, *three(), stated(head, *LISTED))
    assert {node.bound_by for node in unlisted.nodes} != {"Ray's order by id"}


def test_without_node_ids_every_distinct_order_behind_the_driver_is_possible() -> None:
    views = [host("node-x", "10.9.0.1"), host("node-y", "10.9.0.2"), host("node-z", "10.9.0.10", 8)]
    found = placed(NODES, *views, stated(DRIVER))
    assert orders(found) == {("node-y", "node-x", "node-z"), ("node-y", "node-z", "node-x")}


def test_without_driver_and_ids_every_distinct_order_is_possible() -> None:
    views = [host("node-x", "10.9.0.1"), host("node-y", "10.9.0.2"), host("node-z", "10.9.0.10", 8)]
    assert {names.index("node-z") for names in orders(placed(NODES, *views))} == {0, 1, 2}


def test_two_nodes_are_in_order_as_soon_as_the_driver_is_known() -> None:
    plan = NODES.replace("pipeline: 3", "pipeline: 2").replace("nodes: 3", "nodes: [node-y, node-x]")
    found = placed(plan, host("node-x", "10.9.0.1", 8), host("node-y", "10.9.0.2"))
    assert orders(found) == {("node-y", "node-x")}


def test_absent_nodes_keep_their_names_in_every_order() -> None:
    found = placed(NAMED, host("node-x", "10.9.0.1"), host("node-z", "10.9.0.10"))
    assert orders(found) == {("node-x", "node-z", "node-y"), ("node-x", "node-y", "node-z")}
    for variant in found.variants():
        assert all(node.machine is None or node.machine.name == node.name for node in variant.nodes)


@pytest.mark.parametrize(
    ("counts", "crossing"), [((2, 2, 4), [0, 1, 2, 3]), ((4, 4, 4), []), ((4, 2, 6), [0, 1, 2, 3])]
)
def test_unequal_nodes_hold_as_many_ranks_as_ray_has_gpus_there(
    counts: Sequence[int], crossing: list[int]
) -> None:
    """Driver node-y first: a group stays whole only if the bundles before it are a multiple of its size."""
    stages = sum(counts) // 4
    nodes = cluster(
        *(
            (i, a, n)
            for (i, a), n in zip(((C, "10.9.0.1"), (A, "10.9.0.2"), (B, "10.9.0.10")), counts, strict=True)
        )
    )
    plan = NODES.replace("pipeline: 3", f"pipeline: {stages}")
    found = placed(plan, *three(*counts), stated(DRIVER, *nodes))
    column = found.placed
    by_name = dict(zip(("node-x", "node-y", "node-z"), counts, strict=True))
    assert [len(found.ranks_on[place]) for place in range(3)] == [by_name[name] for name in order(found)]
    torn = [
        rank
        for group in found.layout.groups("tensor")
        for rank in group
        if len({column.node[member] for member in group}) > 1
    ]
    assert torn[: len(crossing)] == crossing
    assert bool(torn) == bool(crossing)


def test_what_holds_in_every_order_is_said_and_what_fails_in_every_order_too() -> None:
    """Without a driver and node ids nothing tells the order of nodes with 2, 2 and 4 bundles."""
    plan = NODES.replace("pipeline: 3", "pipeline: 2")
    found = report(plan, *three(2, 2, 4))
    one = answer(found, "TP001")
    assert one.verdict == "fail"
    inner = NODES.replace("tensor: 4, pipeline: 3", "tensor: 2, pipeline: 5")
    assert answer(report(inner, *three(2, 4, 4)), "TP001").verdict == "pass"


def ray_workers(*places: str) -> list[FullSnapshot]:
    """Claims of a list of workers: the node of each rank in turn."""
    hosts = dict.fromkeys(places)
    return [
        log(
            name,
            observed=None,
            ranks=claims([r for r, at in enumerate(places) if at == name], size=len(places), family="ray"),
        )
        for name in hosts
    ]


SPLIT = "engine: vllm\nlauncher: ray\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"


@pytest.mark.parametrize("text", [SPLIT, SPLIT.replace("nodes: 2", "nodes: [node-a, node-b]")])
def test_whole_nodes_in_any_order_are_right_under_ray(text: str) -> None:
    found = report(text, *ray_workers(*["node-b"] * 4, *["node-a"] * 4))
    assert answer(found, "ID010").verdict == "pass"
    assert answer(found, "TP001").verdict == "pass"


def test_the_same_exchange_is_wrong_where_ray_does_not_place_the_ranks() -> None:
    text = SPLIT.replace("launcher: ray\n", "").replace("nodes: 2", "nodes: [node-a, node-b]")
    found = report(text, *ray_workers(*["node-b"] * 4, *["node-a"] * 4))
    assert answer(found, "ID010").verdict == "fail"


def test_torn_groups_are_wrong_under_ray_too_and_the_fix_is_rays() -> None:
    found = report(SPLIT, *ray_workers("node-a", *["node-b"] * 4, *["node-a"] * 3))
    one = answer(found, "ID010")
    assert one.verdict == "fail"
    assert "VLLM_RAY_BUNDLE_INDICES" in text_of(one)
    assert answer(found, "TP001").verdict == "fail"


def test_unequal_shares_that_keep_groups_whole_are_right() -> None:
    text = SPLIT.replace("pipeline: 2", "pipeline: 3")
    found = report(text, *ray_workers(*["node-a"] * 8, *["node-b"] * 4))
    assert answer(found, "ID010").verdict == "pass"


def test_given_bundle_indices_nothing_is_predicted() -> None:
    told = said("option", "3,2,1,0", "VLLM_RAY_BUNDLE_INDICES")
    found = placed(NODES, *three(), stated(DRIVER, told, *LISTED))
    assert found.columns["predicted"].empty
    assert "VLLM_RAY_BUNDLE_INDICES" in found.facts.refusal


def test_commands_of_two_executors_prove_nothing_about_ray() -> None:
    told = [said("option", value, "--distributed-executor-backend") for value in ("ray", "mp")]
    assert placed(NODES.replace("launcher: ray\n", ""), stated(*told)).facts.ray is None


def test_sglang_takes_its_own_node_first_and_leaves_its_gpu_flags_aside() -> None:
    text = "engine: sglang\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"
    told = [
        JobFact(kind="option", name=name, value=value, engine="sglang", host="node-y")
        for name, value in (("use-ray", "true"), ("gpu-id-step", "2"))
    ]
    found = placed(text, host("node-x", "10.9.0.1", 8), host("node-y", "10.9.0.2"), stated(*told))
    assert order(found) == ["node-y", "node-x"]
    assert found.columns["predicted"].gpu == [0, 1, 2, 3] * 2


@given(st.lists(st.sampled_from(["node-x", "node-y", "node-z"]), min_size=12, max_size=12))
@settings(max_examples=50, deadline=None)
def test_whatever_workers_are_listed_the_order_is_that_of_their_first_ranks(places: list[str]) -> None:
    found = placed(NODES, *ray_workers(*places))
    seen = list(dict.fromkeys(places))
    assert order(found)[: len(seen)] == seen
    assert found.placed.node == [seen.index(place) for place in places]


def test_a_number_of_gpus_that_is_none_is_not_known() -> None:
    odd = [said("cluster-node-gpus", "many", ident) for ident in (A, B, C)]
    found = placed(NODES, *three(), stated(DRIVER, *LISTED, *odd))
    assert order(found) == ["node-y", "node-z", "node-x"]
