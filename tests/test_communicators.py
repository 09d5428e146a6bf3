"""Communicators of the running job, and what they prove about global ranks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from build import (
    RING,
    TWO,
    answer,
    comm,
    edge,
    fact,
    inventory,
    log,
    members,
    placed,
    report,
    results,
    snap,
    text_of,
)

from topocheck.communicators import DUPLICATE, Communicator, sightings, world_communicators
from topocheck.errors import TwoJobsError
from topocheck.gather.stream import undecoded
from topocheck.inventory import Inventory
from topocheck.placement import Placement, place
from topocheck.planfile import parse_plan
from topocheck.probes.capture.recognise import read_capture
from topocheck.snapshot import CommRank, FullSnapshot

CAPTURES = Path(__file__).parent / "captures"
TP8_PP2 = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n"
EIGHT = "engine: torch\nparallel: {data: 8}\nnodes: 1\n"


def from_text(plan: str, text: str) -> Placement:
    """A log, read as verify reads it."""
    found = Inventory()
    for reading in read_capture(text.encode(), "job.log"):
        for snapshot in reading.snapshots:
            found.add(undecoded(snapshot))
    return place(parse_plan(plan, "plan.yaml"), found)


def from_capture(plan: str, name: str) -> Placement:
    return from_text(plan, (CAPTURES / name).read_text(encoding="utf-8"))


def one(*views: FullSnapshot, name: str = RING) -> Communicator:
    return sightings(inventory(*views)).communicators[name]


def test_several_lines_of_one_process_are_one_member_with_all_that_they_show() -> None:
    start = comm(RING, [0], phase="start", gpu=None)
    done = comm(RING, [0], phase="complete", pid=None)
    for order in ([start, done], [done, start]):
        member = next(one(log(comms=order[0]), log(comms=order[1])).everyone())
        assert (member.gpu, member.pid, member.phase) == (0, 9000, "complete")


def test_two_processes_of_one_rank_are_two_members() -> None:
    found = one(log(comms=[*comm(RING, [0], pid=1), *comm(RING, [0], pid=2)]))
    assert len(found.members[0]) == 2
    assert not found.whole


def test_a_communicator_is_whole_if_every_rank_is_there_once() -> None:
    assert one(log(comms=comm(RING, range(4), size=4))).whole
    assert not one(log(comms=comm(RING, range(3), size=4))).whole
    assert not one(log(comms=comm(RING, [0, 1, 2, 9], size=4))).whole


def test_a_size_that_a_later_line_shows_counts() -> None:
    assert one(log(comms=[*comm(RING, [0], size=None), *comm(RING, [1], size=8)])).size == 8


def test_only_communicators_of_the_worlds_size_give_global_ranks() -> None:
    seen = sightings(inventory(log(comms=[*comm(RING, range(4)), *comm("0x7a", range(4), size=4)])))
    assert [found.id for found in world_communicators(seen, 8)] == [RING]
    assert world_communicators(seen, 2) == []


def test_communicators_of_the_same_processes_are_one_job() -> None:
    seen = sightings(inventory(log(comms=[*comm(RING, range(4)), *comm("0xb", range(4))])))
    assert len(world_communicators(seen, 8)) == 2


def test_a_rank_that_two_processes_hold_does_not_silence_its_communicator() -> None:
    seen = sightings(inventory(log(comms=[*comm(RING, range(4)), *comm(RING, [3], pid=1, gpu=2)])))
    assert [found.id for found in world_communicators(seen, 8)] == [RING]


def test_communicators_that_order_the_ranks_differently_are_not_trusted() -> None:
    turned = [*comm("0xb", [3, 2, 1, 0])]
    seen = sightings(inventory(log(comms=[*comm(RING, range(4)), *turned])))
    assert world_communicators(seen, 8) == []


def test_two_worlds_without_a_process_in_common_are_two_jobs() -> None:
    later = comm("0xb", range(4), pid=None)
    later = tuple(msgspec.structs.replace(each, pid=7000 + each.rank) for each in later)
    with pytest.raises(TwoJobsError, match="two jobs"):
        placed(TWO, log(comms=[*comm(RING, range(4)), *later]))


def test_excerpts_of_two_worlds_that_share_no_rank_may_be_one_job() -> None:
    seen = sightings(inventory(log(comms=comm(RING, range(4))), log("node-b", comm("0xb", range(4, 8)))))
    assert len(world_communicators(seen, 8)) == 2


def test_worlds_of_one_rank_are_no_jobs_of_their_own() -> None:
    views = [comm(f"0x{n}", [0], size=1, pid=n) for n in (1, 2)]
    seen = sightings(inventory(log(comms=[*views[0], *views[1]])))
    assert len(world_communicators(seen, 1)) == 2


def run(pid: int, comm_id: str, phases: tuple[str, ...] = ("START", "COMPLETE")) -> str:
    """The log of two ranks on one host."""
    lines = []
    for phase in phases:
        for rank in (0, 1):
            nccl = f"hostx:{pid + rank}:{pid + 90} [{rank}] NCCL INFO ncclCommInitRank comm 0x55{pid + rank}"
            place = f"rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank + 1}b000"
            lines.append(f"{nccl} {place}{comm_id and f' commId {comm_id}'} - Init {phase}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("ids", [("0x1111222233334444", "0x5555666677778888"), ("", "")])
def test_a_second_run_in_the_same_log_is_a_second_job(ids: tuple[str, str]) -> None:
    plan = "engine: torch\nparallel: {data: 2}\nnodes: 1\n"
    assert from_text(plan, run(310, ids[0])).placed.complete
    with pytest.raises(TwoJobsError):
        from_text(plan, run(310, ids[0]) + run(510, ids[1]))


def test_ranks_that_occur_in_many_groups_are_known_by_the_world_alone() -> None:
    found = from_capture(TP8_PP2, "nccl-vllm-tp8-pp2.log")
    sizes = sorted(each.size or 0 for each in found.seen.communicators.values())
    assert sizes[-1] == 16
    assert sizes.count(8) == 2
    assert found.placed.complete
    assert found.placed.twice == {}
    assert [len(ranks) for ranks in found.ranks_on.values()] == [8, 8]


def test_groups_of_one_engine_agree_with_its_plan() -> None:
    answers = results(from_capture(TP8_PP2, "nccl-vllm-tp8-pp2.log"))
    assert answers["OBS008"].verdict == "pass"
    assert {answers[rule].verdict for rule in ("ID001", "ID002", "ID003", "ID004", "TP001")} == {"pass"}


def test_tensor_groups_alone_prove_nothing_about_the_world() -> None:
    views = [
        log("node-a", members("0x7a", [(n, n) for n in range(4)], host="node-a", size=4)),
        log("node-b", members("0x7b", [(n, n) for n in range(4)], host="node-b", size=4)),
    ]
    whole = report(TWO, *views)
    for rule in ("TP001", "PP001", "ID001", "ID002", "ID003", "ID004", "ID010"):
        assert answer(whole, rule).verdict == "unknown", rule
    assert whole.exit_code == 3


def test_the_log_of_tensor_groups_alone_proves_nothing_about_the_world() -> None:
    found = from_capture(TP8_PP2, "nccl-vllm-tp-only.log")
    assert found.phase == "observed"
    assert len(found.unplaced) == 16


def test_a_duplicate_warning_names_ranks_of_the_world_only_under_the_launchers_tags() -> None:
    name = f"{DUPLICATE}node-a"
    warned = [CommRank(comm=name, rank=rank, gpu=0, pid=70 + rank if rank else None) for rank in (0, 2, 5)]
    bare = report(EIGHT, log("node-a", warned))
    assert answer(bare, "ID004").verdict == "fail"
    assert "0, 2, 5" in text_of(answer(bare, "ID004"))
    assert placed(EIGHT, log("node-a", warned)).placed.empty
    tags = [fact("mpi-rank", str(rank), pid=70 + rank) for rank in (2, 5)]
    tagged = placed(EIGHT, log("node-a", warned, facts=tags))
    assert [rank for rank, node in enumerate(tagged.placed.node) if node is not None] == [0, 2, 5]


def test_tags_that_disagree_with_the_warning_prove_nothing() -> None:
    warned = [CommRank(comm=f"{DUPLICATE}node-a", rank=rank, gpu=0, pid=70 + rank) for rank in (1, 2)]
    tags = [fact("mpi-rank", "9", pid=71), fact("mpi-rank", "2", pid=72)]
    assert placed(EIGHT, log("node-a", warned, facts=tags)).placed.empty


def test_text_without_a_host_still_shows_that_the_job_runs() -> None:
    for view in (log(None, comm(RING, [0])), log(None, edges=[edge(0, 1, "P2P/IPC", comm=None)])):
        found = placed(TWO, snap("node-a"), snap("node-b"), view)
        assert found.phase == "observed"
        assert found.placed.empty


@pytest.mark.parametrize("rank", [-1, -8, 8, 10**9])
def test_a_rank_outside_the_world_is_a_stray_and_takes_nobodys_place(rank: int) -> None:
    column = placed(TWO, log("node-a", comm(RING, [rank]))).placed
    assert column.empty
    assert [sighting.rank for sighting in column.stray] == [rank]
