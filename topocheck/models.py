"""What GPU models have by design. Names are compared word by word: GH200 is not an H200.

Numbers are the board's, from facts of the vendors: an HGX H100 has 18 NVLinks a GPU, an H100 NVL has
12 of 18 through its bridge, a PCIe board has what its bridge gives.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "has_fabric",
    "has_mig",
    "has_nvlink",
    "in_a_rack",
    "nvlinks_by_design",
    "says_memory",
    "spans_hosts",
]

BASEBOARD_LINKS = (
    (r"P100-SXM2", 4),
    (r"V100-SXM[23]", 6),
    (r"A100-SXM4|A100-SXM-\w+", 12),
    (r"A800-SXM4", 8),
    (r"H100 80GB HBM3|H100-SXM5|H100 SXM5?", 18),
    (r"H800 ?(80GB HBM3)?$", 8),
    (r"H20( |$|-3e)", 18),
    (r"(?<![A-Z])H200( |$)(?!NVL)", 18),
    (r"G?B[23]00( |$)", 18),
)
"""(name pattern, NVLinks) of boards whose number of links is fixed."""

WITHOUT_NVLINK = re.compile(
    r"\b(L4|L40S?|L20|T4G?|A2|A10G?|A16|RTX (40|50)[5-9]0|RTX PRO \d+|RTX \d{4} Ada|RTX 6000 Ada|"
    r"GTX 1[0-9]{3}( Ti)?|P4|P40|GB10)\b"
)
"""Boards that have no NVLink at all."""

WITHOUT_MIG = re.compile(
    r"\b(GeForce|GTX|TITAN|Quadro|Tesla|AMD|Instinct|RTX (?!PRO)|[VP]100|P40?|L4|L40S?|L20|T4G?|"
    r"A2|A10G?|A16|A40|GB10)\b"
)
"""Boards that cannot be divided: older than Ampere, GeForce and its kin, AMD's."""

MEMORY_IN_NAME = re.compile(r"\b\d{1,3} ?GB\b")
"""Memory in a product name; an RTX 3080 has 10 GB or 12 under one."""

FABRIC = re.compile(r"(?<![A-Z])(H100|H200|H800|H20|B200|B300|GB200|GB300|GH200|VR200)\b(?! (PCIe|NVL))")
"""Boards whose NVLink fabric NVML reports."""

SPANS_HOSTS = re.compile(r"\b(GB200|GB300|GH200|VR200)\b")
"""Boards whose NVLink domain may reach over several hosts."""


IN_A_RACK = re.compile(r"\b(GB200|GB300|VR200)\b")
"""Boards that are sold in racks with NVLink switches alone; a GH200 is often a machine by itself."""


@lru_cache(maxsize=256)
def nvlinks_by_design(model: str | None) -> int | None:
    """NVLinks that every healthy GPU of this model has; None if it depends on the machine."""
    if model is None:
        return None
    return next((links for pattern, links in BASEBOARD_LINKS if re.search(pattern, model)), None)


@lru_cache(maxsize=256)
def has_nvlink(model: str | None) -> bool | None:
    """False for models that have none by design; None where only the machine can tell."""
    if model is None:
        return None
    if WITHOUT_NVLINK.search(model):
        return False
    return True if nvlinks_by_design(model) else None


def has_mig(model: str | None) -> bool | None:
    """False for models that cannot be divided into MIG slices; None where only the machine can tell."""
    return False if model is not None and WITHOUT_MIG.search(model) else None


def says_memory(model: str | None) -> bool:
    """The name tells how much memory the board has, so that equal names are equal sizes: `H100 80GB HBM3`."""
    return model is not None and MEMORY_IN_NAME.search(model) is not None


def has_fabric(model: str | None) -> bool | None:
    """Whether NVML reports a fabric for this model (Hopper and newer on NVSwitch); None without a model."""
    return None if model is None else bool(FABRIC.search(model))


def in_a_rack(model: str | None) -> bool:
    """Every machine with this model has NVLink switches around it."""
    return model is not None and bool(IN_A_RACK.search(model))


def spans_hosts(model: str | None) -> bool | None:
    """Whether an NVLink domain of this model may reach over several hosts; None without a model."""
    return None if model is None else bool(SPANS_HOSTS.search(model))
