"""Events of a trace as the PyTorch profiler writes it, without holding the file in memory.

The file is one JSON object (Chrome's format) whose `traceEvents` is a long array. It is read in pieces that
end between two events. Where such a place is cannot be seen from a few bytes (an event may hold objects, and
a name any text), so a place is tried: only a piece that ends between two events is a whole array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO, Any

import msgspec

from topocheck.errors import InputError

__all__ = ["Event", "EventFile", "Group", "Header", "is_profile"]

PIECE_BYTES = 8 << 20
MOST_HEADER_BYTES = 64 << 20
MOST_EVENT_BYTES = 64 << 20
MOST_TRIES = 64
"""Places that are tried in one piece before more is read."""
BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
BETWEEN = re.compile(rb"\}\s*(,)\s*\{")
BYTE = re.compile(r"\(byte (\d+)\)")
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Event(msgspec.Struct, gc=False):
    """One event; fields that nothing asks for are not decoded."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = 0.0
    """Start in microseconds after the base time."""
    dur: float = 0.0
    """Microseconds."""
    args: msgspec.Raw = msgspec.Raw(b"{}")


class Group(msgspec.Struct, frozen=True):
    """A process group as `distributedInfo.pg_config` lists it."""

    pg_name: str = ""
    pg_desc: str = ""
    ranks: Any = None
    """Global ranks in the order of the group, where the profiler lists them whole."""

    @property
    def members(self) -> tuple[int, ...]:
        """Global ranks by group rank; () if they are not listed."""
        listed = self.ranks if isinstance(self.ranks, list) else ()
        return tuple(listed) if all(type(rank) is int for rank in listed) else ()


class DistributedInfo(msgspec.Struct, frozen=True):
    """What the profiler says about torch.distributed."""

    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    pg_config: list[Group] = []


class Header(
    msgspec.Struct, frozen=True, rename={"distributed": "distributedInfo", "base_ns": "baseTimeNanoseconds"}
):
    """What stands beside the events."""

    distributed: DistributedInfo | None = None
    host_name: str | None = None
    base_ns: int = 0
    """What times count from; 0 in traces of older versions, whose times count from the epoch."""


def is_profile(head: bytes) -> bool:
    """The first bytes of a file are those of a trace of the profiler."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text.startswith(b"{") and any(
        key in text
        for key in (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"distributedInfo"')
    )


class EventFile:
    """One file, to be read once."""

    def __init__(self, stream: IO[bytes], path: str) -> None:
        """Read up to the first event. Raises InputError if there is none."""
        self.path = path
        self._stream = stream
        self._events = msgspec.json.Decoder(list[Event]).decode
        self._passed = 0
        """Bytes before `_data`."""
        self._data = b""
        self._extra: Header | None = None
        self._head = self._begin()

    @property
    def header(self) -> Header:
        """What stands before the events and, once they are read, behind them."""
        after = self._extra
        if after is None:
            return self._head
        return Header(
            distributed=self._head.distributed or after.distributed,
            host_name=self._head.host_name or after.host_name,
            base_ns=self._head.base_ns or after.base_ns,
        )

    def _begin(self) -> Header:
        while len(self._data) < MOST_HEADER_BYTES:
            more = self._stream.read(PIECE_BYTES)
            self._data += more
            for place in BEGIN.finditer(self._data):
                try:
                    header = msgspec.json.decode(self._data[: place.end()] + b"]}", type=Header)
                except msgspec.ValidationError as error:
                    raise InputError(f"is no trace of the profiler: {error}", path=self.path) from None
                except NOT_JSON:
                    continue
                self._drop(place.end())
                return header
            if not more:
                break
        raise InputError(
            "holds no traceEvents",
            path=self.path,
            fix="give what torch.profiler's export_chrome_trace or tensorboard_trace_handler wrote, whole",
        )

    def _drop(self, count: int) -> None:
        self._passed += count
        self._data = self._data[count:]

    def __iter__(self) -> Iterator[list[Event]]:
        """Events in pieces, in the order of the file. Raises InputError for a file that is cut or no JSON."""
        size = PIECE_BYTES
        while more := self._stream.read(size):
            self._data += more
            found = self._piece()
            if found is None:
                size = len(self._data)  # an event larger than a piece
                if size > MOST_EVENT_BYTES:
                    raise self._error("an event is larger than 64 MB", 0)
                continue
            yield found
            size = PIECE_BYTES
            if self._extra is not None:
                return
        yield self._last()

    def _piece(self) -> list[Event] | None:
        """Whole events at the front of the data, taken away; None if no event ends in it."""
        for tried, place in enumerate(_places(self._data)):
            if tried == MOST_TRIES:
                return None
            text = b"[" + self._data[:place] + b"]"
            try:
                found = self._events(text)
            except msgspec.ValidationError as error:
                raise self._odd(error) from None
            except NOT_JSON as error:
                end = _trailing(error)
                if end is not None:  # the array ends in here
                    return self._end(end)
                if _byte(error) not in {None, len(text) - 1}:
                    raise self._error(f"is no JSON ({_reason(error)})", _byte(error)) from None
                continue
            self._drop(place + 1)
            return found
        return None

    def _last(self) -> list[Event]:
        """Events up to the end of the array, when the file has been read."""
        text = b"[" + self._data
        try:
            self._events(text)
        except msgspec.ValidationError as error:
            raise self._odd(error) from None
        except NOT_JSON as error:
            end = _trailing(error)
            if end is not None:
                return self._end(end)
            if _byte(error) is not None:
                raise self._error(f"is no JSON ({_reason(error)})", _byte(error)) from None
        raise self._cut()

    def _end(self, place: int) -> list[Event]:
        """The last events, and what stands behind them."""
        found = self._events(b"[" + self._data[:place])
        rest = self._data[place:] + self._stream.read(MOST_HEADER_BYTES)
        try:
            self._extra = msgspec.json.decode(b'{"":0' + rest, type=Header)
        except NOT_JSON as error:
            if _byte(error) is None:
                raise self._cut() from None
            raise InputError(f"is no JSON behind its events ({_reason(error)})", path=self.path) from None
        return found

    def _cut(self) -> InputError:
        return InputError(
            f"ends in the middle of its events, after {self._passed + len(self._data):,} bytes",
            path=self.path,
            fix="the profiler was still writing, or was killed: export the trace again",
        )

    def _odd(self, error: msgspec.ValidationError) -> InputError:
        words = str(error).replace("Expected", "expected").replace("Object", "object")
        return self._error(f"has an event that the profiler does not write ({words[:120]})", 0)

    def _error(self, problem: str, byte: int | None) -> InputError:
        return InputError(f"{problem}, at or after byte {self._passed + (byte or 0):,}", path=self.path)


def _places(data: bytes) -> Iterator[int]:
    """Where `},{` stands, last first: the place of the comma."""
    end, step = len(data), 1 << 14
    while end > 0:
        start = max(0, end - step)
        # What lies over the edge of two windows is found in neither, which costs a try.
        yield from reversed([match.start(1) for match in BETWEEN.finditer(data, start, end)])
        end, step = start, step * 4


def _byte(error: Exception) -> int | None:
    """Byte at which the decoder stopped; None if it wanted more."""
    found = BYTE.search(str(error))
    return int(found[1]) if found else None


def _trailing(error: Exception) -> int | None:
    """Where in the data (a bracket was put in front) something stands behind the end of the array."""
    byte = _byte(error)
    # msgspec counts the character that is too much, too.
    return byte - 2 if byte is not None and "trailing characters" in str(error) else None


def _reason(error: Exception) -> str:
    return BYTE.sub("", str(error)).removeprefix("JSON is malformed: ").strip()[:80]
