"""Processes that the driver names by their pid, with name, age and owner from /proc (proc_pid_stat(5))."""

from __future__ import annotations

import os
import re

from msgspec.structs import replace

from topocheck.probes.node.reader import MISSING, Reader, printable
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import GpuState, Process

__all__ = ["named", "parse_owner", "parse_started"]

TICKS = 100
"""USER_HZ, in which /proc counts on all architectures that have GPUs (time(7))."""
LONGEST = 64
UID = re.compile(r"^Uid:\s+([0-9]{1,10})\b", re.MULTILINE)


def parse_started(stat: str) -> int | None:
    """Ticks from boot to the start of a process: field 22 of /proc/PID/stat. Its name may hold blanks."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdecimal() and len(fields[19]) < 19 else None


def parse_owner(status: str) -> str | None:
    """Real user of a process, `uid 1000`, from /proc/PID/status."""
    found = UID.search(status)
    return f"uid {found[1]}" if found else None


def named(roots: Roots, states: tuple[GpuState, ...]) -> tuple[GpuState, ...]:
    """The states with what is known of their processes; a process that has ended keeps its pid alone."""
    reader = Reader("state")
    uptime = (reader.text(roots.proc / "uptime", MISSING) or "").split(".")[0]
    known: dict[int, Process] = {}
    for pid in {process.pid for state in states for process in state.processes or () if process.pid}:
        known[pid] = look(reader, roots, pid, int(uptime) if uptime.isdecimal() else None)
    return tuple(
        state
        if not state.processes
        else replace(state, processes=tuple(with_facts(process, known) for process in state.processes))
        for state in states
    )


def look(reader: Reader, roots: Roots, pid: int, uptime_s: int | None) -> Process:
    """What /proc says of one process."""
    folder = roots.proc / str(pid)
    started = parse_started(reader.text(folder / "stat", MISSING) or "")
    name = printable((reader.text(folder / "comm", MISSING) or "").strip())[:LONGEST]
    hertz = os.sysconf("SC_CLK_TCK") if roots.live else TICKS
    return Process(
        pid=pid,
        name=name or None,
        age_seconds=None if started is None or uptime_s is None else max(0, uptime_s - started // hertz),
        owner=parse_owner(reader.text(folder / "status", MISSING) or ""),
    )


def with_facts(process: Process, known: dict[int, Process]) -> Process:
    """The driver's word on memory and /proc's on the rest."""
    found = known.get(process.pid)
    if found is None:
        return process
    return replace(process, name=process.name or found.name, age_seconds=found.age_seconds, owner=found.owner)
