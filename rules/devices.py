"""ID: the GPU that each process sees and uses is the one that it should."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec

from topocheck.ask import Ask
from topocheck.kinds import by_kind, kinds
from topocheck.models import has_mig
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.remedy import Variable
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule
from topocheck.snapshot import GpuShape, JobFact
from topocheck.subjects import Load, loads
from topocheck.visible import LISTS, list_faults, needs_the_list

__all__ = ["RULES"]

ORDER, BY_BUS = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
PROBE = "topocheck probe in the job's own processes"
MIG = "nvidia-smi -q, given as NODE=FILE"
"""What supplies the MIG mode of each GPU."""


def variables(node: Node) -> list[dict[str, str]]:
    """Variables that the ranks of a node share, as each view shows them; [] where none does."""
    raws = dict.fromkeys(node.machine.environments) if node.machine is not None else ()
    return [msgspec.json.decode(raw, type=dict[str, str]) for raw in raws]


def options(placement: Placement, *names: str) -> list[JobFact]:
    """What logs and listings say of a variable, of whatever node."""
    return [fact for fact in placement.inventory.job if fact.kind == "option" and fact.name in names]


def listing(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes with ranks by variables and GPUs."""
    found: dict[Hashable, list[Node]] = {}
    for members in kinds(placement):
        machine, views = members[0].machine, variables(members[0])
        if any("GPU-" in listed.get(name, "").upper() for listed in views for name in LISTS):
            found |= {node.index: [node] for node in members}  # UUIDs are each node's own
        else:
            key = machine and (tuple(map(id, machine.environments)), len(machine.gpus), machine.coverage.gpus)
            found[key] = found.get(key, []) + members
    return found


@rule("ID008", "visibility lists mean what they say", over=listing, severity="error")
def lists_mean_what_they_say(ask: Ask, node: Node) -> Iterator[Finding]:
    """No entry after an invalid one, no duplicates, no index out of range."""
    ask.know()
    told = options(ask.placement, *LISTS) if node.index == 0 else []
    views = variables(node)
    if not views and not told:
        ask.gap("visibility lists of the processes", [node.name], PROBE, part="environment")
    gpus = node.machine.gpus if node.machine else ()
    whole = node.machine is not None and node.machine.coverage.gpus == "all"
    for name in LISTS:
        for listed in dict.fromkeys(known[name] for known in views if name in known):
            faults = list(list_faults(listed, gpus, whole=whole))
            for fault in faults:
                yield bad_list(node.name, name, listed, fault, Evidence(source="environment", fact=name))
            if not faults and needs_the_list(listed, gpus):
                ask.gap("the list of GPUs", [node.name], "nvidia-smi -L, given as NODE=FILE", part="gpus")
    alone = ask.placement.expected == 1
    for fact in told:
        for fault in list_faults(fact.value, gpus if alone else (), whole=whole and alone):
            where = fact.host or (node.name if alone else "a node")
            yield bad_list(where, fact.name, fact.value, fault, read_at(fact.at, f"{fact.name}={fact.value}"))


def bad_list(where: str, name: str, listed: str, fault: str, evidence: Evidence) -> Finding:
    """The finding about one list."""
    return Finding(
        message=f"{name}={listed[:100]} on {where} {fault}: ranks there get fewer GPUs than they expect, or "
        "none",
        fix=f"name each GPU once, by an index that the process can see or by its whole UUID, or unset {name}",
        cause="list of devices",
        subjects=(where,),
        evidence=(evidence,),
    )


def mixed(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes by models and variables; one model a node proves that order cannot matter."""
    stated = [fact for fact in placement.inventory.job if fact.kind == "gpu-models"]
    firsts = [members[0] for members in kinds(placement)]
    if not stated and all(len(node.models) == 1 and None not in node.models for node in firsts):
        return NotApplicable("each node has GPUs of one model")

    def key(node: Node) -> Hashable:
        speaks = node.index in placement.facts_by_node or (stated and node.index == 0)
        environments = tuple(map(id, node.machine.environments)) if node.machine else ()
        return node.index if speaks else (node.models, environments)

    return by_kind(placement, key)


@rule("ID009", "device order is unambiguous", over=mixed, severity="error")
def order_is_unambiguous(ask: Ask, node: Node) -> Iterator[Finding]:
    """CUDA numbers the fastest GPU first unless told otherwise; NVML numbers by bus."""
    ask.know()
    placement = ask.placement
    stated = [f for f in placement.inventory.job if f.kind == "gpu-models"] if node.index == 0 else []
    named = [fact for fact in placement.facts_by_node.get(node.index, ()) if fact.kind == "cuda-models"]
    models = {model for model in node.models if model}
    lines = [(fact.at, fact.value) for fact in stated] + [(fact.at, fact.value) for fact in named]
    for _, text in lines:
        models |= {model.strip() for model in text.split(",")}
    if None in node.models and not (stated or named):
        ask.gap("models of the GPUs", [node.name], "nvidia-smi -L, given as NODE=FILE", part="gpus")
        return
    if len(models) < 2:
        return
    order, evidence = device_order(placement, node)
    if order is None:
        ask.gap(f"{ORDER} of the processes", [node.name], PROBE, part="environment")
    elif order != BY_BUS:
        yield Finding(
            message=f"{node} has GPUs of several models ({first(sorted(models))}) and {ORDER} is {order}: "
            "CUDA counts the fastest first and nvidia-smi by bus, so that one number means two GPUs",
            fix=f"set {ORDER}={BY_BUS} in the environment of every rank",
            cause="order of devices",
            subjects=(node.name,),
            remedies=(Variable(name=ORDER, value=BY_BUS),),
            evidence=(
                *evidence,
                *(read_at(at, f"models: {text}") for at, text in lines),
            ),
        )


def device_order(placement: Placement, node: Node) -> tuple[str | None, tuple[Evidence, ...]]:
    """CUDA_DEVICE_ORDER as the processes have it, `not set` included; None where nothing shows it.

    Of several that are shown it is one that is not by bus, if there is one.
    """
    said = options(placement, ORDER)
    if said:
        return other_order([fact.value for fact in said]), tuple(
            read_at(fact.at, f"{ORDER} {fact.value}") for fact in said
        )
    orders = [fact for fact in placement.facts_by_node.get(node.index, ()) if fact.kind == "cuda-order"]
    for fact in orders:
        numbers = fact.value.split(",")
        if numbers != sorted(numbers, key=int):
            return "not PCI_BUS_ID", (read_at(fact.at, f"CUDA counts nvidia-smi's GPUs {fact.value}"),)
    orders_set = [known.get(ORDER, "not set") for known in variables(node)]
    if not orders_set:
        return None, ()
    order = other_order(orders_set)
    return order, (Evidence(source="environment", fact=f"{ORDER} {order}"),)


def other_order(orders: list[str]) -> str:
    """The first that is not by bus, else the first."""
    return next((order for order in orders if order != BY_BUS), orders[0])


def claimed(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes by whether processes were found on the GPUs that they claim."""
    if placement.columns["claimed"].empty:
        return NotApplicable("no rank claims a GPU yet")
    moved = {node for node, _, _, _ in differing(placement)}

    def key(node: Node) -> Hashable:
        states = node.machine.states if node.machine else ()
        strayed = any(state.strayed for state, _ in states) or node.index in moved
        return node.index if strayed else all_found(placement, node)

    return by_kind(placement, key)


def differing(placement: Placement) -> list[tuple[int, int, int, int]]:
    """(node, rank, GPU claimed, GPU observed) where the running job shows another GPU than the claim."""

    def find(asked: Placement) -> list[tuple[int, int, int, int]]:
        ours, seen = asked.columns["claimed"], asked.columns["observed"]
        if seen.empty:
            return []
        rows = zip(ours.node, seen.node, ours.gpu, seen.gpu, strict=True)
        return [
            (here, rank, gpu, used)
            for rank, (here, there, gpu, used) in enumerate(rows)
            if here is not None and here == there and gpu is not None and used is not None and gpu != used
        ]

    return placement.keep("GPUs claimed and used", find)


def compared(placement: Placement, node: Node) -> bool:
    """The running job shows the GPU of every rank of this node, and the claims name one of the same node."""
    ours, seen = placement.columns["claimed"], placement.columns["observed"]
    return not seen.empty and all(
        ours.gpu[rank] is not None and seen.gpu[rank] is not None and ours.node[rank] == seen.node[rank]
        for rank in placement.ranks_on.get(node.index, ())
    )


def all_found(placement: Placement, node: Node) -> bool:
    """The GPU in use is shown of every rank of a node, by the driver's lists or by the running job."""
    claims = placement.columns["claimed"].gpu
    asked = [claims[rank] for rank in placement.ranks_on.get(node.index, ())]
    states = node.machine.states if node.machine else ()
    found = [ties[gpu] if ties else gpu for state, ties in states for gpu in state.matched]
    listed = 0 < len(asked) <= len(found) and set(found).issuperset(asked)  # views may show the same ranks
    return listed or compared(placement, node)


@rule("ID011", "each process is on the GPU that its rank claims", over=claimed, severity="error")
def process_is_on_its_gpu(ask: Ask, node: Node) -> Iterator[Finding]:
    """By the driver's list of processes, and by the communicators of the running job."""
    ask.know()
    placement = ask.placement
    for state, ties in node.machine.states if node.machine else ():
        for stray in state.strayed:
            gpus = [ties[gpu] if ties else gpu for gpu in stray.gpus]
            claim = ties[stray.claimed] if ties else stray.claimed
            yield elsewhere(node, stray.rank, claim, gpus, f"pid {stray.pid} in the driver's list")
    for place, rank, gpu, used in differing(placement):
        if place == node.index:
            yield elsewhere(node, rank, gpu, [used], "communicator of the running job")
    if placement.unplaced:
        ask.rank_gap(placement.unplaced)
    if not all_found(placement, node):
        supply = "topocheck probe --processes beside the running job, or its NCCL_DEBUG=INFO log"
        ask.gap("which GPU each process uses", [node.name], supply, part="gpus")


def elsewhere(node: Node, rank: int, claim: int, gpus: list[int], how: str) -> Finding:
    """The finding about one rank."""
    uses = first(str(node.gpu_name(gpu)) for gpu in gpus)
    return Finding(
        message=f"rank {rank} claims {node.gpu_name(claim)} on {node} and its process uses {uses}: it shares "
        "a GPU with another rank or takes one that is not the job's",
        fix="select the device of the local rank before the first CUDA call (torch.cuda.set_device), and see "
        "which of the launcher's and the job's own visibility lists is in force",
        cause="process on another GPU",
        subjects=(f"rank {rank}",),
        evidence=(Evidence(source=str(node), fact=f"{how}: {uses}"),),
        ranks=(rank,),
        mark="gpu",
    )


def sliced(placement: Placement) -> Situations[Load] | NotApplicable:
    """Nodes with ranks, where ranks have anybody to talk to."""
    if placement.world == 1:
        return NotApplicable("one rank, which talks to nobody")
    return loads(placement)


@rule("ID013", "no rank of a group is on a MIG slice", over=sliced, severity="error")
def no_slice_in_a_group(ask: Ask, load: Load) -> Iterator[Finding]:
    """GPUs in MIG mode have neither NVLink nor peer access, and NCCL does not join their slices."""
    ask.know()
    devices = ask.devices(load.ranks)
    modes = {rank: slices(device.node, device.ordinal) for rank, device in devices.items()}
    cut = [rank for rank, number in modes.items() if number is not None]
    for rank, device in devices.items():
        if rank not in cut and not is_whole(device.node, device.ordinal):
            ask.gap("MIG mode of each GPU", [device.node.name], MIG, part="gpus")
    if cut and load.node is not None:
        number = modes[cut[0]]
        parts = f"slices of GPUs in MIG mode ({number} there)" if number else "GPUs in MIG mode, with none"
        yield Finding(
            message=f"ranks {fold(cut)} on {load.node} are on {parts}: "
            "slices have no NVLink and no peer access, and NCCL refuses two ranks on one GPU",
            fix="switch MIG off on these GPUs (nvidia-smi -mig 0), or run one-rank replicas on the slices",
            cause="MIG slice in a group",
            subjects=tuple(f"rank {rank}" for rank in cut),
            evidence=(Evidence(source=str(load.node), fact=f"MIG mode with {number} slices"),),
            ranks=tuple(cut),
            mark="gpu",
        )


def slices(node: Node, ordinal: int) -> int | None:
    """MIG slices of a GPU in MIG mode, which may have none that can be seen; None for any other."""
    number, shape = slices_listed(node, ordinal), shape_of(node, ordinal)
    return number or (0 if shape.mig else None)


def is_whole(node: Node, ordinal: int) -> bool:
    """A GPU is shown not to be divided: by its mode, by a list without slices, or by its model."""
    shape = shape_of(node, ordinal)
    model = shape.model or (node.machine.gpus[ordinal].model if node.machine else None)
    return shape.mig is False or slices_listed(node, ordinal) == 0 or has_mig(model) is False


def slices_listed(node: Node, ordinal: int) -> int | None:
    """MIG slices that are listed of a GPU; None where no list shows them."""
    listed = node.machine.sliced if node.machine else ()
    return listed[ordinal] if ordinal < len(listed) else None


def shape_of(node: Node, ordinal: int) -> GpuShape:
    """One GPU without its identity; nothing known where its shape does not show it."""
    shape = node.shape
    return shape.hardware.gpus[ordinal] if shape is not None and ordinal < shape.gpus else GpuShape()


RULES = (lists_mean_what_they_say, order_is_unambiguous, no_slice_in_a_group, process_is_on_its_gpu)
