"""What equal hosts share of their network is worked out once, and ports are known without their digits."""

from __future__ import annotations

import pytest
from build import inventory, snap
from made_network import with_interfaces, with_ports
from msgspec import Raw, ValidationError, json

from topocheck.networkfacts import GidFacts, NetworkFacts, facts_of, read_network
from topocheck.portreading import GidReading, PortReading, family_of, parted
from topocheck.snapshot import FullSnapshot, Netdev, Network, NicShape, PortState

LOW = "fe80:0000:0000:0000:ba3f:d2ff:fe00:000a"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:010a"
GLOBAL = "2001:0db8:0000:0000:0000:0000:0000:000a"


def facts(*ports: PortReading, nic: int = 0) -> NetworkFacts:
    """Facts of one device with these ports."""
    network = Network(nics=parted([(nic, ports)])[0])
    return facts_of(read_network(json.encode(network)), {})


def hosted(name: str, last: str) -> FullSnapshot:
    """A host with a RoCE port and a network device, whose addresses end so."""
    gids = (
        GidReading(index=2, digits=f"{LOW[:-2]}{last}", type="IB/RoCE v1", netdev="eth2"),
        GidReading(index=3, digits=f"{MAPPED[:-2]}{last}", type="RoCE v2", netdev="eth2"),
    )
    port = PortReading(lid=0, sm_lid=0, gids=gids, counters={"symbol_error": int(last, 16)})
    netdev = Netdev(name="eth2", state="up", mtu=9000), (f"10.0.1.{int(last, 16)}/24",)
    return with_interfaces(with_ports(snap(name), {0: (port,)}), netdev)


def test_the_same_network_on_two_hosts_is_one_object() -> None:
    found = inventory(hosted("node-a", "0a"), hosted("node-b", "0b"))
    (first, _), (second, _) = (machine.states[0] for machine in found.machines)
    assert first.ports is second.ports
    assert first.netdevs is second.netdevs
    assert (first.addresses, second.addresses) == ((("10.0.1.10/24",),), (("10.0.1.11/24",),))
    assert found.machines[0].look is found.machines[1].look


def test_link_local_mapped_and_global_gids_are_told_apart() -> None:
    assert [family_of(gid) for gid in (LOW, MAPPED, GLOBAL)] == ["link-local", "ipv4", "ipv6"]
    assert family_of("0000:0000:0000:0000:0000:fffe:0a00:010a") == "ipv6"
    gids = tuple(
        GidReading(index=n, digits=gid, type="RoCE v2") for n, gid in enumerate((LOW, MAPPED, GLOBAL))
    )
    (port,) = facts(PortReading(lid=0, gids=gids)).ports
    assert port.gids == (
        GidFacts(0, "RoCE v2", None, mapped=False, link_local=True),
        GidFacts(1, "RoCE v2", None, mapped=True, link_local=False),
        GidFacts(2, "RoCE v2", None, mapped=False, link_local=False),
    )


def test_gids_under_a_subnet_manager_are_let_go() -> None:
    gids = (GidReading(index=0, digits=LOW),)
    given, refused, unknown = (
        facts(PortReading(lid=lid, sm_lid=1, gids=gids), nic=4).ports[0] for lid in (17, 0, None)
    )
    assert (given.nic, given.port, given.sm_lid, given.gids) == (4, 1, 1, None)
    assert refused.gids == unknown.gids == (GidFacts(0, None, None, mapped=False, link_local=True),)


def test_ports_of_a_second_view_come_in_the_machines_ordinals() -> None:
    a, b, c = (NicShape(name=name) for name in "abc")
    first = with_ports(snap(ports=(a, b)), {0: (PortReading(sm_lid=1),)})
    second = with_ports(snap(ports=(c, b, a)), {n: (PortReading(sm_lid=7 + n),) for n in (-1, 0, 1, 2, 9)})
    machine = inventory(first, with_interfaces(second, (Netdev(name="lo"), ("127.0.0.1/8",)))).machines[0]
    names = [nic.name for nic in machine.shape.hardware.nics] if machine.shape else []
    (one, _), (two, _) = machine.states
    assert [(names[port.nic], port.sm_lid) for port in one.ports] == [("a", 1)]
    assert [(names[port.nic], port.sm_lid) for port in two.ports] == [("c", 7), ("b", 8), ("a", 9)]
    assert two.addresses == (("127.0.0.1/8",),)


def test_a_table_that_was_not_read_is_not_an_empty_one() -> None:
    unread, empty = facts(PortReading(port=1, gids_cut=True), PortReading(port=2, lid=0, gids=())).ports
    assert (unread.gids, unread.cut) == (None, True)
    assert (empty.gids, empty.cut) == ((), False)


def test_what_is_a_ports_own_lies_apart_in_the_same_order() -> None:
    gids = (GidReading(index=5, digits=MAPPED), GidReading(index=2, digits=LOW))
    devices = [
        (0, ()),
        (3, (PortReading(port=2, sm_lid=1), PortReading(port=7, lid=0, gids=gids, counters={"a": 1}))),
    ]
    shared, own = parted(devices)
    assert [(nic.nic, [port.port for port in nic.ports]) for nic in shared] == [(3, [2, 7])]
    assert [gid.index for gid in shared[0].ports[1].gids or ()] == [5, 2]
    assert own == (PortState(nic=3, port=7, lid=0, gids=(MAPPED, LOW), counters={"a": 1}),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[]", "object"),
        (b"null", "object"),
        (b'{"nics":[{}]}', "nic"),
        (b'{"nics":[{"nic":0,"ports":[{"gids":[{"family":"ipv4"}]}]}]}', "index"),
        (b'{"nics":[{"nic":0,"ports":[{"gids":[{"index":0}]}]}]}', "family"),
        (b'{"nics":[{"nic":0,"ports":[{"gids":[{"index":0,"family":"ipx"}]}]}]}', "ipx"),
        (b'{"nics":[{"nic":0,"ports":[{"has_lid":1}]}]}', "bool"),
        (b'{"netdevs":[{"mtu":1500}]}', "name"),
        (b'{"netdevs":{}}', "array"),
    ],
)
def test_a_network_of_another_form_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        read_network(Raw(text))
