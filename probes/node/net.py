"""Network devices of a namespace (/sys/class/net; Documentation/ABI/testing/sysfs-class-net)."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec

from topocheck.probes.node.addresses import (
    attribute,
    parse_devices,
    parse_fib_trie,
    parse_if_inet6,
    parse_routes,
)
from topocheck.probes.node.pci_function import function_in
from topocheck.probes.node.reader import MISSING, Reader, is_folder
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Netdev, ProbeFault

__all__ = ["Interfaces", "read_net"]

LAYERS = {1: "ethernet", 32: "infiniband", 772: "loopback"}
"""ARPHRD_* of if_arp.h."""

SIOCGIFADDR, SIOCGIFNETMASK = 0x8915, 0x891B
"""ioctls of netdevice(7): first IPv4 address of a device, and its mask."""
AF_INET, SOCK_DGRAM, SOCK_CLOEXEC = 2, 2, 0o2000000
"""An IPv4 socket to ask with (socket(2))."""
REQUEST = struct.Struct("16s24x")
"""struct ifreq, by its name alone."""
ADDRESS = slice(20, 24)
"""Where a struct ifreq has the IPv4 address."""
LONGEST_NAME = 15
"""IFNAMSIZ without its zero."""


class Interfaces(msgspec.Struct, frozen=True, gc=False):
    """Network devices twice, in the same order."""

    netdevs: tuple[Netdev, ...] = ()
    """For `network.netdevs`."""
    addresses: tuple[tuple[str, ...] | None, ...] = ()
    """For `state.addresses`."""


def read_net(roots: Roots) -> tuple[Interfaces, tuple[ProbeFault, ...]]:
    """Network devices with their addresses.

    IPv6 addresses come from /proc/net/if_inet6. The kernel lists IPv4 addresses (/proc/net/fib_trie) and
    subnets (/proc/net/route) but not which address is whose: on a live machine each device is asked for
    its first one, the others belong to the device of their subnet. An address of a subnet that several
    devices share stays without an owner, and a fault says so.
    """
    reader = Reader("network")
    folder = roots.sys / "class/net"
    names = [name for name in reader.names(folder) if is_folder(folder / name)]  # bonding_masters is a file
    tables = _tables(roots)
    ipv6 = parse_if_inet6(reader.text(tables / "if_inet6", MISSING) or "")  # a kernel may have no IPv6
    ipv4 = _ipv4(reader, roots, tables, names) if _agree(reader, tables, folder, names) else None
    found = Interfaces(
        tuple(_netdev(reader, folder / name) for name in names),
        tuple(None if ipv4 is None else (*ipv4.get(name, ()), *ipv6.get(name, ())) for name in names),
    )
    return found, reader.faults()


def _tables(roots: Roots) -> Path:
    """Tables of the namespace that /sys shows.

    The first process of a machine that is mounted somewhere lives in its namespace; `self` would be the
    container that looks at it.
    """
    first = roots.proc / "1/net"
    return first if roots.root != Path("/") and is_folder(first) else roots.proc / "net"


def _agree(reader: Reader, tables: Path, folder: Path, names: list[str]) -> bool:
    """The tables are of the namespace of /sys; in a container that was given its host's /sys they are not."""
    listed = reader.text(tables / "dev", MISSING)
    if listed is None or parse_devices(listed) == {*names}:
        return True
    reason = f"shows another network namespace than {tables}: nobody's address can be told"
    reader.note("not-supported", folder, reason)
    return False


def _ipv4(
    reader: Reader, roots: Roots, tables: Path, names: list[str]
) -> Mapping[str, tuple[str, ...]] | None:
    """IPv4 addresses by device; None if they cannot be read."""
    trie, routes = reader.text(tables / "fib_trie"), reader.text(tables / "route")
    if trie is None or routes is None:
        return None
    first = {}
    if roots.live and roots.root == Path("/"):
        first = _first_addresses(names)
    owned, left = attribute(parse_fib_trie(trie), parse_routes(routes), first)
    if left:
        reason = f"which device has {', '.join(left[:4])} cannot be told"
        reader.note("not-supported", tables / "fib_trie", reason)
    return owned


def _first_address(asking: int, name: str) -> str | None:
    """First IPv4 address of a device with its prefix length, by ioctl; None if it has none."""
    request = REQUEST.pack(name.encode("utf-8", "surrogateescape")[:LONGEST_NAME])
    try:
        address = fcntl.ioctl(asking, SIOCGIFADDR, request)[ADDRESS]
        mask = fcntl.ioctl(asking, SIOCGIFNETMASK, request)[ADDRESS]
    except OSError:  # it has no address: the tables are asked then
        return None
    return f"{'.'.join(map(str, address))}/{int.from_bytes(mask, 'big').bit_count()}"


def _first_addresses(names: list[str]) -> dict[str, str]:
    """First IPv4 address of each device that has one; none where this place has no IPv4 sockets.

    The C library's socket(2) is called, because to import `socket` takes a tenth of the whole probe's time.
    """
    asking = ctypes.CDLL(None).socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)
    if asking < 0:
        return {}
    try:
        found = {name: _first_address(asking, name) for name in names}
    finally:
        os.close(asking)
    return {name: address for name, address in found.items() if address is not None}


def _netdev(reader: Reader, folder: Path) -> Netdev:
    master = reader.link(folder / "master")
    speed = reader.number(folder / "speed", {*MISSING, errno.EINVAL, errno.EOPNOTSUPP})
    kind = reader.number(folder / "type")
    return Netdev(
        name=folder.name,
        kind=_kind(reader, folder),
        layer=None if kind is None else LAYERS.get(kind),
        state=reader.text(folder / "operstate"),
        mtu=reader.number(folder / "mtu"),
        speed_gbps=speed / 1000 if speed is not None and speed > 0 else None,  # -1 is a device that is down
        master=master[-1] if master else None,
        members=tuple((reader.text(folder / "bonding/slaves", MISSING) or "").split()),
        bus=function_in(reader.link(folder)),
    )


def _kind(reader: Reader, folder: Path) -> str:
    """What the folder shows; a device of a kernel driver has `device`, of whatever bus."""
    if is_folder(folder / "bonding"):
        return "bond"
    if is_folder(folder / "bridge"):
        return "bridge"
    if "DEVTYPE=vlan" in (reader.text(folder / "uevent", MISSING) or "").splitlines():
        return "vlan"
    if reader.text(folder / "type", MISSING) == "772":
        return "loopback"
    return "physical" if reader.link(folder / "device") else "virtual"
