"""TP: nothing around the processes keeps a tensor group from its own links."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from topocheck.ask import Ask, Device
from topocheck.domain import in_one_domain
from topocheck.launched import narrow_tasks
from topocheck.models import has_nvlink, nvlinks_by_design
from topocheck.ncclvalues import level_of, number_of, reaches, unset_value
from topocheck.placement import Node, Placement
from topocheck.profiles import tensor_domain
from topocheck.ranges import first
from topocheck.remedy import Variable
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule
from topocheck.settings import Setting, is_listed, settings_of
from topocheck.snapshot import Limits
from topocheck.subjects import TensorGroup, tensor_groups
from topocheck.traffic import flows

__all__ = ["RULES"]

PROBE = "topocheck probe in the job's own processes, or the NCCL_DEBUG=INFO log of every node"
NEAR = ("PIX", "PXB")
"""Link classes over which NCCL goes from GPU to GPU by default, where the driver lets it."""


def groups_alike(placement: Placement) -> Situations[TensorGroup] | NotApplicable:
    """TP groups by situation; of a job whose edges were seen each by itself."""
    groups = tensor_groups(placement)
    if isinstance(groups, NotApplicable) or not placement.seen.edges:
        return groups
    return placement.keep("each TP group", lambda _: one_by_one(groups))


def one_by_one(groups: Situations[TensorGroup]) -> dict[Hashable, list[TensorGroup]]:
    """Every group is a situation, but for those that are nowhere."""
    found: dict[Hashable, list[TensorGroup]] = {}
    for key, alike in groups.items():
        for group in alike:
            found.setdefault(key if key == "unplaced" else group.index, []).append(group)
    return found


def over_p2p(placement: Placement) -> set[int]:
    """Ranks that were seen to reach a GPU of their own node without a detour."""

    def find(_: Placement) -> set[int]:
        near = [flow for flow in flows(placement) if flow.edge.via == "P2P" and not flow.between_nodes]
        return {rank for flow in near for rank in (flow.src, flow.dst) if rank is not None}

    return placement.keep("ranks over P2P", find)


@dataclass(slots=True)
class Cuts:
    """Settings of one node that take paths away, strongest first."""

    peer: tuple[Setting, str] | None = None
    """What limits peer access, and the farthest path type that it leaves."""
    memory: Setting | None = None
    """What takes shared memory away."""
    domain: Setting | None = None
    """What keeps NCCL from NVLink between nodes."""


def cuts_of(placement: Placement, node: Node) -> Cuts:
    """What the variables of a node take away, as NCCL reads them."""
    cuts = Cuts()
    values = partial(settings_of, placement, node)
    off = [setting for setting in values("NCCL_P2P_DISABLE") if number_of(setting.value) == 1]
    levels = [(s, level) for s in values("NCCL_P2P_LEVEL") if (level := level_of(s.value))]
    cuts.peer = (off[0], "LOC") if off else levels[0] if levels else None
    memory = [setting for setting in values("NCCL_SHM_DISABLE") if number_of(setting.value) == 1]
    cuts.memory = memory[0] if memory else None
    for name in ("NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE"):
        none = [setting for setting in values(name) if number_of(setting.value) == 0]
        cuts.domain = cuts.domain or (none[0] if none else None)
    return cuts


@rule("TP006", "no variable cuts the path of a TP group", over=groups_alike, severity="error")
def path_is_open(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """Variables that take NVLink, peer access or shared memory from pairs that have it."""
    placement, devices = ask.placement, list(ask.devices(group.ranks).values())
    nodes = list(dict.fromkeys(device.node for device in devices))
    proven = over_p2p(placement)
    for node in nodes:
        own = [device for device in devices if device.node is node]
        cuts = cuts_of(placement, node)
        if len(nodes) > 1:
            yield from domain_cut(placement, group, node, nodes, cuts)
        yield from pairs_cut(ask, group, own, cuts)
        if not (is_listed(node) or proven.issuperset(group.ranks)):
            ask.gap("NCCL's variables as the ranks have them", [node.name], PROBE, part="environment")


def domain_cut(
    placement: Placement, group: TensorGroup, node: Node, nodes: Sequence[Node], cuts: Cuts
) -> Iterator[Finding]:
    """A group of several nodes that is meant to use NVLink between them."""
    shared = in_one_domain(placement, nodes)
    meant = shared is None and tensor_domain(placement, nodes) == "nvlink"
    off = cuts.peer[0] if cuts.peer and not reaches(cuts.peer[1], "NV") else None
    setting = cuts.domain or off
    if setting is not None and (shared or meant):
        yield cut(group, node, setting, path="NVLink between its nodes", instead="the network")


def pairs_cut(ask: Ask, group: TensorGroup, devices: Sequence[Device], cuts: Cuts) -> Iterator[Finding]:
    """Pairs of one node that a setting takes a path from, told once for each path."""
    if cuts.peer is None and cuts.memory is None:
        return
    lost = {words for a, b in combinations(devices, 2) for words in losses(ask, a, b, cuts)}
    node = devices[0].node
    if cuts.peer is not None and "NVLink" in lost:
        yield cut(group, node, cuts.peer[0], path="NVLink", instead="host memory")
    elif cuts.peer is not None and "PCIe" in lost:
        found = cut(
            group, node, cuts.peer[0], path="peer access over its PCIe switches", instead="host memory"
        )
        yield replace(found, severity="warning")
    if cuts.memory is not None and "memory" in lost:
        path = "shared memory, the only way between GPUs without peer access"
        yield cut(group, node, cuts.memory, path=path, instead="the network")


def losses(ask: Ask, a: Device, b: Device, cuts: Cuts) -> Iterator[str]:
    """What a pair loses: `NVLink`, `PCIe` (peer access over it), `memory` (with no other path left)."""
    if a.ordinal == b.ordinal:
        return
    shape = a.node.shape
    shown = shape is not None and max(a.ordinal, b.ordinal) < shape.gpus
    link = shape.link(a.ordinal, b.ordinal) if shape is not None and shown else None
    models = [model_of(device) for device in (a, b)]
    if link is None and not all(nvlinks_by_design(model) for model in models):
        if not any(has_nvlink(model) is False for model in models):
            ask.link(a, b)
            return
        kind = "SYS"
    else:
        kind = "NV" if link is None else link.kind
    level = cuts.peer[1] if cuts.peer else None
    stopped = level is not None and not reaches(level, kind)
    if kind == "NV":
        if stopped:
            yield "NVLink"
        return
    pair = ((a.ordinal, b.ordinal), (b.ordinal, a.ordinal))
    answers = {shape.peer(*ends) if shape is not None else None for ends in pair}
    if stopped and answers == {"OK"} and kind in NEAR and all(has_nvlink(m) is not False for m in models):
        yield "PCIe"
    if cuts.memory is not None:
        refused = bool(answers - {"OK", None})
        if stopped or refused:
            yield "memory"
        elif None in answers:
            ask.peer(a, b)


def model_of(device: Device) -> str | None:
    """Model of a GPU."""
    shape, machine = device.node.shape, device.node.machine
    named = shape.hardware.gpus[device.ordinal].model if shape and device.ordinal < shape.gpus else None
    listed = machine.gpus[device.ordinal].model if machine and device.ordinal < len(machine.gpus) else None
    return named or listed


def cut(group: TensorGroup, node: Node, setting: Setting, *, path: str, instead: str) -> Finding:
    """The finding of one setting and one path."""
    return Finding(
        message=f"{setting} on {node} cuts {group} from {path}: its all-reduces go through {instead}",
        fix=f"unset {setting.name} where the ranks run (job script, image, nccl.conf)",
        cause=f"{setting.name}: {path}",
        subjects=(str(group),),
        evidence=(setting.evidence,),
        ranks=tuple(group.ranks),
        remedies=(Variable(name=setting.name, value=unset_value(setting.name)),),
    )


def by_container(placement: Placement) -> Situations[TensorGroup] | NotApplicable:
    """TP groups by what shows who shares memory on their nodes; not where no two members share a node."""
    groups = groups_alike(placement)
    if isinstance(groups, NotApplicable):
        return groups
    column = placement.placed.node
    samples = [alike[0].ranks for alike in groups.values()]
    alone = all(len({column[rank] for rank in ranks}) == len(ranks) for ranks in samples)
    return NotApplicable("no two ranks of a TP group share a node") if alone else groups


@rule("TP007", "members of a TP group can open each other's memory", over=by_container, severity="warning")
def members_share_memory(ask: Ask, group: TensorGroup) -> Iterator[Finding]:
    """One container, or none, and GPUs that every member's process may open."""
    placement, devices = ask.placement, ask.devices(group.ranks)
    proven = over_p2p(placement)
    narrow, _ = narrow_tasks(placement)
    for node in dict.fromkeys(device.node for device in devices.values()):
        own = {rank: device for rank, device in devices.items() if device.node is node}
        if len(own) < 2 or proven.issuperset(own):
            continue
        limits = own_limits(node)
        if narrow:
            told = tuple(read_at(fact.at, f"gpus-per-task {fact.value}") for fact in narrow)
            yield hidden(group, node, "each task sees its own GPU alone (gpus-per-task 1)", told)
        elif alone := counted_alone(list(own.values())):
            yield hidden(group, node, "the processes list one GPU each and call it by the same number", alone)
        elif len(containers(limits)) >= len(placement.ranks_on.get(node.index, ())):
            names = first((name[:12] for name in sorted(containers(limits))), 4)
            shown = (Evidence(source=str(node), fact=f"containers {names}"),)
            yield hidden(group, node, f"each of its ranks runs in a container of its own ({names})", shown)
        elif not shares_home(limits):
            supply = "topocheck probe in the job's own processes"
            ask.gap("whether the ranks of a TP group share a container", [node.name], supply, part="limits")


def own_limits(node: Node) -> list[Limits]:
    """Views of the job's own processes."""
    machine = node.machine
    if machine is None or not machine.has_claims:
        return []
    return [limits for limits in machine.limits if limits.scope != "unknown"]


def containers(limits: Sequence[Limits]) -> set[str]:
    """Containers that the views name."""
    return {one.container for one in limits if one.container is not None}


def shares_home(limits: Sequence[Limits]) -> bool:
    """All views are of the host itself, or of one container."""
    homes = {(one.scope == "host", one.container) for one in limits}
    return len(homes) == 1 and homes != {(False, None)}


def counted_alone(devices: Sequence[Device]) -> tuple[Evidence, ...]:
    """GPUs of one group that bear one number: no view that counted them had both before it."""
    seen: dict[int, Device] = {}
    for device in devices:
        machine = device.node.machine
        gpu = machine.gpus[device.ordinal] if machine and device.ordinal < len(machine.gpus) else None
        if gpu is None or gpu.nvml is None or gpu.scope == "host":
            continue
        other = seen.setdefault(gpu.nvml, device)
        if other.ordinal != device.ordinal:
            names = [str(one.node.gpu_name(one.ordinal)) for one in (other, device)]
            fact = f"{first(names)} are both GPU {gpu.nvml}"
            return (Evidence(source=first(machine.sources, 2) if machine else "hardware", fact=fact),)
    return ()


def hidden(group: TensorGroup, node: Node, why: str, evidence: tuple[Evidence, ...]) -> Finding:
    """The finding of one group on one node."""
    return Finding(
        message=f"{group} on {node}: {why}. CUDA IPC may fail between them, and NCCL may take each "
        "for a host of its own: the exchange then leaves NVLink",
        fix="let all ranks of a node see all its GPUs and share a container or IPC namespace (Slurm: "
        "--gpus-per-node with --gpu-bind=none; pods: one pod a node; docker: --ipc=host)",
        cause="members hidden from each other",
        subjects=(str(group),),
        evidence=evidence,
        ranks=tuple(group.ranks),
    )


RULES = (path_is_open, members_share_memory)
"""The group's ways first, then what the processes may open."""
