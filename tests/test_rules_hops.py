"""PP006 and GR003: distances in the network, and orders of nodes that are shorter."""

from __future__ import annotations

import msgspec
from build import GB200, answer, completed, report, snap, text_of
from made_hops import CROSSED, NEAR, NODES, STRADDLING, four, network, stages_of

from topocheck.report import RuleReport
from topocheck.snapshot import FullSnapshot

EIGHT = tuple(f"node-{letter}" for letter in "abcdefgh")


def of(rule: str, text: str, *views: FullSnapshot) -> RuleReport:
    return answer(report(text, *views), rule)


def pairs_of(*, data: int, leaves: dict[str, str]) -> RuleReport:
    """Eight nodes of one GPU each, with pipelines of 8 / data stages."""
    stages = 8 // data
    views = [snap(name, [rank], count=1, size=8) for rank, name in enumerate(EIGHT)]
    text = stages_of(1, stages, data, EIGHT)
    return of("PP006", text, *views, network(leaves, {"spine": " ".join(leaves)}))


def test_the_shorter_order_is_printed_and_passes() -> None:
    found = of("PP006", stages_of(), *four(), CROSSED)
    assert found.verdict == "fail"
    better = ("node-a", "node-c", "node-b", "node-d")
    assert ", ".join(better) in found.findings[0].fix
    assert of("PP006", stages_of(nodes=better), *four(nodes=better), CROSSED).verdict == "pass"


def test_an_order_in_which_every_way_is_needed_passes() -> None:
    each = network({f"leaf{n}": name for n, name in enumerate(NODES)}, {"spine": "leaf0 leaf1 leaf2 leaf3"})
    assert of("PP006", stages_of(), *four(), each).verdict == "pass"
    assert of("PP006", stages_of(), *four(), NEAR).verdict == "pass"


def test_pipelines_are_put_below_one_switch_each() -> None:
    """Two nodes a pipeline, three and five nodes below two switches: only one pipeline need cross."""
    found = pairs_of(
        data=4, leaves={"e0": "node-a node-c node-e", "e1": "node-b node-d node-f node-g node-h"}
    )
    assert found.verdict == "fail"
    assert "10 switches" in text_of(found)
    assert "they pass 6" in text_of(found)
    found = pairs_of(
        data=4, leaves={"e0": "node-a node-b node-c", "e1": "node-d node-e node-f node-g node-h"}
    )
    assert found.verdict == "pass"


def test_an_order_that_sets_the_replicas_farther_apart_is_no_better_one() -> None:
    """Replicas of training side by side below one switch and stages across: their all-reduce may be why."""
    for engine, verdict in (("megatron", "pass"), ("vllm", "fail")):
        text = stages_of(4, 2, 2).replace("vllm", engine)
        leaves = {"megatron": NEAR, "vllm": CROSSED}[engine]  # Megatron-LM numbers stages last
        assert of("PP006", text, *four(), leaves).verdict == verdict


def test_a_node_that_nothing_places_leaves_it_open_and_is_named() -> None:
    whole = report(stages_of(), *four(), network({"leaf0": "node-a node-c", "leaf1": "node-b"}))
    found = answer(whole, "PP006")
    assert found.verdict == "unknown"
    assert [whole.gaps[index].about for index in found.gaps] == [["node-d"]]


def test_nodes_of_one_nvlink_domain_need_no_switch() -> None:
    views = [
        msgspec.structs.replace(
            snap(name, range(4 * n, 4 * n + 4), size=16, model=GB200, nvlinks=[18] * 4), fabric=completed()
        )
        for n, name in enumerate(NODES)
    ]
    assert of("PP006", stages_of(), *views).verdict == "not-applicable"


def test_unnamed_nodes_of_a_prediction_have_no_order_to_blame() -> None:
    views = [snap(name, (), size=16) for name in NODES]
    text = "engine: vllm\nparallel: {tensor: 4, pipeline: 4}\nnodes: 4\n"
    assert of("PP006", text, *views, CROSSED).verdict == "unknown"


def test_all_straddling_replicas_are_one_finding() -> None:
    found = of("GR003", stages_of(2, 2, 4), *four(*STRADDLING))
    assert (found.verdict, len(found.findings), found.findings[0].count) == ("fail", 1, 2)


def test_sizes_that_do_not_fill_nodes_are_no_fault() -> None:
    text = "engine: vllm\nparallel: {tensor: 1, pipeline: 3, data: 4}\nnodes: [node-a, node-b, node-c]\n"
    views = [snap(name, range(4 * n, 4 * n + 4), size=12) for n, name in enumerate(NODES[:3])]
    assert of("GR003", text, *views).verdict == "not-applicable"


def test_replicas_of_two_nodes_may_lie_on_any_two() -> None:
    views = four(range(4), range(8, 12), range(4, 8), range(12, 16))
    assert of("GR003", stages_of(4, 2, 2), *views).verdict == "pass"


def test_a_node_of_a_domain_that_no_switch_places_is_no_trouble() -> None:
    """Two trays of one NVLink domain are one pipeline, and two machines far from each other the other."""
    trays = [
        msgspec.structs.replace(
            snap(name, range(4 * n, 4 * n + 4), size=16, model=GB200, nvlinks=[18] * 4), fabric=completed()
        )
        for n, name in enumerate(NODES[:2])
    ]
    views = [*trays, *four()[2:]]
    leaves = network({"leaf0": "node-c", "leaf1": "node-d"})
    assert of("PP006", stages_of(4, 2, 2), *views, leaves).verdict == "pass"
