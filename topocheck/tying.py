"""Which world a host, a claim and a communicator of the evidence belong to.

By name first: the plan names hosts, a claim names its world. What has no name is tied by the hosts and
processes of what has. Equal worlds are interchangeable, so that any of them may stand for whichever was
seen, as long as it is known what belongs together. Nothing else is guessed: it stays loose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from topocheck.binding import Binding, bind_names, kind_of
from topocheck.claims import UNKNOWN, ClaimColumns
from topocheck.inventory import Inventory
from topocheck.processgroups import ProcessGroup, communicators, joined
from topocheck.replicas import Part, count_of
from topocheck.worlds import ranks_of

__all__ = ["Ties", "tie"]


@dataclass(slots=True)
class Ties:
    """What belongs to which world: worlds as places in the list of parts, machines in the inventory's."""

    parts: Sequence[Part]
    kinds: list[int]
    """For each world the first one whose plan is equal but for the nodes' names."""
    ranks: list[int | None]
    """For each world how many ranks it has; None for sizes that its engine refuses."""
    on: dict[int, list[int]] = field(default_factory=dict)
    """Worlds of each machine."""
    groups: dict[str, int] = field(default_factory=dict)
    """World of each group of pods, as its pods name it."""
    claims: list[dict[str, list[int]]] = field(default_factory=list)
    """For each world its claims: name of a world in the evidence -> indexes in its columns."""
    comms: dict[str, int] = field(default_factory=dict)
    """World of each communicator that is tied."""
    processes: dict[tuple[int, int], int | None] = field(default_factory=dict)
    """World of a process (machine, pid); None where two have it, in containers of one machine."""
    devices: dict[tuple[int, int], int | None] = field(default_factory=dict)
    """World of a GPU (machine, ordinal); None where two use it."""
    loose_comms: dict[str, set[int]] = field(default_factory=dict)
    """Communicators that are tied to no world, with their machines."""
    between: dict[str, set[int]] = field(default_factory=dict)
    """Communicators of which no world has all processes, with their machines."""
    loose_claims: dict[int, int] = field(default_factory=dict)
    """Machines with claims that are tied to no world, and how many."""
    assumed: list[str] = field(default_factory=list)
    """What was assumed."""
    housed: set[int] = field(default_factory=set)
    """Worlds with a machine, or of which the plan names the nodes."""
    shown: set[int] = field(default_factory=set)
    """Worlds with a claim or a communicator."""

    def settle(self, machine: int, world: int) -> None:
        """A machine carries a world."""
        self.housed.add(world)
        worlds = self.on.setdefault(machine, [])
        if world not in worlds:
            worlds.append(world)
            worlds.sort()

    def homeless(self) -> list[int]:
        """Worlds without a machine whose hosts the plan does not name."""
        return [world for world in range(len(self.parts)) if world not in self.housed]

    def possible(self, machine: int) -> list[int]:
        """Worlds that a machine carries, or may carry: if none is known, or the plan deals it several."""
        known = self.on.get(machine)
        if not known:
            return self.homeless()
        if len(known) >= self.parts[known[0]].crowd or isinstance(self.parts[known[0]].plan.nodes, tuple):
            return known
        return known + [world for world in self.homeless() if self.kinds[world] == self.kinds[known[0]]]

    def take(self, world: int, name: str, indexes: Iterable[int], columns: ClaimColumns) -> None:
        """Claims are of a world, and so are their processes and GPUs."""
        self.shown.add(world)
        for index in indexes:
            self.claims[world].setdefault(name, []).append(index)
            machine = columns.machine[index]
            self.note(machine, columns.pid[index], columns.gpu[index], world)
            self.settle(machine, world)

    def note(self, machine: int, pid: int | None, gpu: int | None, world: int) -> None:
        """A process and a GPU are of a world."""
        for number, owners in ((pid, self.processes), (gpu, self.devices)):
            if number is not None and number != UNKNOWN:
                known = owners.setdefault((machine, number), world)
                owners[machine, number] = world if known == world else None

    def owner(self, machine: int, pid: int | None, gpu: int | None) -> int | None:
        """World of a process, else of a GPU, as far as known."""
        found = self.processes.get((machine, pid)) if pid is not None else None
        return self.devices.get((machine, gpu)) if found is None and gpu is not None else found


def tie(parts: Sequence[Part], inventory: Inventory) -> Ties:
    """Tie all evidence that can be tied. The inventory is settled and arranged."""
    kinds = kinds_of(parts)
    ranks = {kind: ranks_of(parts[kind].plan) for kind in set(kinds)}
    ties = Ties(parts, kinds, [ranks[kind] for kind in kinds], claims=[{} for _ in parts])
    tie_names(ties, inventory)
    tie_groups(ties, inventory)
    tie_named_claims(ties, inventory)
    tie_communicators(ties, inventory)
    tie_unnamed_claims(ties, inventory)
    tie_idle_hosts(ties, inventory)
    tie_neighbours(ties)
    return ties


def tie_names(ties: Ties, inventory: Inventory) -> None:
    """Hosts that the plan names."""
    named = [part.plan.nodes if isinstance(part.plan.nodes, tuple) else () for part in ties.parts]
    names = list(dict.fromkeys(name for nodes in named for name in nodes))
    binding = Binding(names, [None] * len(names), ["none"] * len(names))
    bind_names(binding, inventory.machines, ())
    where = dict(zip(names, binding.order, strict=True))
    for world, nodes in enumerate(named):
        for name in nodes:
            machine = where[name]
            if machine is not None:
                ties.settle(machine, world)
        if nodes:
            ties.housed.add(world)


def tie_named_claims(ties: Ties, inventory: Inventory) -> None:
    """Claims that name their world: by its name, by a replica's, or by their order where all are equal."""
    by_name = {part.name: world for world, part in enumerate(ties.parts)}
    strange: dict[str, ClaimColumns] = {}
    for name, columns in sorted(inventory.claims.items()):
        if name in by_name:
            ties.take(by_name[name], name, range(len(columns)), columns)
        elif name:
            strange[name] = columns
    for name in [name for name in strange if tie_replica(ties, name, strange[name])]:
        del strange[name]
    for name, world in housed_by_plan(ties, strange).items():
        columns = strange.pop(name)
        ties.take(world, name, range(len(columns)), columns)
    empty = [world for world, claims in enumerate(ties.claims) if not claims]
    if strange and len(strange) == len(empty) == len(ties.parts) and alike(ties, empty):
        for world, name in zip(empty, sorted(strange, key=counted), strict=True):
            ties.take(world, name, range(len(strange[name])), strange[name])
        listed = ", ".join(sorted(strange, key=counted)[:4]) + (", ..." if len(strange) > 4 else "")
        ties.assumed.append(f"the worlds are those that the processes name, in order: {listed}")
        return
    for columns in strange.values():
        loosen(ties, columns, range(len(columns)))


def tie_groups(ties: Ties, inventory: Inventory) -> None:
    """Groups of pods and child jobs whose index is the node's: by their name, or by their order."""
    machines: dict[str, set[int]] = {}
    for number, host in enumerate(inventory.machines):
        for claim in host.node_claims:
            if claim.world:
                machines.setdefault(claim.world, set()).add(number)
    by_name = {part.name: world for world, part in enumerate(ties.parts)}
    found = {name: by_name[name] for name in machines if name in by_name}
    if not found and len(machines) == len(ties.parts) and alike(ties, range(len(ties.parts))):
        found = dict(zip(sorted(machines, key=counted), range(len(ties.parts)), strict=True))
    for name, world in found.items():
        if isinstance(ties.parts[world].plan.nodes, tuple):
            continue  # the plan names its hosts
        ties.groups[name] = world
        for machine in machines[name]:
            ties.settle(machine, world)


def tie_replica(ties: Ties, name: str, columns: ClaimColumns) -> bool:
    """A replica calls itself dp1: of which declared world, its hosts say."""
    worlds = [world for world, part in enumerate(ties.parts) if part.name.rpartition(".")[2] == name]
    if not worlds or ties.parts[worlds[0]].replica is None:
        return False
    for index in range(len(columns)):
        here = [world for world in worlds if world in ties.possible(columns.machine[index])]
        if len(here) == 1:
            ties.take(here[0], name, [index], columns)
        else:
            loosen(ties, columns, [index])
    return True


def housed_by_plan(ties: Ties, strange: Mapping[str, ClaimColumns]) -> dict[str, int]:
    """Worlds without claims that, by the names of the plan, alone are on all hosts of strange claims."""
    found: dict[str, int] = {}
    for name, columns in strange.items():
        here = {world for machine in set(columns.machine) for world in ties.on.get(machine, [-1])}
        world = here.pop() if len(here) == 1 else -1
        if world >= 0 and isinstance(ties.parts[world].plan.nodes, tuple) and not ties.claims[world]:
            found[name] = world
    held = Counter(found.values())
    return {name: world for name, world in found.items() if held[world] == 1}


def counted(name: str) -> tuple[tuple[str, int], ...]:
    """Names in the order of their numbers: vllm-2 before vllm-10."""
    parts = re.findall(r"([^0-9]*)([0-9]{0,18})", name)
    return tuple((text, int(digits or -1)) for text, digits in parts)


def loosen(ties: Ties, columns: ClaimColumns, indexes: Iterable[int]) -> None:
    """Claims that nothing ties."""
    for index in indexes:
        machine = columns.machine[index]
        ties.loose_claims[machine] = ties.loose_claims.get(machine, 0) + 1


def kinds_of(parts: Sequence[Part]) -> list[int]:
    """For each world the first one whose plan is equal but for the nodes' names."""
    firsts: list[tuple[object, int]] = []
    found = []
    for world, part in enumerate(parts):
        counted = msgspec.structs.replace(part.plan, nodes=count_of(part.plan.nodes)), part.crowd
        kind = next((first for other, first in firsts if other == counted), None)
        if kind is None:
            kind = world
            firsts.append((counted, world))
        found.append(kind)
    return found


def alike(ties: Ties, worlds: Iterable[int]) -> bool:
    """What holds of one of these worlds holds of any."""
    return len({ties.kinds[world] for world in worlds}) <= 1


def tie_communicators(ties: Ties, inventory: Inventory) -> None:
    """Communicators by the hosts and processes that are tied; whole worlds of equal ones in turn."""
    comms = communicators(inventory)
    inside = []
    for comm in comms.values():
        possible = [{*ties.possible(machine)} for machine in comm.machines]
        if set.intersection(*possible):
            inside.append(comm)
        else:
            apart = ties.between if any(possible) else ties.loose_comms
            apart.update(dict.fromkeys(comm.comms, comm.machines))
    waiting = []
    for group in joined(inside):
        world = world_of(ties, group)
        if world is None:
            waiting.append(group)
        else:
            tie_group(ties, group, world)
    for group in waiting:
        worlds = [world for world in candidates(ties, group) if world not in ties.shown]
        ranks = ties.ranks[worlds[0]] if worlds and alike(ties, worlds) else None
        if ranks is not None and group.size == ranks and len(group.seats) <= ranks:
            tie_group(ties, group, worlds[0])
        else:
            ties.loose_comms.update(dict.fromkeys(group.comms, group.machines))


def world_of(ties: Ties, group: ProcessGroup) -> int | None:
    """The world that its processes are known to be of, else the only one on its hosts."""
    votes = {ties.owner(*seat) for seat in group.seats} - {None}
    if votes:
        return votes.pop() if len(votes) == 1 else None
    found = candidates(ties, group)
    return found[0] if len(found) == 1 else None


def candidates(ties: Ties, group: ProcessGroup) -> list[int]:
    """Worlds that may be on all its hosts."""
    return sorted(set.intersection(*({*ties.possible(machine)} for machine in group.machines)))


def tie_group(ties: Ties, group: ProcessGroup, world: int) -> None:
    """A group is of a world."""
    ties.comms.update(dict.fromkeys(group.comms, world))
    ties.shown.add(world)
    for machine, pid, gpu in group.seats:
        ties.note(machine, pid, gpu, world)
        ties.settle(machine, world)


def tie_unnamed_claims(ties: Ties, inventory: Inventory) -> None:
    """Claims without the name of a world, host by host."""
    columns = inventory.claims.get("")
    if columns is None:
        return
    by_machine: dict[int, list[int]] = {}
    for index, machine in enumerate(columns.machine):
        by_machine.setdefault(machine, []).append(index)
    for machine in sorted(by_machine):
        rest = []
        for index in by_machine[machine]:
            pid, gpu = columns.pid[index], columns.gpu[index]
            world = ties.owner(machine, None if pid == UNKNOWN else pid, None if gpu == UNKNOWN else gpu)
            if world is None:
                rest.append(index)
            else:
                ties.take(world, "", [index], columns)
        if rest:
            tie_rest(ties, inventory, machine, rest)


def tie_rest(ties: Ties, inventory: Inventory, machine: int, indexes: list[int]) -> None:
    """Claims of one host: of its only world, or dealt to equal worlds of which each lies whole on it."""
    columns, worlds = inventory.claims[""], ties.possible(machine)
    if machine not in ties.on and len(worlds) > 1 and alike(ties, worlds):
        part = ties.parts[worlds[0]]
        if count_of(part.plan.nodes) == 1:
            worlds = worlds[: part.crowd]  # any of them: they are equal, and the next host takes the next
    if len(worlds) == 1:
        ties.take(worlds[0], "", indexes, columns)
    elif worlds and alike(ties, worlds) and is_whole(ties, columns, indexes, worlds):
        deal_by_gpu(ties, inventory, indexes, worlds)
    else:
        loosen(ties, columns, indexes)


def is_whole(ties: Ties, columns: ClaimColumns, indexes: Sequence[int], worlds: Sequence[int]) -> bool:
    """Every rank of each of these equal worlds is claimed here, and no other."""
    ranks = ties.ranks[worlds[0]]
    held = Counter(columns.rank[index] for index in indexes)
    return ranks is not None and held == Counter(dict.fromkeys(range(ranks), len(worlds)))


def deal_by_gpu(ties: Ties, inventory: Inventory, indexes: Sequence[int], worlds: Sequence[int]) -> None:
    """Equal worlds on one host use its GPUs one after the other, where all pairs of GPUs are alike.

    Where they are not, another grouping of the same processes could give another answer.
    """
    columns = inventory.claims[""]
    machine = columns.machine[indexes[0]]
    gpus = [columns.gpu[index] for index in indexes]
    if UNKNOWN in gpus or len(set(gpus)) < len(gpus) or not uniform(inventory, machine, gpus):
        loosen(ties, columns, indexes)
        return
    taken: Counter[int] = Counter()
    for index in sorted(indexes, key=lambda index: columns.gpu[index]):
        rank = columns.rank[index]
        ties.take(worlds[taken[rank]], "", [index], columns)
        taken[rank] += 1
    ties.assumed.append(
        f"equal worlds on {inventory.machines[machine].name} use its GPUs one after the other: the processes "
        "do not name their world"
    )


def uniform(inventory: Inventory, machine: int, gpus: Sequence[int]) -> bool:
    """All pairs of these GPUs are linked alike, or nothing is known of their links."""
    shape = inventory.machines[machine].shape
    if shape is None:
        return True
    within = [gpu for gpu in gpus if gpu < shape.gpus]
    links = {str(shape.link(a, b)) for a in within for b in within if a < b}
    return len(links) <= 1


def tie_idle_hosts(ties: Ties, inventory: Inventory) -> None:
    """Hosts that nothing ties: to worlds of which the plan names no host, if it makes no difference."""
    worlds = ties.homeless()
    busy = ties.loose_claims.keys() | {m for machines in ties.loose_comms.values() for m in machines}
    free = [m for m in range(len(inventory.machines)) if m not in ties.on and m not in busy]
    if not worlds or not free or busy - ties.on.keys():
        return
    if len(worlds) == 1:
        for machine in free:
            ties.settle(machine, worlds[0])
        return
    if not alike(ties, worlds):
        return
    each, crowd = count_of(ties.parts[worlds[0]].plan.nodes), ties.parts[worlds[0]].crowd
    kinds = [kind_of(inventory.machines, machine) for machine in free]
    if each > 1 and any(kind != kinds[0] for kind in kinds):
        return
    for place, machine in enumerate(free):
        for world in worlds[place // each * crowd : place // each * crowd + crowd]:
            ties.settle(machine, world)
    ties.assumed.append("which hosts carry which world: the worlds are equal, and so is the answer")


def tie_neighbours(ties: Ties) -> None:
    """Worlds of which nothing was seen, beside equal ones, where the plan leaves them no other host."""
    for kind in sorted({ties.kinds[world] for world in ties.homeless()}):
        crowd = ties.parts[kind].crowd
        hosts = sorted(
            m for m, worlds in ties.on.items() if all(ties.kinds[world] == kind for world in worlds)
        )
        if crowd == 1 or len(hosts) * crowd < ties.kinds.count(kind):
            continue
        waiting = [world for world in ties.homeless() if ties.kinds[world] == kind]
        for machine in hosts:
            for world in waiting[: crowd - len(ties.on[machine])]:
                ties.settle(machine, world)
            waiting = [world for world in waiting if world not in ties.housed]
