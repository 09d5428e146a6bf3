"""Shared libraries of the machine by file name, where the loader finds them and where it would not.

Nothing is loaded. The loader looks into LD_LIBRARY_PATH, then into what /etc/ld.so.conf names, then into
its standard folders (ld.so(8)). Clouds and vendors put network plugins into folders of their own, which
their launch scripts add to LD_LIBRARY_PATH.
"""

from __future__ import annotations

import fnmatch
import re

from topocheck.probes.node.reader import MISSING, Reader, printable
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Library

__all__ = ["find_libraries", "library_folders", "parse_ld_conf"]

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

MOST_CONFIGURATIONS = 200
"""Files of the loader's configuration that are read, so that files which include each other end."""


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


def library_folders(reader: Reader, roots: Roots) -> dict[str, bool]:
    """Folders in the loader's order, those of vendors last, and whether the loader looks there."""
    told = [folder for folder in re.split("[:;]", roots.env.get("LD_LIBRARY_PATH", "")) if folder]
    searched = [*told, *_configured(reader, roots), *STANDARD]
    folders = dict.fromkeys(printable(folder.rstrip("/") or "/") for folder in searched)
    return dict.fromkeys(folders, True) | {folder: False for folder in VENDORS if folder not in folders}


def _configured(reader: Reader, roots: Roots) -> list[str]:
    """Folders of /etc/ld.so.conf and of the files that it includes."""
    folders: list[str] = []
    waiting, read = ["/etc/ld.so.conf"], set[str]()
    while waiting and len(read) < MOST_CONFIGURATIONS:
        path = waiting.pop(0)
        if path in read:
            continue
        read.add(path)
        named, patterns = parse_ld_conf(reader.text(roots.place(path), MISSING) or "")
        folders += named
        for pattern in patterns:
            parent, _, name = (pattern if pattern.startswith("/") else f"/etc/{pattern}").rpartition("/")
            there = reader.names(roots.place(parent or "/"), MISSING)
            waiting += [f"{parent}/{entry}" for entry in fnmatch.filter(there, name)]
    return folders


def find_libraries(
    reader: Reader, roots: Roots, folders: dict[str, bool], names: re.Pattern[str]
) -> list[Library]:
    """Libraries whose whole file name matches, in the order in which the loader would find them."""
    found: dict[tuple[str, str], Library] = {}
    for folder, searched in folders.items():
        place = roots.place(folder) if folder.startswith("/") else None
        for name in reader.names(place, MISSING, names) if place else ():
            real = (str(place), name)
            found.setdefault(real, Library(name=name, folder=folder, searched=searched))
    return list(found.values())
