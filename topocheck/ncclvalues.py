"""Values of NCCL's variables as NCCL reads them.

Numbers are what strtoll with base 0 takes of the text, so that `true` is 0 (ncclLoadParam in
src/misc/param.cc). NCCL_P2P_LEVEL and NCCL_NET_GDR_LEVEL are words that are compared letter by letter, or
numbers of an older scale; anything else is passed over in silence (ncclGetLevel in src/graph/paths.cc, 2.4
to 2.30).
"""

from __future__ import annotations

import re

__all__ = [
    "DEFAULTS",
    "LEVEL_NAMES",
    "NUMBERS",
    "WORDS",
    "effective",
    "is_number",
    "level_of",
    "meant",
    "number_of",
    "reaches",
    "unset_value",
]

LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""Path types, nearest first. C2C came with 2.26, P2C with 2.27."""
OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")
"""Meaning of 0, 1, 2 ..., the last also of every larger number. No number means NVL."""
OF_LINK = {"NV": "NVL", "NODE": "PHB"}
"""Path type of a link class of nvidia-smi, where it has another name."""

STRTOL = re.compile(r"[ \t\n\v\f\r]*([+-]?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")
MOST_DIGITS = 18

LEVEL_NAMES = ("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL")
"""Variables whose values are path types."""
DEFAULTS = {
    "NCCL_P2P_DISABLE": 0,
    "NCCL_P2P_DIRECT_DISABLE": 0,
    "NCCL_SHM_DISABLE": 0,
    "NCCL_NVB_DISABLE": 0,
    "NCCL_NVLS_ENABLE": 2,
    "NCCL_MNNVL_ENABLE": 2,
    "NCCL_IB_DISABLE": 0,
    "NCCL_PXN_DISABLE": 0,
    "NCCL_P2P_PXN_LEVEL": 2,
    "NCCL_CROSS_NIC": 2,
    "NCCL_DMABUF_ENABLE": 1,
}
"""Numbers that have one default in every version, which is the same as not to set them."""
NUMBERS = (
    *DEFAULTS,
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_NET_GDR_READ",
    "NCCL_NET_GDR_C2C",
    "NCCL_IB_MERGE_NICS",
)
"""Variables whose values are numbers, and that change the path."""
WORDS = (
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NET_MERGE_LEVEL",
    "NCCL_NETDEVS_POLICY",
)
"""Variables whose values are words, and that change the path or its shape."""
ONE_ONLY = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
"""Numbers that are compared with 1: any other is as good as none."""
SPOKEN = {"true": "1", "yes": "1", "on": "1", "false": "0", "no": "0", "off": "0"}
"""Words for numbers."""


def number_of(text: str) -> int:
    """The number that strtoll reads; 0 where it reads none."""
    found = STRTOL.match(text)
    if found is None:
        return 0
    sign, hexadecimal, octal, decimal = found.groups()
    digits, base = (hexadecimal, 16) if hexadecimal else (octal, 8) if octal else (decimal or "0", 10)
    value = int(digits[:MOST_DIGITS], base)
    return -value if sign == "-" else value


def is_number(text: str) -> bool:
    """Strtoll reads a number and nothing is left of the text but blanks."""
    found = STRTOL.match(text)
    return found is not None and not text[found.end() :].strip()


def level_of(text: str) -> str | None:
    """The path type that a value means; None for one that NCCL passes over."""
    if text in LEVELS:
        return text
    if text[:1].isascii() and text[:1].isdigit():
        return OLD_LEVELS[max(0, min(number_of(text), len(OLD_LEVELS) - 1))]
    return None


def meant(name: str, value: str) -> str | None:
    """The value that whoever wrote `value` means, as NCCL reads it; None where that cannot be told."""
    word = value.strip(" \t\"'")
    if name in LEVEL_NAMES:
        return word.upper() if level_of(value) is None and word.upper() in LEVELS else None
    if word.lower() in SPOKEN:
        return SPOKEN[word.lower()]
    if name in ONE_ONLY and number_of(value) not in {0, 1}:
        return "1"
    return word if word != value and is_number(word) else None


def unset_value(name: str) -> str | None:
    """What is the same as not to set a variable, and wins over nccl.conf; None where only unsetting is."""
    return str(DEFAULTS[name]) if name in DEFAULTS else None


def reaches(level: str, link: str) -> bool:
    """A level allows peer access over a link of this class, `NV`, `PIX`, `SYS` ..."""
    kind = OF_LINK.get(link, link)
    return kind in LEVELS and LEVELS.index(kind) <= LEVELS.index(level)


def effective(name: str, value: str | None) -> str:
    """What a value comes to, so that equal ones are equal words; None is a variable that is not set."""
    if name in LEVEL_NAMES:
        return (level_of(value) if value is not None else None) or "the default"
    if name in NUMBERS:
        number = DEFAULTS.get(name) if value is None else number_of(value)
        if name in ONE_ONLY:
            number = int(number == 1)
        return "not set" if number is None else str(number)
    return "not set" if value is None else value
