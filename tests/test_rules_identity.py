"""ID: every rank is one process on one GPU of one host, and they are the right ones."""

from __future__ import annotations

import msgspec
import pytest
from build import (
    FOUR,
    RING,
    TWO,
    answer,
    claims,
    comm,
    full,
    gpus,
    log,
    members,
    pair,
    placed,
    plan,
    report,
    running,
    snap,
    text_of,
)

from topocheck.snapshot import CommRank, Coverage, FullSnapshot, GpuId, Host, Identity, RankClaim

FREE = TWO.replace("[node-a, node-b]", "2")


def verdict(rule: str, *views: FullSnapshot, text: str = TWO) -> str:
    return answer(report(text, *views), rule).verdict


def test_a_rank_twice_is_one_finding_and_not_also_the_ranks_that_are_missing_for_it() -> None:
    found = answer(report(TWO, snap("node-a", range(4)), snap("node-b", range(4))), "ID001")
    [only] = found.findings
    assert "ranks 0..3 are held by more than one process" in only.message
    assert only.count == 4


def test_a_rank_twice_in_one_communicator_is_seen() -> None:
    views = [log("node-a", [*comm(RING, range(4)), *comm(RING, [3], pid=1, gpu=2)]), running()[1]]
    found = answer(report(TWO, *views), "ID001")
    assert found.verdict == "fail"
    assert "pid 9003" in text_of(found)
    assert "pid 1" in text_of(found)


def test_a_view_of_the_job_given_twice_is_no_second_job() -> None:
    assert verdict("ID001", *pair(), *pair()) == "pass"
    assert verdict("ID001", *running(), *running()) == "pass"


def test_a_missing_rank_is_unknown_until_every_node_told_all() -> None:
    assert verdict("ID001", snap("node-a", range(4)), snap("node-b", [4, 5, 6])) == "fail"
    part = snap("node-b", [4, 5, 6], coverage=full(ranks="part"))
    assert verdict("ID001", snap("node-a", range(4)), part) == "unknown"
    assert verdict("ID001", snap("node-a", range(4))) == "unknown"
    whole = [msgspec.structs.replace(view, coverage=Coverage(observed="all")) for view in running()]
    cut = msgspec.structs.replace(whole[1], observed=None)
    assert verdict("ID001", whole[0], cut) == "fail"


@pytest.mark.parametrize("rank", [8, -1, 2**70])
def test_a_rank_out_of_range_is_named(rank: int) -> None:
    found = answer(report(TWO, *pair(), log("node-b", ranks=(RankClaim(rank=rank),))), "ID001")
    assert str(rank) in text_of(found)
    assert "0..7" in text_of(found)


def test_ranks_that_do_not_exist_yet_are_not_missing() -> None:
    looked = [snap(name, coverage=full(ranks="all", observed="all")) for name in ("n0", "n1", "n2")]
    text = FREE.replace("nodes: 2", "nodes: 3")
    assert verdict("ID001", *looked, text=text) == "unknown"
    assert verdict("PP001", *looked, text=text) == "unknown"


def test_a_world_size_is_claimed_seen_or_unknown() -> None:
    assert verdict("ID002", snap(), snap("node-b")) == "pass"
    assert (
        verdict("ID002", snap("node-a", range(4), size=None), snap("node-b", range(4, 8), size=None))
        == "unknown"
    )
    assert verdict("ID002", *running()) == "pass"
    group = members("0x7a", [(n, n) for n in range(4)], host="node-a", size=4)
    assert verdict("ID002", log("node-a", group)) == "unknown"


def test_a_world_size_that_differs_shows_the_product() -> None:
    found = answer(report(TWO, log("node-a", comm("0xb", range(4), size=16))), "ID002")
    assert "16" in text_of(found)
    assert "tensor 4 x pipeline 2 = 8" in text_of(found)
    assert "node-a.log:10" in text_of(found)


def test_a_rank_resolves_to_one_gpu() -> None:
    assert verdict("ID003", *pair()) == "pass"
    bare = tuple(RankClaim(rank=rank) for rank in range(4))
    assert verdict("ID003", log("node-a", ranks=bare), snap("node-b", range(4, 8))) == "unknown"
    torn = [*comm(RING, range(4)), *comm(RING, [0], gpu=3, pid=9000)]
    found = report(TWO, log("node-a", torn), running()[1])
    assert "rank 0" in text_of(answer(found, "ID003"))
    assert answer(found, "ID001").findings == []


def test_gpus_that_each_task_calls_0_are_no_duplicates() -> None:
    tasks = [
        log(
            "node-a",
            ranks=(RankClaim(rank=n, gpu=0, local_rank=n),),
            identity=Identity(
                host=Host(name="node-a"), gpus=(GpuId(uuid=gpus()[n].uuid, nvml=0, scope="task"),)
            ),
        )
        for n in range(4)
    ]
    found = report(FOUR, *tasks)
    assert answer(found, "ID004").verdict == "pass"
    assert answer(found, "ID003").verdict == "pass"


def test_equal_bus_ids_on_two_hosts_are_two_gpus() -> None:
    assert verdict("ID004", *running()) == "pass"


def test_a_gpu_of_two_ranks_is_named_with_both_and_each_gpu_once() -> None:
    shared = [*comm(RING, [0, 1]), *comm(RING, [2, 3])]
    found = answer(report(TWO, log("node-a", shared), running()[1]), "ID004")
    [only] = found.findings
    assert (only.count, len(only.subjects)) == (2, 2)
    assert "ranks 0, 2" in only.message
    assert "ranks 1, 3" in only.subjects[1]


def test_ranks_on_gpus_that_are_named_by_different_means_may_share_one() -> None:
    by_uuid = log(
        "node-a",
        ranks=(RankClaim(rank=0, gpu=0),),
        identity=Identity(host=Host(name="node-a"), gpus=gpus(count=1, bus=False, nvml=False)),
    )
    by_bus = log(
        "node-a",
        ranks=(RankClaim(rank=1, gpu=0),),
        identity=Identity(host=Host(name="node-a"), gpus=gpus(count=1, uuid=False, nvml=False)),
    )
    text = FOUR.replace("tensor: 4", "tensor: 2")
    found = report(text, by_uuid, by_bus)
    assert answer(found, "ID004").verdict == "unknown"
    assert any("query-gpu" in gap.supply for gap in found.gaps if "ID004" in gap.rules)
    assert answer(report(text, by_uuid, by_bus, snap()), "ID004").verdict == "fail"


def test_nccls_duplicate_warning_speaks_where_nothing_places_the_ranks() -> None:
    warned = [CommRank(comm="duplicate:node-a", rank=rank, gpu=0) for rank in (0, 2)]
    found = answer(report(TWO, log("node-a", warned)), "ID004")
    assert "ranks 0, 2 share 0000:1b:00.0 on node-a" in text_of(found)


@pytest.mark.parametrize("nodes", ["[node-a, node-b]", "[node-b, node-a]"])
def test_ranks_on_other_nodes_than_named_are_told(nodes: str) -> None:
    text = TWO.replace("[node-a, node-b]", nodes)
    found = answer(report(text, *pair()), "ID010")
    assert found.verdict == ("pass" if nodes.startswith("[node-a") else "fail")


def test_an_exchange_of_whole_nodes_that_have_no_names_is_no_fault() -> None:
    views = [snap("node-a", range(4, 8)), snap("node-b", range(4))]
    assert verdict("ID010", *views, text=FREE) == "pass"
    mixed = [snap("node-a", [0, 1, 4, 5]), snap("node-b", [2, 3, 6, 7])]
    assert verdict("ID010", *mixed, text=FREE) == "fail"


def test_node_ranks_against_the_order_of_ranks_are_told_once() -> None:
    views = [
        msgspec.structs.replace(snap("node-a"), ranks=claims(range(4), node_rank=1)),
        msgspec.structs.replace(snap("node-b"), ranks=claims(range(4, 8), node_rank=0)),
    ]
    assert verdict("ID006", *views, text=FREE) == "fail"
    found = report(FREE, *views)
    assert answer(found, "ID010").verdict == "unknown"
    assert any("rank and node rank agree" in gap.need for gap in found.gaps if "ID010" in gap.rules)


def test_data_parallel_ranks_may_lie_anywhere() -> None:
    text = "engine: torch\nparallel: {data: 8}\nnodes: [node-b, node-a]\n"
    assert verdict("ID010", *pair(), text=text) == "not-applicable"


def test_a_number_of_nodes_that_predicts_nothing_leaves_the_place_open() -> None:
    text = TWO.replace("[node-a, node-b]", "3")
    assert verdict("ID010", *pair(), snap("node-c"), text=text) == "unknown"


def test_a_gpu_for_each_rank_is_an_allocation_that_holds() -> None:
    assert verdict("ID015", *running()) == "pass"
    found = report(TWO, snap("node-a", count=2), snap("node-b"))
    assert "node-a has 2 GPUs and must hold 4 ranks (0..3)" in text_of(answer(found, "ID015"))
    assert answer(found, "ID003").verdict == "unknown"


def test_the_prediction_alone_passes_on_the_basis_predicted() -> None:
    found = report(plan(TWO), snap("node-a"), snap("node-b"))
    for rule in ("ID001", "ID002", "ID003", "ID004", "ID010", "TP001", "PP001"):
        assert (answer(found, rule).verdict, answer(found, rule).basis) == ("pass", "predicted")


def test_the_column_of_the_phase_alone_is_judged() -> None:
    crossed = [snap("node-a", [0, 1, 4, 5]), snap("node-b", [2, 3, 6, 7])]
    found = placed(TWO, *crossed, *running())
    assert found.phase == "observed"
    assert answer(report(TWO, *crossed, *running()), "TP001").verdict == "pass"
