"""Which memberships are one communicator, and what it is called.

A commId names a communicator, but from 2.18 to 2.22 the communicators that were split off one parent
with one color share theirs, whatever their size. From 2.23 on those that were split off have none:
parent, number of the split and color name them. Up to 2.15 nobody has one: there memberships of equal
size whose ranks complete each other are one communicator. What the log does not tie together stays
apart, and each process has a communicator by itself.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

from topocheck.probes.capture.nccl_members import Member

__all__ = ["made_name", "name_members"]

Group = list[Member]


def made_name(size: int | None, generation: int, members: Iterable[Member]) -> str:
    """A name for a communicator without commId: its size, which of that size, and a hash of its processes."""
    processes = sorted({f"{member.record.host}:{member.record.pid}" for member in members})
    digest = hashlib.sha256("\n".join(processes).encode()).hexdigest()
    return f"nranks{'?' if size is None else size}.{generation}.{digest[:8]}"


def name_members(members: Iterable[Member]) -> int:
    """Name the communicator of each membership; returns how many memberships could not be joined."""
    levels: dict[int, Group] = defaultdict(list)
    depth: dict[Member, int] = {}
    for member in members:  # a parent comes before what was split off it
        split = member.parent if member.seat.comm_id is None else None
        depth[member] = depth[split] + 1 if split else 0
        levels[depth[member]].append(member)
    return sum(name_level(levels[level]) for level in sorted(levels))


def name_level(members: Group) -> int:
    """Name memberships whose parents have their names; returns how many could not be joined."""
    turns: dict[tuple[object, ...], int] = defaultdict(int)
    known: dict[tuple[str, int | None, int], Group] = defaultdict(list)
    loose: dict[tuple[int | None, int | None, int | None, int], Group] = defaultdict(list)
    for member in members:
        seat = member.seat
        family = family_name(member)
        # A process that has a second communicator of the same kind is in the next one.
        turn = (member.process, family, seat.size, seat.count, seat.color)
        turns[turn] += 1
        if family is not None:
            known[family, seat.size, turns[turn]].append(member)
        else:
            loose[seat.size, seat.count, seat.color, turns[turn]].append(member)
    name_known(known)
    return sum(name_loose(size, turn, group) for (size, _, _, turn), group in loose.items())


def family_name(member: Member) -> str | None:
    """The commId, or parent, split and color; None if the log has neither."""
    seat = member.seat
    if seat.comm_id is not None:
        return seat.comm_id
    if member.parent is None:
        return None
    return f"{member.parent.name}/{'' if seat.count is None else seat.count}.{seat.color}"


def name_known(known: dict[tuple[str, int | None, int], Group]) -> None:
    """A commId is the name where it belongs to one communicator; else size and turn make it unique."""
    shared: dict[str, int] = defaultdict(int)
    for family, _, _ in known:
        shared[family] += 1
    for (family, size, turn), group in known.items():
        again = f".{turn}" if turn > 1 else ""
        name = family if shared[family] == 1 else f"{family}/{size}{again}"
        for member in group:
            member.name = name


def name_loose(size: int | None, turn: int, members: Group) -> int:
    """Name memberships that only size and order tie; returns how many could not be joined."""
    groups = complete_groups(size, members)
    unjoined = len(members) if groups is None else 0
    for generation, group in enumerate(groups or []):
        name = made_name(size, turn + generation, group)
        for member in group:
            member.name = name
    if groups is None:
        for member in members:
            member.name = made_name(size, turn, [member])
    return unjoined


def complete_groups(size: int | None, members: Sequence[Member]) -> list[Group] | None:
    """Memberships as communicators one after the other; None if a rank comes twice before one is full.

    Then several communicators of one size were built at the same time, as tensor groups are, and
    nothing tells which processes share one.
    """
    groups: list[dict[int, Member]] = [{}]
    for member in members:
        rank = member.seat.rank
        if len(groups[-1]) == size:
            groups.append({})
        if rank in groups[-1]:
            return None
        groups[-1][rank] = member
    return [list(group.values()) for group in groups]
