"""ID005: each host is one machine, and each machine one host."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from topocheck.ask import Ask
from topocheck.inventory import Machine
from topocheck.kinds import per_node, with_strays
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule
from topocheck.snapshot import At, Edge
from topocheck.traffic import Flow, flows

__all__ = ["RULES", "shared_gpus", "shared_name"]

LOCAL = ("P2P", "SHM")
"""Transports that stay in one machine, unless they are multi-node NVLink."""

Pair = tuple[int, int]
"""Two machines of the inventory."""


def hosts(placement: Placement) -> Situations[Node] | NotApplicable:
    """Hosts of the job by how well they are identified."""
    if placement.expected == 1 and sum(node.machine is not None for node in placement.nodes) <= 1:
        return NotApplicable("the job has one node")
    accused, named = suspects(placement), with_uuids(placement)
    seen = [node for node in placement.nodes if node.machine is not None]
    absent = [node for node in placement.nodes if node.machine is None] if len(seen) < len(named) else []
    known = [node.machine.host.boot_id is not None for node in seen if node.machine is not None]
    if not accused and len({*named}) == len({*known}) == 1:  # as in most jobs: all are known by the same
        found: dict[Hashable, list[Node]] = {(known[0], named[0]): seen}
    else:
        found = {}
        for node, booted in zip(seen, known, strict=True):
            key = node.index if node.index in accused else (booted, named[node.index])
            found.setdefault(key, []).append(node)
    return {"absent": absent, **found} if absent else found


def with_uuids(placement: Placement) -> list[bool]:
    """Whether the UUIDs of all GPUs of each node are shown."""
    if placement.inventory.without_uuids:  # some host's are not: UUIDs are each node's own
        return [has_uuids(node) for node in placement.nodes]
    return per_node(placement, has_uuids)


def has_uuids(node: Node) -> bool:
    """The UUID of every GPU of a node is shown, or it has none."""
    machine = node.machine
    listed = machine is not None and (bool(machine.gpus) or machine.coverage.gpus == "all")
    return listed and all(gpu.uuid is not None for gpu in (machine.gpus if machine else ()))


def suspects(placement: Placement) -> set[int]:
    """Positions of nodes that share a GPU UUID or a name with another boot."""
    pairs = [pair for _, *pair in (*shared_uuids(placement), *placement.inventory.names.ambiguous)]
    found = {placement.node_of[index] for pair in pairs for index in pair if index in placement.node_of}
    found |= {
        placement.node_of[seen.machine] for seen in placement.seen.edges if seen.machine in placement.node_of
    }
    doubly = [alike for alike in with_strays(placement) if alike[0].machine and alike[0].machine.two_uuids]
    return found.union(node.index for alike in doubly for node in alike)


def shared_uuids(placement: Placement) -> list[tuple[str, int, int]]:
    """(UUID, machine, machine) of GPUs that two hosts show. To look for them takes some milliseconds."""
    return placement.keep("UUIDs on two hosts", lambda p: p.inventory.twice)


@rule("ID005", "each host is one machine", over=hosts, severity="error")
def host_is_one_machine(ask: Ask, node: Node) -> Iterator[Finding]:
    """One GPU on two hosts, or two machines under one name."""
    ask.know()
    if node.machine is None:
        ask.gap("which machine a host is", [node.name], "topocheck probe on every node", because="EV001")
        return
    yield from one_gpu_on_two_hosts(ask.placement, node)
    yield from one_name_of_two_hosts(ask.placement, node)
    yield from one_bus_with_two_uuids(node)
    yield from local_transport_to_far_rank(ask.placement, node)
    yield from two_hosts_under_one_name(ask, node)
    if node.machine.host.boot_id is None:
        ask.gap(
            "which machine a host is (it is known by name only)",
            [node.name],
            "topocheck probe on every node, which reads /proc/sys/kernel/random/boot_id",
        )
    if not has_uuids(node):
        supply = "nvidia-smi -L, given as NODE=FILE, or topocheck probe on every node"
        ask.gap("UUIDs of the GPUs, which no two machines share", [node.name], supply, part="gpus")


def pairs_by_node(
    placement: Placement, pairs: Iterable[tuple[str, int, int]]
) -> dict[int, dict[Pair, list[str]]]:
    """What each pair of machines shares; a pair is told at the later of its nodes."""
    found: dict[int, dict[Pair, list[str]]] = {}
    for shared, a, b in pairs:
        places = [placement.node_of[index] for index in (a, b) if index in placement.node_of]
        if places:
            found.setdefault(max(places), {}).setdefault((a, b), []).append(shared)
    return found


def one_gpu_on_two_hosts(placement: Placement, node: Node) -> Iterator[Finding]:
    """A UUID is burnt into one GPU, so two hosts that show it are one, or a capture is of another."""
    twice = placement.keep("GPUs on two hosts", lambda p: pairs_by_node(p, shared_uuids(p)))
    for pair, uuids in twice.get(node.index, {}).items():
        yield shared_gpus(uuids, *(placement.inventory.machines[index] for index in pair))


def shared_gpus(uuids: Sequence[str], a: Machine, b: Machine) -> Finding:
    """The finding of two hosts that show the same GPUs."""
    which = f"GPU {uuids[0]} appears" if len(uuids) == 1 else f"{len(uuids)} GPUs ({uuids[0]} ...) appear"
    return Finding(
        message=f"{which} on {a.name} and on {b.name}: the two are one machine, or one of the captures "
        "is of another",
        fix="key hosts by boot id: give both nodes' /proc/sys/kernel/random/boot_id",
        cause="one GPU on two hosts",
        subjects=(a.name, b.name),
        evidence=tuple(identified(machine, f"{len(uuids)} GPUs, {uuids[0]}") for machine in (a, b)),
    )


def one_name_of_two_hosts(placement: Placement, node: Node) -> Iterator[Finding]:
    """Evidence was joined by a name that two hosts have: nobody knows of which of them it is."""
    shared = placement.keep("names of two hosts", lambda p: pairs_by_node(p, p.inventory.names.ambiguous))
    for pair, names in shared.get(node.index, {}).items():
        yield shared_name(names[0], *(placement.inventory.machines[index] for index in pair))


def shared_name(name: str, a: Machine, b: Machine) -> Finding:
    """The finding of two hosts with one name by which evidence was joined."""
    return Finding(
        message=f"the name {name} belongs to two hosts, and some evidence knows its host by that "
        "name only: two machines share it, or one was restarted",
        fix="give each machine a name of its own, and evidence of one boot only",
        cause="one name, two hosts",
        subjects=(a.name, b.name),
        evidence=tuple(
            identified(machine, f"boot id {machine.host.boot_id or 'not shown'}") for machine in (a, b)
        ),
    )


def identified(machine: Machine, fact: str) -> Evidence:
    """What a machine says of itself."""
    return Evidence(source=first(machine.sources) or "probe", fact=f"{machine.name}: {fact}")


def one_bus_with_two_uuids(node: Node) -> Iterator[Finding]:
    """One boot id, one bus id, two UUIDs: two machines say that they are one boot."""
    for conflict in node.machine.two_uuids[:1] if node.machine else ():
        both = zip(conflict.places, conflict.values, strict=True)
        yield Finding(
            message=f"{conflict.about} on {node} is {conflict.values[0]} in one view and "
            f"{conflict.values[1]} in another of the same boot id: two machines are taken for one",
            fix="probe both machines again: a boot id that two of them show is copied or inherited",
            cause="one boot id, two machines",
            subjects=(node.name,),
            evidence=tuple(read_at(at, value) for at, value in both),
        )


def local_transport_to_far_rank(placement: Placement, node: Node) -> Iterator[Finding]:
    """P2P/IPC or shared memory between ranks of two hosts: the library takes two hosts for one."""
    far = placement.keep("local transport between nodes", far_flows).get(node.index)
    if far:
        edges = dict.fromkeys(map(str, far))
        names = dict.fromkeys(str(end) for flow in far for end in flow.nodes)
        yield Finding(
            message=f"edges {first(edges)} between {' and '.join(names)} ran over {far[0].how}, which stays "
            "in one machine: two hosts are taken for one, or one machine has two names",
            fix="give each machine a host name of its own; check NCCL_HOSTID and cloned host names",
            cause="local transport between hosts",
            subjects=tuple(f"edge {edge}" for edge in edges),
            evidence=tuple(flow.evidence() for flow in far),
            ranks=tuple(rank for flow in far[:16] for rank in (flow.src, flow.dst) if rank is not None),
            mark="edge",
        )


def far_flows(placement: Placement) -> dict[int, list[Flow]]:
    """Edges between nodes that ran over what stays in one machine, by the node of the near end."""
    found: dict[int, list[Flow]] = {}
    for flow in flows(placement):
        if flow.between_nodes and flow.edge.via in LOCAL and not spans_hosts(flow.edge) and flow.near:
            found.setdefault(flow.near.index, []).append(flow)
    return found


def spans_hosts(edge: Edge) -> bool:
    """Its transport reaches over hosts: multi-node NVLink."""
    return "MNNVL" in edge.how


def local_edges(placement: Placement) -> dict[int, list[Edge]]:
    """Edges over what stays in one machine, by the node that logged them."""
    found: dict[int, list[Edge]] = {}
    for seen in placement.seen.edges:
        place = placement.node_of.get(seen.machine)
        if place is not None and seen.edge.via in LOCAL and not spans_hosts(seen.edge):
            found.setdefault(place, []).append(seen.edge)
    return found


def two_hosts_under_one_name(ask: Ask, node: Node) -> Iterator[Finding]:
    """Two ranks of one communicator with one device number, and no bus id or UUID to tell them apart."""
    machine = node.machine
    if machine is None or any(gpu.bus or gpu.uuid for gpu in machine.gpus):
        return
    devices: dict[tuple[str, str], dict[int, At | None]] = {}
    for edge in ask.placement.keep("edges of local transport", local_edges).get(node.index, ()):
        for rank, device in ((edge.src, edge.src_dev), (edge.dst, edge.dst_dev)):
            if edge.comm is not None and device is not None and ":" not in device:
                devices.setdefault((edge.comm, device), {}).setdefault(rank, edge.at)
    doubled = {key: ranks for key, ranks in devices.items() if len(ranks) > 1}
    if doubled and {device for _, device in devices} == {"0"}:
        # Each task may see one GPU alone and call it 0 (Slurm's --gpus-per-task).
        ask.gap("which GPU each rank drives", [node.name], "topocheck probe in the job's own processes")
        return
    for (_, device), ranks in doubled.items():
        yield Finding(
            message=f"ranks {fold(ranks)} are joined by local transport under the name {node} and all "
            f"drive device {device}: two hosts are taken for one (or one GPU serves them all, ID004)",
            fix="give each machine a host name of its own; check NCCL_HOSTID and cloned host names",
            cause="two hosts under one name",
            subjects=(node.name, *(f"rank {rank}" for rank in sorted(ranks))),
            evidence=tuple(read_at(at, f"rank {rank} drives device {device}") for rank, at in ranks.items()),
            ranks=tuple(sorted(ranks)),
        )


RULES = (host_is_one_machine,)
