"""The plan that the evidence itself shows, where the user gives none.

Sizes in force (an engine's own log) go before sizes that were asked for (a launch command, arguments in a
log). Statements that contradict each other are refused, and what is missing is asked for: nothing is
guessed. Every value says where it comes from, and the statements that it repeats are kept, so that no rule
holds the evidence against itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from topocheck.claims import claimed_size
from topocheck.column import claimed_column, observed_column
from topocheck.commands.command import FLAGS
from topocheck.commands.megatron_flags import PP_BEFORE_DP
from topocheck.communicators import sightings
from topocheck.engines import ENGINES
from topocheck.errors import UsageError
from topocheck.formula import ranks_of_sizes
from topocheck.inventory import Inventory
from topocheck.launchers.resolve import READS
from topocheck.nodeclaims import NODE_RANK, spelled
from topocheck.origin import Origin
from topocheck.plan import Model, Parallel, Plan
from topocheck.ranges import first
from topocheck.snapshot import At, JobFact

__all__ = ["evident"]

NEEDED = ("tensor", "pipeline")
"""Axes of every engine: an excerpt that names only one of them may hide the other."""
FILLED = ("data", "data_shard")
"""Axes that the number of ranks fixes, where nothing else does."""
ONE_NODE = frozenset({"mp", "uni"})
"""vLLM's executors that stay on one node, unless --nnodes says otherwise."""
OVERRIDES = {"vllm": "VLLM_PP_LAYER_PARTITION", "sglang": "SGLANG_PP_LAYER_PARTITION"}
"""Variables that split the layers."""
OVERRIDDEN_BY_FLAG = ("megatron", "tensorrt_llm")
"""Engines of which a stated list of layers is what was asked for: others log what they made of it."""
THREE_LINES = "--plan FILE with three lines (engine: vllm; parallel: {tensor: 4, pipeline: 2}; nodes: 2)"
LOG = "the engine's start-up log from its first line, or its launch command (a file, or -- vllm serve ...)"
SUPPLY = {
    "the number of ranks": "the launch command with its launcher's numbers (torchrun --nnodes 2 ...)",
    "the number of nodes": "--nodes N, or names in node-rank order: --nodes a,b",
}
"""What supplies a missing piece; LOG supplies the others."""


@dataclass(slots=True)
class _Evidence:
    """Statements about the job, and what was taken from them."""

    facts: Sequence[JobFact]
    said: list[str] = field(default_factory=list)
    taken: set[JobFact] = field(default_factory=set)

    def of(self, kind: str, engine: str | None = None, name: str | None = None) -> list[JobFact]:
        """Statements of a kind, of an axis or a subject, by this engine's words or nobody's."""
        return [
            fact
            for fact in self.facts
            if fact.kind == kind
            and (engine is None or fact.engine in (None, engine))
            and (name is None or fact.name == name)
        ]

    def take(self, what: str, facts: Sequence[JobFact], how: str = "") -> str | None:
        """The one value of these statements. Raises UsageError if they are of two minds."""
        by_value: dict[str, JobFact] = {}
        for fact in facts:
            by_value.setdefault(fact.value, fact)
        if len(by_value) > 1:
            one, other, *_ = by_value.values()
            raise UsageError(
                f"{where(one)} says {what} {one.value} and {where(other)} says {what} {other.value}: give "
                f"evidence of one launch of one job, or {THREE_LINES}"
            )
        for value, fact in by_value.items():
            self.taken.update(one for one in facts if one.value == value)
            self.said.append(f"{what} {value}: {where(fact)}{how}")
        return next(iter(by_value), None)


def evident(inventory: Inventory, nodes: int | Sequence[str] | None = None) -> tuple[Plan, Origin]:
    """The plan that the evidence shows, and where each of its values comes from.

    `nodes` stands for what the evidence leaves open. Raises UsageError in one sentence for what is missing,
    and for statements that contradict each other.
    """
    seen = _Evidence([fact for fact in inventory.job if printable(fact)])
    engine = engine_of(seen)
    sizes, whole = ({}, False) if engine is None else sizes_of(seen, engine)
    if engine is None or not whole:
        open_nodes = [] if nodes is not None or stated_nodes(seen, inventory) else ["the number of nodes"]
        known = " and ".join(f"{axis} {size}" for axis, size in sizes.items())
        lost = f"other sizes than {known}" if known else "the sizes"
        raise UsageError(missing([*([] if engine else ["the engine"]), lost, *open_nodes]))
    version = seen.take("engine version", seen.of("engine-version", engine))
    order = seen.take("order", orders_of(seen, engine))
    world = fill(seen, engine, sizes, inventory)
    defaults = FLAGS[engine].defaults if engine in FLAGS else {}
    seen.said += [f"{axis} {why}" for axis, why in defaults.items() if axis not in sizes]
    plan = Plan(
        engine=engine,
        engine_version=version,
        parallel=Parallel(**sizes),
        nodes=1,
        order=order,
        model=model_of(seen, engine),
        layers=layers_of(seen, engine),
    )
    counted, by_ranks = nodes_of(seen, plan, inventory, nodes)
    said = ("no plan was given: engine, sizes and nodes are those that the evidence shows", *seen.said)
    return msgspec.structs.replace(plan, nodes=counted), Origin(said, frozenset(seen.taken), world, by_ranks)


def where(fact: JobFact) -> str:
    """Where a statement was read."""
    if fact.at is None:
        return "the evidence"
    return fact.at.source if fact.at.line is None else f"{fact.at.source}:{fact.at.line}"


def printable(fact: JobFact) -> bool:
    """The value can stand in a sentence and in a plan."""
    return len(fact.value) <= 200 and fact.value.isprintable()


def number(fact: JobFact) -> int | None:
    """The value as a number from 1."""
    return int(fact.value) if fact.value.isdecimal() and len(fact.value) < 8 and int(fact.value) else None


def missing(pieces: Sequence[str]) -> str:
    """The sentence for what the evidence does not show."""
    what = pieces[0] if len(pieces) == 1 else f"{', '.join(pieces[:-1])} and {pieces[-1]}"
    supply = "; ".join(dict.fromkeys(SUPPLY.get(piece, LOG) for piece in pieces))
    return f"verify needs a plan, and the evidence does not show {what}: add {supply}; or give {THREE_LINES}"


def engine_of(seen: _Evidence) -> str | None:
    """The engine that is named, else the one whose words state sizes."""
    named = [fact for fact in seen.of("engine") if fact.value in ENGINES]
    if named:
        return seen.take("engine", named)
    speaking = [
        msgspec.structs.replace(fact, value=fact.engine)
        for fact in (*seen.of("size"), *seen.of("requested-size"))
        if fact.engine in ENGINES
    ]
    return seen.take("engine", speaking)


def sizes_of(seen: _Evidence, engine: str) -> tuple[dict[str, int], bool]:
    """(size by axis, those in force first; whether the others are the engine's defaults).

    An excerpt that does not name the engine may leave out any size.
    """
    sizes: dict[str, int] = {}
    in_force = any(fact.name in ENGINES[engine].sizes for fact in seen.of("size", engine))
    for axis in (axis for axis in Parallel.__struct_fields__ if axis in ENGINES[engine].sizes):
        for kind, how in (("size", ", in force"), ("requested-size", ", as asked for")):
            facts = [fact for fact in seen.of(kind, engine, axis) if number(fact)]
            if facts:
                sizes[axis] = int(seen.take(axis, facts, how) or 1)
                break
        else:
            refuse_unresolved(seen, engine, axis)
    if not in_force and (unread := seen.of("unread", engine)):
        raise UsageError(
            f"{where(unread[0])} takes settings from {unread[0].value}, which topocheck does not read: add "
            f"the engine's start-up log, or give {THREE_LINES}"
        )
    named = bool(seen.of("engine")) and bool(sizes)
    return sizes, named or all(axis in sizes for axis in NEEDED)


def refuse_unresolved(seen: _Evidence, engine: str, axis: str) -> None:
    """Raise UsageError for a size that hangs on a variable of a shell."""
    table = FLAGS[engine].table if engine in FLAGS else None
    for fact in seen.of("unresolved", engine):
        flag = fact.name.rpartition(" ")[2]
        if table is not None and table.known.get(table.spelling(flag), ("",))[0] == axis:
            raise UsageError(
                f"{where(fact)} sets {axis} to {fact.value}, which only the shell that ran it knows: add the "
                f"engine's start-up log, or give {THREE_LINES}"
            )


def orders_of(seen: _Evidence, engine: str) -> list[JobFact]:
    """Orders of the axes that commands and Megatron's log state."""
    if not ENGINES[engine].orders:
        return []
    flags = [
        msgspec.structs.replace(fact, value=PP_BEFORE_DP)
        for fact in seen.of("option", engine)
        if engine == "megatron" and spelled(fact.name) == "use-tp-pp-dp-mapping" and is_on(fact.value)
    ]
    return [*seen.of("order", engine), *flags]


def is_on(value: str) -> bool:
    """A switch is on."""
    return value.lower() in ("true", "1")


def fill(seen: _Evidence, engine: str, sizes: dict[str, int], inventory: Inventory) -> int | None:
    """Add the data size that the number of ranks leaves. Gives that number, if any multiple would do as well.

    vLLM and SGLang start their ranks by their sizes; for the others the launcher's processes are the ranks.
    Raises UsageError where nothing says how many there are.
    """
    axis = next((axis for axis in FILLED if axis in ENGINES[engine].sizes), None)
    if axis is None or axis in sizes:
        return None
    by_launcher = READS.get(engine, "rank") != "nothing"
    fact = world_of(seen, engine, inventory, stated=by_launcher)
    if fact is None:
        if by_launcher and engine in FLAGS and FLAGS[engine].ranks_from_launcher:
            raise UsageError(missing(["the number of ranks"]))
        return None
    world = int(fact.value)
    share, rest = divmod(world, ranks_of_sizes(Plan(engine=engine, parallel=Parallel(**sizes), nodes=1)))
    if rest or not share:
        return None  # ID002 says so
    sizes[axis] = share
    seen.taken.update(one for one in seen.of("world") if one.value == fact.value)
    seen.said.append(f"{axis} {share}: it follows from a world of {world} ranks ({where(fact)})")
    return world if share > 1 else None  # of one copy the other sizes are proof


def world_of(seen: _Evidence, engine: str, inventory: Inventory, *, stated: bool) -> JobFact | None:
    """The world size that processes claim, else the one that logs state, else what the launcher starts."""
    size = claimed_size(inventory.claims)
    if size is not None:
        return JobFact(kind="world", value=str(size), at=At(source="claims of the processes"))
    if not stated:
        return None
    found = [fact for fact in seen.of("world", engine) if number(fact)]
    if found:
        silent = _Evidence(seen.facts)
        return next(fact for fact in found if fact.value == silent.take("a world size of", found))
    for level in ("agent", "launcher"):
        total, each, nodes = (
            [fact for fact in seen.of(kind, name=level) if number(fact)]
            for kind in ("processes", "processes-per-node", "nodes")
        )
        counts = {number(fact) for fact in total} or {
            (number(a) or 0) * (number(b) or 0) for a in each for b in nodes
        }
        if len(counts) == 1:
            return JobFact(kind="world", value=str(counts.pop()), at=(total or each)[0].at)
    return None


def model_of(seen: _Evidence, engine: str) -> Model | None:
    """Sizes of the model that commands and logs state."""
    sizes: dict[str, Any] = {}
    for name in ("layers", "hidden", "heads", "kv_heads", "experts"):
        facts = [fact for fact in seen.of("model-size", engine, name) if number(fact)]
        if facts:
            sizes[name] = int(seen.take(f"model {name}", facts) or 0)
    return Model(**sizes) if sizes else None


def layers_of(seen: _Evidence, engine: str) -> str | None:
    """The override of the split, where one only is asked for: rules look at several themselves."""
    facts = seen.of("layers", engine) if engine in OVERRIDDEN_BY_FLAG else []
    if engine in OVERRIDES:
        facts = seen.of("option", name=OVERRIDES[engine])
    return seen.take("layers", facts) if len({fact.value for fact in facts}) == 1 else None


def stated_nodes(seen: _Evidence, inventory: Inventory) -> list[JobFact]:
    """Numbers of nodes that logs, commands and manifests state, and those that launchers tell their pods."""
    told = [
        JobFact(kind="nodes", value=str(claim.nodes), at=claim.at or At(source=first(machine.sources, 2)))
        for machine in inventory.machines
        for claim in machine.node_claims
        if claim.nodes
    ]
    return [*(fact for fact in seen.of("nodes") if number(fact)), *told]


def nodes_of(
    seen: _Evidence, plan: Plan, inventory: Inventory, given: int | Sequence[str] | None
) -> tuple[int | tuple[str, ...], bool]:
    """(nodes of the plan, whether they are those on which ranks are shown). Raises UsageError without."""
    if given is not None:
        shown = given if isinstance(given, int) else ", ".join(given)
        seen.said.append(f"nodes {shown}: as given beside the evidence")
        return given if isinstance(given, int) else tuple(given), False
    value = seen.take("nodes", stated_nodes(seen, inventory))
    if value is not None:
        return int(value), False
    why = one_node(seen, plan)
    if why:
        seen.said.append(f"nodes 1: {why}")
        return 1, False
    hosts = hosts_of_ranks(plan, inventory)
    if not hosts:
        raise UsageError(missing(["the number of nodes"]))
    seen.said.append(f"nodes {len(hosts)}: all ranks are on {first(hosts)}")
    return len(hosts), True


def one_node(seen: _Evidence, plan: Plan) -> str:
    """Why the job has one node although nothing counts nodes; empty if that is not certain."""
    engine, sizes = plan.engine, msgspec.structs.asdict(plan.parallel)
    if all(size in (None, 1) for size in sizes.values()):
        return "the job has one rank"
    options = seen.of("option", engine)
    backends = [fact for fact in options if spelled(fact.name) == "distributed-executor-backend"]
    alone = {fact.value for fact in backends} <= ONE_NODE and sizes["data"] in (None, 1)
    numbered = seen.of(NODE_RANK, engine)
    if engine == "vllm" and backends and alone and not numbered:
        return (
            f"vLLM's executor {backends[0].value} stays on one node without --nnodes ({where(backends[0])})"
        )
    started = seen.of("launcher") or numbered or seen.of("unresolved", engine)
    by_ray = any(spelled(fact.name) == "use-ray" for fact in options)
    default = FLAGS[engine].one_node if engine in FLAGS else ""
    return "" if started or by_ray else default


def hosts_of_ranks(plan: Plan, inventory: Inventory) -> list[str]:
    """Hosts on which the evidence shows every rank of the world; [] if it does not show all."""
    given = {axis: size for axis, size in msgspec.structs.asdict(plan.parallel).items() if size is not None}
    world = ENGINES[plan.engine].layout(given, plan.engine_version, plan.order).world
    inventory.arrange()
    for column in (observed_column(sightings(inventory), world), claimed_column(inventory, world)):
        if column.complete:
            machines = sorted({machine for machine in column.node if machine is not None})
            return [inventory.machines[machine].name for machine in machines]
    return []
