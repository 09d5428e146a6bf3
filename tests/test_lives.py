"""Two starts of one job in one log are one job that came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from build import TWO, answer, comm, fact, inventory, log, report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.communicators import sightings
from topocheck.errors import TwoJobsError
from topocheck.probes.capture.reading import Text
from topocheck.probes.capture.torch_log import parse
from topocheck.snapshot import At, CommRank, Edge, FullSnapshot, JobFact, LogFact

OLD, NEW = "0xaaaa", "0xbbbb"


def life(name: str, host: str, line: int, first_pid: int, **fields: Any) -> list[CommRank]:
    """Members of the world on one node, by processes of their own."""
    first = 0 if host == "node-a" else 4
    return [
        member
        for n, rank in enumerate(range(first, first + 4))
        for member in comm(name, [rank], host=host, line=line + n, gpu=n, pid=first_pid + n, **fields)
    ]


def twice(
    end: int | None = 30, *, second: int = 50, pids: tuple[int, int] = (100, 200), phase: str = "complete"
) -> list[FullSnapshot]:
    """Logs of two starts; node-b and node-a each tell of an abort in between."""
    found = []
    for host in ("node-a", "node-b"):
        lines = [*life(OLD, host, 10, pids[0], phase=phase), *life(NEW, host, second, pids[1])]
        ended: Sequence[LogFact] = (
            [fact("abort", "unhandled system error", host=host, line=end, pid=pids[0])] if end else []
        )
        found.append(log(host, lines, facts=ended))
    return found


def test_a_start_after_an_abort_takes_the_place_of_the_one_before() -> None:
    seen = sightings(inventory(*twice()))
    assert list(seen.communicators) == [NEW]
    assert seen.restarts == {"node-a.log": 30, "node-b.log": 30}
    assert seen.facts == []


def test_such_a_job_is_judged_by_its_last_start() -> None:
    found = report(TWO, *twice())
    assert (answer(found, "OBS006").verdict, answer(found, "ID001").verdict) == ("pass", "pass")
    assert answer(found, "OBS007").verdict == "unknown"  # it came back, and no request is shown


def test_an_abort_after_the_last_start_still_counts() -> None:
    views = twice()
    again = fact("abort", "unhandled cuda error", line=90, pid=201)
    found = report(TWO, *views, log("node-a", facts=[again]))
    assert answer(found, "OBS006").verdict == "fail"


@pytest.mark.parametrize("end", [None, 5, 70])
def test_two_starts_without_an_end_between_them_are_two_jobs(end: int | None) -> None:
    with pytest.raises(TwoJobsError):
        report(TWO, *twice(end))


def test_processes_that_went_on_have_two_lives_only_if_they_ended_one() -> None:
    same = twice(pids=(100, 100))
    assert list(sightings(inventory(*same)).communicators) == [OLD, NEW]
    ended = twice(pids=(100, 100), phase="destroyed")
    assert list(sightings(inventory(*ended)).communicators) == [NEW]


def test_groups_on_other_gpus_are_no_second_life() -> None:
    first = comm("0x1", range(4), size=4, line=10)
    second = comm("0x2", range(4), host="node-b", size=4, line=40, pid=7)
    told = [fact("abort", "remote process exited", line=20)]
    seen = sightings(inventory(log("node-a", first, facts=told), log("node-b", second)))
    assert set(seen.communicators) == {"0x1", "0x2"}


def test_edges_of_the_earlier_start_are_forgotten() -> None:
    views = twice()
    old = Edge(src=3, dst=4, via="NET", how="NET/Socket/0", network="Socket", side="send", comm=OLD, pid=103)
    new = Edge(src=3, dst=4, via="NET", how="NET/IB/0", network="IB", side="send", comm=NEW, pid=203)
    seen = sightings(inventory(*views, log("node-a", edges=[old, new])))
    assert [one.edge.network for one in seen.edges] == ["IB"]


def test_a_launcher_that_restarts_its_workers_ends_their_lives() -> None:
    at = At(source="node-a.log", line=30)
    stated = JobFact(kind="restart", value="1", at=at)
    views = twice(None)
    both = [
        log("node-a", jobs.observed.comms if jobs.observed else (), job=(stated,))
        if name == "node-a"
        else log(
            "node-b",
            jobs.observed.comms if jobs.observed else (),
            facts=[fact("abort", "", host="node-b", line=30)],
        )
        for name, jobs in zip(("node-a", "node-b"), views, strict=True)
    ]
    assert list(sightings(inventory(*both)).communicators) == [NEW]


def test_torchruns_agents_tell_of_restarts() -> None:
    lines = (
        "[WARNING] api: [default] Worker group FAILED. 3/3 attempts left; will restart worker group",
        "INFO [default] Rendezvous complete for workers. Result:",
        "  restart_count=1",
        "  master_addr=node-a",
        "  group_rank=0",
        "  group_world_size=1",
        "  local_ranks=[0, 1]",
        "  global_ranks=[0, 1]",
        "  global_world_sizes=[2, 2]",
    )
    found = [known for one in parse(Text("agent.log", lines)) for view in one.snapshots for known in view.job]
    restarts = [(known.value, known.at and known.at.line) for known in found if known.kind == "restart"]
    assert ("1", 2) in restarts
    assert {line for _, line in restarts} == {1, 2}


@given(st.lists(st.tuples(st.sampled_from([OLD, NEW]), st.integers(1, 60)), max_size=8), st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_some_communicator_always_stays(members: list[tuple[str, int]], end: int) -> None:
    lines = [
        CommRank(
            comm=name, size=8, rank=n, gpu=n % 4, pid=ord(name[2]) * 100 + n, at=At(source="x", line=line)
        )
        for n, (name, line) in enumerate(members)
    ]
    ended = LogFact(kind="abort", at=At(source="x", line=end))
    seen = sightings(inventory(log("node-a", lines, facts=[ended])))
    assert bool(seen.communicators) == bool(members)
