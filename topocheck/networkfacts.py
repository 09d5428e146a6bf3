"""What rules ask of a host's ports and network devices: worked out once for each `network` that differs.

Thousands of hosts have the same, byte by byte, as they have the same hardware.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import msgspec

from topocheck.snapshot import Netdev, Network, PortNetwork

__all__ = ["GidFacts", "NetworkFacts", "PortFacts", "facts_of", "read_network"]


class GidFacts(NamedTuple):
    """One entry of a GID table without its digits."""

    place: int
    """Place in the table, what NCCL_IB_GID_INDEX counts."""
    type: str | None
    """`IB/RoCE v1` or `RoCE v2`; None where the driver does not say."""
    netdev: str | None
    """Network device whose address it is."""
    mapped: bool
    """It holds an IPv4 address."""
    link_local: bool
    """It is a link-local address, which no router passes on."""


class PortFacts(NamedTuple):
    """Subnet manager and addresses of one port."""

    nic: int
    """Ordinal of the RDMA device."""
    port: int
    """Port number, counted from 1."""
    sm_lid: int | None
    """Local id of the subnet manager; 0 is none, as always with Ethernet; None if not known."""
    gids: tuple[GidFacts, ...] | None
    """GID table of a port to which no subnet manager gave an id; None if it was not read."""
    cut: bool
    """More GIDs may be set than are listed."""


class NetworkFacts(NamedTuple):
    """What rules see of one `network`; equal parts are one object."""

    ports: tuple[PortFacts, ...] = ()
    """Ports of RDMA devices."""
    netdevs: tuple[Netdev, ...] = ()
    """Network devices."""


def read_network(raw: bytes | msgspec.Raw) -> Network:
    """The `network` part of a snapshot. Raises msgspec.ValidationError if it has another form."""
    return msgspec.json.decode(raw, type=Network)


def facts_of(network: Network, kept: dict[Hashable, Any]) -> NetworkFacts:
    """What rules see of it. `kept` has equal parts once."""
    ports = tuple(port_facts(nic.nic, port) for nic in network.nics for port in nic.ports)
    return NetworkFacts(
        kept.setdefault(ports, ports),
        kept.setdefault(network.netdevs, network.netdevs),
    )


def port_facts(nic: int, port: PortNetwork) -> PortFacts:
    """One port. Where a subnet manager gave an id, nobody asks for its GIDs."""
    gids = None
    if port.gids is not None and not port.has_lid:
        gids = tuple(
            GidFacts(gid.index, gid.type, gid.netdev, gid.family == "ipv4", gid.family == "link-local")
            for gid in port.gids
        )
    return PortFacts(nic, port.port, port.sm_lid, gids, port.gids_cut)
