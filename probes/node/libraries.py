"""Shared libraries of the machine by file name, where the loader finds them and where it would not.

Nothing is loaded. The loader looks into LD_LIBRARY_PATH, then into what /etc/ld.so.conf names, then into
its standard folders (ld.so(8)). Clouds and vendors put network plugins into folders of their own, which
their launch scripts add to LD_LIBRARY_PATH.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.probes.node.reader import MISSING, Reader, printable
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Library

__all__ = ["LibraryFolder", "find_libraries", "library_folders", "parse_ld_conf"]

STANDARD = (
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)
"""Standard folders of the loader, and those that Debian's has."""

VENDORS = (
    "/usr/local/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/lib64",
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/opt/amazon/efa/lib",
    "/opt/amazon/efa/lib64",
    "/opt/hpcx/nccl_rdma_sharp_plugin/lib",
    "/usr/local/gib/lib64",
    "/usr/local/fastrak/lib64",
    "/opt/cray/libfabric/lib64",
    "/opt/rocm/lib",
)
"""Where vendors and clouds install plugins; the loader looks there only if it is told to."""

MOST_INCLUDED = 200
"""Files that ld.so.conf may include."""


class LibraryFolder(Library, frozen=True, kw_only=True):
    """A folder that holds libraries; `name` is empty."""


def parse_ld_conf(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Folders and included patterns of an ld.so.conf (ldconfig(8))."""
    folders, included = [], []
    for line in text.splitlines():
        entry = line.partition("#")[0].strip()
        if re.match(r"include\s", entry):
            included += entry.split()[1:]
        elif entry.startswith("/"):
            folders.append(entry.partition("=")[0].rstrip())
    return tuple(folders), tuple(included)
