"""Ray: in which order its nodes get a job's ranks, as far as the evidence shows it.

Ray promises no order. vLLM sorts what it got: the driver's node first, then the others by node id
(RayExecutorV2, the only executor in 0.33 and the usual one in 0.24) or by address as text
(RayDistributedExecutor, 0.11 and 0.19; in 0.24 with VLLM_USE_RAY_V2_EXECUTOR_BACKEND=0); see
`topocheck.launchers.ray`. Data replicas get placement groups of their own, in an order of Ray's. SGLang takes
the engine's node first and the others as Ray numbers them (srt/ray/engine.py). Ranks that were seen on nodes
are fact and go before all that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from math import inf
from typing import Literal

import msgspec

from topocheck.binding import Binding, assume
from topocheck.column import Column, blank
from topocheck.engines import ENGINES
from topocheck.engines.version import before
from topocheck.inventory import Inventory, Machine
from topocheck.launchers.ray import bundle_order, worker_order
from topocheck.launchers.variables import number_of
from topocheck.plan import Plan
from topocheck.ranges import first as first_names
from topocheck.snapshot import JobFact

__all__ = ["RayJob", "arrange", "column_of", "names_of_machine", "ray_job"]

BACKEND = "distributed-executor-backend"
NEWER = "VLLM_USE_RAY_V2_EXECUTOR_BACKEND"
INDICES = "VLLM_RAY_BUNDLE_INDICES"
ADDRESS = "VLLM_HOST_IP"
NODE_ID = re.compile(r"(?:node_)?([0-9a-f]{56})")
LOOPBACK = re.compile(r"localhost|127\..*|::1")


@dataclass(frozen=True, slots=True)
class RayNode:
    """One node as Ray lists it."""

    id: str | None
    """Node id, 56 hex digits."""
    address: str | None
    """Address under which it joined."""
    gpus: int | None
    """GPUs that it offers."""


@dataclass(frozen=True, slots=True)
class RayJob:
    """How Ray places the ranks of a job."""

    key: Literal["id", "address"] | None
    """By what the executor sorts the nodes after the driver's; None if that is Ray's choice, or not known."""
    why: str
    """The rule or its absence, in words."""
    driver: tuple[str, ...] = ()
    """Names of the node whose process drives the engine; () if not known, or if it has no say."""
    nodes: tuple[RayNode, ...] = ()
    """Nodes that Ray lists."""
    world: int = 0
    """Ranks of the job."""
    refusal: str = ""
    """Why nothing is known of the order of ranks inside the job; empty if something is."""

    def listed(self, names: Iterable[str]) -> RayNode:
        """The node that goes by one of these names, put together from Ray's list and the names themselves."""
        known = set(names)
        for node in self.nodes:
            if known & {node.id, node.address}:
                return node
        ids = [match[1] for name in known if (match := NODE_ID.fullmatch(name))]
        addresses = [name for name in known if re.fullmatch(r"[0-9.]+|[0-9a-f:]+:[0-9a-f:]+", name)]
        one, two = (found[0] if len(found) == 1 else None for found in (ids, addresses))
        return RayNode(one, two, None)

    def sort_value(self, names: Iterable[str]) -> str | None:
        """What the executor sorts this node by; None if that is not known."""
        node = self.listed(names)
        return {"id": node.id, "address": node.address, None: None}[self.key]

    def assumption(self, binding: Binding) -> str:
        """What the order of nodes rests on, in words."""
        names, loose = binding.names, binding.loose
        if "ranks seen" in binding.bound_by:
            return "Ray placed the ranks: the nodes are in the order of the ranks seen on them"
        if len(names) == 1:
            return "Ray places the ranks on one node"
        if not loose and "none" in binding.bound_by and names[0] == "node 0":
            return f"Ray places the ranks, node 0 is the first in its order: {self.why}"
        first = f"{names[0]} first, as the node that runs the engine's driver" if 0 not in loose else ""
        if first and self.drives_elsewhere:
            first = f"{names[0]} first, as the driver's node {self.driver[0]} has no GPU"
        if not loose:
            return f"Ray places the ranks: {first}; {self.why}"
        others = first_names([names[place] for place in sorted(loose)])
        known = None not in {self.sort_value((name,)) for name in names}
        why = "which of them runs the engine's driver is not shown" if known and not first else self.why
        order = f"the order of {others} is not known ({why})"
        return f"Ray places the ranks: {first}; {order}" if first else f"Ray places the ranks: {order}"

    @property
    def drives_elsewhere(self) -> bool:
        """The driver runs on a node that offers no GPU, as the head of KubeRay: no rank is there."""
        return bool(self.driver) and self.listed(self.driver).gpus == 0

    def is_driver(self, names: Iterable[str]) -> bool:
        """One of the names is the driver's, or Ray lists both as one node."""
        known = set(names)
        mine, theirs = self.listed(known), self.listed(self.driver)
        same = mine.id is not None and mine.id == theirs.id
        return bool(known & set(self.driver)) or same


def ray_job(plan: Plan, inventory: Inventory, world: int) -> RayJob | None:
    """How Ray places the ranks; None for a job that Ray does not place."""
    options = stated_options(inventory.job)
    if not under_ray(plan, inventory.job, options):
        return None
    options = {**variables(inventory), **options}
    key, why = sorting(plan, options)
    serves = plan.engine in {"vllm", "sglang"}
    driver = driver_of(plan, inventory.job) if serves else ()
    refusal = ""
    if plan.engine == "vllm" and options.get(INDICES):
        refusal = f"{INDICES} orders Ray's bundles, and which node a bundle is on is not shown"
    return RayJob(key, why, driver, listed_nodes(inventory.job), world, refusal)


def stated_options(job: Sequence[JobFact]) -> dict[str, set[str]]:
    """Values of each option or variable that commands and logs state."""
    found: dict[str, set[str]] = {}
    for fact in job:
        if fact.kind == "option":
            found.setdefault(fact.name.lstrip("-"), set()).add(fact.value.strip("'\""))
    return found


def variables(inventory: Inventory) -> dict[str, set[str]]:
    """Values of the variables that choose the order, in the environments of the nodes."""
    found: dict[str, set[str]] = {}
    for raw in {raw for machine in inventory.machines for raw in machine.environments}:
        for name, value in msgspec.json.decode(raw, type=dict[str, str]).items():
            if name in {NEWER, INDICES}:
                found.setdefault(name, set()).add(value)
    return found


def under_ray(plan: Plan, job: Sequence[JobFact], options: Mapping[str, set[str]]) -> bool:
    """The plan says so, or the engine's command or log does and nothing says otherwise."""
    if plan.launcher == "ray":
        return True
    if plan.engine == "sglang":
        return bool(options.get("use-ray", set()) - {"False", "false"})
    if plan.engine != "vllm":
        return False
    if backends := options.get(BACKEND):
        return backends == {"ray"}
    return any(fact.kind in {"reserved-gpus", "bundles"} for fact in job)


def sorting(plan: Plan, options: Mapping[str, set[str]]) -> tuple[Literal["id", "address"] | None, str]:
    """What the executor of this version sorts nodes by, and why."""
    title, version = ENGINES[plan.engine].title, plan.engine_version
    if plan.engine != "vllm":
        return None, f"under Ray {title} takes the nodes as Ray gives them"
    if (plan.parallel.data or 1) > 1:
        return None, "each data replica has a placement group of its own, in an order of Ray's"
    old = options.get(NEWER) == {"0"}
    if before(version, (0, 20)) or (old and before(version, (0, 25))):
        return "address", f"vLLM {version} sorts Ray's workers by address as text"
    if before(version, (0, 24)) or (old and before(version, (0, 33))):
        return None, f"by what vLLM {version} sorts the nodes of a Ray job is not known"
    return "id", "vLLM sorts Ray's bundles by node id"


def driver_of(plan: Plan, job: Sequence[JobFact]) -> tuple[str, ...]:
    """Names of the driver's node: the host of the launch command, else the address that its workers join."""
    for fact in job:
        names = {BACKEND, "use-ray"}
        if (
            fact.kind == "option"
            and fact.name.lstrip("-") in names
            and fact.host
            and fact.engine == plan.engine
        ):
            return (fact.host,)
    for fact in job:
        if fact.kind == "rendezvous" and fact.name == "dist-init" and fact.engine == plan.engine:
            host = fact.value.rpartition("//")[2].rpartition(":")[0].strip("[]")
            if host and not LOOPBACK.fullmatch(host):
                return (host,)
    return ()


def listed_nodes(job: Sequence[JobFact]) -> tuple[RayNode, ...]:
    """Nodes of `ray status`, `ray list nodes` and the driver's resources."""
    found: dict[str, RayNode] = {}
    gpus = {fact.name: number_of(fact.value) for fact in job if fact.kind == "cluster-node-gpus"}
    for fact in job:
        if fact.kind != "cluster-node":
            continue
        match = NODE_ID.fullmatch(fact.name)
        name = match[1] if match else fact.name
        address = (fact.value or None) if match else fact.name
        if name not in found or found[name].address is None:
            found[name] = RayNode(match[1] if match else None, address, gpus.get(fact.name))
    return tuple(sorted(found.values(), key=lambda node: node.id is None))


def arrange(
    binding: Binding,
    plan: Plan,
    machines: Sequence[Machine],
    ray: RayJob,
    seen: Column | None,
) -> dict[int, int] | None:
    """Put the nodes of a Ray job in order, and tell the ranks of each machine where shares are unequal.

    By the first rank seen on each, else as the executor sorts them. `seen` is the column of machines that
    knows ranks, if one does. What stays open is every distinct order, the driver's node first where it is
    known; of nodes that the plan names, the first is taken for it.
    """
    named = isinstance(plan.nodes, tuple)
    seats = [seat_of(machines, ray, *pair) for pair in zip(binding.names, binding.order, strict=True)]
    firsts = {index: rank for rank, index in reversed(list(enumerate(seen.node if seen else ())))}
    if any(one.index is not None and one.index in firsts for one in seats):
        seats.sort(key=lambda one: inf if one.index is None else firsts.get(one.index, inf))
        settled, how = sum(one.index is not None and one.index in firsts for one in seats), "ranks seen"
    else:
        seats, settled = in_executors_order(seats, ray, named=named)
        how = f"Ray's order by {ray.key}" if ray.key else "Ray's order"
    seats = [*seats[:settled], *sorted(seats[settled:], key=lambda one: one.index is None)]
    take_places(binding, machines, seats, settled, how, named=named)
    return shares_of(seats, machines, seen, ray.world, settled=len(seats) - settled < 2)


def take_places(
    binding: Binding,
    machines: Sequence[Machine],
    seats: Sequence[Seat],
    settled: int,
    how: str,
    *,
    named: bool,
) -> None:
    """Bind nodes to places in this order; those after the settled ones in every distinct order."""
    places = range(len(seats))
    binding.names = [
        one.name if named or one.index is not None else f"node {place}" for place, one in enumerate(seats)
    ]
    fixed = [one.index if place < settled else None for place, one in enumerate(seats)]
    binding.order = fixed
    binding.bound_by = ["none" if index is None else how for index in fixed]
    binding.orders, binding.too_many = [], 0
    rest = places[settled:]
    told_apart = named or any(one.index is not None for one in seats)
    binding.loose = frozenset(rest) if len(rest) > 1 and told_apart else frozenset()
    if rest:
        hosts = [seats[place].index for place in rest]
        assume(binding, list(machines), [index for index in hosts if index is not None], list(rest))
    else:
        binding.orders = [tuple(binding.order)]


@dataclass(frozen=True, slots=True)
class Seat:
    """One node of the job before it has its place."""

    name: str
    """As the plan or the evidence calls it."""
    index: int | None
    """Its machine."""
    names: tuple[str, ...]
    """Every name and address that it goes by."""
    gpus: int | None
    """GPUs that Ray offers there: as it lists them, else all that the node shows."""


def seat_of(machines: Sequence[Machine], ray: RayJob, name: str, index: int | None) -> Seat:
    """What is known of one node."""
    if index is None:
        return Seat(name, None, (name,), ray.listed((name,)).gpus)
    machine = machines[index]
    names = (name, *names_of_machine(machine))
    whole = len(machine.gpus) if machine.coverage.gpus == "all" else None
    listed = ray.listed(names).gpus
    return Seat(name, index, names, whole if listed is None else listed)


def names_of_machine(machine: Machine) -> tuple[str, ...]:
    """Every name and address that a machine goes by, the one that vLLM was told among them."""
    own = [
        address.partition("/")[0]
        for state, _ in machine.states
        for addresses in state.addresses
        for address in addresses or ()
    ]
    told = [msgspec.json.decode(raw, type=dict[str, str]).get(ADDRESS) for raw in machine.environments]
    return (*machine.names, *own, *filter(None, told))


def in_executors_order(seats: list[Seat], ray: RayJob, *, named: bool) -> tuple[list[Seat], int]:
    """Nodes in the executor's order as far as it is known, and how many of them are settled.

    A driver on a node without GPUs comes first in that order and takes no rank.
    """
    drivers = [place for place, one in enumerate(seats) if ray.is_driver(one.names)]
    if not ray.driver and named:
        drivers = [0]
    if len(drivers) != 1 and (drivers or not ray.drives_elsewhere):
        return seats, 0
    driver = drivers[0] if drivers else None
    values = [ray.sort_value(one.names) for one in seats]
    others = [value for place, value in enumerate(values) if place != driver]
    if len(others) > 1 and (None in others or len(set(others)) < len(others)):
        first = [seats[driver]] if driver is not None else []
        return [*first, *(one for place, one in enumerate(seats) if place != driver)], len(first)
    keys = [f"{place} " if place == driver or value is None else value for place, value in enumerate(values)]
    counts = full(seats, ray.world) or [1] * len(seats)
    bundles = list(chain.from_iterable(map(repeat, keys, counts)))
    order = worker_order if ray.key == "address" else bundle_order
    first_key = keys[driver] if driver is not None else ""
    ranked = dict.fromkeys(bundles[bundle] for bundle in order(bundles, first_key))
    return [seats[keys.index(key)] for key in ranked], len(seats)


def full(seats: Sequence[Seat], world: int) -> list[int] | None:
    """Ranks of each node if the job takes every GPU of all of them; None if it is not known to."""
    counts = [one.gpus for one in seats if one.gpus]
    return counts if len(counts) == len(seats) and sum(counts) == world else None


def shares_of(
    seats: Sequence[Seat], machines: Sequence[Machine], seen: Column | None, world: int, *, settled: bool
) -> dict[int, int] | None:
    """Ranks of each machine where the nodes have unequal shares; None where shares are equal or not known.

    Shares are those seen, where `seen` knows every rank, else the GPUs of nodes that the job fills. Orders
    that are tried differ by the nodes' hardware, so that an open one needs it shown.
    """
    if seen is not None and seen.complete:
        counts = dict(Counter(index for index in seen.node if index is not None))
    elif settled or all(one.index is not None and machines[one.index].shape for one in seats):
        found = zip(seats, full(seats, world) or (), strict=False)
        counts = {one.index: count for one, count in found if one.index is not None}
    else:
        return None
    unequal = len(set(counts.values())) > 1
    return counts if unequal and counts.keys() == {one.index for one in seats} else None


def column_of(order: Sequence[int | None], shares: Mapping[int, int], world: int) -> Column:
    """Ranks that fill nodes of unequal shares one after the other, each the GPU of its place there."""
    counts = [0 if index is None else shares[index] for index in order]
    column = blank("predicted", world)
    column.node = list(chain.from_iterable(map(repeat, range(len(counts)), counts)))
    column.gpu = list(chain.from_iterable(map(range, counts)))
    return column
