"""Which host stands at which place of the plan.

A plan expects N nodes, by number or by name. Hosts are matched by name; without names by the node
ranks that their processes claim, by the ranks seen on them, or because there is one node only. What
is left is assumed, and an assumption may carry a verdict only if every other one gives the same:
`orders` lists the distinct ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from types import MappingProxyType

from topocheck.hostnames import short_name
from topocheck.inventory import Inventory, Machine
from topocheck.plan import NodeRange, Plan

__all__ = ["Binding", "assume", "bind", "expected_nodes"]

MOST_ORDERS = 720
"""Distinct orders that are tried; where there are more, none is, and the order counts as unknown."""

UNCOUNTED = 10**9
"""So many orders are as good as any larger number of them."""

MOST_PLACES = 72_000
"""Places in all orders together that are tried: a job of many nodes takes longer in each."""

Order = tuple[int | None, ...]
"""Machine index at each place of the plan; None where no host is known for it."""

Seats = Callable[[], Mapping[int, Counter[int]]]
"""For each machine, how many of the ranks seen there the engine's formula puts at each place. It is asked
only where nothing else tells the places."""

Numbered = tuple[Mapping[int, int], bool]
"""Machine index by node rank, and whether it goes before the ranks that were seen on the machines."""


@dataclass(slots=True)
class Binding:
    """The outcome."""

    names: list[str]
    """Name of each place."""
    order: list[int | None]
    """Machine at each place."""
    bound_by: list[str]
    """How each place was bound: name, node rank, ranks seen, only node, assumed, none."""
    extra: list[int] = field(default_factory=list)
    """Machines that carry ranks and have no place in the plan."""
    unused: list[int] = field(default_factory=list)
    """Machines that carry no rank and have no place."""
    orders: list[Order] = field(default_factory=list)
    """Distinct orders that the evidence allows, the one in `order` first; one if it is settled."""
    too_many: int = 0
    """Number of orders where there are more than can be tried; 0 where all were."""
    loose: frozenset[int] = frozenset()
    """Places that the nodes in `names` may have in another order, which only Ray knows."""

    def names_in(self, order: Order) -> list[str]:
        """Name of each place in one of `orders`: a name goes where its host goes."""
        if order == tuple(self.order):
            return self.names
        named = {host: name for host, name in zip(self.order, self.names, strict=True) if host is not None}
        absent = iter(name for host, name in zip(self.order, self.names, strict=True) if host is None)
        return [next(absent) if host is None else named[host] for host in order]


def expected_nodes(plan: Plan, inventory: Inventory, active: Sequence[int]) -> int:
    """How many nodes the job has: the plan's number, or within its bounds those that carry ranks."""
    if isinstance(plan.nodes, int):
        return plan.nodes
    if isinstance(plan.nodes, NodeRange):
        seen = len(active) or len(inventory.machines)
        return min(max(seen, plan.nodes.min), plan.nodes.max)
    return len(plan.nodes)


def bind(
    plan: Plan,
    inventory: Inventory,
    active: Sequence[int],
    seats: Seats,
    nodes: int,
    *,
    numbered: Numbered = (MappingProxyType({}), False),
) -> Binding:
    """Match hosts to places.

    `active` are machines that carry ranks. `numbered` are machines by the node rank that they were
    given, and whether it goes before the ranks seen on them.
    """
    names = list(plan.nodes) if isinstance(plan.nodes, tuple) else [""] * nodes
    binding = Binding(names, [None] * nodes, ["none"] * nodes)
    if isinstance(plan.nodes, tuple):
        bind_names(binding, inventory.machines, active)
    else:
        bind_numbers(binding, inventory.machines, active, seats, numbered)
    if not binding.orders:
        binding.orders = [tuple(binding.order)]
    return binding


def settle(binding: Binding, place: int, machine: int, how: str) -> None:
    """Put a machine at a place."""
    binding.order[place] = machine
    binding.bound_by[place] = how


def bind_names(binding: Binding, machines: list[Machine], active: Sequence[int]) -> None:
    """Exactly, else by any other name of the host, else by a first label that is unique on both sides."""
    free = dict.fromkeys(range(len(machines)))
    for how, names_of in (
        ("name", lambda machine: (machine.host.name,)),
        ("alias", lambda machine: machine.host.aliases),
        ("short name", lambda machine: tuple(map(short_name, machine.names))),
    ):
        waiting = {place: name for place, name in enumerate(binding.names) if binding.order[place] is None}
        if how == "short name":
            waiting = {place: short_name(name) for place, name in waiting.items()}
        alike = Counter(waiting.values())
        hosts: dict[str | None, list[int]] = {}
        for index in free:
            for name in dict.fromkeys(names_of(machines[index])):
                hosts.setdefault(name, []).append(index)
        for place, wanted in waiting.items():
            found = hosts.get(wanted, [])
            if len(found) == 1 and alike[wanted] == 1 and found[0] in free:
                settle(binding, place, found[0], how)
                del free[found[0]]
    bind_nameless(binding, machines, [index for index in active if index in free], free)
    binding.extra = [index for index in free if index in set(active)]
    binding.unused = [index for index in free if index not in set(active)]


def bind_nameless(
    binding: Binding, machines: list[Machine], active: Sequence[int], free: dict[int, None]
) -> None:
    """Hosts with ranks and no name may be any of the nodes that nobody else is."""
    nameless = [index for index in active if not machines[index].names]
    places = [place for place, taken in enumerate(binding.order) if taken is None]
    if nameless and len(nameless) <= len(places):
        assume(binding, machines, nameless, places)
        for index in nameless:
            del free[index]


def bind_numbers(
    binding: Binding,
    machines: list[Machine],
    active: Sequence[int],
    seats: Seats,
    numbered: Numbered,
) -> None:
    """Places without names: by node rank, by ranks seen, else assumed."""
    nodes = len(binding.order)
    free = dict.fromkeys(range(len(machines)))
    if nodes == 1 and len(active or machines) == 1:
        index = (active or list(free))[0]
        settle(binding, 0, index, "only node")
        del free[index]
    else:
        given, before = numbered
        if before:
            bind_numbered(binding, given, free)
        bind_active(binding, machines, [index for index in active if index in free], seats, free)
        bind_numbered(binding, given, free)
    places = [place for place, taken in enumerate(binding.order) if taken is None]
    waiting = [index for index in active if index in free]
    if len(waiting) > len(places):
        binding.extra, waiting = waiting[len(places) :], waiting[: len(places)]
    busy = set(active)
    idle = [index for index in free if index not in busy]
    if len(idle) > len(places) - len(waiting):
        binding.unused, idle = idle, []
    if waiting or idle:
        assume(binding, machines, [*waiting, *idle], places)
    binding.names = [
        f"node {place}" if host is None else machines[host].name for place, host in enumerate(binding.order)
    ]


def bind_numbered(binding: Binding, given: Mapping[int, int], free: dict[int, None]) -> None:
    """Machines by the node rank that a launcher or the engine's command line gives them."""
    for place, index in given.items():
        if index in free and place < len(binding.order) and binding.order[place] is None:
            settle(binding, place, index, "node rank")
            del free[index]


def bind_active(
    binding: Binding,
    machines: list[Machine],
    active: Sequence[int],
    seats: Seats,
    free: dict[int, None],
) -> None:
    """Machines that carry ranks: node ranks if all claim one and each another, else most ranks."""
    order, bound_by = binding.order, binding.bound_by
    claimed = [machines[index].node_ranks for index in active]
    places = {ranks[0]: index for index, ranks in zip(active, claimed, strict=True) if len(ranks) == 1}
    within = places.keys() <= {place for place, taken in enumerate(order) if taken is None}
    if active and len(places) == len(active) and within:
        for place, index in places.items():
            order[place], bound_by[place] = index, "node rank"
            del free[index]
        return
    counts = seats()
    wishes = sorted(
        ((-count, place, index) for index in active for place, count in counts.get(index, Counter()).items()),
    )
    for _, place, index in wishes:
        if index in free and order[place] is None:
            settle(binding, place, index, "ranks seen")
            del free[index]


def assume(binding: Binding, machines: list[Machine], hosts: list[int], places: list[int]) -> None:
    """Hosts that nothing ties to a place: every distinct order of them is possible."""
    seats: list[int | None] = [*hosts, *[None] * (len(places) - len(hosts))]
    kinds = {seat: kind_of(machines, seat) for seat in seats}
    orders = [seats]
    if len(set(kinds.values())) > 1:
        possible = count_orders([kinds[seat] for seat in seats])
        if possible > MOST_ORDERS or possible * len(seats) > MOST_PLACES:
            binding.too_many = possible
        else:
            orders = list(distinct_orders(seats, kinds))
    for order in orders:
        full = list(binding.order)
        for at, host in zip(places, order, strict=True):
            full[at] = host
        binding.orders.append(tuple(full))
    for place, seat in zip(places, orders[0], strict=True):
        if seat is not None:
            settle(binding, place, seat, "only node" if len(binding.order) == 1 else "assumed")


def kind_of(machines: list[Machine], seat: int | None) -> object:
    """Hosts of one kind are interchangeable: same hardware, fabric, numbering, variables, ports and RDMA.

    A host whose log was read is a kind of its own.
    """
    if seat is None:
        return None
    machine = machines[seat]
    fabric = tuple((entry.cluster_uuid, entry.clique, entry.state) for entry, _ in machine.fabric)
    known = machine.host.boot_id is not None
    own = seat if machine.observed else None
    ports = tuple([id(state.ports) for state, _ in machine.states])
    shape = id(machine.shape), machine.numbering, ports, tuple(map(id, machine.verbs))
    return shape, fabric, machine.coverage, machine.environments, known, own


def count_orders(kinds: Sequence[object]) -> int:
    """Number of orders of hosts of these kinds that differ by more than an exchange within one kind."""
    count, placed = 1, 0
    for number in Counter(kinds).values():
        placed += number
        count *= comb(placed, number)
        if count > UNCOUNTED:
            return UNCOUNTED
    return count


def distinct_orders(seats: list[int | None], kinds: dict[int | None, object]) -> Iterator[list[int | None]]:
    """Orders that differ by more than an exchange of hosts of one kind; the given one first."""
    if not seats:
        yield []
        return
    tried = []
    for position, seat in enumerate(seats):
        if kinds[seat] in tried:
            continue
        tried.append(kinds[seat])
        for rest in distinct_orders(seats[:position] + seats[position + 1 :], kinds):
            yield [seat, *rest]
