"""Where each rank lies by one kind of evidence."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from build import RING, at, claims, comm, inventory, log, pair, snap
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.column import Column, Sighting, claimed_column, observed_column, one_process
from topocheck.communicators import sightings
from topocheck.snapshot import FullSnapshot, RankClaim


def claimed(*views: FullSnapshot, world: int = 8) -> Column:
    return claimed_column(inventory(*views), world)


def observed(*views: FullSnapshot, world: int = 8) -> Column:
    return observed_column(sightings(inventory(*views)), world)


def claiming(*ranks: RankClaim, name: str = "node-a") -> FullSnapshot:
    return log(name, ranks=ranks)


def test_claims_fill_nodes_and_gpus_by_rank() -> None:
    column = claimed(*pair())
    assert column.node == [0] * 4 + [1] * 4
    assert column.gpu == [0, 1, 2, 3] * 2
    assert (column.complete, column.empty, column.twice, column.stray) == (True, False, {}, [])


@pytest.mark.parametrize("gpus", [[0, 1, 2, 3], [3, 0, 2, 1]])
def test_claims_in_whole_blocks_are_known_as_such_whatever_the_order_of_the_machines(gpus: list[int]) -> None:
    views = [
        claiming(*[RankClaim(rank=4 * n + i, gpu=gpu) for i, gpu in enumerate(gpus)], name=f"node-{n}")
        for n in (1, 2, 0)
    ]
    column = claimed(*views, world=12)
    assert (column.node, column.gpu) == ([2] * 4 + [0] * 4 + [1] * 4, gpus * 3)
    assert column.block == 4


@pytest.mark.parametrize(
    "second",
    [
        [(4, 0), (5, 1), (7, 2), (6, 3)],
        [(4, 1), (5, 0), (6, 2), (7, 3)],
        [(4, None), (5, 1), (6, 2), (7, 3)],
        [(4, 0), (5, 1), (6, 2)],
        [(3, 0), (4, 1), (5, 2), (6, 3)],
        [(8, 0), (9, 1), (10, 2), (11, 3)],
    ],
    ids=["out of order", "other GPUs", "no GPU", "a rank less", "a rank twice", "beyond the world"],
)
def test_claims_in_no_whole_blocks_are_entered_one_by_one(second: list[tuple[int, int | None]]) -> None:
    first = [RankClaim(rank=n, gpu=n) for n in range(4)]
    column = claimed(
        claiming(*first), claiming(*[RankClaim(rank=r, gpu=g) for r, g in second], name="node-b")
    )
    places = {rank: (1, gpu) for rank, gpu in second} | {n: (0, n) for n in range(4)}
    wanted = [places.get(rank, (None, None)) for rank in range(8)]
    assert list(zip(column.node, column.gpu, strict=True)) == wanted
    assert column.block == 0


def test_without_claims_nothing_is_known() -> None:
    column = claimed(snap())
    assert (column.empty, column.complete) == (True, False)


def test_a_claim_without_a_gpu_knows_the_node_alone() -> None:
    column = claimed(claiming(RankClaim(rank=3, at=at("node-a", 7))))
    assert (column.node[3], column.gpu[3], column.at[3]) == (0, None, at("node-a", 7))


def test_claims_of_another_world_are_not_of_this_one() -> None:
    assert claimed(claiming(RankClaim(rank=3, world="decode"))).empty


def test_one_process_that_is_seen_twice_holds_its_rank_once() -> None:
    again = pair()
    column = claimed(*pair(), *again)
    assert column.twice == {}
    assert column.complete


def test_a_later_claim_adds_the_gpu_that_the_first_did_not_know() -> None:
    for order in itertools.permutations([RankClaim(rank=0), RankClaim(rank=0, gpu=2, pid=7)]):
        column = claimed(*[claiming(one) for one in order])
        assert (column.gpu[0], column.twice) == (2, {})


def test_two_processes_of_one_rank_are_both_kept_and_the_order_of_the_input_does_not_matter() -> None:
    views = [snap("node-a", range(4)), snap("node-b", range(4))]
    first = claimed(*views)
    assert sorted(first.twice) == [0, 1, 2, 3]
    assert [seen.machine for seen in first.twice[0]] == [0, 1]
    assert first.node[:4] == [0] * 4
    found = inventory(*views[::-1])
    found.arrange()
    second = claimed_column(found, 8)
    assert (second.node, second.gpu, second.twice) == (first.node, first.gpu, first.twice)


def test_one_process_on_two_gpus_is_told_from_two_processes() -> None:
    moved = claimed(claiming(RankClaim(rank=0, gpu=0, pid=7), RankClaim(rank=0, gpu=1, pid=7)))
    assert one_process(moved.twice[0])
    two = claimed(claiming(RankClaim(rank=0, gpu=0, pid=7), RankClaim(rank=0, gpu=1, pid=8)))
    assert not one_process(two.twice[0])
    unknown = claimed(claiming(RankClaim(rank=0, gpu=0), RankClaim(rank=0, gpu=1)))
    assert not one_process(unknown.twice[0])


@pytest.mark.parametrize("rank", [-1, -9, 8, 2**70])
def test_a_rank_outside_the_world_is_a_stray(rank: int) -> None:
    column = claimed(claiming(RankClaim(rank=rank)))
    assert column.empty
    assert [seen.rank for seen in column.stray] == [rank]


def test_a_communicator_of_the_worlds_size_fills_the_observed_column() -> None:
    column = observed(log("node-a", comm(RING, range(4))), log("node-b", comm(RING, range(4, 8))))
    assert column.node == [0] * 4 + [1] * 4
    assert column.at[2] == at("node-a", 12)
    assert column.twice == {}


def test_a_later_communicator_adds_gpus_and_never_accuses_by_pid() -> None:
    first = comm(RING, range(4), gpu=None)
    later = comm("0xb", range(4))
    restarted = tuple(msgspec.structs.replace(each, pid=1) if each.rank == 3 else each for each in later)
    column = observed(log("node-a", [*first, *restarted]))
    assert column.gpu[:4] == [0, 1, 2, 3]
    assert column.twice == {}


def test_two_members_of_one_rank_are_kept() -> None:
    column = observed(log("node-a", [*comm(RING, range(4)), *comm(RING, [3], pid=1, gpu=0)]))
    assert list(column.twice) == [3]
    assert {seen.pid for seen in column.twice[3]} == {1, 9003}


SEEN = st.builds(
    Sighting,
    rank=st.just(0),
    machine=st.integers(0, 1),
    gpu=st.sampled_from([None, 0, 1]),
    pid=st.sampled_from([None, 7, 8]),
    at=st.none(),
)


@given(SEEN, SEEN)
@settings(max_examples=60, deadline=None)
def test_what_may_be_one_process_joins_to_one_that_may_be_both(a: Sighting, b: Sighting) -> None:
    assert a.may_be(b) == b.may_be(a)
    assert a.may_be(a)
    if a.may_be(b):
        both = a.joined(b)
        assert both.may_be(a)
        assert both.may_be(b)


CLAIM = st.builds(
    RankClaim,
    rank=st.integers(-1, 4),
    gpu=st.sampled_from([None, 0, 1, 2, 3]),
    pid=st.sampled_from([None, 7, 8, 9]),
)


@given(st.lists(st.tuples(st.sampled_from(["node-a", "node-b"]), CLAIM), max_size=8))
@settings(max_examples=80, deadline=None)
def test_a_rank_is_where_some_claim_puts_it(told: list[tuple[str, RankClaim]]) -> None:
    views = [claiming(one, name=name) for name, one in told]
    found = inventory(*views)
    column = claimed_column(found, 4)
    names = [machine.name for machine in found.machines]
    for rank in range(4):
        places = {names.index(name) for name, one in told if one.rank == rank}
        node = column.node[rank]
        assert (node is None) == (not places)
        assert node is None or node in places
        if len(places) > 1:
            assert rank in column.twice
    assert len(column.stray) == sum(one.rank in {-1, 4} for _, one in told)


def test_a_size_is_claimed_by_its_first_rank() -> None:
    found = inventory(claiming(*claims([4, 5], size=8)), claiming(*claims([0], size=16), name="node-b"))
    assert found.claims[""].sizes == {8: 4, 16: 0}


def test_a_rank_named_by_its_process_drives_the_gpu_of_the_process() -> None:
    engine = comm("tcp://10.0.0.1:29500", range(4), size=8, gpu=None)
    group = comm("0x7a", range(4), size=4)
    assert observed(log("node-a", [*engine, *group])).gpu == [0, 1, 2, 3, None, None, None, None]
    other = comm("0x7b", [0], size=2, gpu=3)
    torn = observed(log("node-a", [*engine, *group, *other]))
    assert torn.gpu[:2] == [None, 1]
