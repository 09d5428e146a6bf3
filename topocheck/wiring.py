"""What of a node's hardware decides how its devices reach each other, whatever they are called.

Servers of one model differ in the sizes of memory that their drivers leave, and in the numbers that
firmware or hypervisor gave to PCI buses. Neither changes an answer about links, distances or rails: a
cluster in which each node numbers its buses in its own way has one wiring.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from topocheck.snapshot import Hardware

__all__ = ["wiring_of"]

ADDRESS = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


def wiring_of(hardware: Hardware) -> bytes:
    """The hardware without sizes of memory, and with the order of PCI addresses in place of their digits.

    Addresses stay where the tree does not hold all of them: then nothing tells what stands where.
    """
    places = renamed(hardware)
    gpus = tuple([replace(gpu, memory_bytes=None, pci=places.get(gpu.pci, gpu.pci)) for gpu in hardware.gpus])
    nics = tuple([replace(nic, pci=places.get(nic.pci, nic.pci)) for nic in hardware.nics])
    tree = tuple(
        [
            replace(node, id=places.get(node.id, node.id), parent=places.get(node.parent, node.parent))
            for node in hardware.pci
        ]
    )
    return msgspec.json.encode(replace(hardware, gpus=gpus, nics=nics, pci=tree))


def renamed(hardware: Hardware) -> dict[str | None, str]:
    """New names in the PCI tree: of addresses by their order, of all else by their place in the list."""
    names = dict.fromkeys([node.id for node in hardware.pci])
    devices = [gpu.pci for gpu in hardware.gpus] + [nic.pci for nic in hardware.nics]
    if not names.keys() >= {place for place in devices if place is not None}:
        return {}
    addresses = sorted(filter(ADDRESS.fullmatch, names), key=numbers)
    found: dict[str | None, str] = {name: f"other {place}" for place, name in enumerate(names)}
    return found | {name: f"address {place}" for place, name in enumerate(addresses)}


def numbers(address: str) -> list[int]:
    """A PCI address as numbers, in which `0001:...` is less than `0010:...`."""
    return [int(part, 16) for part in re.split("[:.]", address)]
