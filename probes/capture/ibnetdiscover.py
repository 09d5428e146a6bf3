"""`ibnetdiscover`: switches of an InfiniBand fabric, what is cabled to each port, and the hosts behind.

A host's adapters bear its name in front of theirs (`gpu-07 mlx5_0`, `gpu-07 HCA-1`: the kernel writes them
so). Adapters that are none of a host's, as the aggregation nodes inside of switches, are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from topocheck.probes.capture.reading import Reading, Text
from topocheck.probes.capture.switches import Switches

__all__ = ["KIND", "parse"]

KIND = "ibnetdiscover"

SWITCH = re.compile(r'Switch\s+\d{1,5}\s+"(?P<guid>S-[0-9a-fA-F]{1,16})"\s+#\s+"(?P<name>[^"]{0,200})".*')
HEAD = re.compile(r"(?:Switch|Ca|Rt)\s|vendid=")
PORT = re.compile(
    r'\[\d{1,5}\](?:\[ext \d{1,5}\])?\s+"(?P<guid>[SHR]-[0-9a-fA-F]{1,16})"\[\d{1,5}\]\S*'
    r'\s+(?:\[ext \d{1,5}\]\s*)?#\s+"(?P<name>[^"]{0,200})".*'
)
ADAPTER = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]{0,252}) (?:HCA-?\d+|(?:mlx|hfi|qib|bnxt_re|irdma)\w*|ib[\w.]+|rocep\w+)"
)


class Port(NamedTuple):
    """One port of a switch and what is at the other end."""

    line: int
    switch: str
    other: str
    name: str


def parse(text: Text) -> list[Reading]:
    """Read the fabric; [] if the text shows none."""
    called = {
        match["guid"]: match["name"]
        for line in text.lines
        if line.startswith("Switch") and (match := SWITCH.fullmatch(line))
    }
    if not called:
        return []
    twice = Counter(called.values())
    spelled = {guid: name if name and twice[name] == 1 else guid for guid, name in called.items()}
    switches = Switches(KIND, text.source, "infiniband")
    by_switch: dict[str, list[Port]] = {}
    for port in ports(text):
        by_switch.setdefault(port.switch, []).append(port)
    for guid, found in by_switch.items():
        state(switches, spelled[guid], found, spelled)
    return switches.readings()


def ports(text: Text) -> Iterator[Port]:
    """Ports of all switches; those of adapters say the same from the other end."""
    switch = None
    for number, line in enumerate(text.lines, 1):
        if not line.startswith("["):
            if HEAD.match(line):  # one that cannot be read ends the switch before it all the same
                opened = SWITCH.fullmatch(line)
                switch = opened["guid"] if opened else None
            continue
        match = PORT.fullmatch(line) if switch else None
        if match and switch:
            yield Port(number, switch, match["guid"], match["name"])


def state(switches: Switches, name: str, found: list[Port], spelled: dict[str, str]) -> None:
    """One switch: its hosts, and the switches cabled to it."""
    held = [(port.line, match["host"]) for port in found if (match := ADAPTER.fullmatch(port.name))]
    if held:
        switches.hold(held[0][0], name, (host for _, host in held))
    cabled = [port for port in found if port.other in spelled]
    if cabled:
        switches.join(cabled[0].line, name, (spelled[port.other] for port in cabled))
    switches.lines.update(port.line for port in found)
