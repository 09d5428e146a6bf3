"""In which order the launcher of a command gives ranks to nodes, where the engine leaves it to the launcher.

The rules are those of `topocheck.launchers`; here a command's flags are put into their words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from topocheck.commands.documents import read_file
from topocheck.commands.launch import Launch, Starter, Stated
from topocheck.engines import ENGINES
from topocheck.engines.engine import Engine, as_launched
from topocheck.errors import LayoutError
from topocheck.launchers import deepspeed, hydra, openmpi, slurm
from topocheck.launchers.order import block
from topocheck.launchers.torchrun import agent_order
from topocheck.ranges import local_ranks

__all__ = ["RankOrder", "rank_order"]

BATCH = frozenset({"sbatch", "salloc"})
"""They give nodes and start the script once."""
MPI = frozenset({"mpirun", "mpiexec", "orterun", "prterun"})
PER_RANK = re.compile(r":pe=[0-9]+$")
"""Modifier of Open MPI's mapping that gives each rank several cores and, with ppr, moves none."""
HYDRA_FLAGS = ("-ppn", "--ppn", "-perhost", "--perhost")


SHARED = (
    "the flags for GPUs give one to several ranks: leave --gpu-id-step at 1, which the stages of one node do "
    "not follow, and choose GPUs by CUDA_VISIBLE_DEVICES"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """Where the launcher of a command puts its ranks."""

    launcher: str
    """Launcher, as the command names it."""
    nodes: Sequence[int] = ()
    """Node of each rank, by its place in the launcher's order."""
    local_ranks: Sequence[int] = ()
    """Local rank of each rank."""
    gpus: Sequence[int] = ()
    """GPU of each rank, by its index on the node."""
    hosts: tuple[str, ...] = ()
    """Names of the nodes in the launcher's order; () where they have none."""
    rule: str = ""
    """What the order follows from, in words."""
    notes: tuple[str, ...] = ()
    """What was assumed."""
    refusal: str = ""
    """Why the order is not known; empty if it is."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the launchers' rules ask about a command."""

    launch: Launch
    starter: Starter
    nodes: int
    """Nodes of the plan."""
    world: int
    """Ranks."""
    named: bool
    """The user gave the nodes in node-rank order."""
    folder: Path | None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that the command lists; () where the user has named them in order."""
        return () if self.named else tuple(host.host for host in self.launch.hosts)

    @property
    def each(self) -> int | None:
        """Processes that the command asks for on each node."""
        stated = self.launch.processes_per_node
        return stated.number if stated is not None else None

    def option(self, name: str, *variables: str) -> Stated | None:
        """A flag of the launcher, else a variable that stands for it."""
        found = self.starter.options.get(name)
        known = self.launch.environment
        return found or next((Stated(known[v], v) for v in variables if known.get(v)), None)

    def even(self) -> list[int]:
        """Ranks of each node if all have the same number, the first ones one more."""
        base, rest = divmod(self.world, self.nodes)
        return [base + (node < rest) for node in range(self.nodes)]


@dataclass(frozen=True, slots=True)
class Dealt:
    """Node by rank, by one launcher's rule."""

    nodes: Sequence[int]
    rule: str
    hosts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    entries: Sequence[int] = ()
    """Entry of the list of hosts by rank, where local ranks count within an entry and not on the node."""


def rank_order(
    launch: Launch, nodes: int, world: int, *, named: bool = False, folder: Path | None = None
) -> RankOrder | None:
    """Where the launcher of a command puts its ranks; None where the engine starts its own, or none is named.

    Flags by which the command gives an engine's own ranks other GPUs (SGLang --gpu-id-step) count too.
    `named`: the user gave the nodes in node-rank order. SLURM_HOSTFILE is read only where a folder is given.
    """
    engine = ENGINES[launch.engine or ""]
    backend = launch.options.get("distributed-executor-backend")
    external = backend is not None and backend.text == "external_launcher"
    gpus = as_launched if external else engine.gpus
    starter = next((one for one in reversed(launch.starters) if one.name not in BATCH), None)
    name = starter.name.partition(".")[0] if starter is not None else ""
    deal = by_mpi if name in MPI else RULES.get(name)
    if gpus is None:
        return by_own_flags(launch, engine, nodes, world)
    if starter is None or deal is None:
        return None
    try:
        dealt = deal(Job(launch, starter, nodes, world, named, folder))
    except LayoutError as error:
        return RankOrder(launcher=starter.name, refusal=f"{starter.name}: {error}")
    used = sorted(set(dealt.nodes))
    if len(used) != nodes:
        refusal = f"{starter.name} puts the ranks on {len(used)} nodes, and the plan has {nodes}"
        return RankOrder(launcher=starter.name, refusal=refusal)
    places = {node: place for place, node in enumerate(used)}
    order = [places[node] for node in dealt.nodes]
    by_node = deepspeed.local_ranks if name == "deepspeed" else local_ranks
    local = by_node(dealt.entries or order)
    hosts = () if len(dealt.hosts) <= used[-1] else tuple(dealt.hosts[node] for node in used)
    return RankOrder(
        launcher=starter.name,
        nodes=order,
        local_ranks=local,
        gpus=_selected(starter, hosts, order, local) or gpus(order, local),
        hosts=hosts,
        rule=dealt.rule,
        notes=dealt.notes,
    )


def by_own_flags(launch: Launch, engine: Engine, nodes: int, world: int) -> RankOrder | None:
    """Where an engine puts its own ranks under its flags for GPUs; None without such flags, or under Ray."""
    stated = {key: launch.options.get(key.replace("_", "-")) for key in engine.placing}
    given = {key: value for key, value in stated.items() if value is not None and value.number is not None}
    if not given or "use-ray" in launch.options or world % nodes:
        return None
    rule = ", ".join(f"{value.origin} {value.text}" for value in given.values())
    sizes = {axis: size.number for axis, size in launch.sizes.items() if size.number}
    try:
        layout = engine.layout(sizes, None, None)
        slots = engine.slots(layout, [world // nodes] * nodes, **{k: v.number for k, v in given.items()})
    except LayoutError as error:
        return RankOrder(launcher=engine.title, refusal=str(error))
    if slots is None:
        return None
    local = local_ranks(slots.nodes)
    shared = len(set(zip(slots.nodes, slots.gpus, strict=True))) < world
    return RankOrder(
        launcher=engine.title,
        nodes=slots.nodes,
        local_ranks=local,
        gpus=slots.gpus,
        rule=rule,
        notes=(SHARED,) * shared,
    )


def by_srun(job: Job) -> Dealt:
    """Slurm: --distribution over nodes, the tasks of a node as even as they can be."""
    stated = job.option("distribution")
    policy = stated.text if stated is not None else slurm.distribution(job.launch.environment)
    if policy is not None and policy.lower().startswith("arbitrary"):
        return _arbitrary(job)
    if job.each is not None and job.each * job.nodes < job.world:
        raise LayoutError(f"{job.world} tasks do not fit into {job.nodes} nodes of {job.each} tasks")
    default = "block" if job.world > job.nodes else "cyclic"
    rule = f"--distribution={policy}" if policy is not None else f"{default}, its default"
    notes = []
    if job.hosts:
        notes.append("Slurm has the order of nodes of its own configuration, taken to be that of --nodelist")
    if (job.each or 1) * job.nodes != job.world:
        notes.append(
            "each node takes as many tasks as the others: Slurm goes by CPUs unless --ntasks-per-node says it"
        )
    return Dealt(slurm.rank_nodes(job.even(), job.world, policy), rule, job.hosts, tuple(notes))


def _arbitrary(job: Job) -> Dealt:
    """The lines of SLURM_HOSTFILE, one a rank."""
    path = job.launch.environment.get("SLURM_HOSTFILE")
    if path is None or job.folder is None:
        raise LayoutError("--distribution=arbitrary follows SLURM_HOSTFILE, which is not set here")
    lines = [line.strip() for line in read_file(path, job.folder).replace(",", "\n").splitlines()]
    lines = [line for line in lines if line]
    if len(lines) < job.world:
        raise LayoutError(f"SLURM_HOSTFILE has {len(lines)} lines and the job {job.world} ranks")
    hosts = tuple(dict.fromkeys(lines[: job.world]))
    return Dealt(slurm.arbitrary(lines[: job.world], hosts), f"arbitrary, by the lines of {path}", hosts)


def by_mpi(job: Job) -> Dealt:
    """Open MPI's --map-by, or Hydra's -ppn."""
    stated = job.starter.processes_per_node
    hydra_flags = stated is not None and stated.origin.endswith(HYDRA_FLAGS)
    hosts = () if job.named else tuple(host.host for host in job.starter.hosts)
    slots = _slots(job)
    # Of a host that stands twice, Open MPI's entries were made one.
    twice = len({host.host for host in job.starter.hosts}) < len(job.starter.hosts)
    if hydra_flags or twice or job.starter.name.endswith("hydra"):
        policy = f"ppn={job.each}" if job.each else None
        rule = f"-ppn {job.each}" if job.each else "its default: each host filled in turn"
        return by_entries(job, hydra.rank_nodes(slots, job.world, policy), rule)
    return Dealt(*_open_mpi(job, slots), hosts)


def by_entries(job: Job, entries: Sequence[int], rule: str) -> Dealt:
    """Hydra's entries as nodes: a host in two entries apart is one, and counts local ranks twice."""
    names = [host.host for host in job.starter.hosts]
    hosts = tuple(dict.fromkeys(names))
    named = () if job.named else hosts
    if len(hosts) == len(names):
        return Dealt(entries, rule, named)
    return Dealt([hosts.index(names[entry]) for entry in entries], rule, named, entries=entries)


def _open_mpi(job: Job, slots: Sequence[int]) -> tuple[list[int], str]:
    variables = ("PRTE_MCA_rmaps_default_mapping_policy", "OMPI_MCA_rmaps_base_mapping_policy")
    stated, ranking = job.option("map-by", *variables), job.option("rank-by")
    if ranking is not None and ranking.text.lower() not in {"slot", "fill"}:
        raise LayoutError(f"in which order --rank-by {ranking.text[:40]} numbers ranks is not known")
    if "rankfile" in job.starter.options:
        raise LayoutError("a rankfile orders the ranks, and it is not read")
    policy = None if stated is None else stated.text
    if policy is not None and policy.lower().startswith("ppr:"):
        policy = PER_RANK.sub("", policy.lower())
    rule = "--map-by slot, its default" if stated is None else f"{stated.origin.split()[-1]} {stated.text}"
    if policy is None and "by-node" in job.starter.options:
        policy, rule = "node", "--bynode"
    elif policy is None and job.each is not None and job.starter.processes_per_node is not None:
        policy = f"ppr:{job.each}:node"
        rule = f"{job.starter.processes_per_node.origin.split()[-1]} {job.each}"
    return openmpi.rank_nodes(slots, job.world, policy), rule


def _slots(job: Job) -> list[int]:
    """Slots of each host as listed; where none are, room for the ranks of each node."""
    listed = [host.slots for host in job.starter.hosts]
    if None in listed:
        raise LayoutError("the list of hosts does not say how many slots each has")
    known = [slots for slots in listed if slots is not None]
    if not known or (job.each is not None and set(known) == {1}):
        return [job.each] * (len(known) or job.nodes) if job.each is not None else job.even()
    return known


def by_agents(job: Job) -> Dealt:
    """Torchrun and accelerate: the processes of one agent after those of the other."""
    each = job.each if job.each is not None and job.each * job.nodes == job.world else None
    nodes = block([each] * job.nodes if each else job.even(), job.world)
    hosts, backend = job.hosts, job.option("rdzv-backend")
    rule = "the ranks of each agent one after the other"
    if backend is None or backend.text == "static" or len(hosts) != job.nodes:
        return Dealt(nodes, rule, hosts)
    ordered = tuple(hosts[place] for place in agent_order([(host, 0, 0) for host in hosts]))
    note = (
        f"{backend.origin} {backend.text} numbers the nodes by their addresses as text, taken to be the "
        "names in the list of hosts"
    )
    return Dealt(nodes, rule, ordered, (note,))


def by_deepspeed(job: Job) -> Dealt:
    """The deepspeed launcher: hosts in the order of its file, one rank a slot."""
    listed = job.starter.hosts[: job.nodes]
    counts = [_count(job.starter.selected.get(host.host), host.slots) for host in listed]
    known = [count for count in counts if count is not None]
    whole = len(known) == len(counts) == job.nodes and job.each is None
    slots = known if whole else [job.each or job.world // job.nodes] * job.nodes
    hosts = () if job.named else tuple(host.host for host in listed)
    return Dealt(block(slots, job.world), "the hosts of its file one after the other", hosts)


def _count(selected: str | None, slots: int | None) -> int | None:
    return len(selected.split(",")) if selected else slots


def _selected(
    starter: Starter, hosts: Sequence[str], nodes: Sequence[int], local: Sequence[int]
) -> list[int]:
    """GPU by rank where DeepSpeed's --include selects indexes; [] where it does not."""
    if not starter.selected or not hosts:
        return []
    chosen = [[int(i) for i in starter.selected.get(host, "").split(",") if i.isdecimal()] for host in hosts]
    pairs = list(zip(nodes, local, strict=True))
    if any(chosen[node] and rank >= len(chosen[node]) for node, rank in pairs):
        return []
    return [chosen[node][rank] if chosen[node] else rank for node, rank in pairs]


RULES: dict[str, Callable[[Job], Dealt]] = {
    "srun": by_srun,
    "torchrun": by_agents,
    "accelerate": by_agents,
    "deepspeed": by_deepspeed,
}
