"""RDMA devices while a listing of them is read, and what the tools of rdma-core say in one spelling.

ibstat says `Active`, ibv_devinfo `PORT_ACTIVE (4)`, ibstatus `4: ACTIVE` as the kernel does: the kernel's
word counts. A block that begins or ends outside the text leaves what it did not show unknown.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from topocheck.portreading import GidReading, PortReading, parted
from topocheck.probes.capture.prompt import Section, extent
from topocheck.probes.capture.reading import Note, Reading
from topocheck.probes.capture.text import is_elision
from topocheck.snapshot import (
    SCHEMA,
    Coverage,
    FullSnapshot,
    Hardware,
    Host,
    Identity,
    Network,
    NicId,
    NicShape,
    Port,
    Source,
    State,
    Verbs,
)

__all__ = [
    "Device",
    "DevicePort",
    "elisions",
    "lists_all",
    "parse_gid",
    "parse_guid",
    "parse_lid",
    "parse_physical",
    "parse_rate",
    "parse_state",
    "reading",
]

STATES = {
    "nop": None,
    "down": "DOWN",
    "init": "INIT",
    "initializing": "INIT",
    "armed": "ARMED",
    "active": "ACTIVE",
    "activedefer": "ACTIVE_DEFER",
}
PHYSICAL = {
    "sleep": "Sleep",
    "polling": "Polling",
    "disabled": "Disabled",
    "portconfigurationtraining": "PortConfigurationTraining",
    "linkup": "LinkUp",
    "linkerrorrecovery": "LinkErrorRecovery",
    "phytest": "Phy Test",
}
"""The kernel's words (drivers/infiniband/core/sysfs.c) by the letters that all tools print of them."""

NUMBERED = re.compile(r"(?:[0-9]{1,3}:\s*)?(?P<word>[A-Za-z][A-Za-z_ ]{1,40}?)(?:\s*\([0-9]{1,3}\))?")
RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,2})?)(?: Gb/sec(?: \(([0-9]+X)(?: ([A-Z]+[0-9]*))?\))?)?")
GUID = re.compile(r"[0-9a-f]{16}")
LAYERS = ("InfiniBand", "Ethernet")
LAG_NAME = re.compile(r"mlx5_bond_[0-9]+")
"""What the mlx5 driver itself calls a device of two bonded ports (mlx5_ib_stage_ib_reg_init, main.c)."""

LOWEST = "SDR"
SDR_RATES = (2, 2.5, 5.0, 10.0)
"""Rates of SDR by 1, 2 and 4 lanes; ibstat may leave the fraction out."""

VERBOSE = frozenset({"-v", "-vv", "--verbose"})
"""Options that select no device."""


@dataclass(slots=True)
class DevicePort:
    """One port while it is read."""

    number: int
    state: str | None = None
    physical: str | None = None
    layer: str | None = None
    rate: tuple[float | None, str | None] = (None, None)
    """Gbit/s, and the speed's name where it is given."""
    lid: int | None = None
    sm_lid: int | None = None
    gids: list[GidReading] | None = None
    """None if the table is not shown."""
    gids_cut: bool = False

    @property
    def is_doubtful(self) -> bool:
        """An InfiniBand link that is up at SDR: a kernel older than the NIC prints that for a new speed."""
        rate, speed = self.rate
        slow = speed == LOWEST if speed else rate in SDR_RATES
        return slow and self.layer == "InfiniBand" and self.physical == "LinkUp"

    @property
    def says_state(self) -> bool:
        """Anything of its shape is known."""
        return any((self.state, self.physical, self.layer, self.rate[0]))

    def shape(self) -> Port:
        """The port without what changes by itself."""
        rate = None if self.is_doubtful else self.rate[0]
        return Port(
            port=self.number, state=self.state, physical=self.physical, layer=self.layer, rate_gbps=rate
        )

    def add_gid(self, gid: GidReading) -> None:
        """An entry of its GID table."""
        self.gids = self.gids or []
        self.gids.append(gid)

    def reading(self) -> PortReading:
        """What subnet manager and addresses make of it."""
        gids = None if self.gids is None else tuple(self.gids)
        return PortReading(
            port=self.number, lid=self.lid, sm_lid=self.sm_lid, gids=gids, gids_cut=self.gids_cut
        )


@dataclass(slots=True)
class Device:
    """One RDMA device while its block is read."""

    line: int
    name: str
    guid: str | None = None
    card: str | None = None
    kind: str | None = None
    model: str | None = None
    board: str | None = None
    firmware: str | None = None
    ports: dict[int, DevicePort] = field(default_factory=dict)
    wanted: int | None = None
    """Number of ports that it says it has."""
    cut: bool = False
    """Its block ends before it is complete."""

    def port(self, number: int) -> DevicePort:
        """Its port of that number."""
        return self.ports.setdefault(number, DevicePort(number))

    def shape(self) -> NicShape:
        """The device without identity. Ports of which nothing is shown are left out."""
        kind = "bond" if LAG_NAME.fullmatch(self.name) else self.kind
        return NicShape(
            name=self.name,
            kind=kind,
            ports=tuple(port.shape() for port in self.ports.values() if port.says_state),
            model=self.model,
            board=self.board,
            firmware=self.firmware,
        )


def parse_state(text: str) -> str | None:
    """Logical state in the kernel's word; None for a state that is none, or text."""
    return STATES.get(_letters(text).removeprefix("port"))


def parse_physical(text: str) -> str | None:
    """Physical state in the kernel's word; None for other text."""
    return PHYSICAL.get(_letters(text))


def _letters(text: str) -> str:
    match = NUMBERED.fullmatch(text.strip())
    return re.sub("[^a-z]", "", match["word"].lower()) if match else ""


def parse_rate(text: str) -> tuple[float | None, str | None]:
    """Gbit/s and name of the speed, of `400`, or `400 Gb/sec (4X NDR)`."""
    match = RATE.fullmatch(text.strip())
    return (float(match[1]), match[3]) if match else (None, None)


def parse_lid(text: str) -> int | None:
    """A local id, decimal or with 0x; 0 is none."""
    text = text.strip().lower()
    if re.fullmatch("0x[0-9a-f]{1,8}", text):
        return int(text, 16)
    return int(text) if re.fullmatch("[0-9]{1,6}", text) else None


def parse_guid(text: str) -> str | None:
    """`0x0a7fbc1245efd23b` or `0a7f:bc12:45ef:d23b` as the latter; None for zeros and other text."""
    digits = text.strip().lower().removeprefix("0x").replace(":", "")
    if not GUID.fullmatch(digits) or not digits.strip("0"):
        return None
    return ":".join(digits[place : place + 4] for place in range(0, 16, 4))


def parse_gid(text: str) -> str | None:
    """A GID as eight groups of four digits, from that or from any IPv6 spelling; None for zeros."""
    try:
        gid = ipaddress.IPv6Address(text.strip()).exploded
    except ValueError:
        return None
    return gid if gid.strip("0:") else None


def lists_all(section: Section, tool: str) -> bool:
    """The command of a section is shown and asks this tool for all devices."""
    if not section.lists_all(tool):
        return False
    words = (section.command or "").split()
    place = next((n for n, word in enumerate(words) if word.rpartition("/")[2] == tool), None)
    if place is None:
        return False
    rest = words[place + 1 :]
    end = next((n for n, word in enumerate(rest) if word[0] in "|;&>2"), len(rest))
    return set(rest[:end]) <= VERBOSE


def elisions(lines: Sequence[str], section: Section) -> list[int]:
    """Lines of a section that say that something was left out."""
    return [n for n in range(section.start, section.end + 1) if is_elision(lines[n - 1])]


def reading(
    source: Source,
    section: Section,
    devices: Sequence[Device],
    lines: Iterable[int],
    *,
    whole: bool,
    notes: Sequence[Note] = (),
    verbs: Verbs | None = None,
) -> Reading:
    """Devices of one listing as evidence. `whole` says that the node has no others."""
    cut = [device for device in devices if device.cut]
    found = list(notes)
    if cut:
        names = ", ".join(device.name for device in cut)
        found.append(
            Note(cut[0].line, "cut", f"the block of {names} is cut: what it does not show is unknown")
        )
    for device in devices:
        for port in device.ports.values():
            if port.is_doubtful:
                words = f"{device.name}:{port.number} is up at SDR, which a kernel older than the NIC prints"
                words += " for a speed that it does not know: the rate is not taken"
                found.append(Note(device.line, "ignored", words))
    name, count = Counter(device.name for device in devices).most_common(1)[0] if devices else ("", 0)
    if count > 1:
        found.append(Note(devices[0].line, "contradictory", f"{name} is listed {count} times"))
    networks, states = parted((ordinal, _told(device)) for ordinal, device in enumerate(devices))
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(source,),
        coverage=Coverage(nics=extent(whole and not cut)),
        identity=Identity(
            host=Host(name=section.host),
            nics=tuple(NicId(name=device.name, guid=device.guid, card=device.card) for device in devices),
        ),
        hardware=Hardware(nics=tuple(device.shape() for device in devices)),
        network=Network(nics=networks),
        state=State(ports=states),
        verbs=verbs,
    )
    ports = sum(len(device.ports) for device in devices)
    return Reading(source.kind, (snapshot,), frozenset(lines), len(devices) + ports, tuple(found))


def _told(device: Device) -> Sequence[PortReading]:
    """Its ports of which anything but the shape is shown."""
    ports = [port.reading() for port in device.ports.values()]
    return [port for port in ports if replace(port, port=1) != PortReading()]
