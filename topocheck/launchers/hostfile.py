"""Host files and host options of MPI launchers, read and written.

Facts from prrte (util/hostfile, util/dash_host), mpich (src/pm/hydra/lib/utils/args.c) and DeepSpeed 0.19.6
(launcher/runner.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from topocheck.errors import CaptureError
from topocheck.hostlist import MAX_NODES
from topocheck.launchers.variables import number_of

__all__ = [
    "HostSlots",
    "merged",
    "parse_deepspeed",
    "parse_hosts_option",
    "parse_hydra",
    "parse_openmpi",
    "write_hydra",
    "write_openmpi",
]

HOST = re.compile(r"[A-Za-z0-9_.@-]{1,255}|\[[0-9A-Fa-f:.%a-z]{2,80}\]")
"""A host name, an IPv4 address, or an IPv6 address in brackets."""
OPENMPI_KEYS = ("slots", "max_slots", "max-slots", "port", "username", "user")


@dataclass(frozen=True, slots=True)
class HostSlots:
    """One entry: a host and how many processes it takes."""

    host: str
    """Name as written; untrusted."""
    slots: int | None = None
    """Processes; None where the entry does not say, which each launcher understands in its own way."""
    line: int | None = None
    """Line of the file, from 1."""


def parse_openmpi(text: str, source: str) -> list[HostSlots]:
    """`host slots=8`, one a line. Without slots Open MPI counts the node's cores.

    Raises CaptureError with the line that is none.
    """
    return list(_openmpi(text, source))


def _openmpi(text: str, source: str) -> Iterator[HostSlots]:
    for line, words in _lines(text):
        options: dict[str, str] = {}
        for word in words[1:]:
            key, sign, value = word.partition("=")
            if key not in OPENMPI_KEYS or not sign:
                raise _wrong(source, line, word, "`host slots=8`")
            options[key] = value
        yield HostSlots(_host(words[0], source, line), _slots(options.get("slots"), source, line), line)


def parse_deepspeed(text: str, source: str) -> list[HostSlots]:
    """`host slots=8`, one a line, each host once, slots needed.

    Raises CaptureError with the line that is none.
    """
    entries = parse_openmpi(text, source)
    seen: set[str] = set()
    for entry in entries:
        if entry.slots is None:
            raise CaptureError(
                f"{entry.host} has no slots", path=source, line=entry.line, fix="write `host slots=8`"
            )
        if entry.host in seen:
            raise CaptureError(
                f"{entry.host} is named twice", path=source, line=entry.line, fix="name each host once"
            )
        seen.add(entry.host)
    return entries


def parse_hydra(text: str, source: str) -> list[HostSlots]:
    """`host:8`, one a line, as MPICH and Intel MPI read it; a host without a number takes one process.

    Words after the host, such as `if=eth0`, do not place anything. Raises CaptureError with its line.
    """
    entries = []
    for line, words in _lines(text):
        if any("=" not in word for word in words[1:]):
            raise _wrong(source, line, " ".join(words), "`host:8`")
        host, count = _split(words[0])
        slots = _slots(count, source, line)
        entries.append(HostSlots(_host(host, source, line), 1 if slots is None else slots, line))
    return merged(entries, neighbours=True)


def parse_hosts_option(text: str) -> list[HostSlots]:
    """Value of `-H` and `-hosts`: `a:8,b:8`. A host without a number takes one process.

    Raises ValueError with a sentence about what is wrong.
    """
    entries = []
    for item in text.split(","):
        host, count = _split(item.strip())
        slots = 1 if count is None else number_of(count)
        if not HOST.fullmatch(host) or slots is None or slots > MAX_NODES:
            raise ValueError(f"{item[:80]!r} is not a host such as `node-a:8`")
        entries.append(HostSlots(host, slots))
    return entries


def merged(entries: Iterable[HostSlots], *, neighbours: bool = False) -> list[HostSlots]:
    """Entries of one host as one, at the first one's place: Open MPI sums all, Hydra only neighbours."""
    kept: list[HostSlots] = []
    places: dict[str, int] = {}
    for entry in entries:
        place = len(kept) - 1 if neighbours else places.get(entry.host, -1)
        if place >= 0 and kept[place].host == entry.host:
            before = kept[place]
            slots = None if None in (before.slots, entry.slots) else (before.slots or 0) + (entry.slots or 0)
            kept[place] = HostSlots(before.host, slots, before.line)
        else:
            places[entry.host] = len(kept)
            kept.append(entry)
    return kept


def write_openmpi(entries: Iterable[HostSlots]) -> str:
    """Host file of Open MPI and of the deepspeed launcher."""
    return "".join(f"{e.host}{'' if e.slots is None else f' slots={e.slots}'}\n" for e in entries)


def write_hydra(entries: Iterable[HostSlots]) -> str:
    """Host file of MPICH and Intel MPI."""
    return "".join(f"{e.host}{'' if e.slots is None else f':{e.slots}'}\n" for e in entries)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Words of each line that has any, comments removed."""
    for line, content in enumerate(text.split("\n"), 1):
        words = content.partition("#")[0].split()
        if words:
            yield line, words


def _split(word: str) -> tuple[str, str | None]:
    """Host and what follows its last colon outside brackets; None if there is no colon."""
    host, colon, count = word.rpartition(":")
    return (host, count) if colon and not count.endswith("]") else (word, None)


def _host(word: str, source: str, line: int) -> str:
    if not HOST.fullmatch(word):
        raise _wrong(source, line, word, "the name of a host")
    return word


def _slots(value: str | None, source: str, line: int) -> int | None:
    if value is None:
        return None
    slots = number_of(value)
    if slots is None or slots > MAX_NODES:
        raise _wrong(source, line, value, "a number of processes")
    return slots


def _wrong(source: str, line: int, found: str, expected: str) -> CaptureError:
    return CaptureError(f"{found[:80]!r} is not {expected}", path=source, line=line, fix="correct the line")
