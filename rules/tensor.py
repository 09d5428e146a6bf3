"""TP: tensor groups stay where the fast links are."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from topocheck.ask import NVLINK, TOPO, Ask, Device
from topocheck.crossing import crossing_fix, crossing_severity, engines_words, says_so
from topocheck.domain import in_one_domain, told_apart
from topocheck.geforce import patched_access
from topocheck.hardware import Link
from topocheck.models import has_nvlink, says_memory
from topocheck.placement import Node, Placement
from topocheck.profiles import tensor_domain
from topocheck.ranges import first, fold
from topocheck.regroup import linked_groups, smaller_size
from topocheck.remedy import Devices, Exclude, Remedy
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, read_at, rule
from topocheck.snapshot import GpuShape
from topocheck.subjects import TensorGroup, members, tensor_groups, without_nvlink

__all__ = ["RULES"]

Pair = tuple[Device, Device]

MEMORY = "nvidia-smi -q, given as NODE=FILE"
"""What supplies the memory of each GPU."""

MEMORY_SPREAD = 0.05
"""Share by which the memory of GPUs of one group may differ."""


@rule("TP001", "TP group in one domain", over=tensor_groups, severity="error", required=True)
def group_in_one_domain(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """A TP group all-reduces in every layer: across nodes it runs at the speed of the network."""
    places = ask.nodes(group.ranks)
    nodes = list({node.index: node for node in places.values()}.values())
    if len(nodes) < 2:
        if not nodes and says_so(ask.placement):
            yield from stated_crossing(ask.placement, group)
        return
    policy = tensor_domain(ask.placement, nodes)
    shared = in_one_domain(ask.placement, nodes)
    if shared is None and told_apart(ask.placement, group.ranks):
        shared = False
    if crossing_severity(ask.placement, nodes, shared) is None and shared:
        return
    if policy == "nvlink" and shared is None:
        ask.gap(
            "whether the nodes lie in one NVLink domain",
            [node.name for node in nodes],
            "topocheck probe on every node, or nvidia-smi -q, given as NODE=FILE",
            part="fabric",
        )
        return
    yield crossing_group(ask, group, places, nodes, shared)


def crossing_group(
    ask: Ask, group: TensorGroup, places: Mapping[int, Node], nodes: list[Node], shared: bool | None
) -> Finding:
    """The finding of one group on several nodes."""
    placement = ask.placement
    policy = placement.plan.policy.tensor_domain
    parts = [f"{node} has ranks {fold(r for r, n in places.items() if n is node)}" for node in nodes]
    by_name = all(node.machine is not None and node.machine.host.boot_id is None for node in nodes)
    apart = () if shared else told_apart(placement, group.ranks)
    note = f"; {first(map(str, nodes))} lie in one NVLink domain" if shared else ""
    note += f", which its ranks' telemetry shows in {len(apart)} NVLink domains" if apart else ""
    note += " (hosts known by name only)" if by_name and not shared else ""
    severity = crossing_severity(placement, nodes, shared)
    return Finding(
        message=f"TP group {group.index} (ranks {fold(group.ranks)}) crosses {len(nodes)} nodes: "
        f"{first(parts, 4)}{note}. Every layer all-reduces over the network between them",
        fix="give each TP group nodes of one NVLink domain: equal cluster UUID and clique"
        if apart
        else crossing_fix(placement, nodes, shared, policy),
        cause="TP group crosses nodes" + (" inside one NVLink domain" if shared else ""),
        subjects=(str(group),),
        evidence=(
            *engines_words(placement),
            *(read_at(fact.at, f"rank {fact.name} is in NVLink domain {fact.value}") for fact in apart),
            *(
                read_at(placement.placed.at.get(rank), f"rank {rank} is on {places[rank]}", placement.phase)
                for rank in representatives(places)
            ),
        ),
        severity=severity,
        ranks=tuple(group.ranks),
    )


def stated_crossing(placement: Placement, group: TensorGroup) -> Iterator[Finding]:
    """The engine says that a TP group spans nodes, and nothing shows on which nodes the ranks are."""
    nodes = list(placement.nodes)
    severity = crossing_severity(placement, nodes, None)
    if severity is not None:
        yield Finding(
            message="the engine says that a TP group spans nodes: every layer all-reduces over the network "
            "between them",
            fix=crossing_fix(placement, nodes, None, placement.plan.policy.tensor_domain),
            cause="TP group crosses nodes",
            subjects=(str(group),) if len(placement.layout.groups("tensor")) == 1 else ("a TP group",),
            evidence=engines_words(placement),
            severity=severity,
        )


def representatives(places: Mapping[int, Node]) -> list[int]:
    """One rank of each node, the lowest."""
    ranks: dict[int, int] = {}
    for rank, node in places.items():
        ranks.setdefault(node.index, rank)
    return list(ranks.values())


def linkable_groups(placement: Placement) -> Situations[TensorGroup] | NotApplicable:
    """TP groups on GPUs that may have NVLink at all."""
    groups = tensor_groups(placement)
    if isinstance(groups, NotApplicable):
        return groups
    return without_nvlink(placement) or groups


@rule("TP002", "every pair of a TP group has NVLink", over=linkable_groups, severity="error", required=True)
def pairs_have_nvlink(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """Pairs inside nodes; what crosses nodes is TP001's, or a domain's that no table shows."""
    devices = list(ask.devices(group.ranks).values())
    links = {(a, b): ask.link(a, b) for a, b in local_pairs(devices)}
    nodes = list(dict.fromkeys(device.node for device in devices))
    if len(nodes) > 1:
        ask.gap(
            "NVLink between the nodes of a TP group",
            sorted(node.name for node in nodes),
            "keep the group inside a node, or topocheck probe on every node",
            because="TP001",
        )
    for node in nodes:
        here = {pair: link for pair, link in links.items() if pair[0].node is node}
        bare = [pair for pair, link in here.items() if link is not None and not link.nvlink]
        if bare:
            yield unlinked_pairs(ask, group, here, bare)


def local_pairs(devices: list[Device]) -> list[Pair]:
    """Pairs of different GPUs that share a node."""
    return [(a, b) for a, b in combinations(devices, 2) if a.node is b.node and a.ordinal != b.ordinal]


def unlinked_pairs(
    ask: Ask, group: TensorGroup, links: Mapping[Pair, Link | None], bare: list[Pair]
) -> Finding:
    """The finding of pairs of one node without NVLink; those with one GPU in common are its fault."""
    node = bare[0][0].node
    common = set(bare[0]).intersection(*bare) if len(bare) > 1 else set()
    spelled = [f"{a.index}-{b.index} {links[a, b]}" for a, b in bare]
    if len(common) == 1:
        lone = common.pop()
        peers = sum(lone in pair for pair in links)
        fact = f"GPU {lone.index} ({lone}) has no NVLink to {len(bare)} of its {peers} TP peers"
    elif len(links) == 1:
        fact = f"the one pair of TP group {group.index} on {node} has no NVLink"
    else:
        fact = f"{len(bare)} of {len(links)} pairs of TP group {group.index} on {node} have no NVLink"
    severity, fix, cause, remedies = relink(ask, node, group)
    return Finding(
        message=f"{fact} (GPUs {first(spelled, 6)}): ranks {fold(group.ranks)} all-reduce over PCIe there",
        fix=fix,
        cause=cause,
        subjects=(str(group),),
        evidence=(Evidence(source=table_source(node), fact=f"links of {node}: {first(spelled, 12)}"),),
        severity=severity,
        remedies=remedies,
        ranks=tuple(group.ranks),
    )


def table_source(node: Node) -> str:
    """Where the links of a node were read."""
    return ", ".join(node.machine.sources) if node.machine and node.machine.sources else "hardware"


def relink(ask: Ask, node: Node, group: TensorGroup) -> tuple[Severity, str, str, tuple[Remedy, ...]]:
    """(severity, fix, cause, remedies): could the same GPUs be grouped so that every pair has NVLink."""
    placement, shape = ask.placement, node.shape
    if shape is None:
        return "warning", "", "no NVLink", ()

    def linked(a: int, b: int) -> bool:
        link = shape.link(a, b)
        return link is not None and link.nvlink

    places = members(placement.placed.node, group.ranks)
    size = places.count(node.index) + places.count(None)
    gpus = list(range(shape.gpus))
    count = max(1, len(placement.ranks_on.get(node.index, ())) // size)
    groups = linked_groups(gpus, size, count, linked)
    if groups is not None:
        order = order_of(node, groups)
        fix = f"set CUDA_VISIBLE_DEVICES={spell(order)} on {node}: then every TP pair of it has NVLink"
        return "error", fix, "another assignment has NVLink", (Devices(nodes=(node.name,), gpus=order),)
    if any(shape.nvswitch(gpu) for gpu in gpus):
        fix = f"drain {node} and check its NVSwitches and fabric manager"
        return "error", fix, "NVSwitch board", (Exclude(nodes=(node.name,)),)
    if any(shape.link(a, b) is None for a, b in combinations(gpus, 2)):
        # Another assignment may have NVLink.
        ask.gap("link of each pair of GPUs", [node.name], TOPO, part="links")
    smaller = smaller_size(gpus, size, linked)
    if smaller is not None:
        tensor, found = smaller
        stages = placement.layout.size("pipeline") * size // tensor
        fix = (
            f"use TP{tensor} x PP{stages} with CUDA_VISIBLE_DEVICES={spell(order_of(node, found))} on "
            f"{node}: the NVLink pairs then carry TP"
        )
    else:
        fix = "no grouping of these GPUs has NVLink: prefer pipeline over tensor parallelism here"
    return "warning", fix, "no assignment has NVLink", ()


def order_of(node: Node, groups: list[list[int]]) -> tuple[int, ...]:
    """GPU indexes in rank order."""
    return tuple(Device(node, gpu).index for group in groups for gpu in group)


def spell(order: tuple[int, ...]) -> str:
    """Indexes as CUDA_VISIBLE_DEVICES takes them."""
    return ",".join(map(str, order))


def by_memory(placement: Placement) -> Situations[TensorGroup] | NotApplicable:
    """TP groups by situation and, on a node whose GPUs differ in memory, by what each has."""
    groups = tensor_groups(placement)
    if isinstance(groups, NotApplicable) or not any(shape.spread for shape in placement.inventory.shapes):
        return groups
    return sort_by_memory(placement, groups)


def sort_by_memory(
    placement: Placement, groups: Situations[TensorGroup]
) -> dict[Hashable, list[TensorGroup]]:
    """Groups of one situation lie on nodes that are joined alike: sizes of memory are not asked there."""
    nodes, column = placement.nodes, placement.placed.node
    found: dict[Hashable, list[TensorGroup]] = {}
    for key, alike in groups.items():
        for group in alike:
            place = column[group.ranks[0]]
            shape = None if place is None else nodes[place].shape
            found.setdefault((key, None if shape is None else shape.spread), []).append(group)
    return found


@rule("TP003", "same model and NVLink width in a TP group", over=by_memory, severity="error")
def group_is_uniform(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """The slowest and the smallest GPU sets the pace of the group."""
    devices = ask.devices(group.ranks)
    models: Kinds = {}
    widths: Kinds = {}
    memory: dict[int, list[int]] = {}
    for rank, device in devices.items():
        shape = device.node.shape
        gpu = shape.hardware.gpus[device.ordinal] if shape and device.ordinal < shape.gpus else GpuShape()
        width = shape.nvlinks(device.ordinal) if shape and device.ordinal < shape.gpus else None
        if gpu.model is None:
            ask.gap("GPU models", [device.node.name], "nvidia-smi -L, given as NODE=FILE", part="gpus")
        else:
            models.setdefault(gpu.model, []).append(rank)
        if width is not None:
            widths.setdefault(f"{width} NVLinks", []).append(rank)
        elif has_nvlink(gpu.model) is not False:
            ask.gap("NVLinks of each GPU", [device.node.name], NVLINK, part="links")
        if gpu.memory_bytes:
            memory.setdefault(gpu.memory_bytes, []).append(rank)
        elif not says_memory(gpu.model):
            ask.gap("memory of each GPU", [device.node.name], MEMORY, part="gpus")
    if len(models) > 1:
        yield uneven_group(group, devices, "GPU models", models)
    elif len(widths) > 1:
        yield uneven_group(group, devices, "NVLink widths", widths)
    elif memory and min(memory) < (1 - MEMORY_SPREAD) * max(memory):
        sizes = {f"{size / 2**30:.1f} GiB": ranks for size, ranks in sorted(memory.items())}
        yield replace(uneven_group(group, devices, "memory sizes", sizes), severity="warning")


Kinds = dict[str, list[int]]
"""Ranks by a property of their GPUs."""


def uneven_group(group: TensorGroup, devices: Mapping[int, Device], what: str, kinds: Kinds) -> Finding:
    """The finding of a group whose GPUs differ."""
    parts = [f"ranks {fold(ranks)} on {kind}" for kind, ranks in kinds.items()]
    odd = {kind: devices[ranks[0]] for kind, ranks in kinds.items()}
    return Finding(
        message=f"TP group {group.index} mixes {what}: {first(parts)}; the slowest sets its pace",
        fix="put GPUs of one model, width and memory into each TP group",
        cause=f"{what} differ",
        subjects=(str(group),),
        evidence=tuple(
            Evidence(source=table_source(device.node), fact=f"{device}: {kind}")
            for kind, device in odd.items()
        ),
        ranks=tuple(group.ranks),
    )


@rule("TP004", "a TP group without NVLink stays in one NUMA node", over=tensor_groups, severity="warning")
def group_in_one_numa(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """PCIe traffic between sockets is slower than inside one."""
    devices = list(ask.devices(group.ranks).values())
    links = {pair: ask.link(*pair) for pair in local_pairs(devices)}
    for node in dict.fromkeys(device.node for device in devices):
        here = [link for pair, link in links.items() if pair[0].node is node]
        if not here or any(link is not None and link.nvlink for link in here):
            continue
        numa: dict[int, list[int]] = {}
        for device in (device for device in devices if device.node is node):
            shape = node.shape
            place = (
                shape.hardware.gpus[device.ordinal].numa if shape and device.ordinal < shape.gpus else None
            )
            if place is None:
                ask.gap("NUMA node of each GPU", [node.name], TOPO, part="gpus")
            else:
                numa.setdefault(place, []).append(device.index)
        if len(numa) > 1 and None not in here:
            yield spread_group(group, node, numa)


def spread_group(group: TensorGroup, node: Node, numa: Mapping[int, list[int]]) -> Finding:
    """The finding of a group without NVLink on several NUMA nodes of one node."""
    parts = [f"GPUs {fold(gpus)} in NUMA node {place}" for place, gpus in sorted(numa.items())]
    return Finding(
        message=f"TP group {group.index} (ranks {fold(group.ranks)}) has no NVLink on {node} and spreads "
        f"over NUMA nodes: {first(parts)}",
        fix="put each TP group on GPUs of one NUMA node, with more pipeline stages if need be",
        cause="group spans NUMA nodes",
        subjects=(str(group),),
        evidence=(Evidence(source=table_source(node), fact=first(parts)),),
        ranks=tuple(group.ranks),
    )


@rule("TP008", "peer access between the pairs of a TP group", over=tensor_groups, severity="error")
def pairs_have_peer_access(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """Without peer access every exchange goes through host memory."""
    denied: dict[Severity, list[tuple[Device, str]]] = {}
    granted: list[Pair] = []
    for a, b in local_pairs(list(ask.devices(group.ranks).values())):
        status = ask.peer(a, b)
        if status in {None, "OK"}:
            granted += [(a, b)] * (status is not None)
            continue
        shape = a.node.shape
        link = shape.link(a.ordinal, b.ordinal) if shape else None
        severity: Severity = "error" if link is not None and link.nvlink else "warning"
        denied.setdefault(severity, []).append((a, f"GPUs {a.index}-{b.index} of {a.node}: {status}"))
    if found := patched_access(group, granted):
        yield found
    for severity, refused in denied.items():
        pairs = [words for _, words in refused]
        counted = "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
        yield Finding(
            message=f"{counted} of TP group {group.index} (ranks {fold(group.ranks)}) have no "
            f"peer access ({first(pairs, 4)}): their exchange goes through host memory",
            fix="check the driver, IOMMU and ACS settings"
            if severity == "error"
            else "group the GPUs that have peer access, or use pipeline stages between the others",
            cause=f"no peer access ({severity})",
            subjects=(str(group),),
            evidence=tuple(
                Evidence(source=table_source(device.node), fact=words) for device, words in refused[:12]
            ),
            severity=severity,
            ranks=tuple(group.ranks),
        )


RULES = (
    group_in_one_domain,
    pairs_have_nvlink,
    group_is_uniform,
    group_in_one_numa,
    pairs_have_peer_access,
)
