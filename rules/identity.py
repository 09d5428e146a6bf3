"""ID: every rank is one process on one GPU of one host, and they are the right ones."""

from __future__ import annotations

from collections.abc import Iterator

from topocheck.agents import misnumbered
from topocheck.ask import Ask
from topocheck.column import Column, Sighting, one_process
from topocheck.communicators import DUPLICATE, Member
from topocheck.crossing import torn_ranks
from topocheck.launched import (
    announced_twice,
    announcements,
    invalid_devices,
    narrowed_devices,
    short_allocation,
    stated_worlds,
    world_shown,
)
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.raydriver import driver_without_rank
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule, the
from topocheck.subjects import Load, every_rank_told, loads, told_by

__all__ = ["AFTER_GROUPS", "RULES"]


def world(placement: Placement) -> Situations[Column]:
    """The ranks of the job by the phase's column."""
    return the(placement.placed)


@rule("ID001", "ranks are 0..world-1, each once", over=world, severity="error", required=True)
def ranks_complete(ask: Ask, column: Column) -> Iterator[Finding]:
    """Duplicates and strays are wrong; a missing rank only if every node told all its ranks."""
    placement = ask.placement
    ask.rest_on(column.basis)
    doubled = [rank for rank in sorted(column.twice) if not one_process(column.twice[rank])]
    if doubled:
        yield held_twice(placement, column, doubled)
    if column.stray:
        strays = sorted({sighting.rank for sighting in column.stray})
        yield Finding(
            message=f"ranks {fold(strays)} exist and the plan has ranks 0..{placement.world - 1}",
            fix="correct the sizes in the plan, or the number of processes that the launcher starts",
            cause="rank out of range",
            subjects=tuple(f"rank {rank}" for rank in strays),
            evidence=tuple(sighted(placement, sighting) for sighting in column.stray),
        )
    yield from announced_twice(placement)
    told = announcements(placement)
    if told.doubled and told.restart:
        ask.gap(
            "whether ranks that announced themselves twice were started again, or are two",
            [f"ranks {fold(told.doubled)}"],
            "the log of every node, as NODE=FILE",
        )
    missing = placement.unplaced
    if missing and not every_rank_told(placement):
        ask.rank_gap(missing)
    elif missing and not doubled:  # a process too many under one rank is the one that another lacks
        yield Finding(
            message=f"ranks {fold(missing)} of {placement.world} exist on no node, and every node told all "
            "its ranks",
            fix="start the missing processes: compare the launcher's processes a node with the plan",
            cause="rank missing",
            subjects=tuple(f"rank {rank}" for rank in missing),
            evidence=told_by(placement),
            ranks=tuple(missing),
        )


def held_twice(placement: Placement, column: Column, ranks: list[int]) -> Finding:
    """Ranks that several processes hold."""
    return Finding(
        message=f"ranks {fold(ranks)} are held by more than one process: the processes do not know of each "
        "other and wait for ranks that nobody is",
        fix="give each node its own node rank, or start the job by one launcher only",
        cause="rank held twice",
        subjects=tuple(f"rank {rank}" for rank in ranks),
        count=len(ranks),
        evidence=tuple(sighted(placement, sighting) for rank in ranks for sighting in column.twice[rank]),
        ranks=tuple(ranks),
    )


def sighted(placement: Placement, sighting: Sighting) -> Evidence:
    """Where a rank was seen."""
    machine = placement.inventory.machines[sighting.machine]
    gpu = "" if sighting.gpu is None else f", {machine.gpu_name(sighting.gpu)}"
    pid = "" if sighting.pid is None else f", pid {sighting.pid}"
    return read_at(sighting.at, f"rank {sighting.rank} on {machine.name}{gpu}{pid}", "rank probe")


@rule("ID002", "world size is the product of the sizes", over=world_shown, severity="error", required=True)
def world_is_product(ask: Ask, column: Column) -> Iterator[Finding]:
    """World sizes that are claimed, stated or of the largest communicator, against the plan."""
    placement = ask.placement
    ask.rest_on(column.basis)
    sizes = set(placement.inventory.claims[""].sizes) if "" in placement.inventory.claims else set()
    largest = max((comm.size or 0 for comm in placement.seen.communicators.values()), default=0)
    if largest > placement.world:
        sizes.add(largest)
    if placement.phase == "observed" and largest < placement.world:
        ask.gap(
            "a communicator of the world's size",
            [f"{placement.world} ranks"],
            "the NCCL_DEBUG=INFO log from its first line, or the engine's own start-up lines",
        )
    elif placement.phase == "claimed" and not sizes and not placement.facts.by_node_rank:
        need, supply = (
            "the world size that the processes were given",
            "topocheck probe in the job's processes",
        )
        ask.gap(need, [f"{placement.world} ranks"], supply)
    stated = stated_worlds(placement)
    wrong = sorted({size for size in sizes if size != placement.world} | {size for size, _ in stated})
    if wrong:
        yield Finding(
            message=f"the job has a world of {first(map(str, wrong))} ranks, the plan declares "
            f"{product(placement)} = {placement.world}",
            fix="correct `parallel:` in the plan, or the sizes on the launch command",
            cause="world size differs",
            subjects=tuple(f"world of {size}" for size in wrong),
            evidence=world_evidence(placement, wrong, [evidence for _, evidence in stated]),
        )


def world_evidence(placement: Placement, sizes: list[int], stated: list[Evidence]) -> tuple[Evidence, ...]:
    """Lines that show a world of these sizes."""
    found = [*stated]
    for comm in placement.seen.communicators.values():
        if comm.size in sizes:
            member = next(comm.everyone())
            found.append(read_at(member.at, f"communicator {comm.id} has {comm.size} ranks"))
    return tuple(found) or tuple(
        Evidence(source="rank probe", fact=f"a process was given a world size of {size}") for size in sizes
    )


def product(placement: Placement) -> str:
    """The sizes as a product: `tensor 8 x pipeline 2`."""
    named = [f"{name} {size}" for name, size in placement.layout.axes if size > 1]
    return " x ".join(reversed(named)) or "one rank"


LAUNCH = Load(None, (), ())
"""The launch as a whole, beside the nodes' loads: what launchers and start-up lines state."""


def loads_and_launch(placement: Placement) -> Situations[Load]:
    """Nodes with ranks, and the launch where anything states something about it."""
    found = dict(loads(placement))
    return {**found, "launch": [LAUNCH]} if placement.inventory.job else found


@rule("ID003", "each rank resolves to one GPU", over=loads_and_launch, severity="error", required=True)
def rank_has_gpu(ask: Ask, load: Load) -> Iterator[Finding]:
    """Every rank of a node names a GPU that the node has, and only one."""
    column, placement = ask.placement.placed, ask.placement
    if load is LAUNCH:
        ask.know()
        yield from invalid_devices(placement)
        yield from narrowed_devices(placement)
        return
    ask.devices(load.ranks)
    torn = [rank for rank in load.ranks if rank in column.twice and one_process(column.twice[rank])]
    if torn:
        seen = [sighting for rank in torn for sighting in column.twice[rank]]
        names = [placement.inventory.machines[s.machine].gpu_name(s.gpu) for s in seen if s.gpu is not None]
        yield Finding(
            message=f"ranks {fold(torn)} on {load.node} are one process each and are shown on several GPUs: "
            f"{first(dict.fromkeys(names))}",
            fix="find out which of the sources is of this run, and leave the other out",
            cause="one rank, several GPUs",
            subjects=tuple(f"rank {rank}" for rank in torn),
            evidence=tuple(sighted(placement, sighting) for sighting in seen),
            ranks=tuple(torn),
            mark="gpu",
        )


@rule("ID004", "no GPU serves two ranks", over=loads, severity="error", required=True)
def gpu_serves_one_rank(ask: Ask, load: Load) -> Iterator[Finding]:
    """Two ranks on one GPU: NCCL refuses, or both run at half speed."""
    column = ask.placement.placed
    ask.rest_on(column.basis)
    if load.node is None:
        ask.rank_gap(load.ranks)
        yield from warned_duplicates(ask)
        return
    users: dict[int, list[int]] = {}
    for rank, gpu in zip(load.ranks, load.gpus, strict=True):
        if gpu is not None:
            users.setdefault(gpu, []).append(rank)
    if None in load.gpus:
        ask.rank_gap([rank for rank, gpu in zip(load.ranks, load.gpus, strict=True) if gpu is None])
    untied = load.node.machine.untied if load.node.machine else ()
    if column.basis != "predicted" and any(a in users and b in users for a, b in untied):
        ask.gap(
            "which UUID, bus id and index are one GPU",
            [load.node.name],
            "nvidia-smi --query-gpu=index,uuid,pci.bus_id --format=csv, given as NODE=FILE",
            part="gpus",
        )
    placing = ask.placement.facts.placing if column.basis == "predicted" else {}
    options = tuple(read_at(fact.at, f"{name} {fact.value}") for name, fact in placing.items())
    counted = ask.placement.facts.engine.counts_visible and column.basis == "predicted"
    why = STEPPED if options else COUNTED if counted else ""
    for gpu, ranks in users.items():
        if len(ranks) > 1:
            evidence = tuple(sighting(column, load.node, r, gpu) for r in ranks)
            yield shared_gpu(load.node, gpu, ranks, (*options, *evidence), why)


STEPPED = (
    "leave --gpu-id-step at 1: SGLang does not multiply it into the stages of one node. Choose GPUs by "
    "CUDA_VISIBLE_DEVICES instead (0,2,4,6)"
)
COUNTED = "start no more ranks on a node than it shows GPUs: each takes GPU rank % visible GPUs"


def sighting(column: Column, node: Node, rank: int, gpu: int) -> Evidence:
    """Where a rank's GPU was read."""
    return read_at(column.at.get(rank), f"rank {rank} drives {node.gpu_name(gpu)} of {node}", column.basis)


def shared_gpu(
    node: Node, gpu: int, ranks: list[int], evidence: tuple[Evidence, ...], formula: str = ""
) -> Finding:
    """The finding of one GPU with several ranks. `formula`: what to do if the engine's rule leads to it."""
    fix = "start no more processes a node than it has GPUs, and let each take the GPU of its local rank"
    return Finding(
        message=f"ranks {fold(ranks)} share {node.gpu_name(gpu)} on {node}: NCCL refuses two ranks on one "
        "GPU, or both get half of it",
        fix=formula or fix,
        cause="GPU shared",
        subjects=(f"ranks {fold(ranks)} on {node.gpu_name(gpu)} of {node}",),
        evidence=evidence,
        ranks=tuple(ranks),
        mark="gpu",
    )


def warned_duplicates(ask: Ask) -> Iterator[Finding]:
    """NCCL's own warnings, where nothing gives the ranks of the world."""
    placement = ask.placement
    placed = placement.placed.node
    for comm in placement.seen.communicators.values():
        if not comm.id.startswith(DUPLICATE):
            continue
        by_gpu: dict[tuple[int, int | None], list[Member]] = {}
        for member in comm.everyone():
            if not 0 <= member.rank < len(placed) or placed[member.rank] is None:
                by_gpu.setdefault((member.machine, member.gpu), []).append(member)
        for (machine, gpu), members in by_gpu.items():
            node = placement.nodes[placement.node_of[machine]] if machine in placement.node_of else None
            ranks = sorted({member.rank for member in members})
            if node is not None and gpu is not None and len(ranks) > 1:
                evidence = tuple(read_at(m.at, f"NCCL: duplicate GPU, rank {m.rank}") for m in members)
                yield shared_gpu(node, gpu, ranks, evidence)


def compared(placement: Placement) -> Situations[Column] | NotApplicable:
    """Prediction against what is claimed or observed."""
    if all(kind.startswith("data") for kind in placement.layout.kinds()):
        return NotApplicable("data parallel only: any order of ranks is right")
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    return the(placement.placed)


@rule(
    "ID010", "ranks lie where the engine's layout puts them", over=compared, severity="error", required=True
)
def rank_on_its_node(ask: Ask, column: Column) -> Iterator[Finding]:
    """The engine's formula over the node order against the phase's column."""
    placement = ask.placement
    ask.rest_on(column.basis)
    yield from driver_without_rank(ask)
    predicted = placement.columns["predicted"]
    if column.node == predicted.node and not placement.unplaced:
        return
    if not predicted.complete:
        why = placement.facts.refusal
        ask.gap(
            f"where the engine's formula puts the ranks{f' ({why})' if why else ''}",
            [f"{placement.world} ranks on {placement.expected} nodes"],
            "a number of nodes that divides the ranks, or the launcher's rank to node list",
        )
        return
    told = {rank for one in misnumbered(placement) for rank in one.agent.ranks}
    torn = None if placement.facts.ray is None else torn_ranks(placement, column, predicted)
    wrong: dict[tuple[int, int], list[int]] = {}
    known = []
    for rank, (there, wanted) in enumerate(zip(column.node, predicted.node, strict=True)):
        if there == wanted or there is None or wanted is None or (torn is not None and rank not in torn):
            continue
        if rank in told:
            known.append(rank)
        else:
            wrong.setdefault((there, wanted), []).append(rank)
    if known:
        ask.gap(
            "an order of nodes on which rank and node rank agree",
            [f"ranks {fold(known)}"],
            "one launcher for both",
            because="ID006",
        )
    if wrong:
        yield elsewhere(placement, column, wrong)
    if placement.unplaced:
        ask.rank_gap(placement.unplaced)


def elsewhere(placement: Placement, column: Column, wrong: dict[tuple[int, int], list[int]]) -> Finding:
    """The finding of ranks on other nodes than predicted."""
    nodes = placement.nodes
    moves = [f"ranks {fold(r)} are on {nodes[a]}, not {nodes[b]}" for (a, b), r in sorted(wrong.items())]
    ranks = sorted(rank for group in wrong.values() for rank in group)
    return Finding(
        message=f"{first(moves, 4)}: the engine's layout ({product(placement)}) over the node order puts "
        "them elsewhere, so groups lie on other nodes than intended",
        fix=in_order(placement),
        cause="ranks on other nodes",
        subjects=tuple(moves),
        evidence=tuple(
            read_at(column.at.get(group[0]), f"rank {group[0]} on {nodes[a]}", column.basis)
            for (a, _), group in sorted(wrong.items())
        ),
        ranks=tuple(ranks),
    )


def in_order(placement: Placement) -> str:
    """How the ranks come to lie as the layout needs."""
    if placement.facts.ray is not None:
        return (
            "let the workers be sorted by node before they get ranks: update vLLM, or write the bundles of "
            "one node after the other into VLLM_RAY_BUNDLE_INDICES"
        )
    order = first(map(str, placement.nodes[: placement.expected]))
    return (
        f"launch with the nodes in the order {order}, ranks in blocks (Slurm: --distribution=block; MPI: "
        "--map-by slot), or name the nodes in the plan as they are"
    )


@rule("ID015", "the allocation holds the world", over=loads_and_launch, severity="error")
def allocation_holds_world(ask: Ask, load: Load) -> Iterator[Finding]:
    """As many GPUs on each node as it has ranks; slots, cluster and executor that hold the world."""
    if load is LAUNCH:
        ask.know()
        yield from short_allocation(ask.placement)
        return
    ask.rest_on(ask.placement.placed.basis)
    if load.node is None:
        ask.rank_gap(load.ranks)
        return
    if ask.placement.phase != "predicted" and None not in load.gpus and len(set(load.gpus)) == len(load.gpus):
        return  # each rank has a GPU of its own: proof enough
    count = ask.gpu_count(load.node)
    if count is None:
        return
    last = max((gpu for gpu in load.gpus if gpu is not None), default=0)
    past = ask.placement.phase == "predicted" and last >= count
    if count >= len(load.ranks) and not past:
        return
    machine = load.node.machine
    indexes = f", up to GPU {last}" if past and last >= len(load.ranks) else ""
    yield Finding(
        message=f"{load.node} has {count} GPUs and must hold {len(load.ranks)} ranks ({fold(load.ranks)})"
        f"{indexes}: the world of {ask.placement.world} does not fit",
        fix=f"use nodes with at least {len(load.ranks)} GPUs, more nodes, or smaller sizes; if a GPU is "
        "missing here that its peers have, drain the node",
        cause="fewer GPUs than ranks",
        subjects=(load.node.name,),
        evidence=(
            Evidence(
                source=machine.sources[0] if machine and machine.sources else "evidence",
                fact=f"{count} GPUs listed",
            ),
        ),
    )


RULES = (
    ranks_complete,
    world_is_product,
    gpu_serves_one_rank,
    allocation_holds_world,
    rank_has_gpu,
)

AFTER_GROUPS = (rank_on_its_node,)
"""Told after the groups that it tears: a TP group across nodes is the sentence that matters."""
