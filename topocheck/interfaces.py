"""Network interfaces that NCCL takes for its sockets: for meeting, and for data where there is no RDMA.

Read as NCCL reads it (ncclFindInterfaces in src/misc/socket.cc, 2.5 to 2.30): NCCL_SOCKET_IFNAME is a list
of prefixes, with `^` in front one of what is left out, with `=` one of exact names. A value of one letter
is none. Without it `ib*` is taken, else all but `docker*`, `lo*` and `virbr*`, else those in turn; an
interface counts only with an address. A list of what is left out (`^docker`) does not leave out `lo`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topocheck.hcafilter import parse_hca_filter

__all__ = [
    "LINK_LOCAL",
    "LOOPBACK",
    "Addresses",
    "Choice",
    "chosen",
    "is_link_local",
    "is_loopback",
    "is_set",
    "leads_nowhere",
    "listed",
]

NOT_FIRST = ("docker", "lo", "virbr")
"""Beginnings of names that are taken only where nothing else has an address, in this order."""
NOWHERE = re.compile(
    r"(?:virbr|br-|veth|docker|cni|podman|lxcbr|lxdbr|flannel|cali|cilium|kube-|nodelocaldns|tunl|vxlan|weave"
    r"|vmnet|vboxnet|tailscale|wg|zt)[\w.-]*"
)
"""Names that container engines, overlays, hypervisors and tunnels give: no way to another node of a job."""
LOOPBACK = ("127.", "::1")
LINK_LOCAL = ("169.254.", "fe80", "fE80", "Fe80", "FE80")
"""Beginnings of addresses that mean every host itself, and of those that are valid on one link alone."""

Addresses = tuple[str, ...] | None
"""Addresses of one interface with their prefix lengths; None where they are not known."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Interfaces of one view of a node that NCCL takes, by their places in it."""

    named: tuple[int, ...] = ()
    """Those whose names are meant."""
    addressed: tuple[int, ...] = ()
    """Those among them that have an address other than loopback."""
    loopback: tuple[int, ...] = ()
    """Those among them that have a loopback address."""
    known: bool = True
    """The addresses of all that are named are known."""


def is_loopback(address: str) -> bool:
    """The address means every host itself."""
    return address.startswith(LOOPBACK)


def is_link_local(address: str) -> bool:
    """The address is valid on one link alone."""
    return address.startswith(LINK_LOCAL)


def leads_nowhere(name: str) -> bool:
    """A container engine, an overlay or a hypervisor gives such names."""
    return NOWHERE.fullmatch(name) is not None


def listed(names: Sequence[str], value: str) -> tuple[int, ...]:
    """Places of the interfaces that a value of NCCL_SOCKET_IFNAME names."""
    wanted = parse_hca_filter(value)
    return tuple(
        place
        for place, name in enumerate(names)
        if (not wanted.entries or any(entry.names(name, exact=wanted.exact) for entry in wanted.entries))
        != wanted.exclude
    )


def turns(names: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Places of interfaces in the turns in which NCCL looks at them where no value is set."""
    places = range(len(names))
    yield tuple(place for place in places if names[place].startswith("ib"))
    yield tuple(place for place in places if not names[place].startswith(NOT_FIRST))
    for begin in NOT_FIRST:
        yield tuple(place for place in places if names[place].startswith(begin))


def is_set(value: str | None) -> bool:
    """NCCL takes a value for one: it has more than one letter."""
    return value is not None and len(value) > 1


def chosen(names: Sequence[str], addresses: Sequence[Addresses], value: str | None) -> Choice:
    """What NCCL takes by a value of NCCL_SOCKET_IFNAME; without one the first turn with an address."""
    if value is not None and is_set(value):
        return choice(listed(names, value), addresses)
    for turn in turns(names):
        found = choice(turn, addresses)
        if found.addressed or found.loopback or not found.known:
            return found
    return Choice()


def choice(places: tuple[int, ...], addresses: Sequence[Addresses]) -> Choice:
    """Interfaces sorted by their addresses."""
    own = {place: addresses[place] or () for place in places}
    return Choice(
        named=places,
        addressed=tuple(place for place in places if any(not is_loopback(one) for one in own[place])),
        loopback=tuple(place for place in places if any(map(is_loopback, own[place]))),
        known=all(addresses[place] is not None for place in places),
    )
