"""The placement as the report shows it."""

from __future__ import annotations

from build import FOUR, GB200, TWO, completed, gpus, nics, pair, paired, plan, report, running, snap

from topocheck.placed import MOST_MARKS, marks
from topocheck.report import PlacementReport, Report
from topocheck.rule import Finding
from topocheck.rules import RULES
from topocheck.snapshot import SCHEMA, FullSnapshot, Host, Identity, JobFact
from topocheck.verify import RuleResult


def placement(text: str, *views: FullSnapshot) -> PlacementReport:
    found = report(text, *views, whole=True).placement
    assert found
    return found


def test_every_rank_has_its_stage_node_gpu_and_source() -> None:
    found = placement(TWO, *pair(), *running())
    assert [rank.rank for rank in found.ranks] == list(range(8))
    fifth = found.ranks[5]
    assert (fifth.stage, fifth.tensor_group, fifth.replica, fifth.node) == (1, 1, 0, "node-b")
    assert fifth.gpu == gpus("node-b")[1].uuid
    assert fifth.coordinates == {"data": 0, "pipeline": 1, "context": 0, "tensor": 1}
    assert {name: place.source for name, place in fifth.sources.items()} == {
        "predicted": "vLLM's formula",
        "claimed": "rank probe",
        "observed": "node-b.log:11",
    }


def test_a_rank_that_nothing_places_has_no_place() -> None:
    found = placement(TWO, snap("node-a", range(4)))
    assert (found.ranks[6].node, found.ranks[6].gpu) == (None, None)
    assert list(found.ranks[6].sources) == ["predicted"]


def test_a_predicted_gpu_is_named_by_its_index_until_the_node_is_seen() -> None:
    turned = Identity(host=Host(name="node-a", boot_id="b"), gpus=gpus("node-a")[::-1])
    found = placement(TWO, snap("node-a", identity=turned))
    assert found.ranks[0].gpu == gpus("node-a")[0].uuid
    assert found.ranks[4].gpu == "GPU 0"
    assert [gpu.ranks for gpu in found.nodes[0].gpus] == [[3], [2], [1], [0]]
    assert (found.nodes[1].seen, len(found.nodes[1].gpus)) == (False, 4)


def test_nodes_say_how_they_were_bound_and_share_shapes() -> None:
    found = placement(TWO, *pair(), snap("spare"))
    assert [(node.name, node.position, node.bound_by, node.shape) for node in found.nodes] == [
        ("node-a", 0, "name", 0),
        ("node-b", 1, "name", 0),
    ]
    assert found.unused == ["spare"]
    [shape] = found.shapes
    assert (shape.nodes, shape.title) == (2, "4 x NVIDIA H100 80GB HBM3, 1 NIC")
    assert shape.links[0] == ["X", "NV18", "NV18", "NV18"]
    assert shape.near == [["mlx5_0"]] * 4


def test_the_one_switch_that_a_node_hangs_on_is_shown() -> None:
    def known(*switches: tuple[str, str]) -> list[str | None]:
        facts = tuple(
            JobFact(kind="switch-nodes", name=f"slurm/{name}", value=nodes) for name, nodes in switches
        )
        fabric = FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=facts)
        return [node.switch for node in placement(TWO, *pair(), fabric).nodes]

    assert known(("leaf0", "node-a"), ("leaf1", "node-b")) == ["leaf0", "leaf1"]
    assert known(("leaf0", "node-a"), ("leaf1", "node-a")) == [None, None]
    assert known() == [None, None]


def test_a_proven_domain_is_shown() -> None:
    found = placement(TWO, snap("node-a", model=GB200, fabric=completed()), snap("node-b"))
    assert [node.domain for node in found.nodes] == ["a" * 32 + ".7", None]


def test_layers_are_shown_where_the_plan_has_them() -> None:
    found = placement(TWO + "model: {layers: 61}\n", *pair())
    assert [found.ranks[rank].layers for rank in (0, 4)] == [[0, 31], [31, 61]]
    assert placement(TWO, *pair()).ranks[0].layers is None


def test_what_is_wrong_is_marked() -> None:
    crossed = placement(TWO.replace("tensor: 4, pipeline: 2", "tensor: 8"), *pair())
    assert ("TP001", "group", list(range(8))) in [(m.rule, m.kind, m.ranks) for m in crossed.marks]
    sockets = placement(TWO, *running("NET/Socket/0"))
    assert [m.ranks for m in sockets.marks if m.rule == "OBS003"] == [[3, 4], [7, 0]]
    down = placement(TWO, *pair(ports=nics(state="DOWN")))
    assert [m.kind for m in down.marks if m.rule == "PP003"] == ["edge"]
    pairs = FOUR.replace("tensor: 4", "tensor: 2, pipeline: 2")
    bare = placement(pairs, snap(links=paired, switch=None, model="NVIDIA A40"))
    assert [m.ranks for m in bare.marks if m.rule == "TP002"] == [[0, 1]]


def test_marks_are_not_endless() -> None:
    finding = Finding(message="m", fix="f", cause="c", subjects=("s",), ranks=tuple(range(4000)), mark="edge")
    assert len(marks([RuleResult(RULES[0], findings=[finding])])) == MOST_MARKS


def test_every_index_of_the_placement_points_somewhere() -> None:
    found: Report = report(plan(TWO), *pair(), *running(), snap("node-z", [9]), whole=True)
    assert found.placement
    for node in found.placement.nodes:
        assert node.shape is None or node.shape < len(found.placement.shapes)
        assert all(0 <= rank < found.placement.world for gpu in node.gpus for rank in gpu.ranks)
    for rank in found.placement.ranks:
        assert rank.node is None or rank.node in [node.name for node in found.placement.nodes]
