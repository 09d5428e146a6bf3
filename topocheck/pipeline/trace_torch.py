"""One rank as the PyTorch profiler saw it: when it computed, when it sent and received, and with whom.

Written by torch.profiler (kineto, libkineto/src/output_json.cpp; torch/csrc/profiler/util.cpp), read for
torch 2.1 to 2.13. What counts:

- `kernel`, `gpu_memcpy`, `gpu_memset`: the GPU computes, unless the kernel is NCCL's.
- NCCL's kernels by `Collective name`: `send` and `recv` with `Dst Rank` and `Src Rank` are transfers, all
  else is a collective of `Process Group Ranks`. A kernel lasts from its start to the end of the transfer, so
  that it holds the wait for the other side.
- gloo has no kernels: `gloo:send` and `gloo:recv` last until the transfer is done, and the call around their
  start (`c10d::send`, `c10d::recv_`) names the peer where shapes were recorded.
- Without GPU events, operators (`cpu_op`) and annotations named `forward` or `backward`, with a number or
  without, are computing; so are torch's own `Forward 3` and `PP:0F3` (torch.distributed.pipelining).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal, NamedTuple

import msgspec

from topocheck.errors import InputError
from topocheck.pipeline.trace_events import Event, EventFile, Group

__all__ = ["Profile", "Spans", "Transfer", "joined", "read_profile"]

Side = Literal["send", "recv"]

DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
COMPUTES = re.compile(r"(?:PP:\d+(?:F|B|I|W)\d+|(?:forward|backward)(?:[ :_#-]?\d+)?)", re.IGNORECASE)
CALLS: dict[str, Side] = {"c10d::send": "send", "c10d::recv_": "recv", "c10d::recv_any_source_": "recv"}
WAITS: dict[str, Side] = {"gloo:send": "send", "gloo:recv": "recv", "gloo:recvAnySource": "recv"}
NUMBERS = re.compile(r"-?\d+")
NAMELESS = frozenset({"", "localhost", "localhost.localdomain", "(none)", "unknown"})
LATEST_US = 4e15
"""Microseconds that fit, together with the base time, into 64 bits of nanoseconds."""


class Arguments(msgspec.Struct, frozen=True, rename={
    "collective": "Collective name",
    "ranks": "Process Group Ranks",
    "source": "Src Rank",
    "target": "Dst Rank",
    "inputs": "Concrete Inputs",
}):  # fmt: skip
    """What a transfer or collective says about itself."""

    collective: str = ""
    ranks: Any = None
    source: Any = None
    target: Any = None
    inputs: Any = None


class Transfer(NamedTuple):
    """One send or receive, the wait for the other side in it."""

    side: Side | None
    """None where the kernel does not say which it is."""
    peers: frozenset[int]
    """Global ranks, one of which is the other side; empty is not known."""
    start: int
    end: int


class Spans:
    """Times in which something went on, as (start, end) in ns, joined as they come in order."""

    def __init__(self) -> None:
        self._starts, self._ends = array("q"), array("q")

    def add(self, start: int, end: int) -> None:
        """Add one; inside or right behind the last one it is joined to it."""
        if self._starts and self._starts[-1] <= start <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], end)
        elif end > start:
            self._starts.append(start)
            self._ends.append(end)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)


def joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Times in order, none over another."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


@dataclass(slots=True)
class Profile:
    """What one trace says about its rank."""

    source: str
    rank: int
    world: int | None
    host: str | None
    groups: list[Group]
    device: Spans = field(default_factory=Spans)
    """GPU at work, without NCCL."""
    operators: Spans = field(default_factory=Spans)
    """Host in operators, without communication."""
    annotated: list[tuple[int, int]] = field(default_factory=list)
    """Annotations that say forward or backward."""
    transfers: list[Transfer] = field(default_factory=list)
    """Sends and receives by their start."""
    collectives: dict[frozenset[int], Spans] = field(default_factory=dict)
    """By the ranks that take part; the empty set is not known."""

    @property
    def on_gpu(self) -> bool:
        """A GPU did the work; else the host's operators are all there is."""
        return len(self.device) > 0


@dataclass(slots=True)
class _Reader:
    """Events of one file, sorted into what they are."""

    path: str
    base_ns: int
    device: Spans = field(default_factory=Spans)
    operators: Spans = field(default_factory=Spans)
    annotated: list[tuple[int, int]] = field(default_factory=list)
    kernels: list[tuple[int, int, Arguments]] = field(default_factory=list)
    calls: dict[Side, list[tuple[int, int, int]]] = field(default_factory=lambda: {"send": [], "recv": []})
    """Calls of torch.distributed: start, end, and the other side's rank in the group; -1 is not known."""
    waits: list[tuple[int, int, Side]] = field(default_factory=list)
    collectives: dict[frozenset[int], Spans] = field(default_factory=dict)

    def take(self, events: Sequence[Event]) -> None:
        """Sort one piece. Raises InputError for an event that ends before it starts."""
        for event in events:
            if event.ph != "X":
                continue
            kind, name = event.cat, event.name
            if kind == "cpu_op":
                if not name.startswith(("c10d::", "record_param_comms")):
                    self.operators.add(*self._span(event))
                elif name in CALLS:
                    self.calls[CALLS[name]].append((*self._span(event), _peer(self._arguments(event).inputs)))
            elif kind in DEVICE:
                if name[:4].lower() == "nccl":
                    self._communicates(event)
                else:
                    self.device.add(*self._span(event))
            elif kind == "user_annotation":
                self._annotation(event)

    def _annotation(self, event: Event) -> None:
        if event.name in WAITS:
            self.waits.append((*self._span(event), WAITS[event.name]))
        elif event.name.startswith("gloo:"):
            self._collective(frozenset(), *self._span(event))
        elif COMPUTES.fullmatch(event.name):
            self.annotated.append(self._span(event))

    def _communicates(self, event: Event) -> None:
        """A kernel of NCCL."""
        arguments, (start, end) = self._arguments(event), self._span(event)
        # A kernel of all-to-all is named after send and receive, too; its arguments say what it is.
        if arguments.collective in {"send", "recv"} or (
            "sendrecv" in event.name.lower() and arguments.collective in {"", "coalesced"}
        ):
            self.kernels.append((start, end, arguments))
        else:
            self._collective(frozenset(_ranks(arguments.ranks)), start, end)

    def _collective(self, ranks: frozenset[int], start: int, end: int) -> None:
        self.collectives.setdefault(ranks, Spans()).add(start, end)

    def _arguments(self, event: Event) -> Arguments:
        try:
            return msgspec.json.decode(event.args, type=Arguments)
        except msgspec.DecodeError as error:
            raise InputError(
                f"event {event.name[:60]!r} has odd arguments: {error}", path=self.path
            ) from None

    def _span(self, event: Event) -> tuple[int, int]:
        start, length = event.ts, event.dur
        if length < 0 or not 0 <= start < LATEST_US or length > LATEST_US - start:
            raise InputError(
                f"event {event.name[:60]!r} starts at {start:g} us and lasts {length:g} us",
                path=self.path,
                fix="times are negative or beyond any clock: record the trace again",
            )
        begin = self.base_ns + round(start * 1000)
        return begin, begin + round(length * 1000)


def read_profile(stream: IO[bytes], path: str, rank: int | None = None) -> Profile:
    """One file. `rank` is what the user says it is of, for traces that do not say it.

    Raises InputError for a file that is cut or no trace, and where the rank is not known.
    """
    file = EventFile(stream, path)
    base = file.header.base_ns
    if not 0 <= base < 1 << 62:
        raise InputError(
            f"baseTimeNanoseconds is {base}", path=path, fix="that is before or beyond any clock"
        )
    reader = _Reader(path, base)
    for events in file:
        reader.take(events)
    header = file.header
    told = header.distributed
    named = told.rank if told is not None else None
    if rank is not None and named is not None and rank != named:
        raise InputError(f"is of rank {named} and not of rank {rank}", path=path)
    number = named if rank is None else rank
    if number is None or number < 0:
        raise InputError(
            "does not say its rank",
            path=path,
            fix="say it as RANK=FILE, or start the profiler after torch.distributed was initialised",
        )
    profile = Profile(
        source=path,
        rank=number,
        world=told.world_size if told is not None else None,
        host=None if (header.host_name or "") in NAMELESS else header.host_name,
        groups=list(told.pg_config) if told is not None else [],
        device=reader.device,
        operators=reader.operators,
        annotated=reader.annotated,
        collectives=reader.collectives,
    )
    found = [*_of_nccl(reader, number), *_of_gloo(reader, profile)]
    profile.transfers = sorted(found, key=lambda transfer: (transfer.start, transfer.end))
    return profile


def _ranks(listed: Any) -> list[int]:
    """Global ranks of `Process Group Ranks`: text as `[0, 4]`; none where the profiler cut the list."""
    text = str(listed) if isinstance(listed, (str, list)) else ""
    return [] if "..." in text else [int(number) for number in NUMBERS.findall(text)[:100_000]]


def _rank(value: Any) -> int | None:
    """A rank as the profiler writes it: a number, or text with one."""
    text = str(value) if isinstance(value, (int, str)) else ""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _of_nccl(reader: _Reader, me: int) -> Iterator[Transfer]:
    for start, end, arguments in reader.kernels:
        side: Side | None = None
        peer = None
        if arguments.collective == "send":
            side, peer = "send", _rank(arguments.target)
        elif arguments.collective == "recv":
            side, peer = "recv", _rank(arguments.source)
        others = [rank for rank in _ranks(arguments.ranks) if rank != me]
        if peer is None and len(others) == 1:
            peer = others[0]
        yield Transfer(side, frozenset() if peer is None else frozenset({peer}), start, end)


def _peer(inputs: Any) -> int:
    """Rank of the other side in its group: the third of the inputs recorded with shapes; -1 for none."""
    peer = _rank(inputs[2]) if isinstance(inputs, list) and len(inputs) > 2 else None
    return -1 if peer is None else peer


def _of_gloo(reader: _Reader, profile: Profile) -> Iterator[Transfer]:
    """Each wait with the peer that the call names in which it starts."""
    calls = {side: sorted(found) for side, found in reader.calls.items()}
    starts = {side: [call[0] for call in found] for side, found in calls.items()}
    for start, end, side in reader.waits:
        place = bisect_right(starts[side], start) - 1
        called = place >= 0 and start <= calls[side][place][1]
        peer = calls[side][place][2] if called else -1
        # The annotation begins when the transfer has been handed over, and data may be there before that.
        yield Transfer(side, _global(peer, profile), starts[side][place] if called else start, end)


def _global(peer: int, profile: Profile) -> frozenset[int]:
    """Global ranks that can be meant by a rank in a group that is not named."""
    if peer < 0:
        return frozenset({1 - profile.rank} if profile.world == 2 else ())
    groups = [members for group in profile.groups if profile.rank in (members := group.members)]
    found = {members[peer] for members in groups if peer < len(members)} - {profile.rank}
    return frozenset(found if groups else {peer})
