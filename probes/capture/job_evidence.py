"""What a log showed of one job, gathered line by line and brought to the hosts that it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from topocheck.probes.capture.log_line import Line
from topocheck.probes.capture.prompt import extent
from topocheck.probes.capture.reading import Note, Reading
from topocheck.snapshot import (
    SCHEMA,
    At,
    CommRank,
    Coverage,
    FullSnapshot,
    GpuId,
    Host,
    Identity,
    JobFact,
    LogFact,
    Observed,
    RankClaim,
    Software,
    Source,
)

__all__ = ["JobEvidence"]

NoteKind = Literal["cut", "contradictory", "repaired", "ignored"]

MOST_VALUE = 400
"""Characters kept of a quoted line."""


@dataclass(slots=True)
class Site:
    """One host of the text; None is the host of lines that name none."""

    comms: dict[tuple[str, int, int | None], CommRank] = field(default_factory=dict)
    ranks: list[RankClaim] = field(default_factory=list)
    gpus: list[GpuId] = field(default_factory=list)
    facts: list[LogFact] = field(default_factory=list)
    software: Software = field(default_factory=Software)

    def gpu(self, gpu: GpuId) -> int:
        """Ordinal of a GPU that is told apart from others by all that is known of it."""
        if gpu not in self.gpus:
            self.gpus.append(gpu)
        return self.gpus.index(gpu)

    @property
    def size(self) -> int:
        """Number of facts."""
        known = sum(getattr(self.software, name) is not None for name in Software.__struct_fields__)
        return len(self.comms) + len(self.ranks) + len(self.gpus) + len(self.facts) + known


@dataclass(slots=True)
class JobEvidence:
    """Facts of one kind of log. A log is an excerpt: nothing follows from what it does not show."""

    kind: str
    """What the text is recognised as."""
    source: str
    """Name of the text."""
    engine: str | None = None
    """Engine whose words these are."""
    sites: dict[str | None, Site] = field(default_factory=dict)
    job: list[JobFact] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    whole: bool = False
    """The claims are all that the job has: a list that closes on itself."""
    _told: set[tuple[str, str, str, str | None]] = field(default_factory=set)

    def site(self, host: str | None) -> Site:
        """The host of that name."""
        return self.sites.setdefault(host, Site())

    def at(self, line: int) -> At:
        """A line of the text as a source."""
        return At(source=self.source, line=line)

    def fact(self, line: Line, kind: str, value: object, name: str = "", *, again: bool = False) -> None:
        """A statement about the job; said again it is the same one, unless `again` says that it counts."""
        words = str(value)[:MOST_VALUE]
        key = (kind, name, words, line.host)
        if key in self._told and not again:
            return
        self.lines.add(line.number)
        self._told.add(key)
        at = self.at(line.number)
        self.job.append(JobFact(kind=kind, name=name, value=words, engine=self.engine, host=line.host, at=at))

    def sizes(self, line: Line, kind: str, sizes: Iterable[tuple[str, int | None]]) -> None:
        """Numbers by axis; one that is not known is no fact."""
        for axis, size in sizes:
            if size is not None:
                self.fact(line, kind, size, axis)

    def member(
        self,
        line: Line,
        comm: str,
        rank: int,
        size: int | None,
        *,
        cuda: int | None = None,
        gpu: int | None = None,
    ) -> None:
        """A rank of the running job. Several lines of one process are one member."""
        self.lines.add(line.number)
        if size is not None and not 0 <= rank < size:
            self.note(line, "contradictory", f"rank {rank} is not below the world size {size}: not used")
            return
        members = self.site(line.host).comms
        known = members.get((comm, rank, line.pid))
        if known is None:
            members[comm, rank, line.pid] = CommRank(
                comm=comm, size=size, rank=rank, gpu=gpu, cuda=cuda, pid=line.pid, at=self.at(line.number)
            )
        elif cuda is not None and known.cuda is None:
            members[comm, rank, line.pid] = replace(known, cuda=cuda)

    def claim(self, line: Line, claim: RankClaim) -> None:
        """A rank as its launcher assigned it."""
        self.lines.add(line.number)
        self.site(line.host).ranks.append(replace(claim, at=self.at(line.number)))

    def version(self, line: Line, **versions: str) -> None:
        """Versions in force where the line was written; the last one counts."""
        self.lines.add(line.number)
        site = self.site(line.host)
        site.software = replace(site.software, **versions)

    def stated(self, line: Line, kind: str, value: str = "") -> None:
        """A statement about the host that made it."""
        self.lines.add(line.number)
        fact = LogFact(kind=kind, value=value[:MOST_VALUE], pid=line.pid, at=self.at(line.number))
        self.site(line.host).facts.append(fact)

    def note(self, line: Line, kind: NoteKind, text: str) -> None:
        """Something about a line that the user must know."""
        self.lines.add(line.number)
        self.notes.append(Note(line.number, kind, text))

    def readings(self) -> list[Reading]:
        """All of it as one Reading; [] if there is nothing."""
        if not self.lines:
            return []
        facts = len(self.job) + sum(site.size for site in self.sites.values())
        return [Reading(self.kind, self._snapshots(), frozenset(self.lines), facts, tuple(self.notes))]

    def _snapshots(self) -> tuple[FullSnapshot, ...]:
        """One for each host. What concerns the whole job goes with the first: it is no sign of a host."""
        if not self.sites:
            self.site(None)
        hosts = sorted(self.sites, key=lambda host: host is not None)
        job = sorted(self.job, key=lambda fact: fact.at.line if fact.at and fact.at.line else 0)
        return tuple(
            self._snapshot(host, self.sites[host], job if place == 0 else ())
            for place, host in enumerate(hosts)
        )

    def _snapshot(self, host: str | None, site: Site, job: Iterable[JobFact]) -> FullSnapshot:
        seen = bool(site.comms or site.facts)
        return FullSnapshot(
            schema=SCHEMA,
            sources=(Source(name=self.source, kind=self.kind),),
            coverage=Coverage(
                gpus="part" if site.gpus else None,
                ranks=extent(self.whole) if site.ranks else None,
                observed="part" if seen else None,
            ),
            identity=Identity(host=Host(name=host), gpus=tuple(site.gpus)),
            ranks=tuple(site.ranks),
            software=site.software,
            observed=Observed(comms=tuple(site.comms.values()), facts=tuple(site.facts)) if seen else None,
            job=tuple(job),
        )
