"""What is wrong with a value of NCCL_IB_HCA on one node: it selects nothing there, or not what it means.

An entry means the device of its own name where there is one. A bare beginning of names (`mlx5`) means all
that begin so, and a list of such beginnings may name kinds of device that a node has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from topocheck.hca import is_up
from topocheck.hcafilter import HcaEntry, HcaFilter
from topocheck.ranges import first
from topocheck.snapshot import Port

__all__ = ["Devices", "Fault", "filter_faults", "perhaps_more"]

Devices = Mapping[str, Sequence[Port]]
"""Ports of the RDMA devices of one node by name; () where none is shown."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a value misses what it means."""

    cause: str
    """In a few words."""
    words: str
    """What is wrong, to follow `NCCL_IB_HCA=... on node-a`."""
    fix: str
    severity: Literal["error", "warning"] = "error"
    value: str | None = None
    """The value that says what is meant, where it can be told."""


def filter_faults(value: HcaFilter, devices: Devices, *, whole: bool) -> Iterator[Fault]:
    """Faults of a value. `devices` are all that the node has if `whole`."""
    odd = [entry for entry in value.entries if entry.name != entry.name.strip() or entry.name[0] in "^="]
    if odd:
        yield misspelt(value, odd)
    elif value.exclude:
        yield from excluding(value, devices, whole=whole)
    else:
        yield from choosing(value, devices, whole=whole)


def misspelt(value: HcaFilter, odd: Sequence[HcaEntry]) -> Fault:
    """Marks and blanks inside the list are taken for letters of names."""
    clean = ",".join(f"{entry}".strip(" \t^=") for entry in value.entries)
    marks = "^" * value.exclude + "=" * value.exact
    return Fault(
        "marks inside the list",
        f"has {first(repr(str(entry)) for entry in odd)} in its list: `^` and `=` count once, in front of "
        "the whole list, and blanks belong to the names, so that entry stands for no device",
        f"set NCCL_IB_HCA to `{marks}{clean}`",
        value=f"{marks}{clean}",
    )


def answers(value: HcaFilter, entry: HcaEntry, name: str, ports: Sequence[Port]) -> bool:
    """The device answers to the entry, with the port that it asks for where its ports are shown."""
    there = entry.port is None or not ports or any(port.port == entry.port for port in ports)
    return there and entry.names(name, exact=value.exact)


def more_than_meant(value: HcaFilter, devices: Devices) -> dict[str, list[str]]:
    """Devices that are up and only begin with the name of another one that is meant, by that name."""
    meant = {entry.name for entry in value.entries}
    found = {}
    for entry in value.entries:
        if value.exact or entry.name not in devices or not entry.name[-1].isdigit():
            continue
        others = [
            name
            for name, ports in devices.items()
            if name.startswith(entry.name) and name not in meant and any(map(is_up, ports))
        ]
        if others:
            found[entry.name] = others
    return found


def perhaps_more(value: HcaFilter, devices: Devices) -> list[str]:
    """Devices of unknown state that a value would take, or leave out, beside those that are meant."""
    silent = {name: ports for name, ports in devices.items() if not ports or None in map(is_up, ports)}
    taken = {name: [Port(state="ACTIVE")] if name in silent else ports for name, ports in devices.items()}
    return [name for names in more_than_meant(value, taken).values() for name in names if name in silent]


def excluding(value: HcaFilter, devices: Devices, *, whole: bool) -> Iterator[Fault]:
    """A list of what is left out."""
    whole_devices = [entry for entry in value.entries if entry.port is None]
    left = [
        name
        for name, ports in devices.items()
        if value.entries and not any(answers(value, entry, name, ports) for entry in whole_devices)
    ]
    if whole and devices and not left:
        yield Fault(
            "selects nothing",
            f"leaves out every RDMA device there is ({first(devices)}), and NCCL uses sockets",
            "leave out the devices of storage and management alone",
        )
        return
    for name, others in more_than_meant(value, devices).items():
        yield Fault(
            "leaves out more",
            f"leaves out {first(others)} too, which begin with {name}",
            f"ask for exact names: set NCCL_IB_HCA to `^={','.join(map(str, value.entries))}`",
            "warning",
            f"^={','.join(map(str, value.entries))}",
        )


def choosing(value: HcaFilter, devices: Devices, *, whole: bool) -> Iterator[Fault]:
    """A list of what is taken."""
    missing = [
        entry
        for entry in value.entries
        if not any(answers(value, entry, name, ports) for name, ports in devices.items())
    ]
    there = f"there are {first(devices, 12)}"
    if whole and missing and len(missing) == len(value.entries):
        yield Fault(
            "selects nothing",
            f"selects no RDMA device: {there}, and NCCL uses sockets",
            "name the devices of the compute fabric as this node calls them, or leave the variable unset",
        )
    elif whole and (lost := [entry for entry in missing if is_one_device(value, entry)]):
        yield Fault(
            "no such device",
            f"names {first(map(str, lost))}, and {there}",
            "name the devices of the compute fabric as this node calls them",
        )
    for name, others in more_than_meant(value, devices).items():
        yield Fault(
            "selects more",
            f"selects {first(others)} too, which begin with {name}",
            f"ask for exact names: set NCCL_IB_HCA to `={','.join(map(str, value.entries))}`",
            value=f"={','.join(map(str, value.entries))}",
        )


def is_one_device(value: HcaFilter, entry: HcaEntry) -> bool:
    """The entry means one device, and not a kind of device."""
    return value.exact or entry.port is not None or entry.name[-1].isdigit()
