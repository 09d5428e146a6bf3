"""How many switches lie between two nodes, and by which description."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from build import placed, plan, snap
from made_hops import CROSSED, NEAR, NODES, four, network, stages_of

from topocheck.fabric_graph import FabricGraph, fabric_of
from topocheck.gather.stream import undecoded
from topocheck.placement import Placement
from topocheck.probes.capture.recognise import read_capture
from topocheck.snapshot import FullSnapshot

CAPTURES = Path(__file__).parent / "captures"


def seen(*more: FullSnapshot, nodes: Sequence[str] = NODES) -> tuple[Placement, FabricGraph | None]:
    """A job of four nodes and what describes its network."""
    whole = placed(plan(stages_of(nodes=nodes)), *four(nodes=nodes), *more)
    return whole, fabric_of(whole)


def table(whole: Placement, fabric: FabricGraph | None) -> list[list[int | None]]:
    """Hops of all pairs."""
    assert fabric is not None
    nodes = whole.nodes
    found = [[fabric.hops(a, b) for b in nodes] for a in nodes]
    assert found == [list(column) for column in zip(*found, strict=True)]
    return found


def test_below_a_leaf_is_one_switch_and_by_a_spine_three() -> None:
    assert table(*seen(NEAR)) == [[0, 1, 3, 3], [1, 0, 3, 3], [3, 3, 0, 1], [3, 3, 1, 0]]


def test_without_a_common_switch_the_way_is_not_known() -> None:
    apart = network({"leaf0": "node-a node-b", "leaf1": "node-c"}, {})
    whole, fabric = seen(apart)
    assert fabric is not None
    nodes = whole.nodes
    assert [fabric.hops(nodes[0], other) for other in nodes] == [0, 1, None, None]


def test_nothing_describes_the_network() -> None:
    assert seen()[1] is None
    assert seen(network({"leaf0": "other-1 other-2"}))[1] is None


def test_the_description_that_places_most_nodes_counts_and_names_are_not_mixed() -> None:
    part = network({"leaf0": "node-a node-c"}, {}, system="infiniband")
    fabric = seen(NEAR, part)[1]
    assert fabric is not None
    assert fabric.system == "slurm"
    cables = network({"leaf0": "node-a node-c", "leaf1": "node-b node-d"}, system="infiniband")
    whole, fabric = seen(NEAR, cables)
    assert table(whole, fabric)[0] == [0, 3, 1, 3]


def test_a_node_with_ports_on_two_rails_joins_them_for_no_one() -> None:
    rails = network({"rail0": "node-a node-b", "rail1": "node-b node-c"}, {})
    whole, fabric = seen(rails)
    assert fabric is not None
    nodes = whole.nodes
    assert [fabric.hops(nodes[0], other) for other in nodes[:3]] == [0, 1, None]


def test_short_and_full_names_are_one_node() -> None:
    full = network(
        {"leaf0": "node-a.x.example node-b.x.example", "leaf1": "node-c.x.example node-d.x.example"}
    )
    assert table(*seen(full)) == table(*seen(NEAR))


def test_slurm_tells_the_tasks_themselves() -> None:
    views: list[FullSnapshot] = []
    for name, leaf in zip(NODES, ("e0", "e1", "e0", "e1"), strict=True):
        told = {
            "SLURM_TOPOLOGY_ADDR": f"top.{leaf}.{name}",
            "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
        }
        views.append(snap(name, range(4 * len(views), 4 * len(views) + 4), size=16, environment=told))
    whole = placed(plan(stages_of()), *views)
    assert table(whole, fabric_of(whole)) == table(*seen(CROSSED))


def test_an_address_with_dots_in_its_names_or_lists_of_switches_says_nothing() -> None:
    for address in ("switch.1.1.node-a", "s[0-1].e0.node-a", "top.e0", ""):
        told = {"SLURM_TOPOLOGY_ADDR": address, "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"}
        whole = placed(plan(stages_of()), snap("node-a", range(4), size=16, environment=told))
        assert fabric_of(whole) is None


def test_captured_files_give_distances() -> None:
    nodes = ("hx01", "hx02", "hx03", "hx04")
    for name in ("slurm-tree.txt", "slurm-topology.conf", "slurm-topology.yaml", "slurm-blocks.conf"):
        (reading,) = read_capture((CAPTURES / name).read_bytes(), name)
        assert table(*seen(*reading.snapshots, nodes=nodes)) == table(*seen(NEAR)), name


def test_snapshots_without_hosts_place_no_one_else() -> None:
    assert all(undecoded(view).identity.host.name is None for view in (NEAR, CROSSED))
