"""What the sockets of a job's nodes use: the interfaces that NCCL and Gloo take, and what is wrong with them.

A node is looked at as the job's own log shows it, else by its variables and network devices. A node may show
several network namespaces; one in which all is well is taken for the job's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Literal

from topocheck.interfaces import (
    LINK_LOCAL,
    LOOPBACK,
    Addresses,
    chosen,
    is_link_local,
    is_loopback,
    is_set,
    leads_nowhere,
)
from topocheck.kinds import with_strays
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rule import Evidence, read_at
from topocheck.settings import Setting, is_unset, settings_of
from topocheck.snapshot import LogFact, Netdev

__all__ = ["GLOO", "NCCL", "Sockets", "Trouble", "sockets_of", "trouble_kind"]

NCCL, GLOO = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
NO_SUCH = "no such interface"
ADDRESSES = attrgetter("addresses")
LOCAL = (*LOOPBACK, *LINK_LOCAL)
"""Beginnings of addresses by which other nodes do not reach one."""
View = tuple[Sequence[Netdev], Sequence[Addresses]]
"""Network devices of one namespace, and the addresses of each."""
Own = Mapping[str, tuple[str, ...]]
"""Addresses by interface."""
Taken = tuple[tuple[str, str], ...]
"""Interfaces with an address of each."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong with a node's interfaces."""

    cause: str
    """In a few words."""
    words: str
    """What is wrong, to follow the setting and the node."""
    severity: Literal["error", "warning"] = "error"


@dataclass(slots=True)
class Sockets:
    """What is known of the sockets of one node."""

    told: str = ""
    """What tells which interfaces are taken: a setting, or that there is none."""
    evidence: tuple[Evidence, ...] = ()
    taken: Taken = ()
    """Interfaces that NCCL takes, each with an address by which other nodes would reach it."""
    explicit: bool = False
    """A variable asks for them."""
    troubles: list[tuple[str, Trouble]] = field(default_factory=list)
    """What is wrong, each with the setting that it follows from."""
    lacks: list[Literal["variables", "interfaces"]] = field(default_factory=list)
    """What is not shown."""
    places: tuple[int, ...] = ()
    """Places of those interfaces among the network devices, where there is one view of them."""
    by_address: bool = True
    """What is known hangs on addresses, which each node has of its own: not where no interface is there."""
    gloo_fell_back: bool = False
    """Gloo said that it took the loopback address."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of what NCCL takes."""
        return tuple([address for _, address in self.taken])


def sockets_of(placement: Placement) -> dict[int, Sockets]:
    """Sockets of all nodes by their position, looked at once."""
    return placement.keep("sockets", find)


def find(placement: Placement) -> dict[int, Sockets]:
    """Look at one node of each kind, at the addresses of all, then for addresses that are there twice.

    Thousands of nodes are alike and well: they share what is known of the first of them.
    """
    found: dict[int, Sockets] = {}
    held: list[tuple[list[int], list[tuple[str, ...]]]] = []
    for members in with_strays(placement):
        sample, indexes = look(placement, members[0]), [node.index for node in members]
        steady = not sample.lacks and all(trouble.cause == NO_SUCH for _, trouble in sample.troubles)
        own = addresses_of(members, sample.places) if steady and sample.places else [()] * len(members)
        if () in own and sample.by_address:
            lost = {node.index for node, addresses in zip(members[1:], own[1:], strict=True) if not addresses}
            known = {n: look(placement, placement.nodes[n]) if n in lost else sample for n in indexes}
        else:
            known = dict.fromkeys(indexes, sample)
        found.update(known)
        held.append((indexes, [one or known[n].addresses for n, one in zip(indexes, own, strict=True)]))
    every = list(chain.from_iterable(chain.from_iterable(rows) for _, rows in held))
    if len(set(every)) < len(every):
        pairs = chain.from_iterable(zip(indexes, rows, strict=True) for indexes, rows in held)
        note_twice(placement, found, ((address, index) for index, row in pairs for address in row))
    return found


def addresses_of(members: Sequence[Node], places: Sequence[int]) -> list[tuple[str, ...]]:
    """First address of each of these network devices on nodes of one kind; () if others do not reach one."""
    machines = [node.machine for node in members if node.machine is not None]
    # Nodes of one kind show their network devices in the same of their views.
    at = next(number for number, (state, _) in enumerate(machines[0].states) if state.netdevs)
    states, none = [machine.states[at][0] for machine in machines], ("",)
    # One view after the other: decoded, those of all nodes would take more memory than all the rest.
    views: Iterator[Sequence[Addresses]] = map(ADDRESSES, states)
    rows: list[tuple[str, ...]]
    if len(places) == 1:  # as mostly, and twice as fast
        (place,) = places
        rows = [((view[place] or none)[0].partition("/")[0],) for view in views]
    else:
        rows = [tuple([(view[place] or none)[0].partition("/")[0] for place in places]) for view in views]
    lost = {one for one in chain.from_iterable(rows) if not one or one.startswith(LOCAL)}
    return rows if not lost else [row if lost.isdisjoint(row) else () for row in rows]


def note_twice(placement: Placement, found: dict[int, Sockets], held: Iterable[tuple[str, int]]) -> None:
    """Look for addresses that are there twice: each is given with the node that has it."""
    owner: dict[str, int] = {}
    twice: dict[str, list[int]] = {}
    for address, index in held:
        if address in owner:
            twice.setdefault(address, [owner[address]]).append(index)
        else:
            owner[address] = index
    for index in {index for indexes in twice.values() for index in indexes}:
        found[index] = look(placement, placement.nodes[index])
    for address, indexes in twice.items():
        share(placement, found, address, indexes)


def trouble_kind(sockets: Sockets) -> Hashable:
    """Nodes with equal troubles, and that lack the same, are one situation."""
    return tuple(sockets.troubles), tuple(sockets.lacks), sockets.gloo_fell_back


def share(placement: Placement, found: dict[int, Sockets], address: str, indexes: Sequence[int]) -> None:
    """Several interfaces have one address, on one node or on several.

    An error where it is all that a variable asks for, on hosts that are surely two.
    """
    nodes = [placement.nodes[index] for index in dict.fromkeys(indexes)]
    apart = len(nodes) > 1 and all(node.machine is not None and node.machine.host.boot_id for node in nodes)
    where = f" on {len(nodes)} nodes ({first(map(str, nodes), 3)})" if len(nodes) > 1 else ""
    for node in nodes:
        sockets = found[node.index]
        names = [name for name, own in sockets.taken if own == address]
        certain = apart and sockets.explicit and {own for _, own in sockets.taken} == {address}
        words = f"takes {first(names)} with address {address}, which is there {len(indexes)} times{where}"
        trouble = Trouble("address twice", words, "error" if certain else "warning")
        sockets.troubles.append((sockets.told, trouble))


def look(placement: Placement, node: Node) -> Sockets:
    """One node by itself."""
    machine = node.machine
    views = [(s.netdevs, s.addresses) for s, _ in machine.states if s.netdevs] if machine else []
    facts = placement.facts_by_node.get(node.index, ())
    values = settings_of(placement, node, NCCL)
    lines = [fact for fact in facts if fact.kind == "socket-interface"]
    sockets = Sockets(gloo_fell_back=any(fact.kind == "gloo-loopback" for fact in facts))
    if lines:
        logged(sockets, lines, values)
    elif not values and not is_unset(placement, node, NCCL):
        sockets.lacks.append("variables")
    elif not views:
        sockets.lacks.append("interfaces")
    else:
        for setting in values or (None,):
            by_views(sockets, views, setting)
    for setting in settings_of(placement, node, GLOO):
        gloo(sockets, views, setting)
    unread = bool(views) and "interfaces" in sockets.lacks
    others = any(trouble.cause != NO_SUCH for _, trouble in sockets.troubles)
    sockets.by_address = bool(sockets.taken) or unread or others
    return sockets


def logged(sockets: Sockets, lines: Sequence[LogFact], values: Sequence[Setting]) -> None:
    """The job's own list of interfaces; NCCL lists those alone that have an address."""
    pairs = dict.fromkeys(fact.value.partition(":")[::2] for fact in lines)
    own: Own = {name: (address.partition("%")[0],) for name, address in pairs}
    sockets.explicit = any(is_set(setting.value) for setting in values)
    sockets.told = first(map(str, values)) if sockets.explicit else "NCCL"
    sockets.evidence = (
        *(setting.evidence for setting in values),
        *(read_at(fact.at, fact.value, "log") for fact in lines[:3]),
    )
    sockets.taken = reachable(own)
    trouble = weak(own, explicit=sockets.explicit)
    if all(is_loopback(address) for one in own.values() for address in one):
        words = f"takes {first(own)}, which no other node reaches"
        trouble = Trouble("loopback", words, severity(sockets.explicit))
    if trouble:
        sockets.troubles.append((sockets.told, trouble))


def severity(explicit: bool) -> Literal["error", "warning"]:
    """What NCCL does by itself is a warning; what somebody asked for is an error."""
    return "error" if explicit else "warning"


def by_views(sockets: Sockets, views: Sequence[View], setting: Setting | None) -> None:
    """What NCCL takes by one value, or without one. A namespace without trouble is taken for the job's."""
    value = setting.value if setting else None
    told = str(setting) if setting and is_set(value) else f"without {NCCL}, NCCL"
    seen = [(view, judge(view, value)) for view in views]
    view, trouble = next((pair for pair in seen if pair[1] is None), seen[0])
    sockets.told, sockets.explicit = told, is_set(value)
    names = first((netdev.name for netdev in view[0]), 12)
    shown = (Evidence(source="network devices", fact=f"interfaces: {names}"),)
    sockets.evidence += (*((setting.evidence,) if setting else ()), *shown)
    if trouble == "unknown":
        sockets.lacks.append("interfaces")
    elif isinstance(trouble, Trouble):
        sockets.troubles.append((told, trouble))
    picked = chosen([netdev.name for netdev in view[0]], view[1], value).addressed
    sockets.places = picked if len(views) == 1 and not sockets.taken else ()
    sockets.taken += reachable({view[0][place].name: view[1][place] or () for place in picked})


def reachable(own: Own) -> Taken:
    """Interfaces with their first address that means one host everywhere."""
    found = []
    for name, addresses in own.items():
        plain = [address.partition("/")[0] for address in addresses]
        address = next((a for a in plain if not is_loopback(a) and not is_link_local(a)), None)
        if address is not None:
            found.append((name, address))
    return tuple(found)


def judge(view: View, value: str | None) -> Trouble | Literal["unknown"] | None:
    """What is wrong with what NCCL takes in one namespace; None if nothing is."""
    netdevs, addresses = view
    names = [netdev.name for netdev in netdevs]
    found, explicit = chosen(names, addresses, value), is_set(value)
    if not found.named:
        verb = "names none" if explicit else "finds an address on none"
        words = f"{verb} of the interfaces {first(names, 12)}, and NCCL stops"
        return Trouble(NO_SUCH, words, severity(explicit))
    if not found.known and not found.addressed:
        return "unknown"
    if found.loopback and (explicit or not found.addressed):
        words = f"takes {names[found.loopback[0]]} first, which no other node reaches"
        return Trouble("loopback", words, severity(explicit))
    own = {names[place]: addresses[place] or () for place in found.addressed}
    wanted = first([names[place] for place in found.named], 12)
    if not own:
        return Trouble("no address", f"takes {wanted}, which has no address", severity(explicit))
    if all(netdevs[place].state == "down" for place in found.addressed):
        return Trouble("interface is down", f"takes {wanted}, which is down", severity(explicit))
    return weak(own, explicit=explicit)


def weak(own: Own, *, explicit: bool) -> Trouble | None:
    """What may do between some nodes and not between others."""
    if not reachable(own):
        words = f"takes {first(own, 12)}, whose addresses are link-local: no router passes them on"
        return Trouble("link-local address", words, "warning")
    bad = [name for name in own if leads_nowhere(name)]
    if explicit or not bad:
        return None
    words = f"takes {first(bad)} among {first(own, 12)}: a bridge or tunnel of this node leads to no other"
    return Trouble("virtual interface", words, "warning")


def gloo(sockets: Sockets, views: Sequence[View], setting: Setting) -> None:
    """Gloo takes GLOO_SOCKET_IFNAME for exact names, and opens every one of them."""
    wanted = [name for name in setting.value.split(",") if name]
    if not wanted or not views:
        return
    missing = [[name for name in wanted if name not in {n.name for n in netdevs}] for netdevs, _ in views]
    if all(missing):
        there = first((netdev.name for netdev in views[0][0]), 12)
        words = f"names {first(missing[0])}, and there are {there}: Gloo takes exact names and stops"
        sockets.troubles.append((str(setting), Trouble(NO_SUCH, words)))
        sockets.evidence += (
            setting.evidence,
            Evidence(source="network devices", fact=f"interfaces: {there}"),
        )
