"""The clock is asked of the kernel itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooted import roots_at

from topocheck.probes.node.clock import Timex, parse_timex, read_clock
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Clock


def test_the_clock_of_this_machine_answers_or_says_why_not() -> None:
    clock, faults = read_clock(Roots.real())
    assert (clock is None) == bool(faults)
    if clock is not None:
        assert clock.synchronised is not None
        assert (clock.most_error_seconds or 0) >= 0


def test_a_recorded_machine_has_no_clock(tmp_path: Path) -> None:
    clock, faults = read_clock(roots_at(tmp_path))
    assert clock is None
    assert [(fault.part, fault.kind, fault.path) for fault in faults] == [("state", "absent", "adjtimex")]


@pytest.mark.parametrize(
    ("state", "status", "synchronised"),
    [(0, 0x2001, True), (0, 0x0040, False), (5, 0x0001, False), (1, 0, True)],
)
def test_a_clock_is_synchronised_only_if_state_and_status_say_so(
    state: int, status: int, *, synchronised: bool
) -> None:
    timex = Timex(status=status, esterror=250, maxerror=14500)
    assert parse_timex(state, timex) == Clock(
        synchronised=synchronised, error_seconds=0.00025, most_error_seconds=0.0145
    )
