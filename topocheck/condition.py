"""What changes by itself on a host, reduced to what rules ask of: thousands of hosts are mostly alike.

Memory that the job's own processes explain, counters and the digits of addresses are let go. What is left
is equal on most hosts and kept once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from topocheck.occupants import Strayed, occupants
from topocheck.snapshot import Clock, Condition, Gid, GpuCondition, Netdev, RankClaim

__all__ = ["GidFacts", "NodeState", "PortFacts", "Strayed", "reduced"]

MAPPED = "0000:0000:0000:0000:0000:ffff:"
"""How a GID with an IPv4 address begins."""
DECODE_GIDS = json.Decoder(tuple[Gid, ...] | None).decode
WITHOUT_ADDRESSES = attrgetter(
    "name", "kind", "layer", "state", "mtu", "speed_gbps", "master", "members", "bus"
)


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


class NodeState(Struct, frozen=True, kw_only=True, gc=False):
    """One view of what changes by itself on a host."""

    idle: tuple[int, ...]
    """Ordinals of GPUs on which nothing but processes of the job was seen."""
    strayed: tuple[Strayed, ...]
    """Ranks whose process is on other GPUs than the one that they claim."""
    matched: tuple[int, ...]
    """Ordinals of the GPUs that ranks claim whose process was found on a GPU, be it that one or not."""
    busy: tuple[GpuCondition, ...]
    """GPUs on which something else is, or on whose processes nobody looked. What the job's own processes hold
    is left out of the memory, which is None where that is not known."""
    ports: tuple[PortFacts, ...]
    """Ports of RDMA devices."""
    netdevs: tuple[Netdev, ...]
    """Network devices, their addresses left out."""
    addresses: tuple[tuple[str, ...] | None, ...]
    """Addresses of each of `netdevs`."""
    clock: Clock | None
    """The clock."""


def reduced(condition: Condition, claims: Sequence[RankClaim], kept: dict[Hashable, Any]) -> NodeState | None:
    """One view without what tells equal hosts apart; None if it says nothing. `kept` has equal parts once.

    Raises msgspec.ValidationError for a GID table of another form.
    """
    if not (condition.gpus or condition.nics or condition.netdevs or condition.clock):
        return None
    # Everything here is done for every host: comprehensions in place of calls save a tenth of all gathering.
    ports = tuple(
        [
            (
                nic.nic,
                port.port,
                port.sm_lid,
                None if port.lid else table(port.gids),
                port.gids_cut,
            )
            for nic in condition.nics
            for port in nic.ports
        ]
    )
    seen = tuple(map(WITHOUT_ADDRESSES, condition.netdevs))
    idle, matched, strayed, busy = occupants(condition.gpus, claims)
    return NodeState(
        idle=kept.setdefault(idle, idle),
        strayed=strayed,
        matched=kept.setdefault(matched, matched),
        busy=busy,
        ports=kept.get(ports) or kept.setdefault(ports, tuple(map(named, ports))),
        netdevs=kept.get(seen) or kept.setdefault(seen, tuple(map(bare, condition.netdevs))),
        addresses=tuple([netdev.addresses for netdev in condition.netdevs]),
        clock=condition.clock,
    )


def table(gids: Sequence[Gid] | Raw | None) -> tuple[tuple[Any, ...], ...] | None:
    """A GID table without its digits; None if it was not read.

    Raises msgspec.ValidationError for one of another form.
    """
    listed = DECODE_GIDS(gids) if isinstance(gids, Raw) else gids
    if listed is None:
        return None
    return tuple(
        [(gid.index, gid.type, gid.netdev, gid.gid[:30] == MAPPED, gid.gid[:4] == "fe80") for gid in listed]
    )


def named(port: tuple[Any, ...]) -> PortFacts:
    """The fields of one port with their names."""
    nic, number, sm_lid, gids, cut = port
    return PortFacts(
        nic, number, sm_lid, None if gids is None else tuple(GidFacts(*gid) for gid in gids), cut
    )


def bare(netdev: Netdev) -> Netdev:
    """A network device without its addresses."""
    return replace(netdev, addresses=None)
