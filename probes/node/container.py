"""Which container the process that looks is in (cgroups(7), namespaces(7))."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from topocheck.probes.node.reader import Reader
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ProbeFault, Scope

__all__ = ["Container", "parse_cgroups", "parse_container", "read_container"]

ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""What Docker, containerd, CRI-O and Podman call a container, somewhere in the path of its cgroup."""

FIRST = {"pid": "pid:[4026531836]", "cgroup": "cgroup:[4026531835]"}
"""The kernel's own namespaces (PROC_PID_INIT_INO, PROC_CGROUP_INIT_INO in linux/proc_ns.h)."""


class Container(msgspec.Struct, frozen=True, gc=False):
    """Where a process lives."""

    id: str | None = None
    """64 hex digits; None on the host, and where its own view hides it."""
    scope: Scope = "unknown"
    """`host` if it lives in the first namespaces and no container's cgroup."""
    cgroups: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Path of its cgroup by controller; that of version 2 has an empty name."""


def parse_cgroups(text: str) -> dict[str, str]:
    """Path of the process by controller, from /proc/self/cgroup; that of version 2 has an empty name."""
    found = {}
    for line in text.splitlines():
        number, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if number.isdecimal() and colon and second and path.startswith("/"):
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def parse_container(path: str) -> str | None:
    """Id of the container by the path of a cgroup; of several, the innermost: a container in a container."""
    found = ID.findall(path)
    return found[-1] if found else None


def read_container(roots: Roots) -> tuple[Container, tuple[ProbeFault, ...]]:
    """The container of this process, and whether there is one."""
    reader = Reader("limits")
    cgroups = parse_cgroups(reader.text(roots.proc / "self/cgroup") or "")
    found = next((known for path in cgroups.values() if (known := parse_container(path))), None)
    spaces = {name: "".join(reader.link(roots.proc / "self/ns" / name)) for name in FIRST}
    if found is not None or any(spaces[name] not in ("", first) for name, first in FIRST.items()):
        return Container(found, "container", cgroups), reader.faults()
    return Container(None, "host" if spaces == FIRST else "unknown", cgroups), reader.faults()
