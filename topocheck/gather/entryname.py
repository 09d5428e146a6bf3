"""Names of entries: host, digest of host and boot, task and tasks on that host."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from topocheck.ranges import first

__all__ = ["PLACE", "absent", "entry_name", "host_of", "hosts", "is_only_task"]

NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.-]+")
PLACE = re.compile(r"(?P<host>.+)\.t(?P<task>[0-9]{1,6})of(?P<tasks>[0-9]{1,6})")
"""`node-3-1f0c22ab.t0of8`."""
ONLY_TASK = ".t0of1"
"""End of the name of a gate that is the only one of its host."""


def entry_name(host: str, boot: str, task: int = 0, tasks: int = 1) -> str:
    """Name of an entry: readable, of letters that every store takes, and of this host and boot alone."""
    plain = NOT_IN_A_NAME.sub("-", host).strip("-.")[:100] or "host"
    digest = hashlib.sha256(f"{host}\0{boot}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{plain}-{digest}.t{task}of{max(tasks, task + 1)}"


def host_of(name: str) -> str:
    """The part of a name that all tasks of a host share."""
    return name.rpartition(".t")[0]


def is_only_task(name: str) -> bool:
    """It is the name of a gate that is the only one of its host."""
    return name.endswith(ONLY_TASK)


def hosts(names: Iterable[str]) -> int:
    """Hosts all of whose tasks have published."""
    alone, found = set[str](), dict[str, tuple[set[int], int]]()
    for name in names:
        if is_only_task(name):  # most are, and a large job asks often
            alone.add(name)
            continue
        match = PLACE.fullmatch(name)
        if match:
            tasks, count = found.setdefault(match["host"], (set(), int(match["tasks"])))
            tasks.add(int(match["task"]))
            found[match["host"]] = tasks, max(count, int(match["tasks"]))
    return sum(len(tasks) >= count for tasks, count in found.values()) + sum(
        name.removesuffix(ONLY_TASK) not in found for name in alone
    )


def absent(expected: Sequence[str], names: Iterable[str]) -> str:
    """`: node-07, node-31`, of the nodes whose names are known; short and full names are one host's."""
    there = {
        match["host"].rpartition("-")[0].partition(".")[0] for n in names if (match := PLACE.fullmatch(n))
    }
    away = [
        name for name in expected if NOT_IN_A_NAME.sub("-", name.partition(".")[0]).strip("-.") not in there
    ]
    return f": {first(away, 6)}" if away and len(away) < len(expected) else ""
