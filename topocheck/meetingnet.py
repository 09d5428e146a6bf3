"""The network in which the nodes of a job meet: the only one in which each of them has an address."""

from __future__ import annotations

import ipaddress
from functools import reduce
from operator import and_

from topocheck.interfaces import is_link_local, is_loopback, leads_nowhere
from topocheck.placement import Node, Placement

__all__ = ["meeting_interface"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def meeting_interface(placement: Placement, node: Node) -> str | None:
    """Interface of a node in the only network that all nodes share; None if they share none, or several."""
    shared = placement.keep("shared networks", shared_networks)
    if len(shared) != 1:
        return None
    names = networks_of(node).get(next(iter(shared)), set())
    return names.pop() if len(names) == 1 else None


def shared_networks(placement: Placement) -> frozenset[Network]:
    """Networks in which every expected node has an address, those of IPv4 if there are any."""
    nodes = placement.nodes[: placement.expected]
    shared = reduce(and_, (frozenset(networks_of(node)) for node in nodes))
    return frozenset(network for network in shared if network.version == 4) or shared


def networks_of(node: Node) -> dict[Network, set[str]]:
    """Networks of a node's interfaces that may lead to other nodes, with the names of those."""
    found: dict[Network, set[str]] = {}
    for state, _ in node.machine.states if node.machine is not None else ():
        for netdev, addresses in zip(state.netdevs, state.addresses, strict=False):
            if netdev.state == "down" or leads_nowhere(netdev.name):
                continue
            for address in addresses or ():
                network = network_of(address)
                if network is not None:
                    found.setdefault(network, set()).add(netdev.name)
    return found


def network_of(address: str) -> Network | None:
    """The network of `10.0.0.7/24`; None where there is none, or no other node in it."""
    if is_loopback(address) or is_link_local(address):
        return None
    try:
        network = ipaddress.ip_interface(address).network
    except ValueError:
        return None
    return network if network.num_addresses > 1 else None
