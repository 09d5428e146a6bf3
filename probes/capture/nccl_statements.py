"""The messages of one NCCL log, sorted by what they say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from topocheck.probes.capture.nccl_facts import Fact, is_return, parse_duplicate, parse_facts
from topocheck.probes.capture.nccl_lines import (
    Clique,
    GpuFabric,
    Hop,
    Seat,
    parse_clique,
    parse_fabric,
    parse_hop,
    parse_ring,
    parse_seat,
    seems_cut,
)
from topocheck.probes.capture.nccl_prefix import Record, Writer

__all__ = ["Connection", "Statements"]


@dataclass(slots=True)
class Connection:
    """Channel lines of one thread that say the same but for the channel, with no Init line between."""

    record: Record
    """The first line."""
    hop: Hop
    """What they say."""
    lines: int = 1
    """How many lines there are."""


@dataclass(slots=True)
class Statements:
    """All statements of one log, in its order."""

    seats: list[tuple[Record, Seat]] = field(default_factory=list)
    """Init, Destroy and other lines that name a communicator by its address."""
    places: list[tuple[Record, Seat]] = field(default_factory=list)
    """Trees, neighbours and timings: the rank of the writer."""
    rings: list[tuple[Record, Seat]] = field(default_factory=list)
    """Orders of rings: rank 0 and the size."""
    connections: list[Connection] = field(default_factory=list)
    fabrics: list[tuple[Record, GpuFabric]] = field(default_factory=list)
    cliques: list[tuple[Record, Clique]] = field(default_factory=list)
    duplicates: list[tuple[Record, tuple[int, int, str]]] = field(default_factory=list)
    facts: list[tuple[Record, Fact]] = field(default_factory=list)
    cut: list[int] = field(default_factory=list)
    """Lines that begin like communicator or channel lines and do not end so."""
    outside: list[int] = field(default_factory=list)
    """Lines with a rank that is not below the size they give."""
    writers: dict[Writer, None] = field(default_factory=dict)
    """Processes in the order seen."""
    lines: set[int] = field(default_factory=set)
    """All lines that NCCL wrote, as far as their prefix or content shows it."""
    _recent: dict[Writer, dict[tuple[int | None, str], Connection]] = field(default_factory=dict)
    _warnings: dict[tuple[Writer, int | None], tuple[Record, bool]] = field(default_factory=dict)
    """The last warning of each thread while nothing followed it, and whether a fact has its content."""
    _tags: set[tuple[Writer, int]] = field(default_factory=set)

    def take(self, records: Iterable[Record]) -> None:
        """Sort a whole log in."""
        for record in records:
            useful = self._take(record)
            if useful or record.pid is not None:
                self.lines.add(record.line)
            if record.pid is not None:
                self.writers.setdefault(record.writer)
        for warning in self._warnings.values():
            self._close(warning, returned=False)

    def _take(self, record: Record) -> bool:
        """Sort one message in; False if topocheck has no use for it."""
        self._take_tag(record)
        warning = self._warnings.pop((record.writer, record.tid), None)
        if warning:
            self._close(warning, returned=is_return(record.message))
        if " via " in record.message and self._take_hop(record):
            return True
        facts = parse_facts(record.level, record.message)
        self.facts.extend((record, fact) for fact in facts)
        if record.level == "WARN":
            self._warnings[record.writer, record.tid] = (record, bool(facts))
            duplicate = parse_duplicate(record.message)
            if duplicate:
                self.duplicates.append((record, duplicate))
            return True
        return bool(facts) or self._take_fabric(record) or self._take_ring(record) or self._take_seat(record)

    def _take_tag(self, record: Record) -> None:
        """The rank that mpirun gives a process, once for each process."""
        rank = record.mpi_rank
        if rank is not None and record.pid is not None and (record.writer, rank) not in self._tags:
            self._tags.add((record.writer, rank))
            self.facts.append((record, ("mpi-rank", f"{rank}")))

    def _close(self, warning: tuple[Record, bool], *, returned: bool) -> None:
        """A warning is an abort if the next line of its thread hands an error to the caller.

        One that is none and whose content is a fact already is not told twice.
        """
        record, claimed = warning
        if returned or not claimed:
            self.facts.append((record, ("abort" if returned else "warn", record.message)))

    def _take_hop(self, record: Record) -> bool:
        """A channel line. The same connection on further channels only counts, and is not parsed again."""
        known = self._recent.setdefault(record.writer, {})
        head, _, tail = record.message.partition(" : ")
        key = (record.tid, tail or head)
        connection = known.get(key)
        if connection:
            connection.lines += 1
            return True
        hop = parse_hop(record.message)
        if hop:
            known[key] = Connection(record, hop)
            self.connections.append(known[key])
        return hop is not None

    def _take_ring(self, record: Record) -> bool:
        ring = parse_ring(record.message)
        if ring is None:
            return False
        self.rings.append((record, Seat(ring.rank, ring.size)))
        shown = f"{ring.shown}" if ring.size else f"{ring.shown}+"
        self.facts.append((record, ("ring-size", shown)))
        return True

    def _take_seat(self, record: Record) -> bool:
        seat = parse_seat(record.message)
        if seat is None:
            if seems_cut(record.message):
                self.cut.append(record.line)
            return False
        if seat.size is not None and seat.rank >= seat.size:
            self.outside.append(record.line)
            return False
        if seat.pointer is None:
            self.places.append((record, seat))
        else:
            self.seats.append((record, seat))
            self._recent.pop(record.writer, None)
        return True

    def _take_fabric(self, record: Record) -> bool:
        if not record.message.startswith("MNNVL "):
            return False
        fabric = parse_fabric(record.message)
        if fabric:
            self.fabrics.append((record, fabric))
        clique = parse_clique(record.message)
        if clique and clique.active:
            self.cliques.append((record, clique))
        return fabric is not None or clique is not None
