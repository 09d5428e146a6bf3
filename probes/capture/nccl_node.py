"""What one host of an NCCL log showed, gathered line by line."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from topocheck.probes.capture.nccl_facts import Fact
from topocheck.probes.capture.nccl_lines import GpuFabric
from topocheck.probes.capture.nccl_members import Member
from topocheck.probes.capture.nccl_prefix import Record
from topocheck.snapshot import (
    SCHEMA,
    At,
    CommRank,
    Coverage,
    Edge,
    Fabric,
    FullSnapshot,
    GpuId,
    Host,
    Identity,
    LogFact,
    Observed,
    Software,
    Source,
)

__all__ = ["Node"]


@dataclass(slots=True)
class Node:
    """One host while its log is read; its GPUs get ordinals in the order seen."""

    name: str | None
    source: Source
    gpus: list[GpuId] = field(default_factory=list)
    renumbered: set[str] = field(default_factory=set)
    """GPUs for which two processes gave two NVML indices, as containers do."""
    comms: list[CommRank] = field(default_factory=list)
    duplicates: dict[tuple[int, int], CommRank] = field(default_factory=dict)
    edges: dict[Edge, At] = field(default_factory=dict)
    facts: dict[tuple[Fact, int | None], LogFact] = field(default_factory=dict)
    fabric: dict[int, Fabric] = field(default_factory=dict)
    versions: dict[str, None] = field(default_factory=dict)

    def at(self, line: int) -> At:
        """A line of the log as a source."""
        return At(source=self.source.name, line=line)

    def gpu(self, bus: str | None, nvml: int | None = None) -> int | None:
        """Ordinal of a GPU; None without a bus id and without an NVML index that means one GPU."""
        if bus is None:
            same = [place for place, gpu in enumerate(self.gpus) if gpu.nvml == nvml]
            if nvml is None or len(same) > 1:
                return None
            return same[0] if same else self._new_gpu(GpuId(nvml=nvml))
        for place, gpu in enumerate(self.gpus):
            if gpu.bus == bus:
                self.gpus[place] = self._renumber(gpu, nvml)
                return place
        for place, gpu in enumerate(self.gpus):
            if gpu.bus is None and gpu.nvml == nvml:
                self.gpus[place] = GpuId(bus=bus, nvml=nvml)
                return place
        return self._new_gpu(GpuId(bus=bus, nvml=nvml))

    def _new_gpu(self, gpu: GpuId) -> int:
        self.gpus.append(gpu)
        return len(self.gpus) - 1

    def _renumber(self, gpu: GpuId, nvml: int | None) -> GpuId:
        """The GPU with its NVML index; without one if processes disagree about it."""
        bus = gpu.bus or ""
        if nvml is None or gpu.nvml == nvml or bus in self.renumbered:
            return gpu
        if gpu.nvml is not None:
            self.renumbered.add(bus)
            nvml = None
        return GpuId(bus=gpu.bus, nvml=nvml)

    def add_member(self, member: Member) -> None:
        """A rank of a communicator."""
        seat = member.seat
        self.comms.append(
            CommRank(
                comm=member.name,
                size=seat.size,
                rank=seat.rank,
                gpu=self.gpu(seat.bus, seat.nvml),
                cuda=seat.cuda,
                pid=member.record.pid,
                phase=member.step,
                clique_size=member.clique.size if member.clique else None,
                clique=member.clique.id if member.clique else None,
                at=self.at(member.record.line),
            )
        )

    def add_duplicate(self, record: Record, rank: int, other: int, bus: str) -> None:
        """Two ranks on one GPU: NCCL compared host and bus id, so the other is on this host too."""
        gpu = self.gpu(bus)
        if gpu is None:
            return
        name = f"duplicate:{self.name or ''}"
        writer = CommRank(
            comm=name, rank=rank, gpu=gpu, cuda=record.cuda, pid=record.pid, at=self.at(record.line)
        )
        known = self.duplicates.get((rank, gpu))
        if known is None or known.pid is None:
            self.duplicates[rank, gpu] = writer
        partner = CommRank(comm=name, rank=other, gpu=gpu, at=self.at(record.line))
        self.duplicates.setdefault((other, gpu), partner)

    def add_edge(self, edge: Edge, line: int) -> None:
        """A connection; its other channels are the same connection."""
        self.edges.setdefault(edge, self.at(line))

    def add_fact(self, fact: Fact, record: Record) -> None:
        """A statement of a process; said again it is the same statement."""
        kind, value = fact
        self.facts.setdefault(
            (fact, record.pid), LogFact(kind=kind, value=value, pid=record.pid, at=self.at(record.line))
        )
        if kind == "nccl-version":
            self.versions[value.partition("+")[0]] = None

    def add_fabric(self, fabric: GpuFabric, line: int) -> None:
        """NVLink fabric of a GPU; the last line counts, since the fabric manager may still be at work."""
        gpu = self.gpu(fabric.bus)
        if gpu is not None:
            self.fabric[gpu] = Fabric(
                gpus=(gpu,),
                cluster_uuid=fabric.uuid,
                clique=fabric.clique,
                state=fabric.state,
                health_mask=fabric.health_mask,
                at=self.at(line),
            )

    def fabrics(self) -> tuple[Fabric, ...]:
        """One entry for all GPUs that agree, with the line of the first."""
        alike: dict[Fabric, Fabric] = {}
        for gpu in sorted(self.fabric):
            fabric = self.fabric[gpu]
            key = replace(fabric, gpus=(), at=None)
            known = alike.get(key)
            alike[key] = replace(known, gpus=(*known.gpus, gpu)) if known else fabric
        return tuple(alike.values())

    @property
    def size(self) -> int:
        """Number of facts taken."""
        parts = (self.comms, self.duplicates, self.edges, self.facts, self.fabric)
        return sum(len(part) for part in parts)

    def snapshot(self) -> FullSnapshot:
        """All of it as evidence. A log is an excerpt: nothing follows from what it does not show."""
        version = next(iter(self.versions)) if len(self.versions) == 1 else None
        facts = sorted(self.facts.values(), key=lambda fact: fact.at.line if fact.at and fact.at.line else 0)
        return FullSnapshot(
            schema=SCHEMA,
            sources=(self.source,),
            coverage=Coverage(gpus="part" if self.gpus else None, observed="part"),
            identity=Identity(host=Host(name=self.name), gpus=tuple(self.gpus)),
            software=Software(nccl=version),
            fabric=self.fabrics(),
            observed=Observed(
                library=f"NCCL {version}" if version else None,
                comms=(*self.comms, *self.duplicates.values()),
                edges=tuple(replace(edge, at=at) for edge, at in self.edges.items()),
                facts=tuple(facts),
            ),
        )
