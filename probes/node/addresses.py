"""IP addresses by network device, from the kernel's tables (/proc/net; proc_net(5))."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

import msgspec

__all__ = ["Subnet", "attribute", "parse_devices", "parse_fib_trie", "parse_if_inet6", "parse_routes"]

IPV4_LINE = re.compile(r"\s*\|--\s+([0-9]{1,3}(?:\.[0-9]{1,3}){3})\s*")
LOCAL_LINE = re.compile(r"\s*/32 host LOCAL\s*")
IPV6_LINE = re.compile(r"([0-9a-f]{32}) [0-9a-f]+ ([0-9a-f]{2}) [0-9a-f]+ [0-9a-f]+ +(\S{1,32})")
HEX_ADDRESS = re.compile(r"[0-9A-Fa-f]{8}")

LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")


class Subnet(msgspec.Struct, frozen=True, gc=False):
    """A subnet that a device is directly joined to."""

    device: str
    network: ipaddress.IPv4Network


def parse_devices(text: str) -> frozenset[str]:
    """Names of the network devices of a namespace, from /proc/net/dev."""
    return frozenset(line.partition(":")[0].strip() for line in text.splitlines() if ":" in line)


def parse_fib_trie(text: str) -> tuple[str, ...]:
    """Own IPv4 addresses, in the order of the table: leaves that are followed by `/32 host LOCAL`."""
    found: dict[str, None] = {}
    leaf = None
    for line in text.splitlines():
        address = IPV4_LINE.fullmatch(line)
        if address:
            leaf = _ipv4(address[1])
        elif leaf is not None and LOCAL_LINE.fullmatch(line):
            found[leaf] = None
    return tuple(found)


def parse_routes(text: str) -> tuple[Subnet, ...]:
    """Subnets without a gateway in /proc/net/route, whose numbers are in the byte order of the machine.

    Machines with GPUs are little-endian all, so that `000200C0` is 192.0.2.0.
    """
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or not all(HEX_ADDRESS.fullmatch(fields[place]) for place in (1, 2, 7)):
            continue
        destination, gateway, mask = (bytes.fromhex(fields[place])[::-1] for place in (1, 2, 7))
        prefix = int.from_bytes(mask, "big").bit_count()
        if gateway == bytes(4) and prefix:
            found.append(Subnet(fields[0], ipaddress.IPv4Network((destination, prefix), strict=False)))
    return tuple(found)


def parse_if_inet6(text: str) -> dict[str, tuple[str, ...]]:
    """IPv6 addresses with prefix length by device, from /proc/net/if_inet6."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        match = IPV6_LINE.fullmatch(line.strip())
        if match and int(match[2], 16) <= 128:
            address = ipaddress.IPv6Address(bytes.fromhex(match[1]))
            found[match[3]] = (*found.get(match[3], ()), f"{address}/{int(match[2], 16)}")
    return found


def attribute(
    addresses: Iterable[str], subnets: Iterable[Subnet], first: Mapping[str, str]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Addresses with prefix length by device, and those whose device cannot be told.

    `first` are addresses whose device is known. Another address belongs to the device of the narrowest
    subnet that holds it, if only one has that subnet. Loopback addresses are the loopback device's.
    """
    owned: dict[str, tuple[str, ...]] = {device: (address,) for device, address in first.items()}
    known = {address.partition("/")[0] for address in first.values()}
    devices: dict[ipaddress.IPv4Network, set[str]] = {}
    for subnet in subnets:
        devices.setdefault(subnet.network, set()).add(subnet.device)
    prefixes = sorted({network.prefixlen for network in devices}, reverse=True)
    left = []
    for text in addresses:
        around = [ipaddress.IPv4Network((text, prefix), strict=False) for prefix in prefixes]
        nearest = next((network for network in around if network in devices), None)
        if text in known:
            continue
        if ipaddress.IPv4Address(text) in LOOPBACK:
            owned["lo"] = (*owned.get("lo", ()), f"{text}/8")
        elif nearest is not None and len(devices[nearest]) == 1:
            (device,) = devices[nearest]
            owned[device] = (*owned.get(device, ()), f"{text}/{nearest.prefixlen}")
        else:
            left.append(text)
    return owned, tuple(left)


def _ipv4(text: str) -> str | None:
    """The address in the one common spelling; None for numbers above 255 and leading zeros."""
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        return None
