"""Ports of RDMA devices (/sys/class/infiniband/*/ports/*; drivers/infiniband/core/sysfs.c)."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path

from topocheck.portreading import GidReading, PortReading
from topocheck.probes.node.reader import MISSING, Kind, Reader, parse_number
from topocheck.snapshot import Port

__all__ = ["parse_gid", "parse_lid", "parse_rate", "parse_state", "read_port", "read_port_state"]

STATE = re.compile(r"[0-9]{1,3}:\s*([A-Za-z][A-Za-z_ ]*)")
"""`4: ACTIVE`, `5: LinkUp`; a number that the kernel has no word for is printed as `<unknown>`."""
RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,2})?) Gb/sec(?: \(([0-9]+X)(?: ([A-Z]+[0-9]*))?\))?")
LID = re.compile(r"0x[0-9a-f]{1,8}|0")
GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}")
LAYERS = ("InfiniBand", "Ethernet")

LOWEST = "SDR"
"""What a kernel prints for a speed that it does not know: a slow link, or a kernel older than its NIC."""

TRAFFIC = ("port_xmit_data", "port_rcv_data", "port_xmit_wait")
ERRORS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "symbol_error",
)
RETRIES = (
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_sequence",
    "packet_seq_err",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "rp_cnp_handled",
)
"""Of the many counters those that tell of traffic, of a bad cable and of congestion."""
NO_COUNTER = "N/A (no PMA)"
"""What virtual functions print: they have no performance management agent."""


def parse_state(text: str) -> str | None:
    """The kernel's word for a logical or physical state: ACTIVE, LinkUp; None where it has none."""
    found = STATE.fullmatch(text.strip())
    return found[1] if found else None


def parse_rate(text: str) -> tuple[float | None, str | None]:
    """Gbit/s and speed of each lane from `400 Gb/sec (4X NDR)`; old kernels leave the latter out."""
    found = RATE.fullmatch(text.strip())
    return (float(found[1]), found[3]) if found else (None, None)


def parse_lid(text: str) -> int | None:
    """A local id from `0x1f`; 0 is none."""
    text = text.strip().lower()
    return int(text, 16) if LID.fullmatch(text) else None


def parse_gid(text: str) -> str | None:
    """A GID of eight groups; None for all zeros, an empty entry, and for other text."""
    text = text.strip().lower()
    return text if GID.fullmatch(text) and text.strip("0:") else None


def read_port(reader: Reader, device: Path, number: int) -> Port:
    """What a port is like and whether it is up."""
    folder = device / "ports" / str(number)
    state = _word(reader, folder / "state")
    physical = _word(reader, folder / "phys_state")
    layer = reader.text(folder / "link_layer")
    return Port(
        port=number,
        state=state,
        physical=physical,
        layer=layer if layer in LAYERS else None,
        rate_gbps=_rate(reader, folder / "rate", up=layer == "InfiniBand" and physical == "LinkUp"),
    )


def _word(reader: Reader, path: Path) -> str | None:
    text = reader.text(path)
    word = None if text is None else parse_state(text)
    if text is not None and word is None:
        reader.note("broken", path, f"expected a number and a word, found {text[:40]!r}")
    return word


def _rate(reader: Reader, path: Path, *, up: bool) -> float | None:
    """Rate of a port; None for SDR on an InfiniBand port that is `up`, which no kernel means for certain."""
    text = reader.text(path)
    if text is None:
        return None
    rate, speed = parse_rate(text)
    if rate is None:
        reader.note("broken", path, f"expected a rate, found {text[:40]!r}")
    elif up and speed == LOWEST:
        reason = f"{text[:40]}: a kernel older than the NIC prints SDR for a speed that it does not know"
        reader.note("not-supported", path, reason)
        return None
    return rate


def read_port_state(reader: Reader, device: Path, number: int) -> PortReading:
    """Addresses and counters of a port."""
    folder = device / "ports" / str(number)
    return PortReading(
        port=number,
        lid=_lid(reader, folder / "lid"),
        sm_lid=_lid(reader, folder / "sm_lid"),
        gids=_gids(reader, folder),
        counters=dict(_counters(reader, device, folder)),
    )


def _lid(reader: Reader, path: Path) -> int | None:
    text = reader.text(path)
    lid = None if text is None else parse_lid(text)
    if text is not None and lid is None:
        reader.note("broken", path, f"expected a local id, found {text[:40]!r}")
    return lid


def _gids(reader: Reader, folder: Path) -> tuple[GidReading, ...] | None:
    """Entries of the GID table that are set; None if there is no table."""
    indexes = [name for name in reader.names(folder / "gids") if re.fullmatch("[0-9]{1,4}", name)]
    return tuple(_set_gids(reader, folder, indexes)) if indexes else None


def _set_gids(reader: Reader, folder: Path, indexes: list[str]) -> Iterator[GidReading]:
    for index in indexes:
        gid = parse_gid(reader.text(folder / "gids" / index) or "")
        if gid is not None:
            yield GidReading(
                index=int(index),
                digits=gid,
                type=_attribute(reader, folder / "gid_attrs/types" / index),
                netdev=_attribute(reader, folder / "gid_attrs/ndevs" / index),
            )


def _attribute(reader: Reader, path: Path) -> str | None:
    """An attribute of a GID. EINVAL says that the entry has none, a missing file that the driver has none."""
    return reader.text(path, (*MISSING, errno.EINVAL)) or None


def _counters(reader: Reader, device: Path, folder: Path) -> Iterator[tuple[str, int]]:
    """Counters that are kept, as far as they are there. hw_counters lie with the port or the device."""
    for place, wanted in (
        (folder / "counters", (*TRAFFIC, *ERRORS)),
        (folder / "hw_counters", RETRIES),
        (device / "hw_counters", RETRIES),
    ):
        there = reader.names(place, MISSING)
        for name in [name for name in wanted if name in there]:
            text = reader.text(place / name, {errno.EINVAL})
            value = None if text is None else parse_number(text)
            if value is not None:
                yield name, value
            elif text is not None:
                kind: Kind = "not-supported" if text == NO_COUNTER else "broken"
                reader.note(kind, place, f"{text[:40]!r} in place of a number", "counters")
