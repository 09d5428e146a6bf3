"""Limits of the process that looks (/proc/self; proc(5), getrlimit(2), capabilities(7)) and of its cgroups.

They are those of the job only where the probe runs as the job does: `scope` says whose they are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from topocheck.probes.node.container import read_container
from topocheck.probes.node.reader import MISSING, Reader, is_folder
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Limits, ProbeFault

__all__ = [
    "UNLIMITED",
    "parse_capability",
    "parse_hugepages",
    "parse_limit",
    "parse_memory_limit",
    "read_limits",
]

UNLIMITED = -1

IPC_LOCK = 14
"""CAP_IPC_LOCK: may lock memory beyond the limit."""

UNLIMITED_V1 = 1 << 62
"""A version 1 cgroup without a limit shows the largest number that its counter holds, less a page."""


def parse_limit(text: str, name: str) -> int | None:
    """Soft limit of that name in /proc/self/limits, `Max locked memory`; -1 for unlimited."""
    found = re.search(rf"^{re.escape(name)} +(unlimited|[0-9]{{1,18}}) ", text + " ", re.MULTILINE)
    if found is None:
        return None
    return UNLIMITED if found[1] == "unlimited" else int(found[1])


def parse_capability(text: str, number: int) -> bool | None:
    """Whether a capability is effective, by CapEff in /proc/self/status; None if that line is missing."""
    found = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", text, re.MULTILINE)
    return None if found is None else bool(int(found[1], 16) >> number & 1)


def parse_hugepages(text: str) -> int | None:
    """Bytes of the pool of huge pages of the default size, by /proc/meminfo."""
    pages = re.search(r"^HugePages_Total: +([0-9]{1,12})$", text, re.MULTILINE)
    size = re.search(r"^Hugepagesize: +([0-9]{1,9}) kB$", text, re.MULTILINE)
    return int(pages[1]) * int(size[1]) * 1024 if pages and size else None


def parse_memory_limit(text: str) -> int | None:
    """A cgroup's limit in bytes, -1 for `max` and for the number that means none; None for other text."""
    if text.strip() == "max":
        return UNLIMITED
    if not re.fullmatch("[0-9]{1,20}", text.strip()):
        return None
    number = int(text)
    return UNLIMITED if number >= UNLIMITED_V1 else number


def read_limits(roots: Roots) -> tuple[Limits, tuple[ProbeFault, ...]]:
    """Limits of this process and of the container that it is in."""
    reader = Reader("limits")
    limits = reader.text(roots.proc / "self/limits") or ""
    size, free = _shared_memory(reader, roots)
    container, faults = read_container(roots)
    found = Limits(
        scope=container.scope,
        container=container.id,
        memlock_bytes=parse_limit(limits, "Max locked memory"),
        nofile=parse_limit(limits, "Max open files"),
        ipc_lock=parse_capability(reader.text(roots.proc / "self/status") or "", IPC_LOCK),
        shm_bytes=size,
        shm_free_bytes=free,
        memory_bytes=_memory(reader, roots, container.cgroups),
        hugepages_bytes=parse_hugepages(reader.text(roots.proc / "meminfo") or ""),
    )
    return found, (*reader.faults(), *faults)


def _shared_memory(reader: Reader, roots: Roots) -> tuple[int | None, int | None]:
    """Size and free bytes of /dev/shm. A recorded tree has none: its disk would answer in its place."""
    path = roots.dev / "shm"
    if not roots.live:
        reader.note("absent", path, "the size of a file system is not part of a recorded tree")
        return None, None
    try:
        found = os.statvfs(path)
    except OSError as error:
        reader.refused(path, error)
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def _memory(reader: Reader, roots: Roots, groups: Mapping[str, str]) -> int | None:
    """The smallest memory limit on the way from the process's cgroup to the root; -1 if none has one.

    Version 2 has one tree, version 1 one for each controller. Where the container sees its own cgroup as
    the root, the path of the host leads nowhere and the root's file is the container's.
    """
    mounted = roots.sys / "fs/cgroup"
    if "memory" in groups:
        folder, path, name = mounted / "memory", groups["memory"], "memory.limit_in_bytes"
    elif "" in groups:
        folder, path, name = mounted, groups[""], "memory.max"
    else:
        return None
    found = [limit for place in _upwards(folder, path) if (limit := _limit(reader, place / name)) is not None]
    if not found and not is_folder(folder):
        reader.note("absent", folder, "no such cgroup file system")
        return None
    return min((limit for limit in found if limit != UNLIMITED), default=UNLIMITED)


def _upwards(folder: Path, path: str) -> list[Path]:
    """Folders of a cgroup and of all above it."""
    parts = [part for part in path.split("/") if part not in ("", "..", ".")]
    return [folder.joinpath(*parts[:length]) for length in range(len(parts), -1, -1)]


def _limit(reader: Reader, path: Path) -> int | None:
    text = reader.text(path, MISSING)
    limit = None if text is None else parse_memory_limit(text)
    if text is not None and limit is None:
        reader.note("broken", path, f"expected a limit, found {text[:40]!r}")
    return limit
