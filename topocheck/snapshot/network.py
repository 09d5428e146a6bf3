"""What equal hosts share of their ports and network devices: no addresses, no counters.

The digits of these addresses, and what traffic makes of a port, are in `state`.
"""

from __future__ import annotations

from typing import Literal

from topocheck.snapshot.record import Record

__all__ = ["Family", "Gid", "Netdev", "Network", "NicNetwork", "PortNetwork"]

Family = Literal["ipv4", "ipv6", "link-local"]
"""Kind of a GID by its digits."""


class Gid(Record, frozen=True, kw_only=True):
    """One entry of a port's GID table that is set; its digits are in `state.ports`."""

    index: int
    """Place in the table, what NCCL_IB_GID_INDEX counts."""
    family: Family
    """`ipv4` where it holds an IPv4 address, `link-local` where no router passes it on, else `ipv6`."""
    type: str | None = None
    """`IB/RoCE v1` or `RoCE v2`; None where the driver does not say."""
    netdev: str | None = None
    """Network device whose address it is."""


class PortNetwork(Record, frozen=True, kw_only=True):
    """What subnet manager and addresses make of one port."""

    port: int = 1
    """Port number, counted from 1."""
    sm_lid: int | None = None
    """Local id of the subnet manager; 0 is none, as always with Ethernet."""
    has_lid: bool | None = None
    """The subnet manager gave it a local id; None if not known."""
    gids: tuple[Gid, ...] | None = None
    """GIDs that are set; None if the table was not read."""
    gids_cut: bool = False
    """More GIDs may be set than are listed."""


class NicNetwork(Record, frozen=True, kw_only=True):
    """Ports of one RDMA device."""

    nic: int
    """Ordinal in `identity.nics`."""
    ports: tuple[PortNetwork, ...] = ()
    """Its ports."""


class Netdev(Record, frozen=True, kw_only=True):
    """One network device in the network namespace that was looked at; its addresses are in `state`."""

    name: str
    """Kernel name: eth0."""
    kind: str | None = None
    """`physical`, `bond`, `bridge`, `vlan`, `loopback` or `virtual`, by evidence and not by name."""
    layer: str | None = None
    """`ethernet`, `infiniband` or `loopback`, by hardware type."""
    state: str | None = None
    """operstate in the kernel's word: up, down, unknown (loopback and some tunnels)."""
    mtu: int | None = None
    """Largest packet in bytes."""
    speed_gbps: float | None = None
    """Speed; None while down and for devices that have none."""
    master: str | None = None
    """Bond or bridge that it is a member of."""
    members: tuple[str, ...] = ()
    """Members of a bond."""
    bus: str | None = None
    """PCI address of its function."""


class Network(Record, frozen=True, kw_only=True):
    """Ports and network devices without digits of their own: equal for equal hosts."""

    nics: tuple[NicNetwork, ...] = ()
    """By RDMA device; one that was not asked is absent."""
    netdevs: tuple[Netdev, ...] = ()
    """Network devices of the namespace."""
