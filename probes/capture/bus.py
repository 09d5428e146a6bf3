"""PCI addresses in the one spelling that topocheck uses: `0000:1b:00.0`.

NVML and nvidia-smi print an eight-digit domain in upper case, sysfs four digits in lower case, NCCL's
log squashes all digits together (`1b000`), vLLM and NCCL's XML drop the function, lspci the domain.
"""

from __future__ import annotations

import re

__all__ = ["make_bus", "parse_bus"]

COLONS = re.compile(
    r"\[?(?:0x)?(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2}):(?P<device>[0-9a-f]{1,2})"
    r"(?:\.(?P<function>[0-7]))?\]?",
    re.IGNORECASE,
)

SQUASHED = re.compile(r"(?:0x)?(?P<digits>[0-9a-f]{1,12})", re.IGNORECASE)

HIDDEN_DOMAIN = 0xFFFFFFFF
"""What NVML answers for a device behind a hidden NVSwitch."""

DEVICES = 32
"""PCI devices on one bus, each with 8 functions."""


def make_bus(domain: int, bus: int, device: int, function: int = 0) -> str | None:
    """An address from its four numbers; None if no PCI device can have it."""
    possible = 0 <= domain < HIDDEN_DOMAIN and 0 <= bus <= 0xFF and 0 <= device < DEVICES
    if not possible or not 0 <= function < 8:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def parse_bus(text: str) -> str | None:
    """Normalise a PCI address of any spelling; None if it is none, or NVML's `FFFFFFFF:FF:FF.0`.

    Digits without colons are NCCL's squashed hexadecimal: one digit of function, two of device, two
    of bus, the rest is the domain (`busIdToInt64` in NCCL's src/misc/utils.cc).
    """
    text = text.strip()
    match = COLONS.fullmatch(text)
    if match:
        domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
        return make_bus(domain, bus, device, function)
    match = SQUASHED.fullmatch(text)
    if not match:
        return None
    number = int(match["digits"], 16)
    return make_bus(number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF)
