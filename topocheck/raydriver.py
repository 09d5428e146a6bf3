"""The node that drives a vLLM engine on Ray, where the driver is a rank itself and has no GPU there.

Before the V1 engine (the usual one since 0.8) the driver was rank 0 unless VLLM_USE_RAY_SPMD_WORKER was set:
without a worker on its own node it refuses to start (_init_workers_ray in ray_distributed_executor.py, in
early releases ray_gpu_executor.py). Later the workers alone are ranks, and a head without GPUs is healthy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from topocheck.ask import Ask
from topocheck.engines.version import before
from topocheck.jobfacts import facts_of, number
from topocheck.placement import Placement
from topocheck.plan import Plan
from topocheck.ranges import first
from topocheck.raynodes import RayJob, names_of_machine
from topocheck.rule import Evidence, Finding, read_at

__all__ = ["REFUSAL", "driver_without_rank"]

REFUSAL = "does not allocate any GPUs on the driver node"
"""The engine's own words."""
ADDRESS = r"[0-9A-Fa-f.:]{2,45}"
ADDRESSES = re.compile(rf"Driver IP: (?P<driver>{ADDRESS}), worker IPs: \[(?P<workers>[^\]]{{0,9000}})\]")
WORKERS_ALONE = (0, 8)
"""The first release whose driver is no rank."""
SUPPLY = "the engine's start-up log and `ray list nodes`, or topocheck probe in the job's own processes"


def driver_without_rank(ask: Ask) -> Iterator[Finding]:
    """By the engine's refusal, else by the nodes that its ranks are on."""
    placement, ray = ask.placement, ask.placement.facts.ray
    refused = [fact for fact in facts_of(placement, "refused") if REFUSAL in fact.value]
    if refused:
        told = ADDRESSES.search(refused[0].value)
        driver = told["driver"] if told else "the node that runs it"
        workers = dict.fromkeys(re.findall(ADDRESS, told["workers"]) if told else ["other nodes"])
        yield left_out(driver, list(workers), [read_at(fact.at, fact.value) for fact in refused])
    elif ray is not None and drives_a_rank(placement.plan):
        yield from by_places(ask, placement, ray)


def drives_a_rank(plan: Plan) -> bool:
    """The engine's driver is a rank itself."""
    return plan.engine == "vllm" and before(plan.engine_version, WORKERS_ALONE)


def by_places(ask: Ask, placement: Placement, ray: RayJob) -> Iterator[Finding]:
    """The nodes that carry ranks, or have reserved GPUs, and the driver's among them."""
    nodes = nodes_with_ranks(placement, ray) or nodes_reserved(placement)
    if not ray.driver or not nodes:
        need = (
            "the nodes that Ray reserved for the ranks" if ray.driver else "the node of the engine's driver"
        )
        ask.gap(need, ["job"], SUPPLY, part="ranks")
    elif not any(ray.is_driver(names) for names in nodes.values()):
        seen = Evidence(source="evidence", fact=f"ranks on {first(nodes)}; driver on {ray.driver[0]}")
        yield left_out(ray.driver[0], list(nodes), [seen])


def nodes_with_ranks(placement: Placement, ray: RayJob) -> dict[str, tuple[str, ...]]:
    """Names that each node with ranks goes by; {} unless every rank's node is claimed or seen."""
    if placement.phase == "predicted" or placement.unplaced:
        return {}
    machines, places = placement.inventory.machines, placement.node_of
    return {
        machines[index].name: names_of_machine(machines[index])
        for index, place in places.items()
        if placement.ranks_on.get(place)
    }


def nodes_reserved(placement: Placement) -> dict[str, tuple[str, ...]]:
    """Nodes on which Ray reserved GPUs for the job; {} unless those hold all its ranks."""
    facts = facts_of(placement, "reserved-gpus")
    whole = sum(number(fact.value) or 0 for fact in facts) >= placement.world
    return {fact.name: (fact.name,) for fact in facts} if whole else {}


def left_out(driver: str, nodes: Sequence[str], evidence: Sequence[Evidence]) -> Finding:
    """The finding."""
    return Finding(
        message=f"vLLM's driver runs on {driver} and is a rank itself, and Ray reserved GPUs on "
        f"{first(nodes)} alone: the engine refuses to start, or starts only when Ray happens to choose the "
        "driver's node",
        fix="start the engine on a node that has GPUs for it, or make a placement group whose first bundle "
        f"asks for `node:{driver}` (STRICT_PACK keeps a job of one node there); from 0.8 on vLLM needs none",
        cause="driver's node without a rank",
        subjects=(driver,),
        evidence=tuple(evidence),
    )
