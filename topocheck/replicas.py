"""Data replicas that are worlds of their own: the engine starts several worlds for one command.

vLLM does so for a dense model since 0.19 (vllm/config/parallel.py reconfigure_for_independent_dp_rank):
torch ranks repeat from 0 in each replica. The replicas of a mixture of experts are one world, because its
expert groups reach over them. SGLang's plain --dp-size starts replicas too, on one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from topocheck.engines.version import before
from topocheck.inventory import Inventory
from topocheck.plan import NodeRange, Plan
from topocheck.worlds import Nodes, deal, first_gpus, ranks_of, worlds_of

__all__ = ["Part", "count_of", "parts_of"]

FIRST_DENSE = (0, 19)
"""The first vLLM known to make a world of each replica of a dense model."""

ASSUMED = (
    "the data parallel replicas are one world, as those of a mixture of experts are; of a dense model each "
    "is a world of its own (`model:` in the plan tells which it is)"
)


class Part(NamedTuple):
    """One world of the job."""

    name: str
    """As `worlds:` names it, a data replica `dp0` ..., or both: `decode.dp0`. Empty for the only one."""
    plan: Plan
    first_gpus: tuple[int, ...] = ()
    """For each of its nodes, how many GPUs the worlds before it take there; empty for none."""
    crowd: int = 1
    """Worlds that a node carries, as far as the plan says."""
    replica: int | None = None
    """Data coordinate of the replica that it is, if its engine started several worlds."""


def parts_of(plan: Plan, inventory: Inventory) -> tuple[list[Part], list[str]]:
    """The worlds of a job, and what was assumed about their number. Raises LayoutError as `worlds_of`."""
    parts: list[Part] = []
    assumed: list[str] = []
    for (name, world), offsets in zip(worlds_of(plan), first_gpus(plan), strict=True):
        part = Part(name, world, offsets, crowd_of(plan.nodes, plan.worlds))
        several, why = several_worlds(world, inventory)
        shares = deal(world.nodes, world.parallel.data or 1) if several else None
        parts += [part] if shares is None else replicas(part, shares)
        assumed += [f"world {name}: {why}" if name else why] if why else []
    return parts, assumed


def crowd_of(nodes: Nodes, worlds: object) -> int:
    """Equal worlds on one node; 1 where they are named."""
    return max(worlds // count_of(nodes), 1) if isinstance(worlds, int) else 1


def replicas(part: Part, shares: Sequence[Nodes]) -> Iterator[Part]:
    """The data replicas of one declared world, its nodes dealt to them."""
    plan = msgspec.structs.replace(part.plan, parallel=msgspec.structs.replace(part.plan.parallel, data=None))
    crowd, ranks = crowd_of(part.plan.nodes, len(shares)), ranks_of(plan) or 0
    each = count_of(shares[0])
    for number, share in enumerate(shares):
        places = range(number // crowd * each, number // crowd * each + each)
        taken = [part.first_gpus[place] if part.first_gpus else 0 for place in places]
        first = tuple(gpus + number % crowd * ranks for gpus in taken)
        yield Part(
            name=f"{part.name}.dp{number}" if part.name else f"dp{number}",
            plan=msgspec.structs.replace(plan, nodes=share),
            first_gpus=first if any(first) else (),
            crowd=crowd * part.crowd,
            replica=number,
        )


def count_of(nodes: Nodes) -> int:
    """Number of nodes; the least where it is not settled."""
    return nodes if isinstance(nodes, int) else nodes.min if isinstance(nodes, NodeRange) else len(nodes)


def several_worlds(plan: Plan, inventory: Inventory) -> tuple[bool, str]:
    """Whether the data replicas of this world are worlds of their own, and what was assumed for it."""
    data = plan.parallel.data or 1
    if data == 1 or plan.engine not in ("vllm", "sglang"):
        return False, ""
    if plan.engine == "sglang":
        return count_of(plan.nodes) == 1, ""  # it refuses replicas over several nodes
    if has_experts(plan) or (plan.engine_version and before(plan.engine_version, FIRST_DENSE)):
        return False, ""
    world = ranks_of(plan)
    if world is None:
        return False, ""
    seen = shown_worlds(inventory, world, world // data)
    if seen is not None or plan.model is not None:
        return seen is None or seen < world, ""
    return False, ASSUMED


def has_experts(plan: Plan) -> bool:
    """The plan says that the model is a mixture of experts."""
    return (plan.parallel.expert or 1) > 1 or bool(plan.model and plan.model.experts)


def shown_worlds(inventory: Inventory, world: int, replica: int) -> int | None:
    """Size of the worlds that the evidence shows: all ranks, or those of one replica; None if it shows none.

    Only workers of a mixture of experts bear a data coordinate in their names.
    """
    sizes = {size for columns in inventory.claims.values() for size in columns.sizes}
    sizes |= {max(columns.rank) + 1 for columns in inventory.claims.values() if max(columns.rank) >= replica}
    for machine in inventory.machines:
        sizes |= {comm.size for observed, _ in machine.observed for comm in observed.comms if comm.size}
    for fact in inventory.job:
        if fact.kind == "world" and fact.engine in (None, "vllm") and fact.value.isdecimal():
            sizes.add(int(fact.value[:9]))
        elif (fact.kind, fact.name, fact.engine) == ("rank-coordinate", "data", "vllm"):
            sizes.add(world)
    if any(replica < size <= world for size in sizes):
        return world
    return replica if replica in sizes else None
