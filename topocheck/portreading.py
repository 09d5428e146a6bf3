"""Ports as a probe or a capture reads them, parted into what equal hosts share and what is their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from topocheck.snapshot import Family, Gid, NicNetwork, PortNetwork, PortState

__all__ = ["GidReading", "PortReading", "family_of", "parted"]

MAPPED = "0000:0000:0000:0000:0000:ffff:"
"""How a GID with an IPv4 address begins."""
LINK_LOCAL = "fe80"


class GidReading(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One entry of a port's GID table that is set."""

    index: int
    """Place in the table, what NCCL_IB_GID_INDEX counts."""
    digits: str
    """Eight groups of four hex digits."""
    type: str | None = None
    """`IB/RoCE v1` or `RoCE v2`; None where the driver does not say."""
    netdev: str | None = None
    """Network device whose address it is."""


class PortReading(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All that subnet manager, addresses and traffic make of one port."""

    port: int = 1
    """Port number, counted from 1."""
    lid: int | None = None
    """Local id that the subnet manager gave; 0 is none."""
    sm_lid: int | None = None
    """Local id of the subnet manager; 0 is none, as always with Ethernet."""
    gids: tuple[GidReading, ...] | None = None
    """GIDs that are set; None if the table was not read."""
    gids_cut: bool = False
    """More GIDs may be set than are listed."""
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    """Traffic and errors since the driver was loaded, by the kernel's names."""


def family_of(digits: str) -> Family:
    """Kind of a GID."""
    if digits.startswith(MAPPED):
        return "ipv4"
    return "link-local" if digits.startswith(LINK_LOCAL) else "ipv6"


def parted(
    devices: Iterable[tuple[int, Sequence[PortReading]]],
) -> tuple[tuple[NicNetwork, ...], tuple[PortState, ...]]:
    """For `network.nics` and `state.ports`, of devices by ordinal; a device without ports is left out."""
    told = [(nic, ports) for nic, ports in devices if ports]
    shared = tuple(NicNetwork(nic=nic, ports=tuple(map(shared_by_equals, ports))) for nic, ports in told)
    own = [own_digits(nic, port) for nic, ports in told for port in ports]
    return shared, tuple(port for port in own if port != PortState(nic=port.nic, port=port.port))


def shared_by_equals(port: PortReading) -> PortNetwork:
    """What ports in the same place of equal hosts share."""
    gids = [
        Gid(index=gid.index, family=family_of(gid.digits), type=gid.type, netdev=gid.netdev)
        for gid in port.gids or ()
    ]
    return PortNetwork(
        port=port.port,
        sm_lid=port.sm_lid,
        has_lid=None if port.lid is None else port.lid > 0,
        gids=None if port.gids is None else tuple(gids),
        gids_cut=port.gids_cut,
    )


def own_digits(nic: int, port: PortReading) -> PortState:
    """What no other port has."""
    gids = None if port.gids is None else tuple(gid.digits for gid in port.gids)
    return PortState(nic=nic, port=port.port, lid=port.lid, gids=gids, counters=port.counters)
