"""NV: the NVLinks that should be there are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topocheck.ask import NVLINK, Ask
from topocheck.domain import covers
from topocheck.hardware import Link, Shape
from topocheck.kinds import kinds
from topocheck.models import has_fabric, in_a_rack, nvlinks_by_design
from topocheck.placement import Node, Placement
from topocheck.profiles import lone_part, reference_model
from topocheck.ranges import fold
from topocheck.remedy import Exclude
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, read_at, rule
from topocheck.snapshot import Fabric
from topocheck.subjects import Load, loads, without_nvlink

__all__ = ["RULES"]


COMPLETED = "completed"
HEALTH = {0: "degraded bandwidth", 2: "route recovery", 4: "route unhealthy", 6: "access timeout"}
"""Two-bit fields of NVML's health mask by their shift; 1 is TRUE, 0 not supported, 2 FALSE (nvml.h)."""

ODD_ONE_OUT = 3
"""Peers that must agree before a GPU without any NVLink is odd, and not a board without a bridge."""


def linked_nodes(placement: Placement) -> Situations[Load] | NotApplicable:
    """Nodes with ranks, unless no GPU of the job has NVLink by design, less those that have a lone GPU."""
    if (none := without_nvlink(placement)) is not None:
        return none
    found = {key: linked(placement, alike) for key, alike in loads(placement).items()}
    kept = {key: alike for key, alike in found.items() if alike}
    return kept or (NotApplicable("a lone GPU of a board has no NVLink to another") if found else found)


def linked(placement: Placement, alike: Sequence[Load]) -> Sequence[Load]:
    """Equal nodes but for virtual machines to which one GPU of a board was given."""
    machine = alike[0].node.machine if alike[0].node is not None else None
    if machine is None or len(machine.gpus) != 1:
        return alike
    return [load for load in alike if load.node is None or not lone_part(placement, load.node)]


@rule("NV001", "each GPU has all its NVLinks", over=linked_nodes, severity="error")
def gpu_has_its_links(ask: Ask, load: Load) -> Iterator[Finding]:
    """Fewer active links than the model has by design, or than the node's other GPUs have."""
    ask.rest_on(ask.placement.placed.basis)
    node = load.node
    if node is None or node.shape is None or not node.shape.gpus:
        ask.gap(
            "NVLinks of each GPU",
            [node.name if node else "ranks without a node"],
            "nvidia-smi nvlink -s, or nvidia-smi topo -m, given as NODE=FILE",
            part="links",
        )
        return
    devices = ask.devices(load.ranks)
    users: dict[int, list[int]] = {}
    for rank, device in devices.items():
        users.setdefault(device.ordinal, []).append(rank)
    whole = len(devices) == len(load.ranks)
    asked = [gpu for gpu in range(node.shape.gpus) if gpu in users or not whole]
    wanted = ask.placement.plan.policy.expect_nvlinks
    verdicts = {
        gpu: short_by(node.shape, gpu, reference_model(ask.placement, node))
        if wanted is None
        else short_of(node.shape, gpu, wanted)
        for gpu in asked
    }
    for gpu, verdict in verdicts.items():
        if verdict is not None and verdict[0]:
            yield short_of_links(node, gpu, users.get(gpu, []), *verdict)
    if None in verdicts.values() or not set(users) <= set(asked):
        ask.gap("NVLinks of each GPU", [node.name], NVLINK, part="links")


def short_of(shape: Shape, gpu: int, wanted: int) -> tuple[str, Severity] | None:
    """The same held against the policy alone; a table of bonds may accuse, and does not acquit."""
    active = shape.nvlinks(gpu)
    if active is None:
        told = by_table(shape, gpu)
        return told if told is not None and told[0] else None
    fact = f"{active} active NVLinks of the {wanted} that policy.expect_nvlinks wants"
    return (fact if active < wanted else ""), "error"


def short_by(shape: Shape, gpu: int, reference: str | None = None) -> tuple[str, Severity] | None:
    """What a GPU lacks in words, empty if nothing; None if it cannot be judged.

    `reference` is a model whose design holds for GPUs that show none.
    """
    active, model = shape.nvlinks(gpu), shape.hardware.gpus[gpu].model
    design = nvlinks_by_design(model or reference)
    if active is not None and design is not None:
        fact = f"{active} active NVLinks of the {design} that {model or reference} has"
        return (fact if active < design else ""), "error"
    if model is None and shape.models != {None} and active is not None and active < most_links(shape):
        return None  # fewer than others, which may be of another model
    alike = [other for other in range(shape.gpus) if shape.hardware.gpus[other].model == model]
    counts = [count for other in alike if other != gpu and (count := shape.nvlinks(other)) is not None]
    if active is None or not counts:
        return by_table(shape, gpu)
    most = max(sorted(set(counts)), key=counts.count)
    if most == 0 == active and model is None:
        return None  # none has any: whether the model should have them is not shown
    if active == 0 < most and (len(counts) < ODD_ONE_OUT or len(set(counts)) > 1):
        return by_table(shape, gpu)  # bridges join some boards and leave others out
    return (f"{active} active NVLinks where its peers have {most}" if active < most else ""), "error"


def most_links(shape: Shape) -> int:
    """Active NVLinks of the GPU that has most."""
    return max(shape.nvlinks(gpu) or 0 for gpu in range(shape.gpus))


def by_table(shape: Shape, gpu: int) -> tuple[str, Severity] | None:
    """The same from a table of link classes, which shows bonds between pairs and not links of a GPU."""
    rows = [shape.table_row(other) for other in range(shape.gpus)]
    if shape.gpus < 2 or any(row is None for row in rows):
        return None
    totals = [sum(link.count for link in row or ()) for row in rows]
    if not any(totals):
        return None  # no NVLink at all: whether the model should have it is not shown
    if totals[gpu] == max(totals):
        return "", "error"
    if meshed(rows, gpu):
        return f"NVLink to {joined(rows[gpu])} of {shape.gpus - 1} GPUs, its peers are all joined", "error"
    if totals[gpu]:
        return f"{totals[gpu]} bonded NVLinks where others have {max(totals)}", "warning"
    return None  # a box with bridges on some pairs only: nothing says that this one should have any


def meshed(rows: list[list[Link] | None], gpu: int) -> bool:
    """All pairs among the other GPUs are joined."""
    for other, row in enumerate(rows):
        if other == gpu or row is None:
            continue
        missing_place = gpu if gpu < other else gpu - 1
        if any(not link.nvlink for place, link in enumerate(row) if place != missing_place):
            return False
    return len(rows) > 2


def joined(row: list[Link] | None) -> int:
    """Number of NVLinked peers."""
    return sum(link.nvlink for link in row or ())


def short_of_links(node: Node, gpu: int, ranks: list[int], fact: str, severity: Severity) -> Finding:
    """The finding of one GPU."""
    machine = node.machine
    index = machine.gpus[gpu].nvml if machine and gpu < len(machine.gpus) else None
    whose = f", rank {fold(ranks)}," if ranks else ""
    return Finding(
        message=f"GPU {gpu if index is None else index} ({node.gpu_name(gpu)}) of {node}{whose} has {fact}: "
        "every all-reduce through it slows down or leaves NVLink, while logs still say P2P",
        fix=f"drain {node}, reset or reseat the GPU, and check nvidia-smi nvlink -s and the kernel log "
        "for Xid",
        cause="links missing",
        subjects=(f"GPU {gpu if index is None else index} of {node}",),
        evidence=(
            Evidence(
                source=", ".join(machine.sources) if machine and machine.sources else "hardware", fact=fact
            ),
        ),
        severity=severity,
        ranks=tuple(ranks),
        mark="gpu",
        remedies=(Exclude(nodes=(node.name,)),) if severity == "error" else (),
    )


def fabric_nodes(placement: Placement) -> Situations[Load] | NotApplicable:
    """Nodes with ranks, unless every model of the job is known to be without a fabric."""
    models = {model for alike in kinds(placement) for model in alike[0].models}
    if models and None not in models and not any(has_fabric(model) for model in models):
        return NotApplicable("no GPU of the job has an NVLink fabric")
    return loads(placement)


@rule("NV002", "the NVLink fabric is ready and healthy", over=fabric_nodes, severity="error")
def fabric_is_ready(ask: Ask, load: Load) -> Iterator[Finding]:
    """State, status and health field by field: Success means nothing unless the state is Completed."""
    ask.rest_on(ask.placement.placed.basis)
    node = load.node
    facts = ask.placement.facts_by_node.get(node.index, []) if node else []
    told = [fact for fact in facts if fact.kind == "fabric-not-completed"]
    told += [fact for fact in facts if fact.kind == "cuda-error" and "802" in fact.value]
    reports = node.machine.fabric if node and node.machine else ()
    if node is None or not (told or reports):
        names = [node.name if node else "ranks without a node"]
        ask.gap("state of the NVLink fabric", names, "nvidia-smi -q, given as NODE=FILE", part="fabric")
        return
    wrong = {fact.value or fact.kind: read_at(fact.at, f"{fact.kind} {fact.value}") for fact in told}
    for fabric, _ in reports:
        for words in faults_of(fabric, node):
            wrong.setdefault(words, read_at(fabric.at, words, "fabric"))
        if fabric.state is None or (fabric.state.lower() == COMPLETED and fabric.status is None):
            ask.gap(
                "status of the NVLink fabric", [node.name], "nvidia-smi -q, given as NODE=FILE", part="fabric"
            )
    if reports and not covers(node, load.gpus):
        need = "state of the NVLink fabric of each GPU"
        ask.gap(need, [node.name], "nvidia-smi -q, given as NODE=FILE", part="fabric")
    if wrong:
        yield Finding(
            message=f"the NVLink fabric of {node} is not ready: {'; '.join(wrong)}. CUDA does not start, or "
            "collectives leave NVLink",
            fix="start the fabric manager of the driver's own version, then reset the GPUs; on NVL72 look at "
            "the partition and the IMEX daemons",
            cause="fabric not ready",
            subjects=(node.name,),
            evidence=tuple(wrong.values()),
            ranks=load.ranks,
            mark="gpu",
            remedies=(Exclude(nodes=(node.name,)),),
        )


def faults_of(fabric: Fabric, node: Node) -> list[str]:
    """What is wrong in one report of the fabric, in words."""
    state = (fabric.state or "").lower()
    if state == "not supported":
        switched = node.shape is not None and any(map(node.shape.nvswitch, range(node.shape.gpus)))
        expected = switched or any(map(in_a_rack, node.models))
        return ["state Not Supported on a machine that has a fabric"] if expected else []
    if fabric.state is not None and state != COMPLETED:
        return [f"state {fabric.state}"]
    found = []
    if state == COMPLETED and fabric.status is not None and fabric.status.lower() != "success":
        found.append(f"state Completed, status {fabric.status}")
    mask = fabric.health_mask or 0
    found += [f"health: {words}" for shift, words in HEALTH.items() if mask >> shift & 3 == 1]
    if mask >> 8 & 15 > 1:
        found.append(f"health: incorrect configuration {mask >> 8 & 15}")
    return found


RULES = (gpu_has_its_links, fabric_is_ready)
