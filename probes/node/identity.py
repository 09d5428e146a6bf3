"""Which machine this is, and by what names it goes."""

from __future__ import annotations

import re

from topocheck.probes.node.reader import MISSING, Reader, printable
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Host, ProbeFault

__all__ = ["parse_boot_id", "parse_machine_id", "read_identity"]

NAMES = ("NODE_NAME", "SLURMD_NODENAME", "POD_NAME", "HOSTNAME")
"""Variables that name the machine or the pod: by convention of Kubernetes' Downward API, by Slurm, by the
container's start."""

LONGEST_NAME = 253
"""Characters of a DNS name; a variable may hold any text."""

BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MACHINE_ID = re.compile(r"[0-9a-f]{32}")


def parse_boot_id(text: str) -> str | None:
    """A boot id; None for other text."""
    text = text.strip().lower()
    return text if BOOT_ID.fullmatch(text) else None


def parse_machine_id(text: str) -> str | None:
    """A machine id; None for an image that has none yet (empty or `uninitialized`, machine-id(5))."""
    text = text.strip().lower()
    return text if MACHINE_ID.fullmatch(text) and text.strip("0") else None


def read_identity(roots: Roots) -> tuple[Host, tuple[ProbeFault, ...]]:
    """Host name and boot id of the kernel, machine id of the image, further names from the environment.

    In a container the host name is the container's; the boot id is the host's wherever one looks.
    """
    reader = Reader("identity")
    kernel = roots.proc / "sys/kernel"
    boot = reader.text(kernel / "random/boot_id")
    boot_id = parse_boot_id(boot or "")
    if boot is not None and boot_id is None:
        reader.note("broken", kernel / "random/boot_id", f"expected a boot id, found {boot[:40]!r}")
    machine = reader.text(roots.place("/etc/machine-id"))
    stated = reader.text(roots.place("/etc/hostname"), MISSING)
    names = [reader.text(kernel / "hostname"), stated, *(roots.env.get(name) for name in NAMES)]
    known = dict.fromkeys(printable(name.strip())[:LONGEST_NAME] for name in names if name and name.strip())
    name, *aliases = known or (None,)
    host = Host(
        name=name,
        boot_id=boot_id,
        machine_id=parse_machine_id(machine or ""),
        aliases=tuple(alias for alias in aliases if alias is not None),
    )
    return host, reader.faults()
