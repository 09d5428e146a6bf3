"""RDMA devices as a job may take them, and which of them are near to its GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from topocheck.hardware import Shape
from topocheck.ranges import fold
from topocheck.snapshot import Port

__all__ = ["Hca", "Near", "is_up", "nearest"]

CLOSE = ("PIX", "PXB")
"""Classes of a NIC on the PCIe switch of a GPU."""
NOT_UP = frozenset(
    {"Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkErrorRecovery", "Phy Test"}
)
"""Physical states of a port without a link, in the kernel's words."""
Make = tuple[str | None, str | None, frozenset[str | None]]
"""Kind, chip and link layers: what NICs of one purpose have in common."""


def is_up(port: Port) -> bool | None:
    """The port is ACTIVE, and LinkUp as far as its physical state is shown; None if its state is not."""
    if port.physical in NOT_UP:
        return False
    return None if port.state is None else port.state == "ACTIVE"


@dataclass(frozen=True, slots=True)
class Hca:
    """One RDMA device and those of its ports that count."""

    name: str
    nic: int
    """Ordinal in the `hardware.nics` of the machine's shape."""
    ports: tuple[Port, ...]
    """Ports that the job may take; () where none is shown."""
    why: str
    """What makes it needed, in words: `selected by NCCL_IB_HCA=mlx5_3`."""
    gpus: tuple[int, ...] = ()
    """Ordinals of the GPUs in use that it is near to, where nearness makes it needed."""

    @property
    def up(self) -> bool | None:
        """A port of it is up: one of several is enough, for a card may have a port without a cable."""
        states = {is_up(port) for port in self.ports} or {None}
        return True if True in states else None if None in states else False

    @property
    def live(self) -> tuple[Port, ...]:
        """Its ports that are up."""
        return tuple(port for port in self.ports if is_up(port))


@dataclass(frozen=True, slots=True)
class Near:
    """Devices near to GPUs in use."""

    devices: dict[str, Hca]
    doubtful: dict[str, Hca]
    """Those that are down and may be somebody else's."""


def nearest(shape: Shape, gpus: Sequence[int], choice: dict[str, Hca]) -> Near | None:
    """Devices of the choice that are nearest to the GPUs; None unless all distances are shown.

    Where NICs of several makes tie, those of the make that is near to most GPUs are meant: a storage NIC may
    share a switch with one GPU.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for gpu in gpus:
        found = shape.nearest_nics(gpu, choice)
        if found is None:
            return None
        groups.setdefault((found[0], tuple(nic.name for nic in found[1])), []).append(gpu)
    votes: Counter[Make] = Counter()
    for (_, names), own in groups.items():
        votes.update({make(shape, choice[name]): len(own) for name in names})
    near, live = Near({}, {}), {make(shape, hca) for hca in choice.values() if hca.up}
    for (kind, names), own in groups.items():
        most = max(votes[make(shape, choice[name])] for name in names)
        tied = [choice[name] for name in names if votes[make(shape, choice[name])] == most]
        why = f"nearest to GPU {fold(own)}, {kind}"
        told = [replace(hca, why=why, gpus=tuple(own)) for hca in fastest(shape, tied)]
        settle(shape, kind, told, near, live)
    return near


def make(shape: Shape, hca: Hca) -> Make:
    """What NICs of one purpose have in common."""
    nic = shape.hardware.nics[hca.nic]
    return nic.kind, nic.model, frozenset(port.layer for port in nic.ports)


def fastest(shape: Shape, tied: list[Hca]) -> list[Hca]:
    """Of NICs of several makes that are all up, those of the fastest make: NCCL prefers them too."""
    rates: dict[Make, float] = {}
    for hca in tied:
        live = [port.rate_gbps or 0.0 for port in hca.live]
        rates[make(shape, hca)] = max(rates.get(make(shape, hca), 0.0), *live, 0.0)
    if len(rates) == 1 or not all(rates.values()):
        return tied
    return [hca for hca in tied if rates[make(shape, hca)] == max(rates.values())]


def settle(shape: Shape, kind: str, tied: list[Hca], near: Near, live: set[Make]) -> None:
    """Sort NICs that are equally near to some GPUs into needed and doubtful ones, or leave them out.

    With none up the job needs them all. Beside others that are up, one that is down is needed only if it is
    on the GPUs' own switch and they have too few without it: a second function of a card that is up has no
    cable, and what is far is shared by all. `live` are the makes of which any NIC of the node is up.
    """
    up = [hca for hca in tied if hca.up]
    near.devices.update(
        {hca.name: hca for hca in tied if hca.up is not False and hca.name not in near.devices}
    )
    open_ended = any(hca.up is None for hca in tied)
    cards = {card(shape, hca) for hca in up} - {None}
    for hca in tied:
        if hca.up is not False or card(shape, hca) in cards or len(up) >= len(hca.gpus) > 0:
            continue
        if up:
            alike = make(shape, hca) in {make(shape, other) for other in up}
            certain = alike and kind in CLOSE and card(shape, hca) is not None
        else:
            certain = make(shape, hca) in live or not live or "InfiniBand" in make(shape, hca)[2]
        (near.devices if certain and not open_ended else near.doubtful)[hca.name] = hca


def card(shape: Shape, hca: Hca) -> str | None:
    """Bridge that a device hangs on, with the other functions of its card; None without a PCI tree."""
    return shape.bridges.get(shape.hardware.nics[hca.nic].pci or "")
