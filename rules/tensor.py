"""TP: tensor groups stay where the fast links are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from topocheck.ask import Ask, Device
from topocheck.domain import in_one_domain
from topocheck.hardware import Link
from topocheck.models import has_nvlink
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.regroup import linked_groups, smaller_size
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, read_at, rule
from topocheck.subjects import TensorGroup, tensor_groups

__all__ = ["RULES"]

Pair = tuple[Device, Device]


@rule("TP001", "TP group in one domain", over=tensor_groups, severity="error", required=True)
def group_in_one_domain(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """A TP group all-reduces in every layer: across nodes it runs at the speed of the network."""
    places = ask.nodes(group.ranks)
    nodes = list({node.index: node for node in places.values()}.values())
    if len(nodes) < 2:
        return
    policy = ask.placement.plan.policy.tensor_domain
    shared = in_one_domain(ask.placement, nodes)
    if shared and policy == "nvlink":
        return
    if policy == "nvlink" and shared is None:
        ask.gap(
            "whether the nodes lie in one NVLink domain",
            [node.name for node in nodes],
            "topocheck probe on every node, or nvidia-smi -q, given as NODE=FILE",
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
    note = f"; {first(map(str, nodes))} lie in one NVLink domain" if shared else ""
    note += " (hosts known by name only)" if by_name and not shared else ""
    severity = crossing_severity(placement, nodes, shared)
    return Finding(
        message=f"TP group {group.index} (ranks {fold(group.ranks)}) crosses {len(nodes)} nodes: "
        f"{first(parts, 4)}{note}. Every layer all-reduces over the network between them",
        fix=crossing_fix(placement, nodes, shared, policy),
        cause="TP group crosses nodes" + (" inside one NVLink domain" if shared else ""),
        subjects=(str(group),),
        evidence=tuple(
            read_at(placement.placed.at.get(rank), f"rank {rank} is on {places[rank]}", placement.phase)
            for rank in representatives(places)
        ),
        severity=severity,
        ranks=tuple(group.ranks),
    )


def representatives(places: Mapping[int, Node]) -> list[int]:
    """One rank of each node, the lowest."""
    ranks: dict[int, int] = {}
    for rank, node in places.items():
        ranks.setdefault(node.index, rank)
    return list(ranks.values())


def crossing_severity(placement: Placement, nodes: list[Node], shared: bool | None) -> Severity:
    """Error where TP could stay inside with another pipeline size or order, else a warning."""
    policy = placement.plan.policy.tensor_domain
    if policy == "any" or (shared and policy is None) or may_be_one_machine(nodes):
        return "warning"
    return "error" if max(gpus_of(placement, node) for node in nodes) > 1 else "warning"


def gpus_of(placement: Placement, node: Node) -> int:
    """GPUs of a node where its list is whole, else its share of the world."""
    machine = node.machine
    if machine is not None and machine.coverage.gpus == "all":
        return len(machine.gpus)
    share = -(-placement.world // placement.expected)
    return max(share, len(machine.gpus) if machine else 0)


def may_be_one_machine(nodes: list[Node]) -> bool:
    """Two containers of one machine look like two hosts: no boot id, and no GPU place in common."""
    seen: set[str] = set()
    for node in nodes:
        machine = node.machine
        if machine is None or machine.host.boot_id is not None or machine.coverage.gpus == "all":
            return False
        places = {gpu.bus for gpu in machine.gpus if gpu.bus is not None}
        places |= {f"index {gpu.nvml}" for gpu in machine.gpus if gpu.nvml is not None}
        if not places or places & seen:
            return False
        seen |= places
    return True


def crossing_fix(placement: Placement, nodes: list[Node], shared: bool | None, policy: str | None) -> str:
    """What to change about a group that crosses nodes."""
    if shared and policy is None:
        return "if the NVLink domain is meant to carry TP, say `policy: {tensor_domain: nvlink}` in the plan"
    if may_be_one_machine(nodes):
        return (
            "give the boot id of each host (topocheck probe): two containers of one machine look like this, "
            "and then they need a shared IPC namespace"
        )
    size = placement.layout.size("tensor")
    most = max(gpus_of(placement, node) for node in nodes)
    fits = max((d for d in range(1, most + 1) if size % d == 0), default=1)
    if fits == size:
        return (
            f"keep each TP group's {size} ranks on one node: order the ranks so that blocks of {size} share "
            "a node (hostfile order, block distribution, or node ranks)"
        )
    if fits > 1:
        stages = placement.layout.size("pipeline") * size // fits
        return f"use tensor {fits} x pipeline {stages} on the same GPUs: then each TP group fits in one node"
    return "no node has more than one GPU: expect network speed, or say `policy: {tensor_domain: any}`"


def linkable_groups(placement: Placement) -> Situations[TensorGroup] | NotApplicable:
    """TP groups on GPUs that may have NVLink at all."""
    groups = tensor_groups(placement)
    if isinstance(groups, NotApplicable):
        return groups
    models = {
        gpu.model
        for node in placement.nodes[: placement.expected]
        for gpu in (node.shape.hardware.gpus if node.shape else ())
    }
    whole = all(node.shape is not None for node in placement.nodes[: placement.expected])
    if whole and models and all(has_nvlink(model) is False for model in models):
        return NotApplicable(f"{first(sorted(map(str, models)))} has no NVLink")
    return groups


@rule("TP002", "every pair of a TP group has NVLink", over=linkable_groups, severity="error", required=True)
def pairs_have_nvlink(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """Pairs inside nodes; what crosses nodes is TP001's, or a domain's that no table shows."""
    devices = group_devices(ask, group)
    links = {(a, b): ask.link(a, b) for a, b in local_pairs(devices)}
    crossing = sorted({device.node.name for device in devices})
    if len(crossing) > 1:
        ask.gap(
            "NVLink between the nodes of a TP group",
            crossing,
            "keep the group inside a node, or topocheck probe on every node",
            because="TP001",
        )
    bare = [pair for pair, link in links.items() if link is not None and not link.nvlink]
    if bare:
        yield unlinked_pairs(ask.placement, group, devices, links, bare)


def group_devices(ask: Ask, group: TensorGroup) -> list[Device]:
    """GPUs of a group as far as known; the others are gaps."""
    return [device for rank in group.ranks if (device := ask.device(rank)) is not None]


def local_pairs(devices: list[Device]) -> list[Pair]:
    """Pairs of different GPUs that share a node."""
    return [(a, b) for a, b in combinations(devices, 2) if a.node is b.node and a.ordinal != b.ordinal]


def unlinked_pairs(
    placement: Placement,
    group: TensorGroup,
    devices: list[Device],
    links: Mapping[Pair, Link | None],
    bare: list[Pair],
) -> Finding:
    """The finding of pairs without NVLink; pairs with one GPU in common are one fault of that GPU."""
    node = bare[0][0].node
    common = set(bare[0]).intersection(*bare) if len(bare) > 1 else set()
    spelled = [f"{index_of(a)}-{index_of(b)} {links[a, b]}" for a, b in bare]
    if len(common) == 1:
        lone = common.pop()
        fact = f"GPU {index_of(lone)} ({lone}) has NVLink to none of its {len(bare)} TP peers"
    else:
        fact = f"{len(bare)} of {len(links)} pairs of TP group {group.index} on {node} have no NVLink"
    severity, fix, cause = relink(placement, node, len(devices), links)
    return Finding(
        message=f"{fact} (GPUs {first(spelled, 6)}): ranks {fold(group.ranks)} all-reduce over PCIe there",
        fix=fix,
        cause=cause,
        subjects=(str(group),),
        evidence=(Evidence(source=table_source(node), fact=f"links of {node}: {first(spelled, 12)}"),),
        severity=severity,
        ranks=tuple(group.ranks),
    )


def index_of(device: Device) -> int:
    """NVML index of a GPU, else its ordinal."""
    machine = device.node.machine
    index = machine.gpus[device.ordinal].nvml if machine and device.ordinal < len(machine.gpus) else None
    return device.ordinal if index is None else index


def table_source(node: Node) -> str:
    """Where the links of a node were read."""
    return ", ".join(node.machine.sources) if node.machine and node.machine.sources else "hardware"


def relink(
    placement: Placement, node: Node, size: int, links: Mapping[Pair, Link | None]
) -> tuple[Severity, str, str]:
    """(severity, fix, cause): could the same GPUs be grouped so that every pair has NVLink."""
    shape = node.shape
    if shape is None:
        return "warning", "", "no NVLink"

    def linked(a: int, b: int) -> bool:
        link = shape.link(a, b)
        return link is not None and link.nvlink

    gpus = list(range(shape.gpus))
    on_node = len(placement.ranks_on.get(node.index, ()))
    count = max(1, on_node // size)
    groups = linked_groups(gpus, size, count, linked)
    if groups is not None:
        order = order_of(node, groups)
        fix = f"set CUDA_VISIBLE_DEVICES={order} on {node}: then every TP pair of it has NVLink"
        return "error", fix, "another assignment has NVLink"
    if any(shape.nvswitch(gpu) for gpu in gpus):
        return "error", f"drain {node} and check its NVSwitches and fabric manager", "NVSwitch board"
    smaller = smaller_size(gpus, size, linked)
    if smaller is not None:
        tensor, found = smaller
        stages = placement.layout.size("pipeline") * size // tensor
        fix = (
            f"use TP{tensor} x PP{stages} with CUDA_VISIBLE_DEVICES={order_of(node, found)} on {node}: "
            f"the NVLink pairs then carry TP"
        )
    else:
        fix = "no grouping of these GPUs has NVLink: prefer pipeline over tensor parallelism here"
    return "warning", fix, "no assignment has NVLink"


def order_of(node: Node, groups: list[list[int]]) -> str:
    """GPU indexes in rank order, as CUDA_VISIBLE_DEVICES takes them."""
    return ",".join(str(index_of(Device(node, gpu))) for group in groups for gpu in group)


@rule("TP003", "same model and NVLink width in a TP group", over=tensor_groups, severity="error")
def group_is_uniform(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """The slowest and the smallest GPU sets the pace of the group."""
    models: dict[str, list[int]] = {}
    for rank in group.ranks:
        device = ask.device(rank)
        shape = None if device is None else device.node.shape
        if device is None or shape is None or device.ordinal >= shape.gpus:
            continue
        model = shape.hardware.gpus[device.ordinal].model
        if model is None:
            ask.gap("GPU models", [device.node.name], "nvidia-smi -L, given as NODE=FILE")
        else:
            models.setdefault(model, []).append(rank)
    if len(models) > 1:
        parts = [f"ranks {fold(ranks)} on {model}" for model, ranks in models.items()]
        yield Finding(
            message=f"TP group {group.index} mixes GPU models: {first(parts)}; the slowest sets its pace",
            fix="put GPUs of one model into each TP group",
            cause="models differ",
            subjects=(str(group),),
            ranks=tuple(group.ranks),
        )


@rule("TP004", "a TP group without NVLink stays in one NUMA node", over=tensor_groups, severity="warning")
def group_in_one_numa(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """PCIe traffic between sockets is slower than inside one."""
    devices = group_devices(ask, group)
    pairs = local_pairs(devices)
    links = [ask.link(a, b) for a, b in pairs]
    if any(link is not None and link.nvlink for link in links):
        return
    numa: dict[int, list[Device]] = {}
    for device in devices:
        shape = device.node.shape
        place = shape.hardware.gpus[device.ordinal].numa if shape and device.ordinal < shape.gpus else None
        if place is None:
            ask.gap(
                "NUMA node of each GPU",
                [device.node.name],
                "nvidia-smi topo -m, given as NODE=FILE",
            )
        else:
            numa.setdefault(place, []).append(device)
    if len(numa) > 1 and pairs and None not in links:
        parts = [f"GPUs {fold(map(index_of, on))} in NUMA node {place}" for place, on in sorted(numa.items())]
        yield Finding(
            message=f"TP group {group.index} has no NVLink and spreads over NUMA nodes: {first(parts)}",
            fix="put each TP group on GPUs of one NUMA node, with more pipeline stages if need be",
            cause="group spans NUMA nodes",
            subjects=(str(group),),
            evidence=(Evidence(source=table_source(devices[0].node), fact=first(parts)),),
            ranks=tuple(group.ranks),
        )


@rule("TP008", "peer access between the pairs of a TP group", over=tensor_groups, severity="error")
def pairs_have_peer_access(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """Without peer access every exchange goes through host memory."""
    denied: dict[Severity, list[str]] = {}
    for a, b in local_pairs(group_devices(ask, group)):
        status = ask.peer(a, b)
        if status in (None, "OK"):
            continue
        shape = a.node.shape
        link = shape.link(a.ordinal, b.ordinal) if shape else None
        severity: Severity = "error" if link is not None and link.nvlink else "warning"
        denied.setdefault(severity, []).append(f"GPUs {index_of(a)}-{index_of(b)} of {a.node}: {status}")
    for severity, pairs in denied.items():
        yield Finding(
            message=f"{len(pairs)} pairs of TP group {group.index} have no peer access ({first(pairs, 4)}): "
            "their exchange goes through host memory",
            fix="check the driver, IOMMU and ACS settings"
            if severity == "error"
            else "group the GPUs that have peer access, or use pipeline stages between the others",
            cause=f"no peer access ({severity})",
            subjects=(str(group),),
            evidence=(Evidence(source="peer access table", fact=first(pairs, 12)),),
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
