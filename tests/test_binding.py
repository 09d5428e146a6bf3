"""Which host stands at which place of the plan."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from build import claims, inventory, log, plan, snap
from hypothesis import given, settings
from hypothesis import strategies as st
from made_network import with_ports

from topocheck.binding import Binding, bind, expected_nodes
from topocheck.plan import NodeRange, Plan
from topocheck.portreading import GidReading, PortReading
from topocheck.snapshot import FullSnapshot, Hardware, Host, Identity

Seats = dict[int, dict[int, int]]


def declared(nodes: int | tuple[str, ...] | NodeRange) -> Plan:
    return plan(nodes=nodes)


def bound(
    nodes: int | tuple[str, ...],
    *views: FullSnapshot,
    active: tuple[int, ...] = (),
    seats: Seats | None = None,
) -> Binding:
    text, found = declared(nodes), inventory(*views)
    counted = {machine: Counter(places) for machine, places in (seats or {}).items()}
    return bind(text, found, active, lambda: counted, expected_nodes(text, found, active))


def host(name: str, *aliases: str, boot: bool = True) -> FullSnapshot:
    identity = Identity(host=Host(name=name, boot_id=f"b-{name}" if boot else None, aliases=aliases))
    return log(name, identity=identity, observed=None)


def test_named_nodes_are_bound_by_their_names_in_the_plans_order() -> None:
    found = bound(("b", "a"), host("a"), host("b"))
    assert (found.order, found.bound_by) == ([1, 0], ["name", "name"])
    assert found.orders == [(1, 0)]


def test_another_name_of_the_host_will_do() -> None:
    assert bound(("k8s-1",), host("pod-x", "k8s-1")).bound_by == ["alias"]


@pytest.mark.parametrize(("named", "shown"), [("n1", "n1.cluster.local"), ("n1.cluster.local", "n1")])
def test_a_first_label_will_do_if_it_is_unique(named: str, shown: str) -> None:
    found = bound((named,), host(shown))
    assert (found.order, found.bound_by) == ([0], ["short name"])


def test_a_first_label_that_several_hosts_or_places_have_binds_nothing() -> None:
    assert bound(("n1",), host("n1.east"), host("n1.west")).order == [None]
    assert bound(("n1.east", "n1.west"), host("n1")).order == [None, None]


def test_addresses_of_one_network_are_no_namesakes() -> None:
    found = bound(("10.0.0.138", "10.0.0.238"), host("10.0.0.138"), host("10.0.0.99"))
    assert found.order == [0, None]
    assert found.unused == [1]


def test_a_named_plan_leaves_other_hosts_out_and_accuses_those_with_ranks() -> None:
    found = bound(("a",), host("a"), host("b"), host("c"), active=(0, 1))
    assert (found.extra, found.unused) == ([1], [2])


def test_the_only_host_is_the_only_node() -> None:
    assert bound(1, host("a")).bound_by == ["only node"]
    assert bound(1, host("a"), host("b"), active=(1,)).order == [1]


def test_two_idle_hosts_for_one_place_are_bound_to_none() -> None:
    found = bound(1, host("a"), host("b"))
    assert (found.order, found.unused) == ([None], [0, 1])


def test_node_ranks_bind_if_all_have_one_and_each_another() -> None:
    views = [log("a", ranks=claims([4], node_rank=1)), log("b", ranks=claims([0], node_rank=0))]
    found = bound(2, *views, active=(0, 1))
    assert (found.order, found.bound_by) == ([1, 0], ["node rank", "node rank"])


@pytest.mark.parametrize("second", [0, 2, -1])
def test_node_ranks_that_collide_or_are_out_of_range_bind_nothing(second: int) -> None:
    views = [log("a", ranks=claims([0], node_rank=0)), log("b", ranks=claims([4], node_rank=second))]
    found = bound(2, *views, active=(0, 1), seats={0: {0: 1}, 1: {1: 1}})
    assert found.bound_by == ["ranks seen", "ranks seen"]


def test_ranks_bind_a_host_to_the_place_where_most_of_them_belong() -> None:
    found = bound(2, host("a"), host("b"), active=(0, 1), seats={0: {0: 1, 1: 3}, 1: {0: 4}})
    assert found.order == [1, 0]


def test_more_hosts_with_ranks_than_places_are_extra() -> None:
    found = bound(1, host("a"), host("b"), active=(0, 1), seats={0: {0: 4}, 1: {0: 4}})
    assert (found.order, found.extra) == ([0], [1])


def test_a_spare_host_without_ranks_is_unused() -> None:
    views = [host("a"), host("b"), host("spare")]
    found = bound(2, *views, active=(0, 1), seats={0: {0: 4}, 1: {1: 4}})
    assert (found.order, found.extra, found.unused) == ([0, 1], [], [2])


def test_equal_hosts_are_interchangeable_and_others_are_tried_in_every_order() -> None:
    equal = bound(3, *[snap(name) for name in ("a", "b", "c")])
    assert (equal.bound_by, len(equal.orders)) == (["assumed"] * 3, 1)
    odd = bound(3, snap("a"), snap("b"), snap("c", count=3))
    assert len(odd.orders) == 3
    assert odd.orders[0] == tuple(odd.order)
    assert len(set(odd.orders)) == 3


def test_a_host_whose_log_was_read_is_a_kind_of_its_own() -> None:
    assert len(bound(2, log("a"), host("b")).orders) == 2
    assert len(bound(2, host("a"), log("b")).orders) == 2


def test_hosts_that_number_their_gpus_differently_are_two_kinds() -> None:
    turned = snap(
        "b", identity=Identity(host=Host(name="b", boot_id="b"), gpus=snap("b").identity.gpus[::-1])
    )
    assert len(bound(2, snap("a"), turned).orders) == 2


def test_hosts_whose_ports_have_other_addresses_are_two_kinds() -> None:
    def ported(name: str, kind: str) -> FullSnapshot:
        gids = (GidReading(index=3, digits="0000:0000:0000:0000:0000:ffff:0a14:0105", type=kind),)
        return with_ports(snap(name), {0: (PortReading(gids=gids),)})

    assert len(bound(2, ported("a", "RoCE v2"), ported("b", "IB/RoCE v1")).orders) == 2
    assert len(bound(2, ported("a", "RoCE v2"), ported("b", "RoCE v2")).orders) == 1


def test_a_missing_host_may_be_at_any_place() -> None:
    assert sorted(bound(2, snap("a")).orders, key=str) == [(0, None), (None, 0)]


def test_too_many_orders_are_said_to_be_too_many() -> None:
    found = bound(7, *[snap(f"n{n}", count=n + 1) for n in range(7)])
    assert found.too_many == 5040
    assert found.orders == [tuple(range(7))]


def test_equal_hosts_are_exchanged_in_no_order_however_many_they_are() -> None:
    hosts = [snap(f"n{n}", count=3 if n == 60 else 4) for n in range(120)]
    found = bound(120, *hosts)
    assert not found.too_many
    assert sorted(order.index(60) for order in found.orders) == list(range(120))
    assert (
        bound(120, *hosts[:61], snap("o", count=2), snap("p", count=1), *hosts[63:]).too_many
        == 120 * 119 * 118
    )


def test_an_elastic_job_has_the_nodes_that_carry_ranks_within_its_bounds() -> None:
    found = inventory(*[host(f"n{n}") for n in range(5)])
    text = declared(NodeRange(min=2, max=4))
    assert [expected_nodes(text, found, range(active)) for active in (0, 1, 3, 5)] == [4, 2, 3, 4]


@given(st.integers(1, 5), st.lists(st.integers(0, 2), max_size=5), st.data())
@settings(max_examples=60, deadline=None)
def test_every_host_has_one_place_or_is_extra_or_unused(
    places: int, kinds: list[int], data: st.DataObject
) -> None:
    views = [snap(f"n{n}", count=kind + 1) for n, kind in enumerate(kinds)]
    active = tuple(sorted(data.draw(st.sets(st.integers(0, len(kinds) - 1))))) if kinds else ()
    seats = {m: {data.draw(st.integers(0, places - 1)): 1} for m in active if data.draw(st.booleans())}
    found = bound(places, *views, active=active, seats=seats)
    seen = [index for index in found.order if index is not None] + found.extra + found.unused
    assert sorted(seen) == list(range(len(kinds)))
    assert set(found.extra) <= set(active)
    assert not set(found.unused) & set(active)
    for order in found.orders:
        assert len(order) == places
        assert sorted(i for i in order if i is not None) == sorted(i for i in found.order if i is not None)


def test_a_host_without_a_name_may_be_any_node_that_no_other_is() -> None:
    views = [
        snap("node-a", range(4)),
        snap(None, range(4, 8), boot="b", identity=Identity(host=Host(boot_id="b"), gpus=())),
    ]
    machines = inventory(*[msgspec.structs.replace(view, hardware=Hardware()) for view in views])
    machines.arrange()
    active = list(range(len(machines.machines)))
    found = bind(plan(), machines, active, dict, 2)
    assert None not in found.order
    assert found.extra == []
    assert sorted(found.bound_by) == ["assumed", "name"]
