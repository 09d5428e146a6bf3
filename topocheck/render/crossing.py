"""The devices at both ends of a stage boundary: which NIC, on which rail, how fast.

They are those nearest to the two GPUs by the hardware of their nodes; what NCCL then takes is for the rules
to judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from topocheck.render.text import printable, ranges, shorten
from topocheck.render.words import say
from topocheck.report import DeviceReport, PlacementReport, RankReport

__all__ = ["Crossing", "crossings_of", "devices_of", "in_short", "in_words"]

_MOST_TOLD = 8


class Crossing(msgspec.Struct, frozen=True):
    """One pair of ranks with the devices nearest to their GPUs."""

    ranks: tuple[int, int]
    near: Sequence[DeviceReport]
    far: Sequence[DeviceReport]

    @property
    def rails(self) -> frozenset[int]:
        """Rails that both ends have."""
        ends = [{device.rail for device in end if device.rail is not None} for end in (self.near, self.far)]
        return frozenset(ends[0] & ends[1])

    @property
    def parted(self) -> bool:
        """The rails of both ends are known, and none is the same."""
        known = all(device.rail is not None for device in (*self.near, *self.far))
        return known and not self.rails

    @property
    def rate_gbps(self) -> float | None:
        """Rate of the slower end, Gbit/s; None if either is not known."""
        rates = [device.rate_gbps for device in (*self.near, *self.far)]
        known = [rate for rate in rates if rate is not None]
        return min(known) if known and len(known) == len(rates) else None


def devices_of(placement: PlacementReport, ranks: Collection[int]) -> dict[int, list[DeviceReport]]:
    """Devices nearest to the GPU of each of these ranks; those of which none is known are left out."""
    found: dict[int, list[DeviceReport]] = {}
    for node in placement.nodes:
        shape = None if node.shape is None else placement.shapes[node.shape]
        if shape is None or not any(rank in ranks for gpu in node.gpus for rank in gpu.ranks):
            continue
        devices = {device.name: device for device in shape.devices}
        for gpu in node.gpus:
            names = shape.near[gpu.ordinal] if gpu.ordinal < len(shape.near) else []
            near = [devices.get(name, DeviceReport(name=name)) for name in names]
            found.update({rank: near for rank in gpu.ranks if near})
    return found


def crossings_of(
    pairs: Iterable[tuple[RankReport, RankReport]], devices: Mapping[int, Sequence[DeviceReport]]
) -> list[Crossing]:
    """The pairs both ends of which have a known device."""
    return [
        Crossing((near.rank, far.rank), devices[near.rank], devices[far.rank])
        for near, far in pairs
        if near.rank in devices and far.rank in devices
    ]


def in_short(crossings: Sequence[Crossing]) -> list[str]:
    """Rates and rails in two short lines: how many of which rate, and `rails 0..7`."""
    if not crossings:
        return []
    rates = {one.rate_gbps for one in crossings}
    lines = []
    if None not in rates:
        told = "/".join(f"{rate:g}" for rate in sorted({min(rates), max(rates)}))  # type: ignore[type-var]
        count = len(crossings)
        lines.append(say("arrow_rates" if count > 1 else "arrow_rate", count=count, rate=told))
    rails = frozenset[int]().union(*(one.rails for one in crossings))
    if any(one.parted for one in crossings):
        lines.append(say("arrow_crosses"))
    elif rails:
        lines.append(say("arrow_rails" if len(rails) > 1 else "arrow_rail", rails=ranges(rails)))
    return lines


def in_words(crossings: Sequence[Crossing]) -> list[str]:
    """The first pairs one by one, with the names of their devices."""
    told = []
    for one in crossings[:_MOST_TOLD]:
        near, far = (_end(rank, end) for rank, end in zip(one.ranks, (one.near, one.far), strict=True))
        rate = "" if one.rate_gbps is None else f" {say('arrow_rate', rate=f'{one.rate_gbps:g}')}"
        told.append(say("arrow_pair", near=near, far=far) + rate)
    return told


def _end(rank: int, devices: Sequence[DeviceReport]) -> str:
    """One end: rank, devices, rail."""
    names = "/".join(shorten(printable(device.name), 20) for device in devices[:2])
    rails = {device.rail for device in devices[:2] if device.rail is not None}
    words = say("tip_rank", ranks=rank)
    return f"{words} {say('arrow_end', nic=names, rail=ranges(rails)) if rails else names}"
