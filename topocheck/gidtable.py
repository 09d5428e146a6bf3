"""The GID table of a RoCE port: which entry NCCL uses, and whether it carries traffic through a network.

From 2.21 on NCCL chooses the entry by itself unless NCCL_IB_GID_INDEX names one: a RoCE v2 address of the
family that NCCL_IB_ADDR_FAMILY asks for, IPv4 by default. Where it finds none, and before 2.21, it takes
entry 0 (ncclIbGetGidIndex and ncclUpdateGidIndex in src/transport/net_ib).
"""

from __future__ import annotations

from topocheck.ncclvalues import is_number, number_of
from topocheck.networkfacts import PortFacts

__all__ = ["default_fault", "fault_at", "parse_index", "speaks_roce", "usable"]

V1, V2 = "IB/RoCE v1", "RoCE v2"
"""Types in the kernel's words."""
CHOOSES = (2, 21)
"""First version of NCCL that chooses by itself."""


def parse_index(text: str) -> int | None:
    """Value of NCCL_IB_GID_INDEX; None for -1, and for what is no number, which NCCL passes over."""
    index = number_of(text) if is_number(text) else -1
    return index if index >= 0 else None


def speaks_roce(port: PortFacts) -> bool:
    """Its table holds what an InfiniBand port has not: RoCE v2, or the address of a network device."""
    return any(gid.type == V2 or gid.netdev for gid in port.gids or ())


def fault_at(port: PortFacts, index: int) -> str | None:
    """Why an entry cannot be used, in words; empty if it can, None if that is not known."""
    entry = next((gid for gid in port.gids or () if gid.place == index), None)
    if entry is None:
        return None if port.gids is None or port.cut else "is empty"
    if entry.type == V1:
        return "is of RoCE v1"
    if entry.link_local:
        return "is link-local, which no router passes on"
    return "" if entry.type == V2 else None


def usable(port: PortFacts, *, ipv6: bool | None = None) -> tuple[int, ...]:
    """Entries of RoCE v2 that are not link-local, of one family if `ipv6` is given."""
    return tuple(
        gid.place
        for gid in port.gids or ()
        if gid.type == V2 and not gid.link_local and ipv6 in (None, not gid.mapped)
    )


def default_fault(port: PortFacts, version: tuple[int, ...] | None, *, ipv6: bool) -> str | None:
    """The same of the entry that NCCL takes where no index is set; `version` is NCCL's, None if not known."""
    first = fault_at(port, 0)
    unknown = port.gids is None or port.cut
    best = "" if usable(port, ipv6=ipv6) else None if unknown else first
    if version is None:
        return first if first == best else None
    return best if version >= CHOOSES else first
