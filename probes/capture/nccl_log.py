"""NCCL's own log (NCCL_DEBUG=INFO), versions 2.3 to 2.30: ranks, GPUs, connections, networks, faults.

One snapshot for each host that the lines name, and one without a name for lines that name none.
Ranks are those of the communicator named with them: only a communicator of the world's size has
global ranks. A log is taken as an excerpt: nothing follows from a line that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.probes.capture.nccl_implied import implied_members
from topocheck.probes.capture.nccl_members import Member, Members, join_lines
from topocheck.probes.capture.nccl_names import name_members
from topocheck.probes.capture.nccl_node import Node
from topocheck.probes.capture.nccl_prefix import is_partial, parse_records
from topocheck.probes.capture.nccl_statements import Connection, Statements
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import Edge, Source

__all__ = ["KIND", "parse"]

KIND = "nccl log"


def parse(text: Text) -> list[Reading]:
    """Read all lines of NCCL in a text; [] if there are none."""
    log = Statements()
    log.take(parse_records(text.lines))
    if not log.lines:
        return []
    members = join_lines(log.seats)
    unjoined = name_members(members)
    members += implied_members(log, members)
    nodes = Nodes(text.source)
    loose = fill(nodes, log, members)
    return [
        Reading(
            kind=KIND,
            snapshots=tuple(node.snapshot() for node in nodes.by_name.values()),
            lines=frozenset(log.lines),
            facts=sum(node.size for node in nodes.by_name.values()),
            notes=(*line_notes(log, loose, unjoined), *end_notes(text, log)),
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


def fill(nodes: Nodes, log: Statements, members: list[Member]) -> list[Connection]:
    """Bring everything to its host; returns the connections that belong to no communicator."""
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
    printer = version_host(members, log)
    for record, fact in log.facts:
        nodes.of(record.host or printer if record.level == "VERSION" else record.host).add_fact(fact, record)
    loose = []
    for connection in log.connections:
        record = connection.record
        comm = by_process.comm_of(record, connection.hop)
        nodes.of(record.host).add_edge(edge(connection, comm), record.line)
        if comm is None:
            loose.append(connection)
    return loose


def edge(connection: Connection, comm: str | None) -> Edge:
    """A connection as evidence, without its line."""
    hop = connection.hop
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
        pid=connection.record.pid,
    )


def version_host(members: list[Member], log: Statements) -> str | None:
    """Whose the version line without prefix is: rank 0 prints it, or it is the only host of the log."""
    first = {member.record.host for member in members if member.seat.rank == 0}
    hosts = {host for host, _ in log.writers}
    for candidates in (first, hosts):
        if len(candidates) == 1:
            return next(iter(candidates))
    return None


def line_notes(log: Statements, loose: list[Connection], unjoined: int) -> Iterator[Note]:
    """What could not be used, and why."""
    if loose:
        lines = sum(connection.lines for connection in loose)
        words = "channel line belongs" if lines == 1 else "channel lines belong"
        yield Note(
            loose[0].record.line, "ignored", f"{lines} {words} to no communicator: counted, accusing nobody"
        )
    if unjoined:
        why = "several communicators of one size were built at once, and no commId tells them apart"
        yield Note(None, "ignored", f"{unjoined} ranks stay by themselves: {why}")
    if log.outside:
        why = "give a rank that is not below nranks: not used"
        yield Note(log.outside[0], "contradictory", f"{len(log.outside)} lines {why}")
    if log.cut:
        why = "begin like communicator or channel lines but do not end as NCCL ends them: not used"
        yield Note(log.cut[0], "cut", f"{len(log.cut)} lines {why}")


def end_notes(text: Text, log: Statements) -> Iterator[Note]:
    """Whether the text stops inside a line."""
    last = next((place for place in range(len(text.lines), 0, -1) if text.lines[place - 1].strip()), 0)
    if last and last not in log.lines and is_partial(text.lines[last - 1], log.writers):
        yield Note(last, "cut", "the last line is cut inside its prefix: the log goes on")
