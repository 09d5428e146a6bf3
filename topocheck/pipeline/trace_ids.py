"""Which block of one stage worked on the unit of which block of the next: ids for what has none.

Transfers between two ranks keep their order, so that the k-th of one is the k-th of the other; where a
profiler started later, times of one clock say by how many they are apart. Within a stage what came first
leaves first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from topocheck.errors import UsageError
from topocheck.pipeline.trace_blocks import Block, Moved

__all__ = ["TOLERANCE_NS", "Ids", "name_blocks"]

TOLERANCE_NS = 1_000_000
"""Error of the profiler's clock: it counts ticks, and turns them into times by a measured rate."""
MOST_APART = 4
"""Transfers by which two profilers may have started apart, besides those by which their numbers differ."""


@dataclass(slots=True)
class Ids:
    """Ids of what each block of each stage received and sent; None where it did not."""

    inputs: list[list[str | None]]
    outputs: list[list[str | None]]
    notes: list[str] = field(default_factory=list)


def name_blocks(blocks: Sequence[Sequence[Block]], clocks: Sequence[str]) -> Ids:
    """Ids of units for the blocks of all stages. `clocks` names the clock of each.

    Raises UsageError where most of what a stage received came before it was sent.
    """
    last = len(blocks) - 1
    ids = Ids([[None] * len(row) for row in blocks], [[None] * len(row) for row in blocks])
    for number, index in enumerate(_sending(blocks[0], {1})):
        ids.outputs[0][index] = str(number)
    for stage in range(1, last + 1):
        _match(ids, blocks, clocks, stage - 1, stage)
        _pass_on(ids, blocks[stage], stage, source=stage - 1, targets={stage + 1})
    _pass_on(ids, blocks[last], last, source=last - 1, targets={last - 1, 0})
    for stage in range(last - 1, -1, -1):
        _match(ids, blocks, clocks, stage + 1, stage)
        _pass_on(ids, blocks[stage], stage, source=stage + 1, targets={stage - 1})
    if last > 1:
        _match(ids, blocks, clocks, last, 0)
    return ids


def _sending(blocks: Sequence[Block], peers: set[int]) -> list[int]:
    return [index for index, block in enumerate(blocks) if block.sent and block.sent.peer in peers]


def _pass_on(ids: Ids, blocks: Sequence[Block], stage: int, *, source: int, targets: set[int]) -> None:
    """What came from one stage goes on to another, first come first served."""
    held: deque[str] = deque()
    fresh = 0
    for index, block in enumerate(blocks):
        came = ids.inputs[stage][index]
        if block.received is not None and block.received.peer == source and came is not None:
            held.append(came)
        if block.sent is not None and block.sent.peer in targets:
            ids.outputs[stage][index] = held.popleft() if held else f"{stage}-{fresh}"
            fresh += 1


def _match(
    ids: Ids, blocks: Sequence[Sequence[Block]], clocks: Sequence[str], source: int, target: int
) -> None:
    """Give what a stage received the ids of what the other one sent. Raises UsageError by its times."""
    sent = [(index, block.sent) for index, block in enumerate(blocks[source]) if block.sent]
    sent = [(index, moved) for index, moved in sent if moved.peer == target]
    came = [(index, block.received) for index, block in enumerate(blocks[target]) if block.received]
    came = [(index, moved) for index, moved in came if moved.peer == source]
    one_clock = clocks[source] == clocks[target]
    apart = _apart([moved for _, moved in sent], [moved for _, moved in came], one_clock=one_clock)
    if apart is None and sent and came:
        ids.notes.append(
            f"stage {source} shows {len(sent)} transfers to stage {target}, which shows {len(came)}: "
            "without one clock nothing says which belong together"
        )
    elif apart:
        ids.notes.append(
            f"the traces of stages {source} and {target} begin {abs(apart)} transfers apart, by their times"
        )
    wrong = 0
    for number, (index, moved) in enumerate(came):
        place = -1 if apart is None else number + apart
        ids.inputs[target][index] = f"{source}>{target}-{number}"
        if 0 <= place < len(sent):
            sender, other = sent[place]
            if one_clock and _too_early(other, moved):
                wrong += 1
            else:
                ids.inputs[target][index] = ids.outputs[source][sender]
    if 2 * wrong > len(came):
        clock = clocks[source][:80]
        raise UsageError(
            f"{wrong} of {len(came)} transfers from stage {source} to stage {target} are received before "
            f"they are sent, by the clock of {clock}: the times run in a circle; these are traces of "
            "different runs, or of two hosts with one name"
        )
    if wrong:
        ids.notes.append(f"{wrong} transfers from stage {source} to stage {target} are received too early")


def _too_early(sent: Moved, received: Moved) -> bool:
    """A receive that ends before its send starts cannot be."""
    return received.end < sent.start - TOLERANCE_NS


def _apart(sent: Sequence[Moved], received: Sequence[Moved], *, one_clock: bool) -> int | None:
    """By how many the sends are ahead of the receives; None if nothing says it."""
    even = len(sent) == len(received)
    if not one_clock or not sent or not received:
        return 0 if even else None
    more = len(sent) - len(received)
    tries = range(min(0, more) - MOST_APART, max(0, more) + MOST_APART + 1)
    costs = {apart: _cost(sent, received, apart) for apart in tries}
    best = min(costs, key=lambda apart: (costs[apart], abs(apart)))
    # Times that jitter must not tear apart what lies well as it is.
    return 0 if even and costs[0] <= 2 * costs[best] else best


def _cost(sent: Sequence[Moved], received: Sequence[Moved], apart: int) -> float:
    """How badly ends of sends and receives fit."""
    pairs = [
        (sent[number + apart], one) for number, one in enumerate(received) if 0 <= number + apart < len(sent)
    ]
    if 2 * len(pairs) < min(len(sent), len(received)) or not pairs:
        return float("inf")
    whole = max(received[-1].end, sent[-1].end) - min(received[0].start, sent[0].start) + 1
    wrong = sum(whole for send, receive in pairs if _too_early(send, receive))
    return (wrong + sum(abs(receive.end - send.end) for send, receive in pairs)) / len(pairs)
