"""What one rank did, cut into blocks: it received, computed, sent.

A profiler knows no microbatches. A block ends where its output leaves, or where the next input has come;
several tensors of one boundary make one transfer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from topocheck.pipeline.trace_torch import Profile, Transfer, joined

__all__ = ["Block", "Moved", "computing", "cut", "occupying"]

SMALL = 0.05
"""Part of a usual block up to which computing is the handling of a transfer, and no block of its own."""
JOIN_NS = 100_000
"""Gaps up to here between two pieces of computing are the launch of the next one."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One transfer of a boundary: one send or receive, or several that follow each other."""

    peer: int
    """Stage at the other side."""
    start: int
    end: int

    def joined(self, other: Moved | None) -> Moved:
        """Both as one."""
        if other is None:
            return self
        return Moved(self.peer, min(self.start, other.start), max(self.end, other.end))


@dataclass(slots=True)
class Block:
    """Received, computed, sent; each may be missing."""

    received: Moved | None = None
    pieces: list[tuple[int, int]] = field(default_factory=list)
    """Times in which it computed, in order."""
    sent: Moved | None = None

    @property
    def busy(self) -> int:
        """Time computed."""
        return sum(end - start for start, end in self.pieces)

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Times between its pieces."""
        ends = zip(self.pieces, self.pieces[1:], strict=False)
        return tuple((first[1], second[0]) for first, second in ends)


def computing(profile: Profile, ranks: Sequence[int]) -> list[tuple[int, int]]:
    """Times in which a rank computed for its stage, in order.

    A collective counts where all its ranks are of this stage: tensor parallel work. One that joins stages is
    waiting, too, and one whose ranks are not known may be.
    """
    if not profile.on_gpu:
        return joined(chain(profile.operators, _without_transfers(profile)))
    inside = [spans for members, spans in profile.collectives.items() if _inside(members, profile, ranks)]
    return joined(chain(profile.device, *inside))


def _inside(members: frozenset[int], profile: Profile, ranks: Sequence[int]) -> bool:
    """Whether a collective is of one stage; with members unknown it may join several."""
    return bool(members) and not members & (set(ranks) - {profile.rank})


def occupying(profile: Profile, ranks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Times in which a host prepared work for its GPU, or a collective joined stages."""
    if profile.on_gpu:
        yield from profile.operators
    for members, spans in profile.collectives.items():
        if not _inside(members, profile, ranks):
            yield from spans


def _without_transfers(profile: Profile) -> Iterator[tuple[int, int]]:
    """Annotated times, less the transfers that begin in them: torch annotates both together.

    A transfer that began before goes on beside the computing.
    """
    transfers = profile.transfers
    place = 0
    for start, end in sorted(profile.annotated):
        while place < len(transfers) and transfers[place].start < start:
            place += 1
        at, index = start, place
        while index < len(transfers) and transfers[index].start < end:
            if transfers[index].start > at:
                yield at, transfers[index].start
            at = max(at, transfers[index].end)
            index += 1
        if at < end:
            yield at, end


def cut(profile: Profile, ranks: Sequence[int]) -> list[Block]:
    """Blocks of a rank, in order. `ranks` are those of the pipeline, first stage first."""
    stage_of = {rank: stage for stage, rank in enumerate(ranks)}
    moments: list[tuple[int, int, Transfer | tuple[int, int]]] = [
        (start, 2, (start, end)) for start, end in computing(profile, ranks)
    ]
    for transfer in profile.transfers:
        if transfer.side == "recv":
            moments.append((transfer.end, 0, transfer))
        elif transfer.side == "send":
            moments.append((transfer.start, 1, transfer))
    moments.sort(key=lambda moment: moment[:2])
    blocks = [Block()]
    for _, kind, what in moments:
        if kind == 2:
            blocks[-1].pieces.append((what[0], what[1]))  # type: ignore[arg-type]
            continue
        moved = _moved(what, stage_of)  # type: ignore[arg-type]
        if moved is not None:
            (_receive, _send)[kind](blocks, moved)
    return _whole(block for block in blocks if block.received or block.pieces or block.sent)


def _moved(transfer: Transfer, stage_of: dict[int, int]) -> Moved | None:
    """A transfer of this pipeline; None for one with other ranks, or with nobody knows whom."""
    stages = {stage_of[peer] for peer in transfer.peers if peer in stage_of}
    return Moved(stages.pop(), transfer.start, transfer.end) if len(stages) == 1 else None


def _receive(blocks: list[Block], moved: Moved) -> None:
    """An input has come: it begins a block, unless one has just begun with it."""
    last = blocks[-1]
    if last.pieces or (last.received is not None and last.received.peer != moved.peer):
        last = Block()
        blocks.append(last)
    last.received = moved.joined(last.received)


def _send(blocks: list[Block], moved: Moved) -> None:
    """An output leaves: it ends a block, or belongs to the one that it has just ended."""
    last = blocks[-1]
    before = blocks[-2] if len(blocks) > 1 else None
    unused = not last.pieces and last.received is None
    if unused and before is not None and before.sent is not None and before.sent.peer == moved.peer:
        before.sent = moved.joined(before.sent)
        return
    last.sent = moved
    blocks.append(Block())


def _whole(blocks: Iterator[Block]) -> list[Block]:
    """Blocks without those that only handle a transfer: an allocation between two tensors, a copy."""
    found = list(blocks)
    least = SMALL * _usual([block.busy for block in found])
    for block in found:
        block.pieces = _core(_close(block.pieces), least)
    whole: list[Block] = []
    waiting: Moved | None = None
    for block in found:
        received = block.received
        if received is not None and waiting is not None and received.peer == waiting.peer:
            received = received.joined(waiting)
        elif received is None:
            received = waiting
        waiting = None
        small = block.busy < least
        before = whole[-1] if whole else None
        if small and block.sent is None:
            waiting = received
        elif small and received is None and before is not None and _same(before.sent, block.sent):
            before.sent = block.sent.joined(before.sent) if block.sent else None
        else:
            whole.append(replace(block, received=received, pieces=block.pieces))
    return whole


def _usual(busy: list[int]) -> int:
    """Size of the blocks in which most of the time is spent; the small ones may be more in number."""
    half, so_far = sum(busy) / 2, 0
    for length in sorted(busy, reverse=True):
        so_far += length
        if so_far >= half:
            return length
    return 0


def _same(one: Moved | None, other: Moved | None) -> bool:
    return one is not None and other is not None and one.peer == other.peer


def _core(pieces: list[tuple[int, int]], least: float) -> list[tuple[int, int]]:
    """Pieces without the few small ones that stand apart before the first and after the last large one."""
    for _ in range(2):  # from the front, then from the back
        small = 0
        for number, (start, end) in enumerate(pieces):
            small += end - start
            if small >= least:
                pieces = pieces[number:]
                break
        pieces = [(-end, -start) for start, end in reversed(pieces)]
    return pieces


def _close(pieces: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pieces with the short gaps between them filled."""
    found: list[tuple[int, int]] = []
    for start, end in pieces:
        if found and start - found[-1][1] <= JOIN_NS:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found
