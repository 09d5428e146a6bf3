"""NET: the devices, addresses and interfaces that the job's variables select are there, and meant."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from topocheck.ask import Ask
from topocheck.domain import all_in_one_domain
from topocheck.gidtable import default_fault, fault_at, parse_index, speaks_roce, usable
from topocheck.hca import Hca, is_up
from topocheck.hcafaults import Devices, Fault, filter_faults, perhaps_more
from topocheck.kinds import by_kind
from topocheck.meetingnet import meeting_interface
from topocheck.needed import HcaSetting, hca_settings, meant_hcas, need_kind, needed
from topocheck.networkfacts import PortFacts
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rdma import rdma_kind, that_may_use
from topocheck.remedy import Remedy, Variable
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule
from topocheck.settings import Setting, is_unset, setting_kind, settings_of
from topocheck.snapshot import NicShape, Port
from topocheck.sockets import GLOO, NCCL, Trouble, sockets_of, trouble_kind
from topocheck.subjects import within_nodes

__all__ = ["RULES"]

PROBE = "topocheck probe in the job's own processes"
INDEX, HCA = "NCCL_IB_GID_INDEX", "NCCL_IB_HCA"
NO_ROCE = frozenset({"efa", "iwarp", "omni-path", "slingshot", "soft", "usnic"})
"""Kinds of device that NCCL's own InfiniBand and RoCE transport does not take."""
STOPS = ("no such interface", "no address")
"""Troubles with interfaces that end a job of one node too."""


def networked(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes that may use RDMA, of a job any of whose groups crosses nodes."""
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    return within_nodes(placement) or placement.keep("nodes by selection", by_selection)


def by_selection(placement: Placement) -> Situations[Node] | NotApplicable:
    """Sort nodes into situations by devices, addresses and variables."""
    if all_in_one_domain(placement, placement.nodes):
        return NotApplicable("all nodes lie in one NVLink domain")

    def key(node: Node) -> Hashable:
        machine = node.machine
        if machine is None:
            return None
        ports = tuple(id(state.ports) for state, _ in machine.states)
        known = need_kind(placement, node), setting_kind(placement, node)
        return (*known, rdma_kind(placement, node), ports, machine.nccl)

    return that_may_use(placement, by_kind(placement, key, others=True))


@dataclass(frozen=True, slots=True)
class Ports:
    """RDMA ports of one node that the job uses, or may use."""

    roce: dict[str, PortFacts | None]
    """GID tables of those that speak RoCE, by `mlx5_0 port 1`; None where a table was not read."""
    others: bool
    """There are others: InfiniBand, or of a layer that is not shown."""
    sure: bool
    """The job needs all of them. Otherwise they are all that the node has."""
    vague: list[str]
    """Devices with a port that may speak RoCE or not: no layer of it is shown, or no port at all."""


def ports_of(placement: Placement, node: Node) -> Ports | None:
    """The ports whose GIDs matter; None if no list of devices shows them."""
    machine, shape = node.machine, node.shape
    if machine is None or shape is None:
        return None
    need = needed(placement, node)
    sure = need is not None and need.whole
    nics = shape.hardware.nics
    hcas = (
        need.devices
        if need is not None and sure
        else [Hca(nic.name, place, nic.ports, "") for place, nic in enumerate(nics)]
    )
    tables = {
        (port.nic, port.port): port
        for state, _ in machine.states
        for port in state.ports
        if port.gids is not None
    }
    ports = Ports({}, others=False, sure=sure, vague=vague(hcas, nics, tables.keys()))
    others = False
    for hca in hcas:
        shown = {port.port: port for port in hca.ports}
        for number in sorted(shown.keys() | {n for nic, n in tables if nic == hca.nic and not hca.ports}):
            port, table = shown.get(number), tables.get((hca.nic, number))
            if port is not None and is_up(port) is False:
                continue
            layer = port.layer if port else None
            roce = layer == "Ethernet" or (layer is None and table is not None and speaks_roce(table))
            if roce and nics[hca.nic].kind not in NO_ROCE:
                ports.roce[f"{hca.name} port {number}"] = table
            else:
                others = True
    whole = sure or machine.coverage.nics == "all" or bool(ports.roce)
    return Ports(ports.roce, others, sure, ports.vague) if whole else None


def vague(hcas: Sequence[Hca], nics: Sequence[NicShape], tables: Collection[tuple[int, int]]) -> list[str]:
    """Devices that show no port, or of one that is not down neither layer nor GIDs."""
    found = []
    for hca in hcas:
        known = {number for nic, number in tables if nic == hca.nic}
        blank = [port for port in hca.ports if port.layer is None and port.port not in known]
        open_ = any(is_up(port) is not False for port in blank) or not (hca.ports or known)
        if open_ and nics[hca.nic].kind not in NO_ROCE:
            found.append(hca.name)
    return found


@rule("NET004", "a usable RoCE v2 GID is at the index in use", over=networked, severity="error")
def gid_is_usable(ask: Ask, node: Node) -> Iterator[Finding]:
    """The entry of each RoCE port's GID table that NCCL takes is a routable RoCE v2 address."""
    ask.know()
    placement = ask.placement
    ports = ports_of(placement, node)
    if ports is None:
        supply = "ibv_devinfo -v and show_gids, given as NODE=FILE, or topocheck probe on every node"
        ask.gap("RDMA devices and their GIDs", [node.name], supply, part="nics")
        return
    if ports.vague:
        need = f"the link layer of {first(ports.vague, 4)}"
        supply = "ibstat, given as NODE=FILE, or topocheck probe on every node"
        ask.gap(need, [node.name], supply, part="nics")
    if not ports.roce:
        return
    values = settings_of(placement, node, INDEX)
    if not values and not is_unset(placement, node, INDEX):
        ask.gap(f"{INDEX} of the ranks", [node.name], PROBE, part="environment")
        return
    for setting in values or (None,):
        yield from judged(ask, node, ports, setting)


def judged(ask: Ask, node: Node, ports: Ports, setting: Setting | None) -> Iterator[Finding]:
    """The entry in use of each port, by one value of the index or by none."""
    index = parse_index(setting.value) if setting else None
    faults: dict[str, str] = {}
    unread, unclear = [], []
    for name, table in ports.roce.items():
        fault = None
        if table is None:
            unread.append(name)
            continue
        fault = fault_at(table, index) if index is not None else by_default(ask.placement, node, table)
        if fault is None:
            unclear.append(name)
        elif fault:
            faults[name] = fault
    certain = ports.sure or (not ports.others and len(faults) == len(ports.roce))
    if faults and certain:
        yield unusable(node, ports, faults, setting, index)
    elif faults:
        ask.gap("which RDMA ports the job needs", [node.name], PROBE, part="nics")
    if unread:
        need = f"GID table of {first(unread, 4)}"
        ask.gap(need, [node.name], "show_gids, given as NODE=FILE, or topocheck probe on every node")
    if unclear:
        which = f"entry {index}" if index is not None else "the entry that NCCL takes, and NCCL's version"
        ask.gap(f"{which}, of {first(unclear, 4)}", [node.name], "topocheck probe on every node")


def by_default(placement: Placement, node: Node, table: PortFacts) -> str | None:
    """Fault of the entry that NCCL takes by itself."""
    family = {setting.value for setting in settings_of(placement, node, "NCCL_IB_ADDR_FAMILY")}
    version = node.machine.nccl if node.machine else None
    parts = (version or "").split(".")[:2]
    number = tuple(map(int, parts)) if len(parts) == 2 and all(map(str.isdecimal, parts)) else None
    return default_fault(table, number, ipv6=family == {"AF_INET6"})


def unusable(
    node: Node, ports: Ports, faults: dict[str, str], setting: Setting | None, index: int | None
) -> Finding:
    """The finding about one node. What NCCL chose by itself may still work inside one link: a warning."""
    name, fault = next(iter(faults.items()))
    chosen = setting is not None and index is not None
    how = f"{setting} on" if chosen else f"no {INDEX} is set on"
    more = len(faults) - 1
    others = f" (as of {more} more port{'s' * (more > 1)})" if more else ""
    taken = "" if chosen else ", which NCCL takes,"
    right = {
        port: first(map(str, usable(table)), 3) for port, table in ports.roce.items() if table is not None
    }
    advice = (
        f"Usable is {right[name]} on {name}"
        if right.get(name)
        else f"{name} has no usable RoCE v2 address at all: give its network device an IP address"
    )
    facts = [
        f"{port} of {node}: entry {index or 0} {words}; usable: {right.get(port) or 'none'}"
        for port, words in faults.items()
    ]
    return Finding(
        message=f"{how} {node}: entry {index or 0} of {name}{taken} {fault}{others}, and RDMA connections to "
        "other nodes fail or hang",
        fix=f"unset {INDEX} where NCCL is 2.21 or newer, which chooses for each port, or set it on each node "
        f"(nccl.conf). {advice}",
        cause="GID index in use" if chosen else "GID that NCCL takes",
        subjects=tuple(f"{port} of {node}" for port in faults),
        evidence=(
            *(Evidence(source=node.read_in("GID table"), fact=fact) for fact in facts[:4]),
            *((setting.evidence,) if setting else ()),
        ),
        severity=None if chosen else "warning",
    )


@rule("NET005", "NCCL_IB_HCA selects what is meant", over=networked, severity="error")
def filter_selects_what_is_meant(ask: Ask, node: Node) -> Iterator[Finding]:
    """Each entry stands for a device that is there, and for no other."""
    ask.know()
    values = hca_settings(ask.placement, node)
    if not values:
        if not is_unset(ask.placement, node, HCA):
            ask.gap(f"{HCA} of the ranks", [node.name], PROBE, part="environment")
        return
    devices, whole = devices_of(ask.placement, node)
    if not devices and node.shape is not None and node.shape.hardware.nics:
        return  # a plugin serves the devices of this node, and the variable says nothing to it
    if not devices:
        supply = "ibstat, given as NODE=FILE, or topocheck probe on every node"
        because = "NET009" if whole else None
        ask.gap("the list of RDMA devices", [node.name], supply, because=because, part="nics")
    for value in values:
        found = list(filter_faults(value.filter, devices, whole=whole))
        for fault in found if devices or not whole else ():
            yield misses(ask.placement, node, value, fault, devices)
        if devices and not whole and not found:
            ask.gap("whether there are other RDMA devices", [node.name], PROBE, part="nics")
        if silent := perhaps_more(value.filter, devices):
            ask.gap(f"the state of {first(silent)}", [node.name], PROBE, part="nics")


def devices_of(placement: Placement, node: Node) -> tuple[dict[str, tuple[Port, ...]], bool]:
    """RDMA devices that NCCL's own transport could take, with their ports, and whether there are no others.

    Those that the job opened are up, whatever a list says.
    """
    nics = node.shape.hardware.nics if node.shape else ()
    found = {nic.name: nic.ports for nic in nics if nic.kind not in NO_ROCE}
    for fact in placement.facts_by_node.get(node.index, ()):
        if fact.kind == "hca":
            name, _, port = fact.value.partition("/")[0].partition(":")
            number = int(port) if port.isdecimal() and len(port) < 4 else 1
            opened = Port(port=number, state="ACTIVE")
            known = [port for port in found.get(name, ()) if port.port != number]
            found[name] = (*known, opened)
    return found, node.machine is not None and node.machine.coverage.nics == "all"


def misses(placement: Placement, node: Node, value: HcaSetting, fault: Fault, devices: Devices) -> Finding:
    """The finding about one value."""
    names = meant_hcas(placement, node) if fault.value is None else ()
    right = fault.value or ("=" + ",".join(names) if names else None)
    return Finding(
        message=f"{value.filter} on {node} {fault.words}",
        fix=fault.fix,
        cause=fault.cause,
        subjects=(node.name,),
        evidence=(
            value.evidence,
            Evidence(source=node.read_in("RDMA devices"), fact=f"devices: {first(devices, 12)}"),
        ),
        severity=fault.severity,
        remedies=() if right is None else (Variable(name=HCA, value=right, nodes=(node.name,)),),
    )


def meeting(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes by their sockets. In a job of one node those that are surely wrong: NCCL stops there too."""
    if placement.world == 1:
        return NotApplicable("one rank")
    found: dict[Hashable, list[Node]] = {}
    # Nodes of one kind share theirs.
    for sockets, run in groupby(sockets_of(placement).items(), itemgetter(1)):
        own = found.setdefault(trouble_kind(sockets), [])
        own += [placement.nodes[index] for index, _ in run]
    inside = within_nodes(placement)
    if inside is None:
        return found
    wrong = {
        key: nodes
        for key, nodes in found.items()
        if any(t.cause in STOPS and t.severity == "error" for t in troubles_of(placement, nodes[0]))
    }
    return wrong or inside


def troubles_of(placement: Placement, node: Node) -> list[Trouble]:
    """What is wrong with the interfaces of a node."""
    return [trouble for _, trouble in sockets_of(placement)[node.index].troubles]


@rule("NET006", "the socket interface is there, with an address of its own", over=meeting, severity="error")
def interface_is_there(ask: Ask, node: Node) -> Iterator[Finding]:
    """What NCCL_SOCKET_IFNAME names, or NCCL takes by itself, leads to the other nodes."""
    ask.know()
    sockets = sockets_of(ask.placement)[node.index]
    inside = within_nodes(ask.placement) is not None
    for told, trouble in sockets.troubles:
        if inside and trouble.cause not in STOPS:
            continue
        variable = GLOO if told.startswith(GLOO) else NCCL
        yield Finding(
            message=f"{told} on {node} {trouble.words}",
            fix=f"set {variable} on each node to its interface of the cluster's network"
            + (" (a prefix such as `en` fits several names)" if variable == NCCL else ""),
            cause=trouble.cause,
            subjects=(node.name,),
            evidence=sockets.evidence,
            severity=trouble.severity,
            remedies=to_meet(ask.placement, node, variable),
        )
    if sockets.gloo_fell_back:
        ask.gap(f"the interface that Gloo should take ({GLOO})", [node.name], PROBE, because="ID014")
    if "variables" in sockets.lacks:
        ask.gap(f"{NCCL} of the ranks", [node.name], PROBE, part="environment")
    if "interfaces" in sockets.lacks:
        ask.gap("network interfaces and their addresses", [node.name], PROBE, part="network")


def to_meet(placement: Placement, node: Node, variable: str) -> tuple[Remedy, ...]:
    """The interface by which all nodes can meet, in the way in which NCCL or Gloo takes an exact name."""
    name = meeting_interface(placement, node)
    if name is None:
        return ()
    return (Variable(name=variable, value=f"={name}" if variable == NCCL else name, nodes=(node.name,)),)


RULES = (gid_is_usable, filter_selects_what_is_meant, interface_is_there)
