"""NCCL's own log (NCCL_DEBUG=INFO), versions 2.3 to 2.30: ranks, GPUs, connections, networks, faults.

One snapshot for each host that the lines name, and one without a name for lines that name none.
Ranks are those of the communicator named with them: only a communicator of the world's size has
global ranks. A log is taken as an excerpt: nothing follows from a line that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from topocheck.probes.capture.nccl_facts import Fact, is_return, parse_duplicate, parse_facts
from topocheck.probes.capture.nccl_implied import implied_members
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
from topocheck.probes.capture.nccl_members import Member, Members, join_lines
from topocheck.probes.capture.nccl_names import name_members
from topocheck.probes.capture.nccl_node import Node
from topocheck.probes.capture.nccl_prefix import Record, Writer, is_partial, parse_records
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import Edge, Source

__all__ = ["KIND", "parse"]

KIND = "nccl log"

Thread = tuple[Writer, int | None]


@dataclass(slots=True)
class Log:
    """The lines of one text by what they say, in order."""

    seats: list[tuple[Record, Seat]] = field(default_factory=list)
    """Init, Destroy and other lines that name a communicator by its address."""
    places: list[tuple[Record, Seat]] = field(default_factory=list)
    """Trees, neighbours and timings: the rank of the writer."""
    rings: list[tuple[Record, Seat]] = field(default_factory=list)
    """Orders of rings: rank 0 and the size."""
    hops: list[tuple[Record, Hop]] = field(default_factory=list)
    fabrics: list[tuple[Record, GpuFabric]] = field(default_factory=list)
    cliques: list[tuple[Record, Clique]] = field(default_factory=list)
    facts: list[tuple[Record, Fact]] = field(default_factory=list)
    duplicates: list[tuple[Record, tuple[int, int, str]]] = field(default_factory=list)
    warnings: dict[Thread, tuple[Record, bool]] = field(default_factory=dict)
    """The last warning of each thread while nothing followed it, and whether a fact has its content."""
    cut: list[int] = field(default_factory=list)
    outside: list[int] = field(default_factory=list)
    """Lines with a rank that is not below the size they give."""
    writers: dict[Writer, None] = field(default_factory=dict)
    lines: set[int] = field(default_factory=set)

    def take(self, record: Record) -> None:
        """Sort one message in. What NCCL wrote and topocheck has no use for only counts as recognised."""
        facts = parse_facts(record.level, record.message)
        self.facts.extend((record, fact) for fact in facts)
        useful = self._take_warning(record, claimed=bool(facts)) or self._take_place(record)
        if record.pid is not None:
            self.writers.setdefault(record.writer)
            if record.mpi_rank is not None:
                self.facts.append((record, ("mpi-rank", str(record.mpi_rank))))
        if useful or facts or record.pid is not None:
            self.lines.add(record.line)

    def _take_warning(self, record: Record, *, claimed: bool) -> bool:
        """A warning aborts only if the next line of its thread hands an error to the caller."""
        thread = (record.writer, record.tid)
        last = self.warnings.pop(thread, None)
        if last:
            self._close_warning(*last, returned=is_return(record.message))
        if record.level == "WARN":
            self.warnings[thread] = (record, claimed)
            duplicate = parse_duplicate(record.message)
            if duplicate:
                self.duplicates.append((record, duplicate))
        return record.level == "WARN"

    def _close_warning(self, record: Record, claimed: bool, *, returned: bool) -> None:  # noqa: FBT001
        """Keep a warning as what it turned out to be; one whose content is a fact is not told twice."""
        if returned or not claimed:
            self.facts.append((record, ("abort" if returned else "warn", record.message)))

    def close(self) -> None:
        """The text ends: warnings that nothing followed were warnings."""
        for record, claimed in self.warnings.values():
            self._close_warning(record, claimed, returned=False)
        self.warnings.clear()

    def _take_place(self, record: Record) -> bool:
        """Ranks, connections and fabric."""
        message = record.message
        hop = parse_hop(message) if " via " in message else None
        if hop:
            self.hops.append((record, hop))
            return True
        ring = parse_ring(message)
        if ring:
            self.rings.append((record, Seat(*ring)))
            size = f"{ring[1]}" if ring[1] is not None else "20+"
            self.facts.append((record, ("ring-size", size)))
            return True
        if message.startswith("MNNVL "):
            return self._take_fabric(record)
        return self._take_seat(record)

    def _take_seat(self, record: Record) -> bool:
        seat = parse_seat(record.message)
        if seat is None:
            if seems_cut(record.message):
                self.cut.append(record.line)
            return False
        if seat.size is not None and seat.rank >= seat.size:
            self.outside.append(record.line)
            return False
        (self.places if seat.pointer is None else self.seats).append((record, seat))
        return True

    def _take_fabric(self, record: Record) -> bool:
        fabric = parse_fabric(record.message)
        if fabric:
            self.fabrics.append((record, fabric))
        clique = parse_clique(record.message)
        if clique and clique.active:
            self.cliques.append((record, clique))
        return fabric is not None or clique is not None


def parse(text: Text) -> list[Reading]:
    """Read all lines of NCCL in a text; [] if there are none."""
    log = Log()
    for record in parse_records(text.lines):
        log.take(record)
    log.close()
    if not log.lines:
        return []
    members = join_lines(log.seats)
    unjoined = name_members(members)
    members += implied_members(log.rings, log.places, log.hops, members)
    nodes = Nodes(text.source)
    loose = fill(nodes, log, members)
    snapshots = tuple(node.snapshot() for node in nodes.by_name.values())
    return [
        Reading(
            kind=KIND,
            snapshots=snapshots,
            lines=frozenset(log.lines),
            facts=sum(node.size for node in nodes.by_name.values()),
            notes=tuple(notes(text, log, loose, unjoined)),
        )
    ]


class Nodes:
    """The hosts of one log in the order seen."""

    def __init__(self, source: str) -> None:
        self.source = Source(name=source, kind=KIND)
        self.by_name: dict[str | None, Node] = {}

    def of(self, host: str | None) -> Node:
        """The host of that name; None stands for lines that name none."""
        if host not in self.by_name:
            self.by_name[host] = Node(host, self.source)
        return self.by_name[host]


def fill(nodes: Nodes, log: Log, members: list[Member]) -> list[int]:
    """Bring everything to its host; returns the channel lines that belong to no communicator."""
    by_process = Members(members)
    for record, clique in log.cliques:
        member = by_process.at(record)
        if member:
            member.clique = clique
    for host, _ in log.writers:
        nodes.of(host)
    for member in members:
        nodes.of(member.record.host).add_member(member)
    for record, fabric in log.fabrics:
        nodes.of(record.host).add_fabric(fabric, record.line)
    for record, (rank, other, bus) in log.duplicates:
        nodes.of(record.host).add_duplicate(record, rank, other, bus)
    bare = version_host(members, log)
    for record, fact in log.facts:
        nodes.of(bare if record.level == "VERSION" else record.host).add_fact(fact, record)
    loose = []
    for record, hop in log.hops:
        comm = by_process.comm_of(record, hop)
        nodes.of(record.host).add_edge(edge(record, hop, comm), record.line)
        if comm is None:
            loose.append(record.line)
    return loose


def edge(record: Record, hop: Hop, comm: str | None) -> Edge:
    """A channel line as evidence, without its place."""
    return Edge(
        src=hop.src,
        dst=hop.dst,
        via=hop.via,
        how=hop.how,
        network=hop.network,
        gdr=hop.gdr,
        side=hop.side,
        src_dev=hop.src_dev,
        dst_dev=hop.dst_dev,
        comm=comm,
        pid=record.pid,
    )


def version_host(members: list[Member], log: Log) -> str | None:
    """Whose the version line without prefix is: rank 0 prints it, or it is the only host of the log."""
    first = {member.record.host for member in members if member.seat.rank == 0}
    hosts = {host for host, _ in log.writers}
    for candidates in (first, hosts):
        if len(candidates) == 1:
            return next(iter(candidates))
    return None


def notes(text: Text, log: Log, loose: list[int], unjoined: int) -> list[Note]:
    """What the user must know about the text."""
    found = []
    if loose:
        words = "channel line belongs" if len(loose) == 1 else "channel lines belong"
        found.append(
            Note(loose[0], "ignored", f"{len(loose)} {words} to no communicator: counted, accusing nobody")
        )
    if unjoined:
        why = "communicators of one size were built at the same time, and without commId nothing ties their ranks"
        found.append(Note(None, "ignored", f"{unjoined} ranks stay by themselves: {why}"))
    if log.outside:
        why = "give a rank that is not below nranks: not used"
        found.append(Note(log.outside[0], "contradictory", f"{len(log.outside)} lines {why}"))
    if log.cut:
        why = "begin like communicator or channel lines but do not end as NCCL ends them"
        found.append(Note(log.cut[0], "cut", f"{len(log.cut)} lines {why}: not used"))
    last = next((place for place in range(len(text.lines), 0, -1) if text.lines[place - 1].strip()), 0)
    if last and last not in log.lines and is_partial(text.lines[last - 1], log.writers):
        found.append(Note(last, "cut", "the last line is cut inside its prefix: the log goes on"))
    return found
