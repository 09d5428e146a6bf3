"""Clocks of several hosts, brought together or left apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_runs import HOSTS, MS, Line, as_text, blocking, judged, read, there_and_back

from topocheck.errors import InputError
from topocheck.pipeline.clocks import HostClock, align
from topocheck.snapshot import Clock


def shifted(lines: list[Line], host: str, by_ms: float) -> list[Line]:
    """What a host's clock would have written that is so far ahead."""
    return [
        {
            name: value + round(by_ms * MS) if name.endswith("_ns") and line["host"] == host else value
            for name, value in line.items()
        }
        for line in lines
    ]


def test_one_host_has_one_clock() -> None:
    found = align(read(as_text(blocking([5, 5], hosts=["blue-1", "blue-1"]))))
    assert (found.shifts, found.error("blue-1", "blue-1"), found.notes) == ({"blue-1": 0}, 0, ())


@pytest.mark.parametrize("late_ms", [-900, 0, 900])
def test_transfers_of_one_direction_leave_two_clocks_apart(late_ms: float) -> None:
    trace = read(as_text(shifted(blocking([60, 5], hosts=HOSTS), "blue-2", late_ms)))
    found = align(trace)
    assert found.error(*HOSTS) is None
    assert "transfers of one direction cannot tell a late clock from a slow link" in found.notes[0]
    report = judged(trace)
    assert report.stages[1].by_reason.keys() >= {"clocks"}
    assert any("clocks of two hosts do not compare: give snapshots (--clocks)" in gap for gap in report.gaps)


@settings(max_examples=30, deadline=None)
@given(late_ms=st.floats(-1e6, 1e6))
def test_transfers_of_both_directions_bring_clocks_together(late_ms: float) -> None:
    found = align(read(as_text(shifted(there_and_back(), "blue-2", 1e7 + late_ms))))
    assert abs(found.shifts["blue-2"] + round((1e7 + late_ms) * MS)) <= found.errors["blue-2"]
    assert found.errors["blue-2"] <= 2 * MS + 1  # half of a transfer there and back
    assert found.basis["blue-2"] == "transfers in both directions"


def test_waits_over_aligned_clocks_are_those_of_one_clock() -> None:
    lines = there_and_back(link_ms=1)
    one = judged(read(as_text([line | {"host": "blue-1"} for line in lines])))
    two = judged(read(as_text(shifted(lines, "blue-2", 12345))))
    for stage, other in zip(one.stages, two.stages, strict=True):
        for part in ("computing", "work", "neighbour", "boundary"):
            assert getattr(other, part) == pytest.approx(getattr(stage, part), abs=0.05)


def synchronised(most_error_seconds: float) -> HostClock:
    return HostClock(
        None, Clock(synchronised=True, error_seconds=1e-6, most_error_seconds=most_error_seconds)
    )


def test_synchronised_clocks_compare_within_their_error() -> None:
    trace = read(as_text(blocking([5, 60], hosts=HOSTS)))
    known = dict.fromkeys(HOSTS, synchronised(0.0005))
    found = align(trace, known)
    assert found.errors["blue-2"] <= MS
    assert found.basis["blue-2"] == "snapshots"
    report = judged(trace, known)
    assert [(f.kind, f.where) for f in report.findings] == [("neighbour", "stage 1")]
    assert report.stages[0].by_stage["1"] == pytest.approx(0.83, abs=0.05)


def test_clocks_whose_error_is_larger_than_the_waits_do_not_tell_them_apart() -> None:
    trace = read(as_text(blocking([5, 60], hosts=HOSTS)))
    report = judged(trace, dict.fromkeys(HOSTS, synchronised(0.05)))
    assert report.findings == []
    assert report.status == "unknown"
    assert report.stages[0].by_reason["clocks"] > 0.7


@pytest.mark.parametrize(
    "clock",
    [None, Clock(), Clock(synchronised=False, error_seconds=1e-6), Clock(synchronised=True)],
)
def test_a_clock_that_is_not_in_step_tells_nothing(clock: Clock | None) -> None:
    trace = read(as_text(blocking([5, 60], hosts=HOSTS)))
    found = align(trace, {"blue-1": synchronised(1e-4), "blue-2": HostClock(None, clock)})
    assert found.error(*HOSTS) is None
    assert "blue-2: its snapshot shows no synchronised clock" in found.notes


def test_names_of_one_kernel_are_one_clock() -> None:
    trace = read(as_text(blocking([5, 60], hosts=HOSTS)))
    found = align(trace, dict.fromkeys(HOSTS, HostClock("boot", None)))
    assert found.error(*HOSTS) == 0
    assert found.shifts["blue-2"] == 0


def test_snapshots_that_contradict_the_transfers_are_not_used() -> None:
    trace = read(as_text(shifted(there_and_back(), "blue-2", 500)))
    found = align(trace, dict.fromkeys(HOSTS, synchronised(1e-4)))
    assert found.basis["blue-2"] == "transfers in both directions"
    assert any(
        "by the clocks of the snapshots transfers are received before they are sent" in n for n in found.notes
    )


def test_times_of_two_hosts_that_cannot_be_are_refused() -> None:
    lines = there_and_back()
    for line in lines:
        if (line["pass"], line["stage"]) == ("backward", 0):
            line["receive_start_ns"] = line["receive_end_ns"] = line["compute_start_ns"] = 0
            line["compute_end_ns"] = 1
    with pytest.raises(InputError, match=r"times of blue-\d and blue-\d run in a circle"):
        align(read(as_text(lines)))


def test_a_slow_link_shows_by_its_shorter_end_without_common_clocks() -> None:
    lines = blocking([5, 5, 5], link_ms=[1, 60], hosts=["blue-1", "blue-1", "blue-2"])
    report = judged(read(as_text(shifted(lines, "blue-2", -777))))
    link = next(one for one in report.boundaries if (one.source, one.target) == (1, 2))
    assert (link.transfer_ns, link.bound) == (60 * MS, True)
    assert [(f.kind, f.where) for f in report.findings] == [("boundary", "stage 1 -> 2")]
    assert "a transfer takes at most 60 ms once both ends are ready" in report.findings[0].evidence[0]
