"""Nodes that differ in bus numbers and sizes of memory alone have one wiring; all else makes another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from topocheck.demo.server import Server, hardware_of
from topocheck.snapshot import Hardware
from topocheck.wiring import wiring_of

Change = Callable[[Hardware], Hardware]


def made(**parts: Any) -> Hardware:
    """Hardware of a server as it comes out of a snapshot."""
    return numbered(hardware_of(Server(storage_nics=2, **parts)), "", "")


def numbered(hardware: Hardware, old: str, new: str) -> Hardware:
    """The same with other PCI addresses."""
    text = msgspec.json.encode(hardware).replace(f'"{old}'.encode(), f'"{new}'.encode())
    return msgspec.json.decode(text, type=Hardware)


USUAL = made()


def first(hardware: Hardware, part: str, **changes: Any) -> Hardware:
    """The same with a change of the first device of a kind."""
    device, *others = getattr(hardware, part)
    return replace(hardware, **{part: (replace(device, **changes), *others)})


@pytest.mark.parametrize(
    "other",
    [
        made(first_bus=0x17),
        made(memory_bytes=80 << 30),
        numbered(USUAL, "0000:", "0001:"),
        numbered(USUAL, "0000:", "10000:"),
    ],
    ids=["firmware", "memory", "domain", "long domain"],
)
def test_numbers_of_buses_and_sizes_of_memory_are_no_part_of_it(other: Hardware) -> None:
    assert other != USUAL
    assert wiring_of(other) == wiring_of(USUAL)


@pytest.mark.parametrize(
    "change",
    [
        lambda it: first(it, "gpus", pci=it.gpus[1].pci),
        lambda it: first(it, "nics", pci=it.nics[1].pci),
        lambda it: first(it, "nics", name="mlx5_9"),
        lambda it: first(it, "nics", pci="0000:ff:00.0"),
        lambda it: first(it, "nics", pci=None),
        lambda it: first(it, "gpus", model="NVIDIA H200"),
        lambda it: first(it, "gpus", links=None),
        lambda it: first(it, "pci", numa=1),
        lambda it: replace(it, pci=it.pci[:-1]),
        lambda _: made(dark=((3, 1),)),
    ],
    ids=["GPU", "NIC", "name", "beyond the tree", "nowhere", "model", "links", "NUMA", "shorter", "dark"],
)
def test_whatever_else_differs_makes_another_wiring(change: Change) -> None:
    assert wiring_of(change(USUAL)) != wiring_of(USUAL)


def test_an_exchange_of_two_addresses_makes_another_wiring() -> None:
    """Rails follow the order of the addresses."""
    a, b = USUAL.nics[0].pci, USUAL.nics[1].pci
    swapped = numbered(numbered(numbered(USUAL, f'{a}"', 'x"'), f'{b}"', f'{a}"'), 'x"', f'{b}"')
    assert wiring_of(swapped) != wiring_of(USUAL)


def test_addresses_are_kept_where_the_tree_does_not_hold_them() -> None:
    bare = replace(USUAL, pci=())
    other = replace(numbered(USUAL, "0000:", "0001:"), pci=())
    assert wiring_of(bare) != wiring_of(other)
