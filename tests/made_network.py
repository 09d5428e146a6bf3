"""Snapshots with ports and network devices: what a host shares with its equals apart from its own digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from topocheck.portreading import PortReading, parted
from topocheck.snapshot import FullSnapshot, Netdev

__all__ = ["Interface", "with_interfaces", "with_ports"]

Interface = tuple[Netdev, tuple[str, ...] | None]
"""A network device and its addresses."""


def with_ports(view: FullSnapshot, ports: Mapping[int, Sequence[PortReading]]) -> FullSnapshot:
    """The snapshot with these ports by ordinal of their device, and no others."""
    shared, own = parted(ports.items())
    return replace(view, network=replace(view.network, nics=shared), state=replace(view.state, ports=own))


def with_interfaces(view: FullSnapshot, *interfaces: Interface) -> FullSnapshot:
    """The snapshot with these network devices, and no others."""
    return replace(
        view,
        network=replace(view.network, netdevs=tuple(netdev for netdev, _ in interfaces)),
        state=replace(view.state, addresses=tuple(addresses for _, addresses in interfaces)),
    )
