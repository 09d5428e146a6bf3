"""Files by which NCCL is told what no variable of the job shows.

NCCL reads the file that NCCL_CONF_FILE names, or else ~/.nccl.conf, and then /etc/nccl.conf; each line
sets a variable unless it is set already (setEnvFile in NCCL's src/misc/param.cc), so that the environment
goes before the files and the user's file before the system's. A topology file, named by NCCL_TOPO_FILE or
left in place by NVIDIA's daemon in virtual machines, replaces what NCCL would find out itself.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Literal

from topocheck.launchers.allowed import allowed
from topocheck.probes.node.reader import MISSING, Reader, printable
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import NcclFile, ProbeFault

__all__ = ["TOPOLOGY", "parse_conf", "read_nccl_files"]

SYSTEM = "/etc/nccl.conf"
TOPOLOGY = "/var/run/nvidia-topologyd/virtualTopology.xml"
"""What NCCL reads if NCCL_TOPO_FILE names nothing (ncclTopoGetSystem in src/graph/topo.cc)."""

PREFIX = "NCCL_"
LONGEST = 1023
"""Bytes of a name or a value that NCCL keeps."""
MOST_SETTINGS = 500


def parse_conf(text: str) -> dict[str, str]:
    """Variables of NCCL that an nccl.conf sets, by allow-list.

    Blanks count, as they do to NCCL: ` NCCL_DEBUG = INFO` sets a variable that nobody reads, and only a
    `#` in the first column begins a comment. A file may set any other variable too; those are left out.
    """
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("\0")[0].partition("=")
        if equals and name.startswith(PREFIX) and allowed(name) and len(found) < MOST_SETTINGS:
            found.setdefault(name[:LONGEST], value[:LONGEST])
    return found


def read_nccl_files(roots: Roots) -> tuple[tuple[NcclFile, ...], tuple[ProbeFault, ...]]:
    """Files in force, those that go first in front; a file that is named and missing is told as well."""
    reader = Reader("files")
    env = {name: printable(value) for name, value in roots.env.items() if name.startswith(PREFIX)}
    named = env.get("NCCL_CONF_FILE")
    user = named or _home(roots)
    found = [
        file for path in (user, SYSTEM) if path and (file := _settings(reader, roots, path, path == named))
    ]
    settings: dict[str, str] = {}
    for source in (env, *(file.settings for file in found)):
        settings = {**source, **settings}
    topology = settings.get("NCCL_TOPO_FILE")
    graph = settings.get("NCCL_GRAPH_FILE")
    replaced = (
        _replacement(reader, roots, "topology", topology or TOPOLOGY, bool(topology)),
        _replacement(reader, roots, "graph", graph or "", bool(graph)),
    )
    return (*found, *(file for file in replaced if file is not None)), reader.faults()


def _replacement(
    reader: Reader, roots: Roots, kind: Literal["topology", "graph"], path: str, named: bool
) -> NcclFile | None:
    """A file that replaces what NCCL finds out; None if it is not there and nobody named it."""
    exists = bool(path) and reader.data(roots.place(path), MISSING, most=1) is not None
    return NcclFile(path=path, kind=kind, exists=exists) if exists or named else None


def _settings(reader: Reader, roots: Roots, path: str, named: bool) -> NcclFile | None:
    """One nccl.conf; None if it is not there and nobody named it."""
    content = reader.data(roots.place(path), MISSING)
    if content is None:
        return NcclFile(path=path, kind="settings", exists=False) if named else None
    return NcclFile(path=path, kind="settings", settings=parse_conf(content.decode("utf-8", "replace")))


def _home(roots: Roots) -> str | None:
    """The user's nccl.conf. NCCL asks the user database and not HOME, and so does this on a live machine."""
    if not roots.live:
        return None
    try:
        return str(Path(pwd.getpwuid(os.getuid()).pw_dir) / ".nccl.conf")
    except KeyError:  # a container may run under a number that has no name
        return None
