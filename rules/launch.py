"""ID: the launch gives every process the number, the peers and the GPUs that are its own."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from topocheck.agents import Agent, agents, in_plain_blocks, misnumbered
from topocheck.allocation import BY_INDEX, Given, given_on, numbered, usable
from topocheck.ask import Ask
from topocheck.families import at_odds, nested_launches, numbered_twice, title_of
from topocheck.jobfacts import facts_of, number, the_job
from topocheck.nested import Nesting, chains, nestings
from topocheck.noderanks import claimed_beyond, claimed_twice, numbered_nodes, twice
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rendezvous import (
    addresses,
    is_loopback,
    loopbacks,
    machine_of,
    masters,
    undecided,
)
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule, the
from topocheck.snapshot import JobFact, NestedLaunch
from topocheck.subjects import carriers

__all__ = ["RULES"]

PROBE = "topocheck probe in the job's own processes on every node"
ONE_LAUNCHER = (
    "start one task a node (--ntasks-per-node=1) and let it start the processes, or start the program itself "
    "once for each GPU"
)


def claimed(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, if its processes claim ranks, or two launchers number one of them."""
    if in_plain_blocks(placement) or agents(placement) or at_odds(placement):
        return the(placement)
    if placement.facts.by_node_rank:
        return NotApplicable("no process claims a rank: the engine makes ranks of the node ranks")
    if placement.phase == "observed":
        return NotApplicable("the job runs, and no environment of its processes was looked at")
    return {}


@rule("ID006", "rank, local rank and node rank agree", over=claimed, severity="error")
def numbers_agree(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Each local rank once under a node rank, and blocks of ranks in the order of the node ranks."""
    ask.rest_on("claimed")
    odds = at_odds(placement)
    if odds:
        yield numbered_twice(placement, odds)
    if in_plain_blocks(placement):
        return
    silent = [agent for agent in agents(placement) if any(local is None for _, local in agent.numbers)]
    if silent:
        ask.gap("local ranks of the processes", list(dict.fromkeys(a.node.name for a in silent)), PROBE)
    wrong = misnumbered(placement)
    if wrong:
        ranks = sorted(rank for one in wrong for rank in one.agent.ranks)
        yield Finding(
            message=f"the numbers do not agree: {wrong[0].fact}. Two sources of the node order are in use, "
            "and groups meet the wrong peers",
            fix="derive rank, local rank and node rank from one launcher, in one order of nodes",
            cause="numbers disagree",
            subjects=tuple(str(one.agent) for one in wrong),
            count=len(wrong),
            evidence=tuple(claim_of(one.agent, one.fact) for one in wrong),
            ranks=tuple(ranks),
        )


def claim_of(agent: Agent, fact: str) -> Evidence:
    """A fact about an agent, read where its claims were."""
    sources = agent.node.machine.sources if agent.node.machine else ()
    return read_at(agent.at, fact, first(sources, 2) or "rank probe")


def several_nodes(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, if it has several nodes."""
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    return the(placement)


@rule("ID007", "node ranks are complete and unique", over=several_nodes, severity="error")
def node_ranks_complete(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """A permutation of 0..N-1: a constant node rank makes every node the first."""
    yield from constant_node_ranks(placement)
    if in_plain_blocks(placement):
        ask.know()
        yield from stated_twice(placement)
        return
    holders: dict[int, list[Agent]] = {}
    for agent in agents(placement):
        if agent.node_rank is not None:
            holders.setdefault(agent.node_rank, []).append(agent)
    doubled = {rank: found for rank, found in holders.items() if len(found) > 1}
    if doubled:
        parts = [
            f"node rank {rank} is on {first(a.node.name for a in doubled[rank])}" for rank in sorted(doubled)
        ]
        held = [agent for rank in sorted(doubled) for agent in doubled[rank]]
        yield twice(parts, tuple(claim_of(a, f"node rank {a.node_rank} on {a.node}") for a in held))
    else:
        yield from stated_twice(placement)
    yield from claimed_twice(ask, placement)
    yield from claimed_beyond(placement)
    high = [rank for rank in holders if rank >= placement.expected]
    beyond = sorted(rank for rank in high if rank >= nodes_of(placement, holders[rank][0]))
    if beyond:
        yield Finding(
            message=f"node ranks {fold(beyond)} exist and the plan has {placement.expected} nodes "
            f"(0..{placement.expected - 1})",
            fix="number the nodes 0 to N-1, or correct `nodes:` in the plan",
            cause="node rank out of range",
            subjects=tuple(f"node rank {rank} on {holders[rank][0].node}" for rank in beyond),
            evidence=tuple(claim_of(holders[rank][0], f"node rank {rank}") for rank in beyond),
        )
    numbered = {agent.node.index for found in holders.values() for agent in found} | numbered_nodes(placement)
    silent = [node.name for node in placement.nodes[: placement.expected] if node.index not in numbered]
    if silent:
        ask.gap("node ranks", silent, PROBE)
    ask.know()


def nodes_of(placement: Placement, agent: Agent) -> int:
    """Agents that the plan leaves room for: as many as nodes, unless each has less than a node's ranks."""
    alone = len(agent.ranks) * placement.expected >= placement.world
    return placement.expected if alone else placement.world


def stated_twice(placement: Placement) -> Iterator[Finding]:
    """Logs or commands of different hosts that state one node rank. Text that names no host accuses none."""
    holders: dict[int, dict[str, JobFact]] = {}
    for fact in facts_of(placement, "node-rank"):
        host, rank = fact.host or fact.name, number(fact.value)
        if host and rank is not None:
            holders.setdefault(rank, {}).setdefault(host, fact)
    doubled = {rank: found for rank, found in holders.items() if len(found) > 1}
    if doubled:
        parts = [f"node rank {rank} is on {first(doubled[rank])}" for rank in sorted(doubled)]
        facts = [(host, fact) for rank in sorted(doubled) for host, fact in doubled[rank].items()]
        seen = tuple(read_at(fact.at, f"node rank {fact.value} on {host}") for host, fact in facts)
        yield twice(parts, seen)


def constant_node_ranks(placement: Placement) -> Iterator[Finding]:
    """Templates that give one node rank to several pods, or two roles of one job the same one."""
    pods = {fact.name: number(fact.value) for fact in facts_of(placement, "pods")}
    alone = {fact.at for fact in facts_of(placement, "nodes") if number(fact.value) == 1}
    roles: dict[str, list[JobFact]] = {}
    for fact in facts_of(placement, "node-rank"):
        if fact.value.startswith("constant ") and (fact.at is None or fact.at not in alone):
            roles.setdefault(fact.value.split()[-1], []).append(fact)
    for rank, facts in sorted(roles.items()):
        names = list(dict.fromkeys(fact.name for fact in facts))
        many = [name for name in names if pods_of(placement, name, pods) > 1]
        if many or len(names) > 1:
            whose = f"all pods of {first(many)}" if many else f"{first(names)} alike"
            yield Finding(
                message=f"{whose} are started with node rank {rank}, in a job of {placement.expected} nodes: "
                "they take the same ranks",
                fix="use the index that the launcher gives each pod (LWS_WORKER_INDEX, JOB_COMPLETION_INDEX)",
                cause="constant node rank",
                subjects=tuple(f"{name} template" for name in names),
                evidence=tuple(read_at(fact.at, f"{fact.name}: node rank {fact.value}") for fact in facts),
            )


def pods_of(placement: Placement, role: str, pods: dict[str, int | None]) -> int:
    """Pods of a role in one copy of the job; workers beside a leader are the nodes but one."""
    known = pods.get(role)
    if known is not None:
        return known
    return placement.expected - 1 if role == "worker" else 1


@rule("ID012", "the launcher starts no launchers", over=the_job, severity="error")
def no_launcher_of_launchers(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Tasks a node x processes a task must not exceed the GPUs of a node."""
    running = nested_launches(placement)
    if not chains(placement) and not running:
        ask.gap(
            "which launchers start the job", ["launch command"], "the launch script or command, as a file"
        )
        return
    ask.know()
    for launch, hosts in running.items():
        if launch.tasks > 1 and launch.tasks * launch.processes > room(placement):
            yield seen_nested(placement, launch, hosts)
    for nesting in nestings(placement):
        if nesting.tasks is None or nesting.processes is None:
            if nesting.tasks != 1 and nesting.processes != 1 and not running:
                ask.gap(
                    f"how many tasks a node {nesting.chain[0]} starts, and how many processes each of them",
                    [" ".join(nesting.chain)],
                    "the launch script with its numbers spelled out",
                )
        elif nesting.tasks > 1 and nesting.tasks * nesting.processes > room(placement):
            yield nested(placement, nesting, nesting.tasks, nesting.processes)


def room(placement: Placement) -> int:
    """Processes that a node can hold: its GPUs where their list is whole, at least its share of the world."""
    share = -(-placement.world // placement.expected)
    machines = [node.machine for node in placement.nodes]
    return max([share, *[len(m.gpus) for m in machines if m is not None and m.coverage.gpus == "all"]])


def seen_nested(placement: Placement, launch: NestedLaunch, hosts: list[str]) -> Finding:
    """The finding of agents that a process of the job sees several of on its node."""
    outer, inner, product = title_of(launch.outer), title_of(launch.family), launch.tasks * launch.processes
    fact = f"{launch.tasks} tasks of {outer}, {launch.processes} processes of {inner} in each"
    return Finding(
        message=f"{outer} starts {launch.tasks} tasks on {first(dict.fromkeys(hosts), 4)} and {inner} starts "
        f"{launch.processes} processes in each: {product} processes for {room(placement)} GPUs a node",
        fix=ONE_LAUNCHER,
        cause="launcher of launchers",
        subjects=(f"{product} processes a node",),
        evidence=tuple(read_at(launch.at, fact, f"rank probe of {host}") for host in dict.fromkeys(hosts)),
    )


def nested(placement: Placement, nesting: Nesting, tasks: int, processes: int) -> Finding:
    """The finding of a launcher that starts launchers."""
    product = tasks * processes
    return Finding(
        message=f"{' '.join(nesting.chain)} starts {tasks} tasks a node and each starts {processes} "
        f"processes: {product} processes for {room(placement)} GPUs a node",
        fix=ONE_LAUNCHER,
        cause="launcher of launchers",
        subjects=(f"{product} processes a node",),
        evidence=tuple(read_at(f.at, f"{f.name}: {f.kind} {f.value}") for f in nesting.facts),
    )


MASTER_FIX = (
    "set it to an address of the first node that all nodes reach (MASTER_ADDR, --dist-init-addr, "
    "--data-parallel-address, GLOO_SOCKET_IFNAME)"
)
GLOO_FIX = (
    "set GLOO_SOCKET_IFNAME where that process runs, not only beside the command (Ray workers have the "
    "environment of their own node), or let the node's host name resolve to an address that the others reach"
)


@rule("ID014", "the rendezvous address reaches all nodes", over=several_nodes, severity="error")
def rendezvous_is_reachable(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Not loopback where several nodes meet, one host for all, and the host of rank 0."""
    supply = "the engine's start-up log, or MASTER_ADDR by topocheck probe in the job's own processes"
    if not addresses(placement):
        ask.gap("the rendezvous address", ["job"], supply)
        return
    ask.know()
    local = loopbacks(placement)
    if local:
        yield Finding(
            message=f"{local[0]} is loopback: every node takes it for itself, and the job has "
            f"{placement.expected} nodes. The others wait for a rendezvous that never comes",
            fix=GLOO_FIX if {address.name for address in local} == {"gloo"} else MASTER_FIX,
            cause="loopback rendezvous",
            subjects=tuple(dict.fromkeys(map(str, local))),
            evidence=tuple(address.evidence for address in local),
        )
    for address in undecided(placement):
        ask.gap("which ranks meet at the loopback address", [str(address)], supply)
    if not local and all(is_loopback(address.value) for address in addresses(placement)):
        ask.gap("the address at which the nodes meet", ["job"], supply)
    yield from one_master(ask, placement)


def one_master(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """MASTER_ADDR of all nodes names one host, which runs rank 0. A name that is not known says nothing."""
    found = [address for address in masters(placement) if not is_loopback(address.value)]
    named = {address: machine_of(placement, address) for address in found}
    hosts = dict.fromkeys(node for node in named.values() if node is not None)
    if len(hosts) > 1:
        yield Finding(
            message=f"MASTER_ADDR names several hosts: {first(map(str, hosts))}. Nodes wait for each other "
            "at different places",
            fix="give all nodes the same MASTER_ADDR, a name of the node of rank 0",
            cause="rendezvous differs",
            subjects=tuple(map(str, found)),
            evidence=tuple(address.evidence for address in found),
        )
        return
    column = placement.placed
    place = None if column.basis == "predicted" else column.node[0]
    for address, node in named.items():
        if node is not None and place not in (None, node.index) and not address.agents:
            yield Finding(
                message=f"MASTER_ADDR is {address.value} ({node}), and rank 0, which opens the store, is on "
                f"{placement.nodes[place or 0]}",
                fix="set MASTER_ADDR to a name of the node of rank 0",
                cause="rendezvous elsewhere",
                subjects=(str(node),),
                evidence=(
                    address.evidence,
                    read_at(column.at.get(0), f"rank 0 on {placement.nodes[place or 0]}"),
                ),
                ranks=(0,),
            )
            return
    values = {address.value for address in found}
    if len(values) > 1:
        ask.gap("that all MASTER_ADDR are one host", sorted(values), "MASTER_ADDR as one name on all nodes")


def used_nodes(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes whose GPUs ranks use."""
    if placement.phase == "predicted":
        return NotApplicable("the job does not run yet: no GPU is in use")
    found: dict[Hashable, Sequence[Node]] = {}
    for kind, nodes in carriers(placement).items():
        given = given_on(nodes[0])
        if given.uuids:
            found |= {(kind, node.index): [node] for node in nodes}  # UUIDs are each node's own
        elif given.numbers:  # which GPU has which number is no part of a kind
            alike: dict[Hashable, list[Node]] = {}
            for node in nodes:
                numbers = tuple(map(numbered, node.machine.gpus)) if node.machine else ()
                alike.setdefault((kind, numbers), []).append(node)
            found |= alike
        else:
            found[kind] = nodes
    return found


@rule("ID016", "every GPU in use was given to the job", over=used_nodes, severity="error")
def gpu_is_the_jobs(ask: Ask, node: Node) -> Iterator[Finding]:
    """GPUs of ranks against what scheduler or container runtime gave: by UUID, else device number."""
    placement = ask.placement
    ask.rest_on(placement.placed.basis)
    given = given_on(node)
    gpus = node.machine.gpus if node.machine else ()
    if not (given.numbers or given.uuids) or not usable(gpus):
        ask.gap("which GPUs the job was given", [node.name], f"SLURM_JOB_GPUS by {PROBE}")
        return
    devices = ask.devices(placement.ranks_on[node.index])
    strange: dict[int, tuple[str, str | int]] = {}
    for rank, device in devices.items():
        gpu = gpus[device.ordinal]
        kind, known = ("UUID", gpu.uuid) if given.uuids else numbered(gpu)
        if known is None:
            ask.gap("UUIDs and minor numbers of the GPUs", [node.name], "nvidia-smi -q, given as NODE=FILE")
        elif known not in given.uuids | given.numbers:
            strange[rank] = kind, known
    if strange:
        more = len({device.ordinal for device in devices.values()}) > (given.count or 0)
        by_index = not more and any(kind == BY_INDEX for kind, _ in strange.values())
        names = [
            f"rank {rank} on {devices[rank]} ({kind} {known})" for rank, (kind, known) in strange.items()
        ]
        yield someone_elses(node, given, strange, names, by_index=by_index)


def someone_elses(
    node: Node, given: Given, strange: dict[int, tuple[str, str | int]], names: list[str], *, by_index: bool
) -> Finding:
    """The finding of GPUs that the job was not given; a warning where only NVML indexes tell."""
    doubt = ". An NVML index need not be the device number that Slurm counts" if by_index else ""
    numbers = [known for _, known in strange.values() if isinstance(known, int)]
    used = f"{next(iter(strange.values()))[0]} {fold(numbers)}" if numbers else first(names, 2)
    source = first(node.machine.sources, 2) if node.machine else "environment"
    return Finding(
        message=f"ranks {fold(strange)} on {node} use GPUs that the job was not given ({used}; given is "
        f"{first(given.words, 2)}): they may be another job's{doubt}",
        fix="leave CUDA_VISIBLE_DEVICES to the scheduler: indexes inside the allocation start at 0, and its "
        "own numbers are not they",
        cause="GPU not given by index" if by_index else "GPU not given",
        subjects=tuple(names),
        count=len(strange),
        evidence=tuple(Evidence(source=source, fact=word) for word in given.words),
        severity="warning" if by_index else "error",
        ranks=tuple(strange),
        mark="gpu",
    )


RULES = (
    node_ranks_complete,
    numbers_agree,
    no_launcher_of_launchers,
    rendezvous_is_reachable,
    gpu_is_the_jobs,
)
