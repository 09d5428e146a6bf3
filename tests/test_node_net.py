"""Network devices are known by evidence, and an address has the device that the tables prove."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from rooted import lay_out, machine, roots_at, unpack_tar

from topocheck.probes.node.addresses import (
    Subnet,
    attribute,
    parse_fib_trie,
    parse_if_inet6,
    parse_routes,
)
from topocheck.probes.node.net import Interfaces, read_net
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Netdev


def addresses_of(net: Interfaces) -> dict[str, tuple[str, ...] | None]:
    """Addresses by name of the device."""
    return {netdev.name: own for netdev, own in zip(net.netdevs, net.addresses, strict=True)}


def test_a_bond_shows_its_members_and_they_their_bond(tmp_path: Path) -> None:
    net, faults = read_net(machine("hgx-h100", tmp_path))
    bond, first, second, loopback = net.netdevs
    assert bond == Netdev(
        name="bond0",
        kind="bond",
        layer="ethernet",
        state="up",
        mtu=9000,
        speed_gbps=400.0,
        members=("ens3f0np0", "ens3f1np1"),
    )
    assert (first.master, second.master) == ("bond0", "bond0")
    assert (first.kind, first.bus) == ("physical", "0000:e1:00.0")
    assert (loopback.kind, loopback.layer) == ("loopback", "loopback")
    assert net.addresses == (
        ("10.66.0.17/24", "fe80::5e25:73ff:fec7:10/64"),
        (),
        (),
        ("127.0.0.1/8", "::1/128"),
    )
    assert faults == ()


def test_an_address_that_may_be_of_two_devices_is_of_none(tmp_path: Path) -> None:
    net, faults = read_net(machine("roce", tmp_path))
    assert addresses_of(net) == {
        "ens1f0": ("10.20.1.5/24", "2001:db8::105/64"),
        "ens1f1": (),
        "lo": ("127.0.0.1/8",),
        "vlan20": (),
    }
    assert [(fault.kind, fault.reason) for fault in faults] == [
        ("not-supported", "which device has 10.30.0.9, 198.51.100.1 cannot be told")
    ]


def test_kinds_are_read_from_what_a_device_has(tmp_path: Path) -> None:
    roce, _ = read_net(machine("roce", tmp_path / "roce"))
    laptop, _ = read_net(machine("laptop", tmp_path / "laptop"))
    assert {netdev.name: netdev.kind for netdev in (*roce.netdevs, *laptop.netdevs)} == {
        "ens1f0": "physical",
        "ens1f1": "physical",
        "vlan20": "vlan",
        "lo": "loopback",
        "virbr0": "bridge",
        "wlp2s0": "physical",
    }


def test_a_device_that_is_down_has_no_speed(tmp_path: Path) -> None:
    net, _ = read_net(machine("slingshot", tmp_path))
    assert [(netdev.name, netdev.state, netdev.speed_gbps) for netdev in net.netdevs] == [
        ("hsn0", "down", None),
        ("hsn1", "up", 200.0),
    ]


def test_addresses_are_not_known_without_the_tables(tmp_path: Path) -> None:
    net, faults = read_net(machine("laptop", tmp_path))
    assert set(net.addresses) == {None}
    assert [(fault.part, fault.kind) for fault in faults] == [("network", "absent"), ("network", "absent")]


def test_a_recorded_kernel_shows_its_devices(tmp_path: Path) -> None:
    net, _ = read_net(unpack_tar("sysfs/sysfs-qemu-2numa-2switch-rxe.tar.gz", tmp_path))
    assert [(netdev.name, netdev.kind, netdev.bus) for netdev in net.netdevs] == [
        ("eth0", "physical", "0000:84:00.0"),
        ("eth1", "physical", "0000:15:00.0"),
        ("lo", "loopback", None),
        ("vA", "virtual", None),
        ("vB", "virtual", None),
    ]


def test_a_mounted_machine_is_seen_in_the_namespace_of_its_first_process(tmp_path: Path) -> None:
    lay_out("class net virtual/net/eth0 { type: 1 | operstate: up | mtu: 1500 }", tmp_path)
    for process, address in (("1", "192.0.2.9"), ("self", "198.51.100.9")):
        lay_out(
            f"proc/{process}/net/fib_trie <<\n|-- {address}\n   /32 host LOCAL\n>>\n"
            f"proc/{process}/net/route <<\nIface Destination Gateway Flags RefCnt Use Metric Mask\n"
            "eth0 000200C0 00000000 0001 0 0 0 00FFFFFF\n>>",
            tmp_path,
        )
    net, _ = read_net(roots_at(tmp_path))
    assert addresses_of(net) == {"eth0": ("192.0.2.9/24",)}


def test_the_loopback_device_of_this_machine_has_its_address() -> None:
    if not Path("/sys/class/net/lo").exists():
        pytest.skip("no loopback device here")
    net, _ = read_net(Roots.real())
    loopback = next(netdev for netdev in net.netdevs if netdev.name == "lo")
    assert loopback.kind == "loopback"
    if loopback.state != "down":
        assert "127.0.0.1/8" in (addresses_of(net)["lo"] or ())


def test_addresses_of_another_namespace_are_nobodys(tmp_path: Path) -> None:
    roots = machine("hgx-h100", tmp_path)
    lay_out("proc/net/dev <<\nInter-|   Receive\n face |bytes\n    lo:  1  2\n  eth0:  3  4\n>>", tmp_path)
    net, faults = read_net(roots)
    assert set(net.addresses) == {None}
    assert [(fault.kind, fault.path) for fault in faults] == [
        ("not-supported", str(tmp_path / "sys/class/net"))
    ]
    (tmp_path / "proc/net/dev").write_text("a |b\n bond0: 1\n ens3f0np0: 1\n ens3f1np1: 1\n lo: 1\n")
    assert read_net(roots)[1] == ()


def test_own_addresses_are_the_leaves_marked_local() -> None:
    text = "Main:\n |-- 192.0.2.0\n  /24 link UNICAST\n |-- 192.0.2.7\n  /32 host LOCAL\n |-- 192.0.2.255\n"
    assert parse_fib_trie(text + "  /32 link BROADCAST\n |-- 999.1.1.1\n  /32 host LOCAL\n") == ("192.0.2.7",)


def test_routes_are_read_in_the_byte_order_of_the_kernel() -> None:
    text = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n"
        "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
        "eth0\tshort\n"
    )
    assert parse_routes(text) == (Subnet("eth0", ipaddress.IPv4Network("192.0.2.0/24")),)


def test_ipv6_addresses_come_with_their_device() -> None:
    text = "fe80000000000000020c29fffe112233 02 40 20 80     ib0\nbroken\n"
    assert parse_if_inet6(text) == {"ib0": ("fe80::20c:29ff:fe11:2233/64",)}


def test_the_narrowest_subnet_owns_an_address_and_known_owners_go_first() -> None:
    subnets = [
        Subnet("a", ipaddress.IPv4Network("10.0.0.0/8")),
        Subnet("b", ipaddress.IPv4Network("10.1.0.0/16")),
    ]
    found = attribute(["10.1.2.3", "10.2.3.4", "10.1.9.9"], subnets, {"c": "10.1.9.9/16"})
    assert found == ({"c": ("10.1.9.9/16",), "b": ("10.1.2.3/16",), "a": ("10.2.3.4/8",)}, ())
