"""How the clocks of several hosts stand to each other, as far as it can be known.

A message is received after it was sent. With A's clock to be shifted by a and B's by b, a message from A to B
that left at s and was there at r says s + a <= r + b; one from B to A bounds the difference from the other
side, as NTP does it. Messages of one direction alone leave one side open: a clock that is late looks like a
link that is slow.
A clock that its kernel keeps in step (`state.clock` of a snapshot) is off the true time by at most its error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, permutations

from topocheck.errors import InputError
from topocheck.pipeline.trace import Trace, arrival_ns, departure_ns
from topocheck.snapshot import Clock

__all__ = ["Alignment", "HostClock", "align"]

Bounds = dict[tuple[str, str], int]
"""By (A, B): shift of A less shift of B is at most so many ns."""


@dataclass(frozen=True, slots=True)
class HostClock:
    """What a snapshot says about a host's clock."""

    boot_id: str | None
    """Which running kernel it is."""
    clock: Clock | None
    """How well it is kept; None if nobody asked."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Shift of each clock to the time of the first stage's."""

    shifts: Mapping[str, int]
    """Nanoseconds to be added; a clock that is absent cannot be compared with the others."""
    errors: Mapping[str, int]
    """How far the shift may be off, in ns."""
    basis: Mapping[str, str]
    """Why it is known: transfers in both directions, or the clocks of snapshots."""
    notes: tuple[str, ...] = ()

    def error(self, one: str, other: str) -> int | None:
        """How far two clocks may be apart after the shift, in ns; None if they do not compare."""
        if one == other:
            return 0
        if one in self.errors and other in self.errors:
            return self.errors[one] + self.errors[other]
        return None


def align(trace: Trace, known: Mapping[str, HostClock] | None = None) -> Alignment:
    """Bring the clocks of a trace together. `known` has the clocks of snapshots by the names of the trace.

    Names of one boot id are one clock: containers of one host. Raises InputError if the times of two hosts
    cannot be, whatever their clocks.
    """
    clocks = list(dict.fromkeys(stage.clock for stage in trace.stages))
    reference = clocks[0]
    bounds = _tightest(_transfers(trace))
    solved = _solve(clocks, reference, bounds)
    if solved is None:
        raise _circle(trace, bounds)
    basis = dict.fromkeys(solved, "transfers in both directions") | {reference: "reference"}
    notes: list[str] = []
    kept = dict(_synchronised(clocks, known or {}, notes))
    pairs = [(one, other, kept[one] + kept[other]) for one, other in permutations(kept, 2)]
    pairs += [(one, other, 0) for one, other in permutations(clocks, 2) if _one_host(one, other, known or {})]
    if pairs:
        given = ((one, other, most) for (one, other), most in bounds.items())
        better = _solve(clocks, reference, _tightest(chain(given, pairs)))
        if better is None:
            notes.append(
                "by the clocks of the snapshots transfers are received before they are sent: the snapshots' "
                "clocks are not used"
            )
        else:
            basis |= {name: "snapshots" for name in better if better[name] != solved.get(name)}
            basis[reference], solved = "reference", better
    notes += [f"{name}: {_why(name, known or {})}" for name in clocks if name not in solved]
    return Alignment(
        shifts={name: (low + high) // 2 for name, (low, high) in solved.items()},
        errors={name: (high - low + 1) // 2 for name, (low, high) in solved.items()},
        basis=basis,
        notes=tuple(notes),
    )


def _transfers(trace: Trace) -> Iterator[tuple[str, str, int]]:
    """Bound that each transfer between two clocks gives: sender's clock, receiver's clock, ns."""
    units = trace.unit_of()
    for stage in trace.stages:
        for unit in stage.units:
            if unit.receive_from is None or unit.receive_from >= len(trace.stages):
                continue
            sender = trace.stages[unit.receive_from]
            sent = units[unit.receive_from].get(unit.key)
            if sent is not None and sender.clock != stage.clock:
                yield sender.clock, stage.clock, arrival_ns(unit) - departure_ns(sent) + trace.tolerance_ns


def _tightest(found: Iterable[tuple[str, str, int]]) -> Bounds:
    """The lowest bound of each pair."""
    bounds: Bounds = {}
    for one, other, most in found:
        bounds[one, other] = min(most, bounds.get((one, other), most))
    return bounds


def _solve(clocks: list[str], reference: str, bounds: Bounds) -> dict[str, tuple[int, int]] | None:
    """Lowest and highest shift of each clock that is bounded on both sides; None if the bounds contradict.

    Bellman and Ford, once from the reference and once to it.
    """
    high = _reach(clocks, reference, bounds)
    low = _reach(clocks, reference, {(other, one): most for (one, other), most in bounds.items()})
    if high is None or low is None:
        return None
    return {name: (-low[name], high[name]) for name in clocks if name in high and name in low}


def _reach(clocks: list[str], reference: str, bounds: Bounds) -> dict[str, int] | None:
    """Most by which each clock can be ahead of the reference; None where bounds run in a circle."""
    most = {reference: 0}
    for _ in clocks:
        before = dict(most)
        for (one, other), bound in bounds.items():
            if other in most and (one not in most or most[other] + bound < most[one]):
                most[one] = most[other] + bound
        if most == before:
            return most
    return None


def _circle(trace: Trace, most: Bounds) -> InputError:
    """Two hosts that each receive before the other sends, if it is two."""
    pairs = [(a, b) for (a, b), bound in most.items() if (b, a) in most and bound + most[b, a] < 0]
    names = " and ".join(name[:80] for name in pairs[0]) if pairs else "several hosts"
    return InputError(
        f"times of {names} run in a circle: each receives before the other sends, whatever their clocks",
        path=trace.stages[0].source,
        fix="a clock was set while the trace was taken, or the traces are of different runs",
    )


def _one_host(one: str, other: str, known: Mapping[str, HostClock]) -> bool:
    """Two names of one running kernel."""
    boot = known[one].boot_id if one in known and other in known else None
    return boot is not None and boot == known[other].boot_id


def _synchronised(
    clocks: list[str], known: Mapping[str, HostClock], notes: list[str]
) -> Iterator[tuple[str, int]]:
    """Clocks that are kept in step, with the most that each is off the true time, in ns."""
    for name in clocks:
        if name not in known:
            continue
        clock = known[name].clock or Clock()
        error = clock.error_seconds if clock.most_error_seconds is None else clock.most_error_seconds
        if clock.synchronised and error is not None and 0 <= error < 1e6:
            yield name, round(error * 1e9)
        else:
            notes.append(f"{name}: its snapshot shows no synchronised clock")


def _why(name: str, known: Mapping[str, HostClock]) -> str:
    """Why a clock is not compared."""
    more = "" if name in known else ", or give snapshots of the hosts (--clocks)"
    return (
        "its clock is not compared with the first stage's: transfers of one direction cannot tell a late "
        f"clock from a slow link. Trace something that comes back{more}"
    )
