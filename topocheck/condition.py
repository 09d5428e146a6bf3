"""What changes by itself on a host, reduced to what rules ask of: thousands of hosts are mostly alike.

Memory that the job's own processes explain and counters are let go, addresses stay as bytes. What is left
is equal on most hosts and kept once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from msgspec import Struct, ValidationError, json

from topocheck.networkfacts import NetworkFacts, PortFacts
from topocheck.occupants import Strayed, occupants
from topocheck.snapshot import Clock, Condition, GpuCondition, Netdev, RankClaim

__all__ = ["NodeState", "Strayed", "reduced"]

NONE_KNOWN = b"[]"
"""Addresses in a state that tells none."""
DIGITS, FORM = b"0123456789abcdef.:/", b'[],"nul'
"""What addresses are made of, and what is around them."""
decode_addresses = json.Decoder(tuple[tuple[str, ...] | None, ...]).decode


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
    """Network devices."""
    encoded_addresses: bytes
    """Addresses of each of `netdevs` in JSON, a tenth of what they take decoded; `[]` is none known."""
    clock: Clock | None
    """The clock."""

    @property
    def addresses(self) -> tuple[tuple[str, ...] | None, ...]:
        """Addresses of each of `netdevs`, decoded each time that somebody asks; None where not known."""
        return decode_addresses(self.encoded_addresses) or (None,) * len(self.netdevs)


def reduced(
    condition: Condition, claims: Sequence[RankClaim], network: NetworkFacts, kept: dict[Hashable, Any]
) -> NodeState | None:
    """One view without what tells equal hosts apart; None if it says nothing. `kept` has equal parts once.

    Raises msgspec.ValidationError for addresses of another form than `network` asks for.
    """
    addresses = read_addresses(condition, len(network.netdevs), kept)
    if not (condition.gpus or network.ports or network.netdevs or condition.clock):
        return None
    idle, matched, strayed, busy = occupants(condition.gpus, claims)
    return NodeState(
        idle=kept.setdefault(idle, idle),
        strayed=strayed,
        matched=kept.setdefault(matched, matched),
        busy=busy,
        ports=network.ports,
        netdevs=network.netdevs,
        encoded_addresses=addresses,
        clock=condition.clock,
    )


def read_addresses(condition: Condition, netdevs: int, kept: dict[Hashable, Any]) -> bytes:
    """Addresses as they stand in the snapshot, read once, so that nobody need doubt them later.

    Those that differ from others in digits alone are of the same form. Raises msgspec.ValidationError if they
    are of another form, or of another number of network devices.
    """
    raw = bytes(condition.addresses)
    form = raw.translate(None, DIGITS), netdevs
    if raw != NONE_KNOWN and form not in kept:
        listed = len(decode_addresses(raw))
        if listed not in (0, netdevs):
            raise ValidationError(f"`state.addresses` lists {listed} and `network.netdevs` {netdevs}")
        # A number that is no text leaves nothing between its brackets, or two commas, which JSON has not.
        if not form[0].translate(None, FORM) and b"[]" not in form[0]:
            kept[form] = form
    return raw
