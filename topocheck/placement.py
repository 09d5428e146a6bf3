"""Plan and snapshots joined: Rank -> stage -> node -> GPU.

Three answers for each rank stand side by side and are never mixed: predicted (plan, engine formula
and launcher), claimed (environment), observed (communicators, processes). The phase says which one
carries the verdicts: `predicted` only where no claim, communicator or edge exists anywhere.

Nodes are the places of the plan in its order, then hosts that carry ranks without a place in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby, zip_longest
from typing import TypeVar, cast

from topocheck.binding import Binding, Order, bind, expected_nodes
from topocheck.column import Column, blank, claimed_column, observed_column
from topocheck.communicators import Sightings, sightings
from topocheck.engines import ENGINES
from topocheck.engines.engine import Engine
from topocheck.engines.layout import Layout
from topocheck.errors import LayoutError
from topocheck.hardware import Shape
from topocheck.inventory import Inventory, Machine
from topocheck.plan import Basis, Plan
from topocheck.snapshot import JobFact, LogFact

__all__ = ["Node", "Placement", "place"]

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One place of the plan, or a host with ranks that has none."""

    index: int
    """Position in the placement's list; below `expected` it is the place in the plan."""
    name: str
    """How findings call it."""
    machine: Machine | None
    """What is known of it; None if nothing is."""
    bound_by: str
    """How the host came to this place."""

    @property
    def shape(self) -> Shape | None:
        """Its hardware shape, if known."""
        return None if self.machine is None else self.machine.shape

    @property
    def models(self) -> frozenset[str | None]:
        """Models of its GPUs; None among them where one is not shown, and alone where no GPU is."""
        shape = self.shape
        if shape is not None and shape.models and None not in shape.models:
            return shape.models
        known = [gpu.model for gpu in shape.hardware.gpus] if shape is not None else []
        named = [gpu.model for gpu in self.machine.gpus] if self.machine is not None else []
        return frozenset(a or b for a, b in zip_longest(known, named)) or frozenset({None})

    @property
    def kind(self) -> Hashable:
        """What rules can see of its GPUs: nodes of one kind answer alike. None without hardware."""
        machine = self.machine
        if machine is None or machine.shape is None:
            return None
        return id(machine.shape), machine.numbering, machine.coverage.gpus, machine.untied

    def gpu_name(self, ordinal: int | None) -> str | None:
        """Best known name of a GPU of it."""
        if ordinal is None:
            return None
        return f"GPU {ordinal}" if self.machine is None else self.machine.gpu_name(ordinal)

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class _Facts:
    """Everything that does not change with the order of nodes."""

    plan: Plan
    engine: Engine
    layout: Layout
    inventory: Inventory
    seen: Sightings
    phase: Basis
    binding: Binding
    by_machine: dict[Basis, Column]
    """Claimed and observed columns with machine indexes."""
    predicted: Column
    placing: dict[str, JobFact]
    """What of the engine's command line the prediction rests on, by keyword."""
    refusal: str
    """Why the formula puts the ranks nowhere, in the engine's words; empty if it places them."""
    assumptions: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Placement:
    """One reading of plan and evidence. Rules ask it through `Ask`."""

    facts: _Facts
    order: Order
    """Machine at each place of the plan."""

    @property
    def plan(self) -> Plan:
        """What was declared."""
        return self.facts.plan

    @property
    def layout(self) -> Layout:
        """Who is rank r."""
        return self.facts.layout

    @property
    def phase(self) -> Basis:
        """Which column carries the verdicts."""
        return self.facts.phase

    @property
    def world(self) -> int:
        """Number of ranks of the plan."""
        return self.facts.layout.world

    @property
    def seen(self) -> Sightings:
        """What the running job showed."""
        return self.facts.seen

    @property
    def inventory(self) -> Inventory:
        """All hosts."""
        return self.facts.inventory

    @property
    def expected(self) -> int:
        """Number of nodes that the plan expects."""
        return len(self.order)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Places of the plan in order, then hosts that carry ranks and have none."""
        binding, machines = self.facts.binding, self.inventory.machines
        nodes = []
        named = isinstance(self.plan.nodes, tuple)
        for place, index in enumerate(self.order):
            machine = None if index is None else machines[index]
            name = binding.names[place] if named or machine is None else machine.name
            how = binding.bound_by[place] if index == binding.order[place] else "assumed"
            nodes.append(Node(place, name, machine, how if machine else "none"))
        for index in binding.extra:
            nodes.append(Node(len(nodes), machines[index].name, machines[index], "not in the plan"))
        return tuple(nodes)

    @cached_property
    def node_of(self) -> dict[int, int]:
        """Node position of each machine."""
        places = {index: place for place, index in enumerate(self.order) if index is not None}
        extra = self.facts.binding.extra
        return places | {index: len(self.order) + number for number, index in enumerate(extra)}

    @property
    def unused(self) -> tuple[str, ...]:
        """Hosts that were seen and carry no rank of the job."""
        return tuple(self.inventory.machines[index].name for index in self.facts.binding.unused)

    @cached_property
    def columns(self) -> dict[Basis, Column]:
        """The three answers, by node position."""
        return {
            "predicted": self.facts.predicted,
            "claimed": self._by_place(self.facts.by_machine["claimed"]),
            "observed": self._by_place(self.facts.by_machine["observed"]),
        }

    def _by_place(self, column: Column) -> Column:
        """A column of machine indexes as a column of node positions."""
        if column.empty:
            return column
        place = cast("dict[int | None, int]", self.node_of)
        return replace(column, node=list(map(place.get, column.node)))

    @cached_property
    def placed(self) -> Column:
        """The column of the phase: the only one that a verdict may rest on."""
        return self.columns[self.phase]

    @cached_property
    def unplaced(self) -> list[int]:
        """Ranks whose node the phase's column does not know."""
        if self.placed.complete:
            return []
        return [rank for rank, node in enumerate(self.placed.node) if node is None]

    @cached_property
    def ranks_on(self) -> dict[int, list[int]]:
        """Ranks of each node by the phase's column."""
        ranks: dict[int, list[int]] = {}
        for node, run in groupby(range(self.world), self.placed.node.__getitem__):
            if node is not None:
                ranks.setdefault(node, []).extend(run)
        return ranks

    @property
    def assumptions(self) -> list[str]:
        """What was assumed because nothing said otherwise."""
        return self.facts.assumptions

    @cached_property
    def facts_by_node(self) -> dict[int, list[LogFact]]:
        """Statements of the running job's logs by node position."""
        found: dict[int, list[LogFact]] = {}
        for fact, machine in self.seen.facts:
            if machine in self.node_of:
                found.setdefault(self.node_of[machine], []).append(fact)
        return found

    @cached_property
    def _kept(self) -> dict[Hashable, object]:
        return {}

    def keep(self, name: Hashable, make: Callable[[Placement], Kept]) -> Kept:
        """What `make` derives from this placement, derived once under this name."""
        if name not in self._kept:
            self._kept[name] = make(self)
        return cast("Kept", self._kept[name])

    def variants(self) -> list[Placement]:
        """All readings that the evidence allows: one, unless the order of nodes is not known."""
        return [self, *(replace(self, order=order) for order in self.facts.binding.orders[1:])]

    @property
    def order_unknown(self) -> bool:
        """There are more orders of nodes than can be tried."""
        return self.facts.binding.too_many


def place(plan: Plan, inventory: Inventory) -> Placement:
    """Join a plan and the evidence.

    Raises LayoutError for sizes that the engine refuses, TwoJobsError for evidence of two jobs.
    """
    engine = ENGINES[plan.engine]
    layout = engine.layout(sizes_of(plan), plan.engine_version, plan.order)
    if isinstance(plan.nodes, tuple) and len(plan.nodes) == 1:
        inventory.settle_unlabelled(plan.nodes[0])
    elif plan.nodes == 1:
        inventory.settle_unlabelled()
    inventory.arrange()
    seen = sightings(inventory)
    by_machine: dict[Basis, Column] = {
        "claimed": claimed_column(inventory, layout.world),
        "observed": observed_column(seen, layout.world),
    }
    claimed = inventory.claims or any(snapshot.ranks for snapshot in inventory.unlabelled)
    phase: Basis = "observed" if seen.any else "claimed" if claimed else "predicted"
    active = active_machines(inventory, seen)
    nodes = expected_nodes(plan, inventory, active)
    placing = placing_facts(engine, inventory.job)
    predicted, refusal = predict(engine, layout, nodes, {key: int(f.value) for key, f in placing.items()})
    seats = seats_of(by_machine, predicted)
    binding = bind(plan, inventory, active, seats, nodes)
    facts = _Facts(
        plan, engine, layout, inventory, seen, phase, binding, by_machine, predicted, placing, refusal
    )
    facts.assumptions = assumptions(facts)
    return Placement(facts, binding.orders[0])


def sizes_of(plan: Plan) -> dict[str, int]:
    """Sizes that the plan gives."""
    given = {name: getattr(plan.parallel, name) for name in plan.parallel.__struct_fields__}
    return {name: size for name, size in given.items() if size is not None}


def active_machines(inventory: Inventory, seen: Sightings) -> list[int]:
    """Machines that carry ranks: by a claim or by a member of a communicator."""
    active = {m.machine for comm in seen.communicators.values() for m in comm.everyone()}
    active |= {index for index, machine in enumerate(inventory.machines) if machine.has_claims}
    return sorted(active)


def predict(
    engine: Engine, layout: Layout, nodes: int, options: Mapping[str, int] | None = None
) -> tuple[Column, str]:
    """Where the engine's formula puts each rank, world / nodes ranks on each node, and why it does not.

    `options` are what the engine's own command line says of GPUs.
    """
    column = blank("predicted", layout.world)
    if layout.world % nodes:
        return column, f"{layout.world} ranks do not divide over {nodes} nodes"
    try:
        slots = engine.slots(layout, [layout.world // nodes] * nodes, **(options or {}))
    except LayoutError as error:
        return column, str(error)
    if slots is None:
        return column, f"{engine.title} leaves it to the launcher"
    column.node, column.gpu = list(slots.nodes), list(slots.gpus)
    return column, ""


def placing_facts(engine: Engine, job: Sequence[JobFact]) -> dict[str, JobFact]:
    """What the engine's command line says of GPUs, by keyword; servers that differ say nothing."""
    found: dict[str, dict[str, JobFact]] = {}
    for fact in job:
        name = fact.name.lstrip("-").replace("-", "_")
        if (
            fact.kind == "option"
            and name in engine.placing
            and fact.value.isdecimal()
            and len(fact.value) < 6
        ):
            found.setdefault(name, {})[fact.value] = fact
    return {name: next(iter(facts.values())) for name, facts in found.items() if len(facts) == 1}


def seats_of(by_machine: dict[Basis, Column], predicted: Column) -> dict[int, Counter[int]]:
    """For each machine, how many of its ranks the formula puts at each place.

    Ranks that are claimed count only for machines of which none was observed.
    """
    seats: dict[int, Counter[int]] = {}
    for basis in ("observed", "claimed"):
        column = by_machine[basis]
        found: dict[int, Counter[int]] = {}
        pairs = Counter(zip(column.node, predicted.node, strict=True)) if not column.empty else {}
        for (machine, place), count in pairs.items():
            if machine is not None and place is not None:
                found.setdefault(machine, Counter())[place] += count
        seats = found | seats
    return seats


def assumptions(facts: _Facts) -> list[str]:
    """What the prediction and the binding rest on, in words."""
    found = []
    plan = facts.plan
    if plan.engine_version is None and facts.layout.version is not None:
        found.append(f"{facts.engine.title} {facts.layout.version}, the newest version known")
    if facts.phase == "predicted":
        given = "".join(f", {name} {fact.value}" for name, fact in facts.placing.items())
        found.append(
            f"ranks are where the engine's formula puts them{given}, CUDA_VISIBLE_DEVICES unset: nothing "
            "claims or shows them yet"
        )
    if "assumed" in facts.binding.bound_by and len(facts.binding.orders) == 1:
        found.append("the order of the nodes: all orders of equal nodes give the same answer")
    return found
