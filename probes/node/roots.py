"""Where a machine is read: the only place that names /sys, /proc and /dev.

Every probe of a node takes Roots, so that a container reads its host (`Roots.at(Path("/host"))`) and
a recorded machine is read like a live one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NVML_LIBRARY", "Roots"]

NVML_LIBRARY = "libnvidia-ml.so.1"
"""The name under which every NVIDIA driver installs NVML; the loader knows where."""

BOOT_ID = "proc/sys/kernel/random/boot_id"
"""Names the running kernel (Documentation/admin-guide/sysctl/kernel.rst, `random`)."""


@dataclass(frozen=True, slots=True)
class Roots:
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

    @classmethod
    def real(cls) -> Roots:
        """The machine that this process runs on."""
        return cls.at(Path("/"))

    @classmethod
    def at(cls, root: Path) -> Roots:
        """The machine whose file tree is mounted, or was recorded, at `root`.

        The driver answers for the running kernel alone, so NVML belongs to the tree only if the tree is
        of the same boot. A library inside the tree is never loaded: a recorded tree is data. The
        environment is this process's, since a tree has none.
        """
        boot = read_boot_id(root)
        same = root == Path("/") or (boot is not None and boot == read_boot_id(Path("/")))
        return cls(
            sys=root / "sys",
            proc=root / "proc",
            dev=root / "dev",
            env=os.environ,
            nvml=NVML_LIBRARY if same else None,
        )


def read_boot_id(root: Path) -> str | None:
    """Boot id of the kernel that a file tree belongs to; None where it shows none."""
    try:
        return (root / BOOT_ID).read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        return None
