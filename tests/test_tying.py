"""Evidence is tied to worlds by names, hosts and processes: nothing twice, and nothing by a guess."""

from __future__ import annotations

import msgspec
from build import comm, inventory, log, paired, plan, snap
from hypothesis import given, settings
from hypothesis import strategies as st
from made_worlds import DENSE, POOLS, TWINS, carrier, of, replica_log

from topocheck.inventory import Inventory
from topocheck.processgroups import communicators, joined
from topocheck.replicas import parts_of
from topocheck.shares import share_out
from topocheck.snapshot import CommRank, FullSnapshot, NodeClaim
from topocheck.tying import Ties, tie

PAIRS = "engine: vllm\nparallel: {tensor: 4}\nnodes: 2\nworlds: 4\n"
"""Four replicas on two hosts that have no names."""


def tied(text: str, *snapshots: FullSnapshot) -> tuple[Ties, Inventory]:
    found = inventory(*snapshots)
    found.arrange()
    return tie(parts_of(plan(text), found)[0], found), found


def hosts(ties: Ties, found: Inventory) -> dict[str, list[str]]:
    """Names of the worlds of each host."""
    return {
        found.machines[machine].name: [ties.parts[world].name for world in worlds]
        for machine, worlds in sorted(ties.on.items())
    }


def test_hosts_that_the_plan_names_carry_their_worlds() -> None:
    ties, found = tied(POOLS, snap("node-a"), snap("node-b.cluster.local"), snap("node-x"))
    assert hosts(ties, found) == {"node-a": ["prefill"], "node-b.cluster.local": ["decode"]}


def test_claims_tie_a_host_that_the_plan_gives_to_another_world() -> None:
    ties, found = tied(POOLS, carrier("node-a", of("decode", [0], 8)))
    assert hosts(ties, found) == {"node-a": ["prefill", "decode"]}


def test_names_in_the_evidence_go_by_their_numbers() -> None:
    ties, found = tied(
        TWINS, carrier("node-a", of("serve-10", range(4), 4), of("serve-9", range(4), 4, first=4))
    )
    assert [list(claims) for claims in ties.claims] == [["serve-9"], ["serve-10"]]
    assert ties.assumed == ["the worlds are those that the processes name, in order: serve-9, serve-10"]
    assert hosts(ties, found) == {"node-a": ["0", "1"]}


def test_more_names_than_worlds_tie_nothing() -> None:
    ties, _ = tied(TWINS, carrier("node-a", *(of(name, [0], 4, first=n) for n, name in enumerate("abc"))))
    assert ties.claims == [{}, {}]
    assert ties.loose_claims == {0: 3}


def test_names_of_worlds_that_differ_are_not_exchanged() -> None:
    ties, _ = tied(POOLS, carrier("node-x", of("blue", [0], 4), of("green", [0], 8)))
    assert (ties.claims, ties.loose_claims) == ([{}, {}], {0: 2})


def test_claims_of_another_name_are_of_the_world_that_the_plan_puts_on_their_hosts() -> None:
    """By the order of their names they would be each other's."""
    text = "engine: vllm\nworlds:\n  a: {parallel: {tensor: 4}, nodes: [node-a]}\n"
    text += "  b: {parallel: {tensor: 4}, nodes: [node-b]}\n"
    ties, found = tied(text, carrier("node-a", of("y", range(4), 4)), carrier("node-b", of("x", range(4), 4)))
    assert [list(claims) for claims in ties.claims] == [["y"], ["x"]]
    assert hosts(ties, found) == {"node-a": ["a"], "node-b": ["b"]}


def test_two_names_on_the_hosts_of_one_world_tie_nothing() -> None:
    one = of("blue", range(4), 4), of("green", range(4), 4, first=4)
    ties, _ = tied(POOLS, carrier("node-a", *one))
    assert (ties.claims, ties.loose_claims) == ([{}, {}], {0: 8})


def test_hosts_without_names_get_as_many_equal_worlds_as_the_plan_deals() -> None:
    whole = [of("", range(4), 4), of("", range(4), 4, first=4)]
    ties, found = tied(PAIRS, carrier("h1", *whole), carrier("h2", *whole))
    assert hosts(ties, found) == {"h1": ["0", "1"], "h2": ["2", "3"]}
    assert ties.loose_claims == {}


def test_logs_of_hosts_without_names_tie_them() -> None:
    ties, found = tied(PAIRS, replica_log("h1", 0, 4), replica_log("h2", 4, 0))
    assert hosts(ties, found) == {"h1": ["0", "1"], "h2": ["2", "3"]}
    assert ties.loose_comms == {}


def test_a_world_of_which_nothing_is_seen_lies_beside_its_equals() -> None:
    ties, found = tied(PAIRS, replica_log("h1", 0, 4), replica_log("h2", 0))
    assert hosts(ties, found) == {"h1": ["0", "1"], "h2": ["2", "3"]}
    alone, seen = tied(PAIRS, replica_log("h1", 0))
    assert hosts(alone, seen) == {"h1": ["0"]}, "the others may lie on a host that was not seen"


def test_claims_of_one_host_are_dealt_by_gpu_only_where_all_gpus_are_alike() -> None:
    whole = [of("", range(4), 4), of("", range(4), 4, first=4)]
    assert tied(TWINS, carrier("node-a", *whole))[0].loose_claims == {}
    assert tied(TWINS, carrier("node-a", *whole, links=paired))[0].loose_claims == {0: 8}
    one_missing = carrier("node-a", whole[0], whole[1][:3])
    assert tied(TWINS, one_missing)[0].loose_claims == {0: 7}


def test_processes_of_a_communicator_take_their_claims_along() -> None:
    claims = [
        msgspec.structs.replace(claim, pid=7000 + gpu, gpu=gpu)
        for first in (0, 4)
        for claim, gpu in zip(of("", range(4), 4), range(first, first + 4), strict=True)
    ]
    ties, _ = tied(TWINS, carrier("node-a", claims, links=paired), replica_log("node-a", 0, 4))
    assert [sorted(c[""]) for c in ties.claims] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_third_replica_of_two_is_loose() -> None:
    ties, _ = tied(DENSE.replace("tensor: 4", "tensor: 2"), replica_log("node-a", 0, 2, 4, size=2))
    assert (ties.comms, ties.loose_comms) == ({"0xaa0": 0, "0xaa1": 1}, {"0xaa2": {0}})


def test_pods_that_name_a_group_of_the_plan_lie_in_it() -> None:
    text = "engine: vllm\nparallel: {tensor: 4}\nworlds:\n  a-0: {nodes: 1}\n  a-1: {nodes: 1}\n"
    pods = [
        msgspec.structs.replace(snap(name), node_claim=NodeClaim(node_rank=0, world=group, family="lws"))
        for name, group in (("h1", "a-1"), ("h2", "a-0"))
    ]
    ties, found = tied(text, *pods)
    assert hosts(ties, found) == {"h1": ["a-1"], "h2": ["a-0"]}


def test_communicators_over_the_same_processes_are_one_group() -> None:
    comms = [*comm("0xa", range(4), size=4), *comm("0xb", [0, 1], size=2)]
    apart = [msgspec.structs.replace(c, comm="0xc", pid=(c.pid or 0) + 50, gpu=3) for c in comms[:1]]
    found = joined(communicators(inventory(log("node-a", [*comms, *apart]))).values())
    assert [(group.comms, group.size, len(group.seats)) for group in found] == [
        (["0xa", "0xb"], 4, 4),
        (["0xc"], 4, 1),
    ]


def test_a_pid_in_two_containers_is_two_processes() -> None:
    comms = [CommRank(comm=name, size=1, rank=0, pid=17, gpu=gpu) for name, gpu in (("0xa", 0), ("0xb", 1))]
    found = joined(communicators(inventory(log("node-a", comms))).values())
    assert [group.comms for group in found] == [["0xa"], ["0xb"]]


def test_a_member_whose_gpu_is_not_shown_is_its_process() -> None:
    comms = [
        CommRank(comm="0xa", size=1, rank=0, pid=17, gpu=2),
        CommRank(comm="0xb", size=1, rank=0, pid=17),
    ]
    (group,) = joined(communicators(inventory(log("node-a", comms))).values())
    assert (group.comms, group.seats) == (["0xa", "0xb"], {(0, 17, 2)})


MEMBERS = st.builds(
    CommRank,
    comm=st.sampled_from(["0xa", "0xb", "0xc", "0xd"]),
    size=st.sampled_from([None, 1, 2, 4, 8]),
    rank=st.integers(0, 7),
    gpu=st.one_of(st.none(), st.integers(0, 7)),
    pid=st.one_of(st.none(), st.integers(1, 9)),
)
CLAIMS = st.tuples(st.sampled_from(["", "0", "dp0", "prefill", "x"]), st.integers(0, 7), st.integers(0, 7))


@settings(max_examples=100, deadline=None)
@given(
    text=st.sampled_from([TWINS, PAIRS, POOLS]),
    shown=st.lists(st.tuples(st.sampled_from(["node-a", "node-b", "h"]), MEMBERS), max_size=12),
    held=st.lists(st.tuples(st.sampled_from(["node-a", "node-c", "h"]), CLAIMS), max_size=12),
)
def test_every_piece_of_evidence_is_tied_once_or_loose(
    text: str, shown: list[tuple[str, CommRank]], held: list[tuple[str, tuple[str, int, int]]]
) -> None:
    logs = [log(host, [member], count=8) for host, member in shown]
    made = [carrier(host, of(world, [rank], 4, first=gpu)) for host, (world, rank, gpu) in held]
    ties, found = tied(text, *logs, *made)
    claimed = [
        (name, index) for claims in ties.claims for name, indexes in claims.items() for index in indexes
    ]
    assert len(set(claimed)) == len(claimed)
    assert len(claimed) + sum(ties.loose_claims.values()) == sum(map(len, found.claims.values()))
    names = {entry.comm for _, entry in shown}
    assert sorted([*ties.comms, *ties.loose_comms, *ties.between]) == sorted(names)
    shares = share_out(parts_of(plan(text), found)[0], found)
    ranks = sum(len(share.inventory.claims.get("", ())) for share in shares.worlds)
    assert ranks == len(claimed)
