"""Several starts of one job in one log: what ended, and was started again on the same GPUs, is the past.

A communicator is past if another of its size has its GPUs, and in every source that shows it a line by which
a start ends (an abort, a launcher that restarts its workers) lies behind its last line and before the first
one of the other. Without such a line two communicators without a common process are two jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from topocheck.snapshot import JobFact, LogFact

if TYPE_CHECKING:
    from topocheck.communicators import Communicator, Member, Sightings

Past = tuple["Communicator", "Communicator", dict[str, int]]
"""A past communicator, the one after it, and the last line of its life by source."""

__all__ = ["ENDINGS", "RESTART", "forget_past_lives"]

RESTART = "restart"
ENDINGS = frozenset({"abort", "refused", RESTART})
"""Kinds of statement by which a start ends."""


def forget_past_lives(seen: Sightings, job: Iterable[JobFact]) -> None:
    """Take out of what was seen whatever is of a start that ended, and note where it ended."""
    job = [fact for fact in job if fact.kind in ENDINGS]
    ends = lines_of([fact for fact, _ in seen.facts if fact.kind in ENDINGS], job)
    if not ends:
        return
    past = list(find_past(seen, ends))
    for old, _, places in past:
        seen.communicators.pop(old.id, None)
        for source, line in places.items():
            seen.restarts[source] = max(seen.restarts.get(source, 0), line)
    for fact in job:
        if fact.kind == RESTART and fact.at is not None and fact.at.line is not None:
            seen.restarts[fact.at.source] = max(seen.restarts.get(fact.at.source, 0), fact.at.line)
    if seen.restarts:
        drop_past(seen, past)


def lines_of(facts: Sequence[LogFact], job: Sequence[JobFact]) -> dict[str, list[int]]:
    """Lines by which a start ended, by source."""
    found: dict[str, list[int]] = {}
    every: list[LogFact | JobFact] = [*facts, *job]
    for fact in every:
        if fact.at is not None and fact.at.line is not None:
            found.setdefault(fact.at.source, []).append(fact.at.line)
    return {source: sorted(lines) for source, lines in found.items()}


def find_past(seen: Sightings, ends: Mapping[str, Sequence[int]]) -> Iterator[Past]:
    """Past communicators, each with the one that came after it and the last line of its life by source."""
    on: dict[tuple[int, int], list[Communicator]] = {}
    for comm in seen.communicators.values():
        for seat in seats(comm):
            on.setdefault(seat, []).append(comm)
    for comm in seen.communicators.values():
        first = next(iter(seats(comm)), None)
        for other in on.get(first, ()) if first is not None else ():
            places = (
                ended_before(comm, other, ends) if other.size == comm.size and other is not comm else None
            )
            if places is not None:
                yield comm, other, places
                break


def seats(comm: Communicator) -> dict[tuple[int, int], Member]:
    """Members by machine and GPU."""
    return {(member.machine, member.gpu): member for member in comm.everyone() if member.gpu is not None}


def ended_before(
    old: Communicator, new: Communicator, ends: Mapping[str, Sequence[int]]
) -> dict[str, int] | None:
    """Line by source by which one communicator had ended when the other began; None if nothing shows that."""
    before, after = seats(old), seats(new)
    shared = [(before[seat], after[seat]) for seat in before.keys() & after.keys()]
    if any(a.pid == b.pid for a, b in shared) and any(m.phase != "destroyed" for m in old.everyone()):
        return None
    spans, later = spans_of(old), spans_of(new)
    if not shared or not spans or not later or not spans.keys() & later.keys():
        return None
    places = {}
    for source, (_, last) in spans.items():
        begin = later[source][0] if source in later else None
        between = [end for end in ends.get(source, ()) if last < end and (begin is None or end < begin)]
        if not between:
            return None
        places[source] = between[-1]
    return places


def spans_of(comm: Communicator) -> dict[str, tuple[int, int]]:
    """First and last line of a communicator in each source; {} if a member has no line."""
    found: dict[str, tuple[int, int]] = {}
    for member in comm.everyone():
        if member.at is None or member.at.line is None:
            return {}
        first, last = found.get(member.at.source, (member.at.line, member.at.line))
        found[member.at.source] = min(first, member.at.line), max(last, member.at.line)
    return found


def drop_past(seen: Sightings, past: Sequence[Past]) -> None:
    """Edges and statements of processes that are gone, and of communicators that are."""
    names = {old.id for old, _, _ in past}
    dead = {seat for old, _, _ in past for seat in processes(old)}
    dead -= {seat for _, new, _ in past for seat in processes(new)}
    seen.edges = [
        one for one in seen.edges if one.edge.comm not in names and (one.machine, one.edge.pid) not in dead
    ]
    seen.facts = [
        (fact, machine)
        for fact, machine in seen.facts
        if (machine, fact.pid) not in dead and not (fact.kind in ENDINGS and seen.is_past(fact.at))
    ]


def processes(comm: Communicator) -> Iterator[tuple[int, int]]:
    """Machine and pid of its members, as far as known."""
    return ((member.machine, member.pid) for member in comm.everyone() if member.pid is not None)
