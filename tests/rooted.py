"""Machines written down as text, and laid out as the files that a kernel would show.

A description has one entry a line; blank lines and lines that begin with `#` are skipped:

    let NAME = TEXT             $NAME stands for TEXT in all lines below
    PATH = TEXT                 a file of one line
    PATH << ... >>              a file of the lines between
    PATH/                       an empty folder
    PATH -> TARGET              a link
    PATH { A: TEXT | B: TEXT }  a folder with a file of one line for each name
    pci PATH { ... }            the same below sys/devices, and the kernel's link in sys/bus/pci/devices
    class NAME PATH { ... }     the same, with the link in sys/class/NAME, and `device` leading back
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from topocheck.probes.node.roots import Roots

__all__ = ["MACHINES", "lay_out", "machine", "roots_at", "unpack_inventory", "unpack_tar", "unpack_ttar"]

DESCRIPTIONS = Path(__file__).parent / "roots"
MACHINES = Path(__file__).resolve().parents[2] / "shared" / "data" / "machines"
"""Captures of real machines, which do not belong to the project."""

FOLDER = re.compile(r"(?:(pci)|class (\w+))?\s*(\S+) \{(.*)\}")


def roots_at(root: Path, env: Mapping[str, str] | None = None, *, live: bool = False) -> Roots:
    """Roots of a recorded machine. `live` lets the probe open its device nodes."""
    return Roots(
        sys=root / "sys",
        proc=root / "proc",
        dev=root / "dev",
        env=env or {},
        nvml=None,
        root=root,
        live=live,
    )


def machine(name: str, root: Path, env: Mapping[str, str] | None = None) -> Roots:
    """The machine described in `tests/roots/NAME.txt`, laid out below `root`."""
    lay_out((DESCRIPTIONS / f"{name}.txt").read_text(encoding="utf-8"), root)
    return roots_at(root, env)


def lay_out(description: str, root: Path) -> None:
    """Make the files of a description below `root`."""
    words: dict[str, str] = {}
    lines = iter(description.splitlines())
    for raw in lines:
        line = re.sub(r"\$(\w+)", lambda found: words[found[1]], raw).strip()
        folder = FOLDER.fullmatch(line)
        if not line or line.startswith("#"):
            continue
        if line.startswith("let "):
            name, _, words[name] = (part.strip() for part in line[4:].partition("="))
        elif line.endswith(" <<"):
            block = iter(lambda: next(lines), ">>")
            write(root / line[:-3], "\n".join(block) + "\n")
        elif folder:
            add_folder(root, *folder.groups())
        elif " -> " in line:
            link(root / line.partition(" -> ")[0], line.partition(" -> ")[2])
        elif " = " in f"{line} ":
            path, _, text = f"{line} ".partition(" = ")
            write(root / path, text.strip() + "\n")
        else:
            assert line.endswith("/"), f"no entry: {line!r}"
            (root / line).mkdir(parents=True)


def add_folder(root: Path, pci: str | None, kind: str | None, path: str, content: str) -> None:
    """A folder with its files, and the links by which the kernel finds it."""
    below = f"sys/devices/{path}" if pci or kind else path
    (root / below).mkdir(parents=True, exist_ok=True)
    for entry in content.split("|"):
        name, colon, text = entry.strip().partition(": ")
        if name:
            assert colon, f"no file: {entry!r}"
            write(root / below / name, text + "\n")
    if pci:
        link(root / "sys/bus/pci/devices" / Path(path).name, f"../../../devices/{path}")
    if kind:
        link(root / "sys/class" / kind / Path(path).name, f"../../devices/{path}")
        if not path.startswith("virtual/"):
            link(root / below / "device", f"../../../{Path(path).parents[1].name}")


def write(path: Path, text: str) -> None:
    """A file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def link(path: Path, target: str) -> None:
    """A link and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def unpack_ttar(name: str, root: Path, *, below: str = "") -> Roots:
    """A capture in ttar's format, without what lies outside `below`."""
    for entry in re.split(
        r"^# ttar .*\n", captured(name).read_text(encoding="utf-8", errors="replace"), flags=re.MULTILINE
    ):
        head, _, rest = entry.partition("\n")
        kind, _, path = head.partition(": ")
        if kind == "Path" and path.startswith(below):
            place = root / path.removeprefix(below).lstrip("/")
            first, _, content = rest.partition("\n")
            if first.startswith("SymlinkTo: "):
                link(place, first.removeprefix("SymlinkTo: "))
            else:
                lines = content.split("\n")[: int(first.removeprefix("Lines: "))]
                write(place, "".join(f"{text}\n" for text in lines).replace("EOF\n", ""))
    return roots_at(root)


def unpack_tar(name: str, root: Path) -> Roots:
    """A capture packed with tar."""
    with tarfile.open(captured(name)) as archive:
        archive.extractall(root, filter="tar")
    return roots_at(root)


def unpack_inventory(name: str, root: Path) -> Roots:
    """A capture in JSON, content by path; the links of RDMA devices are those that a kernel makes."""
    for path, content in json.loads(captured(name).read_text(encoding="utf-8")).items():
        write(root / path.lstrip("/"), content)
    for device in sorted((root / "sys/bus/pci/devices").glob("*/infiniband/*")):
        link(root / "sys/class/infiniband" / device.name, f"../../{device.relative_to(root / 'sys')}")
    return roots_at(root)


def captured(name: str) -> Path:
    """A file of the captures; the test is skipped where they are not at hand."""
    path = MACHINES / name
    if not path.exists():
        pytest.skip(f"no capture of a real machine at hand: {name}")
    return path
