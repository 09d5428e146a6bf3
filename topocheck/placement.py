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
from itertools import count, groupby
from typing import TypeVar, cast

from topocheck.binding import Binding, Order, bind, expected_nodes
from topocheck.column import Column, blank, claimed_column, observed_column, pass_over
from topocheck.communicators import Sightings, sightings
from topocheck.engines import ENGINES
from topocheck.engines.engine import Engine
from topocheck.engines.layout import Layout
from topocheck.formula import sizes_of
from topocheck.inventory import Inventory
from topocheck.node import Node
from topocheck.nodeclaims import Numbering, follows, formula_column, in_force, words
from topocheck.origin import NOTHING_TAKEN, Origin
from topocheck.plan import BASES, Basis, Plan, Role
from topocheck.prediction import placing_facts, predict, predict_visible
from topocheck.raynodes import RayJob, arrange, column_of, ray_job
from topocheck.runs import runs_of, spread
from topocheck.snapshot import JobFact, LogFact

__all__ = ["Node", "Placement", "join", "place"]

Kept = TypeVar("Kept")


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
    ray: RayJob | None = None
    """How Ray places the ranks; None if it does not."""
    shares: dict[int, int] | None = None
    """Ranks that each machine of a Ray job has, where they are unequal."""
    numbering: Numbering | None = None
    """Node ranks that tell the places of nodes; None if none do."""
    by_node_rank: str = ""
    """What the claimed column follows from where no process claims a rank: formula and node ranks."""
    origin: Origin = NOTHING_TAKEN
    """What of the evidence the plan itself was made of."""
    assumptions: list[str] = field(default_factory=list)
    name: str = ""
    """Name of the world; empty for the only one."""
    role: Role | None = None
    """What this world does where prefill and decode are apart."""
    worlds: Sequence[Placement] = ()
    """All worlds of a job that has several, this one among them."""


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
        hosts = [None if index is None else machines[index] for index in self.order]
        ways = [
            "none" if index is None else how if index == settled else "assumed"
            for index, settled, how in zip(self.order, binding.order, binding.bound_by, strict=True)
        ]
        strays = [machines[index] for index in binding.extra]
        names = [*binding.names_in(self.order), *[machine.name for machine in strays]]
        ways += ["not in the plan"] * len(strays)
        return tuple(map(Node, count(), names, [*hosts, *strays], ways))

    @cached_property
    def node_of(self) -> dict[int, int]:
        """Node position of each machine."""
        order = (*self.order, *self.facts.binding.extra)
        return {index: place for place, index in enumerate(order) if index is not None}

    @property
    def unused(self) -> tuple[str, ...]:
        """Hosts that were seen and carry no rank of the job."""
        return tuple(self.inventory.machines[index].name for index in self.facts.binding.unused)

    @cached_property
    def columns(self) -> dict[Basis, Column]:
        """The three answers, by node position."""
        return {
            "predicted": self.predicted,
            "claimed": self._by_place(self.facts.by_machine["claimed"]),
            "observed": self._by_place(self.facts.by_machine["observed"]),
        }

    @cached_property
    def predicted(self) -> Column:
        """Where the engine's formula puts the ranks. Ray's shares and GPUs seen go with their nodes."""
        shares = self.facts.shares
        if shares is not None:
            return column_of(self.order, shares, self.world)
        own = predict_visible(self.facts.engine, self.layout, self.order, self.inventory.machines)
        return self.facts.predicted if own is None else own

    def _by_place(self, column: Column) -> Column:
        """A column of machine indexes as a column of node positions."""
        if column.empty:
            return column
        place = cast("dict[int | None, int]", self.node_of)
        share, rest = divmod(self.world, self.expected)
        machines = None if rest else runs_of(column.node, share)
        if machines is None:
            return replace(column, node=list(map(place.get, column.node)))
        places, predicted = list(map(place.get, machines)), self.predicted.node
        if places == runs_of(predicted, share):
            return replace(column, node=predicted)
        return replace(column, node=spread(places, share))

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
    def runs(self) -> Sequence[int]:
        """Nodes in the order of their ranks, where each has one run of equal length; () elsewhere."""
        share, rest = divmod(self.world, self.expected)
        nodes = None if rest else runs_of(self.placed.node, share)
        if nodes is None or None in nodes or len(set(nodes)) < len(nodes):
            return ()
        return cast("list[int]", nodes)

    @cached_property
    def ranks_on(self) -> Mapping[int, Sequence[int]]:
        """Ranks of each node by the phase's column."""
        if self.runs:
            bounds = list(range(0, self.world + 1, self.world // self.expected))
            return dict(zip(self.runs, map(range, bounds, bounds[1:]), strict=True))
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
    def orders_untried(self) -> int:
        """Number of orders of the nodes where there are more than can be tried; 0 where all were."""
        return self.facts.binding.too_many


def place(plan: Plan, inventory: Inventory, origin: Origin = NOTHING_TAKEN) -> Placement:
    """Join a plan and the evidence. `origin` says what of the evidence the plan itself was made of.

    Raises LayoutError for sizes that the engine refuses, TwoJobsError for evidence of two jobs.
    """
    if isinstance(plan.nodes, tuple) and len(plan.nodes) == 1:
        inventory.settle_unlabelled(plan.nodes[0])
    elif plan.nodes == 1:
        inventory.settle_unlabelled()
    inventory.arrange()
    return join(plan, inventory, origin)


def join(
    plan: Plan,
    inventory: Inventory,
    origin: Origin = NOTHING_TAKEN,
    first_gpus: Sequence[int | None] = (),
) -> Placement:
    """Join a plan and evidence that is settled and arranged: of the only world, or of one of several.

    `first_gpus` says for each node how many GPUs other worlds take there before this one, None where that is
    not known. Raises as `place`.
    """
    engine = ENGINES[plan.engine]
    layout = engine.layout(sizes_of(plan), plan.engine_version, plan.order)
    seen = sightings(inventory)
    by_machine: dict[Basis, Column] = {
        "claimed": claimed_column(inventory, layout.world),
        "observed": observed_column(seen, layout.world),
    }
    claimed = inventory.claims or any(snapshot.ranks for snapshot in inventory.unlabelled)
    phase: Basis = "observed" if seen.any else "claimed" if claimed else "predicted"
    active = active_machines(inventory, seen)
    nodes = expected_nodes(plan, inventory, active)
    ray = ray_job(plan, inventory, layout.world)
    placing = placing_facts(engine, inventory.job) if ray is None else {}
    predicted, refusal = predict(engine, layout, nodes, {key: int(f.value) for key, f in placing.items()})
    if first_gpus:
        pass_over(predicted, first_gpus, int(placing["gpu_id_step"].value) if "gpu_id_step" in placing else 1)
    numbering = in_force(inventory, plan.engine, nodes) if ray is None else None
    by_node_rank = ""
    if numbering is not None and not (claimed or predicted.empty) and follows(plan.engine, inventory.job):
        by_machine["claimed"] = formula_column(predicted, numbering, inventory, engine.title)
        phase = "claimed" if phase == "predicted" else phase
        by_node_rank = words(engine.title, numbering, placing)
    if by_machine["claimed"].gpu == predicted.gpu:
        by_machine["claimed"].gpu = predicted.gpu  # one list for both
    numbered = (numbering.settled, numbering.own and not claimed) if numbering else ({}, False)
    binding = bind(plan, inventory, active, lambda: seats_of(by_machine, predicted), nodes, numbered=numbered)
    facts = _Facts(
        plan, engine, layout, inventory, seen, phase, binding, by_machine, predicted, placing, refusal, ray
    )
    if ray is not None:
        known = next((by_machine[basis] for basis in BASES[:0:-1] if not by_machine[basis].empty), None)
        facts.shares = arrange(binding, plan, inventory.machines, ray, known)
        facts.refusal = "" if facts.shares else ray.refusal or refusal
        facts.predicted = blank("predicted", layout.world) if facts.refusal else predicted
    facts.numbering, facts.by_node_rank, facts.origin = numbering, by_node_rank, origin
    facts.assumptions = [*origin.said, *assumptions(facts)]
    return Placement(facts, binding.orders[0])


def active_machines(inventory: Inventory, seen: Sightings) -> list[int]:
    """Machines that carry ranks: by a claim or by a member of a communicator."""
    active = {m.machine for comm in seen.communicators.values() for m in comm.everyone()}
    active |= {index for index, machine in enumerate(inventory.machines) if machine.has_claims}
    return sorted(active)


def seats_of(by_machine: dict[Basis, Column], predicted: Column) -> dict[int, Counter[int]]:
    """For each machine, how many of its ranks the formula puts at each place.

    Ranks that are claimed count only for machines of which none was observed.
    """
    seats: dict[int, Counter[int]] = {}
    for basis in ("observed", "claimed"):
        column = by_machine[basis]
        found: dict[int, Counter[int]] = {}
        pairs = Counter(zip(column.node, predicted.node, strict=True)) if not column.empty else {}
        for (machine, place), number in pairs.items():
            if machine is not None and place is not None:
                found.setdefault(machine, Counter())[place] += number
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
    if facts.ray is not None:
        found.append(facts.ray.assumption(facts.binding))
    if facts.by_node_rank and facts.phase == "claimed":
        found.append(f"{facts.by_node_rank}, of the GPUs that CUDA_VISIBLE_DEVICES leaves where it is shown")
    if "assumed" in facts.binding.bound_by and len(facts.binding.orders) == 1:
        found.append("the order of the nodes: all orders of equal nodes give the same answer")
    return found
