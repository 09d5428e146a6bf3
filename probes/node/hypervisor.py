"""Whether the machine is virtual: then its PCI tree is what a hypervisor makes up."""

from __future__ import annotations

import re

from topocheck.probes.node.reader import MISSING, Reader
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ProbeFault

__all__ = ["parse_board", "parse_cpuinfo", "read_hypervisor"]

FLAGS = re.compile(r"^flags\s*:(.*)$", re.MULTILINE)
"""Features of an x86 processor; other architectures write `Features`, and nothing of a hypervisor."""

MACHINES = re.compile(
    r"QEMU|KVM|VMware|VirtualBox|Bochs|\bXen\b|HVM domU|OpenStack|Virtual|Compute Engine", re.IGNORECASE
)
EC2, EC2_METAL = "Amazon EC2", re.compile(r"\.metal")


def parse_cpuinfo(text: str) -> bool | None:
    """Whether the processors know of a hypervisor (CPUID.1:ECX bit 31); None if they cannot say."""
    flags = FLAGS.search(text)
    return None if flags is None else "hypervisor" in flags[1].split()


def parse_board(vendor: str, product: str) -> bool:
    """Whether vendor and product of the board, as firmware names them, are those of a virtual machine."""
    if vendor == EC2:
        return not EC2_METAL.search(product)
    return MACHINES.search(f"{vendor} {product}") is not None


def read_hypervisor(roots: Roots) -> tuple[str | None, tuple[ProbeFault, ...]]:
    """The virtual machine's kind, `unnamed` where firmware has no name for it; None if none is shown.

    From /proc/cpuinfo, where x86 processors tell for certain, and /sys/class/dmi/id.
    """
    reader = Reader("software")
    processors = reader.text(roots.proc / "cpuinfo")
    board = roots.sys / "class/dmi/id"
    vendor = reader.text(board / "sys_vendor", MISSING) or ""
    product = reader.text(board / "product_name", MISSING) or ""
    virtual = None if processors is None else parse_cpuinfo(processors)
    if virtual is None:
        virtual = parse_board(vendor, product)
    name = f"{vendor} {product}".strip()[:100] or "unnamed"
    return (name if virtual else None), reader.faults()
