"""What an NCCL log gave, in the shape that tests ask for."""

from __future__ import annotations

from pathlib import Path

from topocheck.probes.capture.nccl_log import parse
from topocheck.probes.capture.reading import Reading, Text
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import CommRank, Edge, FullSnapshot

__all__ = ["CAPTURES", "Hosts", "comms", "edges", "everyone", "facts", "fixture", "hosts", "log", "read"]

CAPTURES = Path(__file__).parent / "captures"

Hosts = dict[str | None, FullSnapshot]


def read(path: Path) -> Reading:
    (reading,) = parse(read_text(path, path.name))
    return reading


def fixture(name: str) -> Hosts:
    return hosts(read(CAPTURES / name))


def hosts(reading: Reading) -> Hosts:
    return {snapshot.identity.host.name: snapshot for snapshot in reading.snapshots}


def log(text: str) -> Hosts:
    (reading,) = parse(Text("x.log", tuple(text.splitlines())))
    return hosts(reading)


def comms(snapshot: FullSnapshot) -> tuple[CommRank, ...]:
    return snapshot.observed.comms if snapshot.observed else ()


def edges(snapshot: FullSnapshot) -> tuple[Edge, ...]:
    return snapshot.observed.edges if snapshot.observed else ()


def facts(snapshot: FullSnapshot, kind: str) -> list[str]:
    return [fact.value for fact in snapshot.observed.facts if fact.kind == kind] if snapshot.observed else []


def everyone(snapshots: Hosts) -> dict[str, dict[int, tuple[str | None, str | None]]]:
    """Communicator -> rank -> host and bus id."""
    found: dict[str, dict[int, tuple[str | None, str | None]]] = {}
    for host, snapshot in snapshots.items():
        for comm in comms(snapshot):
            bus = None if comm.gpu is None else snapshot.identity.gpus[comm.gpu].bus
            found.setdefault(comm.comm, {})[comm.rank] = (host, bus)
    return found
