"""NET: the ports that the job needs are up, alike, and under a subnet manager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from topocheck.ask import Ask
from topocheck.domain import all_in_one_domain
from topocheck.hca import Hca, is_up
from topocheck.kinds import by_kind
from topocheck.needed import Needed, need_kind, needed
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rdma import rdma_kind, spared
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule, the
from topocheck.snapshot import Port
from topocheck.subjects import within_nodes

__all__ = ["RULES"]

PROBE = "topocheck probe on every node, or ibstat, given as NODE=FILE"
DEVICES = "RDMA devices and the state of their ports"
CHOICE = (
    "NCCL_IB_HCA in the environment of the ranks (topocheck probe), or nvidia-smi topo -m with its NIC "
    "columns, given as NODE=FILE"
)
FIXES = {
    "Disabled": "enable the port: it, or its network device, was switched off",
    "Polling": "check cable, transceiver and switch port: nothing answers at the other end",
}
"""What to change, by the physical state of the port."""
OTHERS = frozenset({"efa", "slingshot"})
"""Kinds of device on fabrics without link layers of InfiniBand's kind."""
BRING_UP = "bring the port up, or leave its device out of NCCL_IB_HCA on this node"


def by_need(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes whose ranks need RDMA ports, by what is known of the need and of the ports."""
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    return within_nodes(placement) or placement.keep("nodes by needed ports", find_needing)


def find_needing(placement: Placement) -> dict[Hashable, list[Node]] | NotApplicable:
    """Sort the nodes with ranks, less those that proven need no port."""
    busy = [placement.nodes[place] for place in placement.ranks_on]
    if all_in_one_domain(placement, placement.nodes if placement.unplaced else busy):
        return NotApplicable("all nodes lie in one NVLink domain")
    found = by_kind(placement, lambda node: port_kind(placement, node), others=True)
    reasons = {
        key: spared(placement, alike[0]) if carries_ranks(placement, alike[0]) else "no rank"
        for key, alike in found.items()
    }
    needing = {key: alike for key, alike in found.items() if not reasons[key]}
    return needing or NotApplicable(first(sorted(set(reasons.values())), 2))


def carries_ranks(placement: Placement, node: Node) -> bool:
    """A rank is on the node, or may be."""
    return bool(placement.unplaced) or node.index in placement.ranks_on


def port_kind(placement: Placement, node: Node) -> Hashable:
    """What is known of the need, of the ports, of their subnet managers, and of RDMA as such."""
    if node.machine is None:
        return carries_ranks(placement, node)
    managers = tuple([id(state.ports) for state, _ in node.machine.states])
    own = need_kind(placement, node), rdma_kind(placement, node), managers
    return (*own, carries_ranks(placement, node))


def read(node: Node, fact: str) -> Evidence:
    """A fact of a node's ports."""
    sources = node.machine.sources if node.machine else ()
    return Evidence(source=first(sources, 2) or "RDMA probe", fact=fact)


def state_of(hca: Hca) -> str:
    """`mlx5_3 DOWN/Disabled`, of a device with several ports each of them."""
    states = [f"{port.state or 'unknown'}" + f"/{port.physical}" * bool(port.physical) for port in hca.ports]
    return f"{hca.name} {' and '.join(dict.fromkeys(states)) or 'unknown'}"


def opened(placement: Placement, node: Node) -> set[str]:
    """Ports that the job opened on a node, `mlx5_0:1`: NCCL takes active ones alone."""
    facts = placement.facts_by_node.get(node.index, ())
    return {fact.value.partition("/")[0] for fact in facts if fact.kind == "hca"}


def sm_lids(node: Node) -> dict[tuple[int, int], int]:
    """Local id of the subnet manager by device and port, as far as it is shown."""
    found: dict[tuple[int, int], int] = {}
    for state, _ in node.machine.states if node.machine else ():
        for port in state.ports:
            if port.sm_lid is not None:
                found.setdefault((port.nic, port.port), port.sm_lid)
    return found


def linked(port: Port) -> bool:
    """The port has a link: LinkUp, or a state that none without a link has."""
    return port.physical == "LinkUp" or (port.physical is None and port.state in {"ACTIVE", "ARMED", "INIT"})


def wants_manager(port: Port) -> bool:
    """A port with a link that a subnet manager has to configure."""
    return port.layer == "InfiniBand" and linked(port)


def by_manager(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes that may have InfiniBand ports, by their needs and subnet managers."""
    nodes = by_need(placement)
    return nodes if isinstance(nodes, NotApplicable) else placement.keep("nodes by manager", find_managed)


def find_managed(placement: Placement) -> dict[Hashable, list[Node]] | NotApplicable:
    """Leave out the nodes without InfiniBand."""
    nodes = by_need(placement)
    items = nodes.items() if not isinstance(nodes, NotApplicable) else ()
    found = {key: list(alike) for key, alike in items if not without_infiniband(alike[0])}
    return found or NotApplicable("no node has an InfiniBand port")


def without_infiniband(node: Node) -> bool:
    """The whole list of devices is known, with every port's layer, and none is InfiniBand."""
    machine, shape = node.machine, node.shape
    if machine is None or shape is None or machine.coverage.nics != "all":
        return False
    nics = [nic for nic in shape.hardware.nics if nic.kind not in OTHERS]
    return all(nic.ports and all(port.layer == "Ethernet" for port in nic.ports) for nic in nics)


def candidates(ask: Ask, node: Node) -> Sequence[Hca]:
    """Devices that the job needs; all that are shown where that is not known."""
    need = needed(ask.placement, node)
    if need is not None and need.whole:
        return need.devices
    nics = node.shape.hardware.nics if node.shape else ()
    return [Hca(nic.name, place, nic.ports, "") for place, nic in enumerate(nics)]


def need_known(ask: Ask, node: Node) -> bool:
    """It is known which devices the job needs on a node."""
    need = needed(ask.placement, node)
    return need is not None and need.whole


def listed_whole(node: Node) -> bool:
    """The list of the node's RDMA devices is whole."""
    return node.machine is not None and node.machine.coverage.nics == "all"


@rule("NET012", "an InfiniBand port has a subnet manager", over=by_manager, severity="error")
def port_is_managed(ask: Ask, node: Node) -> Iterator[Finding]:
    """Needed ports with a link know the local id of a subnet manager."""
    ask.know()
    devices = candidates(ask, node)
    infiniband = [(hca, port) for hca in devices for port in hca.ports if port.layer in {None, "InfiniBand"}]
    asked, lids = [(hca, port) for hca, port in infiniband if wants_manager(port)], sm_lids(node)
    silent = [hca.name for hca, port in asked if (hca.nic, port.port) not in lids]
    bare = [(hca, port) for hca, port in asked if lids.get((hca.nic, port.port)) == 0]
    if not devices:
        ask.gap(DEVICES, [node.name], PROBE, part="nics")
        return
    if silent or vague_ports(ask, node, lids) or not all(hca.ports for hca in devices):
        ask.gap("the subnet manager of each InfiniBand port", [node.name], PROBE, part="nics")
    elif infiniband and not asked:
        ask.gap("the subnet manager of ports that have a link", [node.name], PROBE, because="NET001")
    if not need_known(ask, node) and (bare or not listed_whole(node)):
        ask.gap("which RDMA ports the job needs", [node.name], CHOICE, part="nics")
    elif bare:
        yield unmanaged(ask.placement, node, bare)


def vague_ports(ask: Ask, node: Node, lids: dict[tuple[int, int], int]) -> bool:
    """A port with a link and no subnet manager shows no layer: an Ethernet port never has one."""
    need = needed(ask.placement, node)
    devices = [*candidates(ask, node), *(need.doubtful if need is not None else ())]
    ports = [(hca.nic, port) for hca in devices for port in hca.ports if port.layer is None]
    return any(linked(port) and not lids.get((nic, port.port)) for nic, port in ports)


def unmanaged(placement: Placement, node: Node, bare: Sequence[tuple[Hca, Port]]) -> Finding:
    """The finding of ports that no subnet manager knows."""
    names = first(f"{hca.name}:{port.port}" for hca, port in bare)
    return Finding(
        message=f"no subnet manager has configured {names} of {node}: the link is up, and no address was "
        "given to it, so that nothing can be sent",
        fix="start a subnet manager on that fabric (opensm, or the switch's own), or move the cable to the "
        "fabric that has one",
        cause="no subnet manager",
        subjects=tuple(f"{hca.name}:{port.port} of {node}" for hca, port in bare),
        evidence=tuple(
            read(node, f"{hca.name}:{port.port} {port.state}/{port.physical}, SM lid 0") for hca, port in bare
        ),
        ranks=tuple(placement.ranks_on.get(node.index, ())),
    )


@rule("NET001", "every port that the job needs is active", over=by_need, severity="error")
def needed_ports_are_active(ask: Ask, node: Node) -> Iterator[Finding]:
    """ACTIVE, and LinkUp where the physical state is shown."""
    ask.know()
    need = needed(ask.placement, node)
    if need is None:
        yield from any_port_is_active(ask, node)
        return
    note_gaps(ask, node, need)
    lids = sm_lids(node)
    down = [hca for hca in need.devices if hca.up is False]
    bare = [
        hca
        for hca in down
        if any(wants_manager(port) and lids.get((hca.nic, port.port)) == 0 for port in hca.ports)
    ]
    if bare:
        ask.gap("ports that a subnet manager has configured", [node.name], PROBE, because="NET012")
    if down := [hca for hca in down if hca not in bare]:
        yield inactive(ask.placement, node, need, down)


def note_gaps(ask: Ask, node: Node, need: Needed) -> None:
    """What is not known of the ports that the job needs."""
    seen = opened(ask.placement, node)
    unknown = [
        hca.name
        for hca in need.devices
        if hca.up is None and not any(name.partition(":")[0] == hca.name for name in seen)
    ]
    if unknown:
        ask.gap(f"the state of {first(unknown)}", [node.name], PROBE, part="nics")
    if need.missing:
        because = ("NET010" if need.by == "declared" else "NET005") if listed_whole(node) else None
        ask.gap(f"the state of {first(need.missing)}", [node.name], PROBE, because=because, part="nics")
    if need.doubtful or not need.whole:
        ask.gap("which RDMA ports the job needs", [node.name], CHOICE, part="nics")


def inactive(placement: Placement, node: Node, need: Needed, down: Sequence[Hca]) -> Finding:
    """The finding of needed devices without an active port."""
    physical = {port.physical for hca in down for port in hca.ports}
    by_reason: dict[str, list[str]] = {}
    for hca in down:
        by_reason.setdefault(hca.why, []).append(state_of(hca))
    states = first(f"{first(each)} ({why})" for why, each in by_reason.items())
    return Finding(
        message=f"{node} needs ports that are not active: {states}. NCCL takes active ports alone: what "
        "should go there crowds the other NICs, or takes sockets",
        fix=FIXES.get(physical.pop() or "", BRING_UP) if len(physical) == 1 else BRING_UP,
        cause="needed port is not active",
        subjects=tuple(f"{hca.name} of {node}" for hca in down),
        evidence=(read(node, first(map(state_of, down))), *need.evidence),
        ranks=tuple(placement.ranks_on.get(node.index, ())),
    )


def any_port_is_active(ask: Ask, node: Node) -> Iterator[Finding]:
    """Where the need is not known: all ports of a whole listing up, or none, is an answer all the same."""
    nics, whole = node.shape.hardware.nics if node.shape else (), listed_whole(node)
    states = [is_up(port) for nic in nics for port in nic.ports or (Port(),)]
    if whole and states and not any(state is not False for state in states):
        listed = first(state_of(Hca(nic.name, 0, nic.ports, "")) for nic in nics)
        yield Finding(
            message=f"{node} has no active port: {listed}. Nothing leaves it but by sockets",
            fix=BRING_UP,
            cause="no port is active",
            subjects=(node.name,),
            evidence=(read(node, listed),),
            ranks=tuple(ask.placement.ranks_on.get(node.index, ())),
        )
    elif not states:
        ask.gap(DEVICES, [node.name], PROBE, part="nics")
    elif not (whole and all(states)):
        ask.gap("which RDMA ports the job needs", [node.name], CHOICE, part="nics")


@dataclass(frozen=True, slots=True)
class Rated:
    """Ports of one rate on equal nodes."""

    nodes: Sequence[Node]
    rate_gbps: float
    names: tuple[str, ...]
    """Devices."""

    def __str__(self) -> str:
        more = f" and {len(self.nodes) - 1} nodes like it" if len(self.nodes) > 1 else ""
        return f"{first(self.names, 4)} of {self.nodes[0]}{more} at {self.rate_gbps:g} Gb/s"


def job_ports(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where it needs ports."""
    nodes = by_need(placement)
    return nodes if isinstance(nodes, NotApplicable) else the(placement)


@rule("NET002", "rates agree and reach policy", over=job_ports, severity="warning")
def rates_agree(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Rates of the needed ports that are up, on all nodes, among each other and against the policy."""
    ask.know()
    rated: list[Rated] = []
    nodes = by_need(placement)
    for alike in nodes.values() if not isinstance(nodes, NotApplicable) else ():
        rated += rates(ask, alike)
    least = placement.plan.policy.min_rate_gbps
    slow = [one for one in rated if least is not None and one.rate_gbps < least]
    if slow:
        yield rate_finding(
            slow,
            f"{first(map(str, slow), 4)}: the policy asks for {least:g} Gb/s",
            "repair the link (cable, transceiver, switch port), or use nodes that have the rate",
            "rate below policy",
        )
    yield from odd_rates([one for one in rated if one not in slow])


def rates(ask: Ask, alike: Sequence[Node]) -> Iterator[Rated]:
    """Rates of needed ports that are up, of equal nodes; gaps where a rate or the need is not known."""
    node = alike[0]
    devices = candidates(ask, node)
    names = [each.name for each in alike]
    if not devices:
        ask.gap(DEVICES, names, PROBE, part="nics")
        return
    found: dict[float | None, list[str]] = {}
    for hca in devices:
        for port in hca.live:
            found.setdefault(port.rate_gbps, []).append(hca.name)
    if None in found or any(hca.up is None for hca in devices):
        ask.gap("the rate of each RDMA port", names, PROBE, part="nics")
    elif not found:
        ask.gap("the rate of ports that are up", names, PROBE, because="NET001")
    if not need_known(ask, node) and (len(found) > 1 or not listed_whole(node)):
        ask.gap("which RDMA ports the job needs", names, CHOICE, part="nics")
        return
    for rate, labels in found.items():
        if rate is not None:
            yield Rated(alike, rate, tuple(dict.fromkeys(labels)))


def odd_rates(rated: Sequence[Rated]) -> Iterator[Finding]:
    """A finding where ports differ in their rate: the few against the many, all where there are no many."""
    votes: Counter[float] = Counter()
    for one in rated:
        votes[one.rate_gbps] += len(one.names) * len(one.nodes)
    if len(votes) < 2:
        return
    usual, most = votes.most_common(1)[0]
    clear = 2 * most > votes.total()
    odd = [one for one in rated if not clear or one.rate_gbps != usual]
    others = f", the other {most} at {usual:g} Gb/s" if clear else ""
    yield rate_finding(
        odd,
        f"ports that the job needs differ in their rate: {first(map(str, odd), 4)}{others}. The slowest sets "
        "the pace of a collective",
        "repair the slow link, or use nodes and NICs of one rate",
        "rates differ",
    )


def rate_finding(rated: Sequence[Rated], message: str, fix: str, cause: str) -> Finding:
    """A finding about ports of these rates."""
    return Finding(
        message=message,
        fix=fix,
        cause=cause,
        subjects=tuple(f"{name} of {one.nodes[0]}" for one in rated for name in one.names),
        count=sum(len(one.names) * len(one.nodes) for one in rated),
        evidence=tuple(read(one.nodes[0], str(one)) for one in rated),
    )


RULES = (port_is_managed, needed_ports_are_active, rates_agree)
