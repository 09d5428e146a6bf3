"""Where a subject is: all nodes and ranks that its words name, or nowhere."""

from __future__ import annotations

import re

import msgspec
import pytest
from build import TWO, pair, placed, snap
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_cases import CASES

from topocheck.placement import Placement
from topocheck.rules import RULES
from topocheck.scope import NOWHERE, Places, Where
from topocheck.snapshot import Hardware
from topocheck.verify import run_rules

ALL_A, ALL_B = tuple(range(n, n + 1) for n in range(4)), tuple(range(n, n + 1) for n in range(4, 8))


@pytest.fixture(scope="module")
def places() -> Places:
    return Places(placed(TWO, *pair(), snap("spare host")))


@pytest.mark.parametrize(
    ("subject", "nodes", "ranks"),
    [
        ("node-a", ("node-a",), ALL_A),
        ("GPU 2 of node-b", ("node-b",), ALL_B),
        ("mlx5_0:1 of node-a", ("node-a",), ALL_A),
        ("rank 5", ("node-b",), (range(5, 6),)),
        ("TP group 0 (ranks 0..3)", ("node-a",), (range(4),)),
        ("TP group 0 (ranks 2..5)", ("node-a", "node-b"), (range(2, 6),)),
        ("ranks 2, 3 on GPU-00 of node-a", ("node-a",), (range(2, 3), range(3, 4))),
        ("ranks 4..7 are on node-a, not node-b", ("node-a", "node-b"), (range(4, 8),)),
        ("node-a - node-b (rank 0 -> 4)", ("node-a", "node-b"), ALL_A + ALL_B),
        ("edge 3->7", ("node-a", "node-b"), (range(3, 4), range(7, 8))),
        ("ranks 0-1", ("node-a",), (range(1), range(1, 2))),
        ("{0, 1}", ("node-a",), (range(1), range(1, 2))),
        ("node rank 1 on node-b", ("node-b",), ALL_B),
        ("spare host", ("spare host",), None),
        ("ranks 0..7 on node-a", ("node-a", "node-b"), (range(8),)),
        ("rank 5 is where node-a.", ("node-a", "node-b"), (range(5, 6),)),
        ("node-a, node-b.", ("node-a", "node-b"), ALL_A + ALL_B),
        ("some host - node-b (rank 0 -> 4)", ("node-b", "node-a"), ALL_B + ALL_A),
        ("pipeline rank 1 of node-b", ("node-b",), ALL_B),
        ("TP ranks 0..3", ("node-a",), (range(4),)),
    ],
)
def test_a_subject_is_where_its_words_say(
    places: Places, subject: str, nodes: tuple[str, ...], ranks: tuple[range, ...] | None
) -> None:
    assert places.locate(subject) == Where(nodes, ranks)


@pytest.mark.parametrize(
    "subject",
    [
        "world of 4",
        "8 GPUs",
        "stage 0",
        "node-c",
        "node-a2",
        "my-node-a",
        "node rank 0 is on node-a and 3 more",
        "ranks 0, 1 and 9 more",
        "rank 8",
        "ranks 0 and 4",
        "ranks 0/4",
        "edge 0->1 and 4->5",
        "pipeline rank 1",
        "TP rank 3",
        "data-parallel rank 0",
        "ranks 3..1",
        "ranks 0..7..9",
        "rank 0 of world a on GPU-1 of node-a",
    ],
)
def test_what_names_nothing_or_may_be_cut_is_nowhere(places: Places, subject: str) -> None:
    assert places.locate(subject) == NOWHERE


def test_a_host_that_is_called_as_a_rank_is_not_where_that_rank_is() -> None:
    numbered = Places(placed(TWO.replace("node-a", "'5'"), snap("5", range(4)), snap("node-b", range(4, 8))))
    assert numbered.locate("rank 5") == Where(("node-b",), (range(5, 6),))
    assert numbered.locate("rank 5 of 5").nodes == ("5", "node-b")


def test_of_two_hosts_of_one_name_no_other_name_is_both(places: Places) -> None:
    twins = [
        snap(None, range(4 * n, 4 * n + 4), identity=snap("node-a", boot=f"boot-{n}").identity)
        for n in (0, 1)
    ]
    named = [
        msgspec.structs.replace(
            view,
            identity=msgspec.structs.replace(
                view.identity,
                gpus=(),
                host=msgspec.structs.replace(view.identity.host, aliases=(f"n{n}.example.org",)),
            ),
        )
        for n, view in enumerate(twins)
    ]
    bare = [msgspec.structs.replace(view, hardware=Hardware(), ranks=()) for view in named]
    both = Places(placed("engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n", *bare))
    assert both.names["node-a"] == ("node-a",)
    assert places.names["node-b"][0] == "node-b"


def test_ranks_of_the_only_subject_are_its_own(places: Places) -> None:
    assert places.locate("GPU 2 of node-a", (2,)) == Where(("node-a",), (range(2, 3),))
    assert places.locate("rank 3", (2,)) == Where(("node-a",), (range(3, 4),))
    everything = places.locate("node-a - node-b (rank 0 -> 4)", (0, 4))
    assert everything.ranks == ALL_A + ALL_B  # one pair stands for all


def words(placement: Placement) -> set[str]:
    return {node.name for node in placement.nodes}


@pytest.mark.parametrize("rule", sorted(CASES))
def test_no_node_and_no_rank_that_a_rule_names_is_passed_over(rule: str) -> None:
    job = CASES[rule].broken
    placement = placed(job.plan, *job.evidence)
    places = Places(placement)
    chosen = [each for each in RULES if each.id == rule]
    for finding in run_rules(chosen, placement)[0].findings:
        for subject in finding.subjects:
            where = places.locate(subject)
            named = {
                name
                for name in words(placement)
                if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", subject)
            }
            assert where == NOWHERE or named <= set(where.nodes or ()), subject
            numbers = {
                int(n) for n in re.findall(r"\bedge (\d+)|->(\d+)|\branks? (\d+)", subject) for n in n if n
            }
            if "node rank" not in subject and where.ranks is not None:
                assert numbers <= {rank for each in where.ranks for rank in each}, subject


@given(st.text(alphabet="ranks edge node-ab0123456789.,->{}() of", max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_words_are_somewhere_or_nowhere(subject: str) -> None:
    places = Places(placed(TWO, *pair()))
    where = places.locate(subject)
    assert set(where.nodes or ()) <= {"node-a", "node-b"}
    assert all(0 <= each.start < each.stop <= 8 for each in where.ranks or ())
