"""Where a machine is read: the only place that names /sys, /proc and /dev.

Every probe of a node takes Roots, so that a container reads its host (`Roots.at(Path("/host"))`) and
a recorded machine is read like a live one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["NVML_LIBRARY", "Roots"]

NVML_LIBRARY = "libnvidia-ml.so.1"
"""The name under which every NVIDIA driver installs NVML; the loader knows where."""

BOOT_ID = "proc/sys/kernel/random/boot_id"
"""Names the running kernel (Documentation/admin-guide/sysctl/kernel.rst, `random`)."""

MOST_LINKS = 40
"""Links that one path may lead through, as many as the kernel follows (path_resolution(7))."""


class Roots(msgspec.Struct, frozen=True, gc=False):
    """The parts of one machine."""

    sys: Path
    """sysfs."""
    proc: Path
    """procfs."""
    dev: Path
    """Device nodes."""
    env: Mapping[str, str]
    """Environment of the process that asks."""
    nvml: str | None
    """NVML library to load; None where the driver at hand is not this machine's."""
    root: Path = Path("/")
    """The file tree that holds /etc, /run, /usr and the homes."""
    live: bool = False
    """The tree belongs to the running kernel, so that system calls and opened devices speak of it too."""

    @classmethod
    def real(cls) -> Roots:
        """The machine that this process runs on."""
        return cls.at(Path("/"))

    @classmethod
    def at(cls, root: Path) -> Roots:
        """The machine whose file tree is mounted, or was recorded, at `root`.

        The driver answers for the running kernel alone, so NVML belongs to the tree only if the tree is
        of the same boot. A library inside the tree is never loaded: a recorded tree is data. The
        environment of this process, too, says nothing about a machine that was recorded elsewhere.
        """
        boot = read_boot_id(root)
        same = root == Path("/") or (boot is not None and boot == read_boot_id(Path("/")))
        return cls(
            sys=root / "sys",
            proc=root / "proc",
            dev=root / "dev",
            env=os.environ if same else {},
            nvml=NVML_LIBRARY if same else None,
            root=root,
            live=same,
        )

    def place(self, path: str) -> Path:
        """Where this process finds a path of the machine: absolute links on the way stay in its tree."""
        if self.root == Path("/"):
            return Path(path)
        at, rest, links = self.root, list(Path(path).parts), 0
        while rest:
            part = rest.pop(0)
            if part in ("/", ".."):
                at = self.root if part == "/" or at == self.root else at.parent
            elif links < MOST_LINKS and (target := link_target(at / part)):
                rest, links = [*target.parts, *rest], links + 1
            else:
                at /= part
        return at


def link_target(path: Path) -> Path | None:
    """Where a link leads; None for anything else."""
    try:
        return path.readlink()
    except OSError:
        return None


def read_boot_id(root: Path) -> str | None:
    """Boot id of the kernel that a file tree belongs to; None where it shows none."""
    try:
        return (root / BOOT_ID).read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        return None
