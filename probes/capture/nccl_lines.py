"""What NCCL's messages say about ranks and their connections, in the words of versions 2.3 to 2.30.

Checked against the format strings of NCCL's releases: init.cc, graph/rings.cc, graph/connect.cc,
transport/{p2p,shm,net}.cc, mnnvl.cc. Ranks are ranks inside one communicator, never global ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from topocheck.probes.capture.bus import parse_bus

__all__ = [
    "Clique",
    "GpuFabric",
    "Hop",
    "Ring",
    "Seat",
    "parse_clique",
    "parse_fabric",
    "parse_hop",
    "parse_ring",
    "parse_seat",
    "seems_cut",
]

Step = Literal["start", "complete", "destroyed", "seen"]

SEAT = re.compile(
    r"(?:\[Rank \d{1,9}\] )?(?:\w{1,60} )?comm (?P<pointer>0x[0-9a-f]{1,16}) "
    r"rank (?P<rank>\d{1,9}) n[rR]anks (?P<size>\d{1,9})(?: nNodes (?P<nodes>\d{1,9}) .*|"
    r"(?: cudaDev (?P<cuda>\d{1,3}))?(?: nvmlDev (?P<nvml>\d{1,3}))?(?: busId (?P<bus>[0-9a-f]{1,13}))?"
    r"(?: parent (?P<parent>0x[0-9a-f]{1,16}))?(?: (?:split|child)Count (?P<count>\d{1,9}))?"
    r"(?: color (?P<color>-?\d{1,10}))?(?: key -?\d{1,10})?(?: commId (?P<id>0x[0-9a-f]{1,16}))?"
    r" ?- (?P<what>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE|Abort START))"
)

STEPS: dict[str | None, Step] = {
    "Init START": "start",
    "Init COMPLETE": "complete",
    "Destroy COMPLETE": "destroyed",
    "Abort COMPLETE": "destroyed",
    "Abort START": "destroyed",
}

TIMINGS = re.compile(r"Init timings - \w{1,60}: rank (?P<rank>\d{1,9}) nranks (?P<size>\d{1,9}) ")

OWN = re.compile(
    r"Trees \[\d{1,5}\] [\d/-]{1,40}->(?P<trees>\d{1,9})->"
    r"|Ring \d{1,5} : \d{1,9} -> (?P<ring>\d{1,9}) -> \d{1,9}$"
    r"|Tree \d{1,5} : -?\d{1,9} -> (?P<tree>\d{1,9}) -> [\d/-]{1,40}$"
)
"""Trees and neighbours: the rank in the middle is the one of the process that writes."""

RING = re.compile(r"(?:Channel|Ring) \d{1,5}(?:/\d{1,5})? :(?P<ranks>(?:\s+\d{1,9})+)(?P<more>\s*\.\.\.)?$")

HOP = re.compile(
    r"(?:(?:Channel|Ring) \d{1,5}(?:/\d{1,5})? : )?"
    r"(?P<src>\d{1,9})(?:\[(?P<src_dev>[0-9a-f]{1,13})\])? -> "
    r"(?P<dst>\d{1,9})(?:\[(?P<dst_dev>[0-9a-f]{1,13})\])?"
    r"(?: \[(?P<side>send|receive)\])? via (?P<how>.{1,200}?)"
    r"(?: comm (?P<pointer>0x[0-9a-f]{1,16}) nRanks \d{1,9})?$"  # RCCL says which communicator
)

TRANSPORT = re.compile(
    r"(?P<P2P>P2P/(?:IPC|CUMEM|MNNVL|direct pointer|common device|indirect/\d{1,9}\[[0-9a-f]{1,13}\])"
    r"(?:/read)?(?:/CE)?)"
    r"|(?P<SHM>direct shared memory|SHM(?:/(?:direct|CE)){1,2})"
    r"|(?P<NET>NET/(?P<network>.{1,100}?)/-?\d{1,9}(?:\(\d{1,9}\))?(?P<gdr>/GDRDMA(?:\(PCI\))?)?(?:/Shared)?)"
)

FABRIC = re.compile(
    r"MNNVL busId (?P<bus>0x[0-9a-f]{1,13}) fabric UUID (?P<high>[0-9a-f]{1,16})\.(?P<low>[0-9a-f]{1,16}) "
    r"cliqueId (?P<clique>0x[0-9a-f]{1,8}) state (?P<state>\d{1,3}) healthMask (?P<health>0x[0-9a-f]{1,8})"
)

CLIQUE = re.compile(
    r"MNNVL (?P<on>\d) cliqueId (?P<id>[0-9a-f]{1,8}) cliqueSize (?P<size>\d{1,9}) cliqueRank "
)

FABRIC_STATES = ("Not Supported", "Not Started", "In Progress", "Completed")
"""nvmlGpuFabricState_t, in the words of nvidia-smi."""

BEGINNING = re.compile(r"(?:\[Rank \d+\] )?(?:ncclComm\w+ )?comm 0x|(?:Channel|Ring) \d+(?:/\d+)? :")


@dataclass(frozen=True, slots=True)
class Seat:
    """One statement that its writer is rank `rank` of a communicator."""

    rank: int
    """Rank inside the communicator."""
    size: int | None = None
    """Ranks of the communicator, where the line says so."""
    step: Step = "seen"
    """How far the communicator is."""
    pointer: str | None = None
    """Address of the communicator in the process."""
    comm_id: str | None = None
    """commId, equal on all ranks; 2.16 and later."""
    parent: str | None = None
    """Address of the communicator that was split."""
    count: int | None = None
    """How many times the parent was split before."""
    color: int | None = None
    """Color of the split: processes of one color form one communicator."""
    cuda: int | None = None
    """CUDA device in the process."""
    nvml: int | None = None
    """NVML index where the process runs; 2.18.3 and later, and 2.4."""
    bus: str | None = None
    """PCI address."""


@dataclass(frozen=True, slots=True)
class Ring:
    """The order of a ring. Only rank 0 writes it, and begins with itself (graph/rings.cc)."""

    rank: int
    """Rank of the writer."""
    size: int | None
    """Ranks of the communicator; None if the order may not be whole."""
    shown: int
    """Ranks that the line shows."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One connection between two ranks, as a channel line states it."""

    src: int
    dst: int
    via: Literal["P2P", "SHM", "NET"]
    how: str
    side: Literal["send", "receive"] | None
    src_dev: str | None
    dst_dev: str | None
    network: str | None
    gdr: bool | None
    pointer: str | None

    @property
    def near(self) -> int | None:
        """Rank of the process that wrote the line; None where NCCL 2.3 does not say which end it is."""
        if self.via == "NET" and self.side is None:
            return None
        return self.dst if self.side == "receive" else self.src

    @property
    def near_bus(self) -> str | None:
        """PCI address of the writer's GPU, if the bracket holds one: up to 2.18.1 it does.

        An NVML index has one or two digits; a squashed bus id has at least three unless it is on bus
        0, device 1 to 15, where the two cannot be told apart.
        """
        device = self.dst_dev if self.side == "receive" else self.src_dev
        return parse_bus(device) if self.near is not None and device and len(device) > 2 else None


@dataclass(frozen=True, slots=True)
class GpuFabric:
    """NVLink fabric of one GPU as NVML told NCCL."""

    bus: str
    uuid: str
    clique: int
    state: str
    health_mask: int


@dataclass(frozen=True, slots=True)
class Clique:
    """The NVLink clique of the communicator that is being initialised."""

    active: bool
    id: str
    size: int


def number(text: str | None) -> int | None:
    """A decimal number that may be missing."""
    return None if text is None else int(text)


def parse_seat(message: str) -> Seat | None:
    """Who the writer is, from an Init, Destroy, Abort, nNodes, timings, tree or neighbour line."""
    match = SEAT.match(message)
    if match:
        return Seat(
            rank=int(match["rank"]),
            size=int(match["size"]),
            step=STEPS.get(match["what"], "seen"),
            pointer=match["pointer"],
            comm_id=match["id"] if match["id"] and int(match["id"], 16) else None,
            parent=match["parent"],
            count=number(match["count"]),
            color=number(match["color"]),
            cuda=number(match["cuda"]),
            nvml=number(match["nvml"]),
            bus=parse_bus(match["bus"]) if match["bus"] else None,
        )
    match = TIMINGS.match(message)
    if match:
        return Seat(int(match["rank"]), int(match["size"]))
    match = OWN.match(message)
    return Seat(int(match["trees"] or match["ring"] or match["tree"])) if match else None


def parse_ring(message: str) -> Ring | None:
    """The order of a ring.

    The size is None where the order is not whole: up to 2.22 at most 20 ranks are printed, later ones
    end in `...`, and lines get cut.
    """
    match = RING.match(message)
    if not match:
        return None
    ranks = [int(rank) for rank in match["ranks"].split()]
    whole = not match["more"] and sorted(ranks) == list(range(len(ranks)))
    # Up to 2.22 each rank is " %3d" after a blank; a full line of 20 may have been a longer ring.
    if match["ranks"].startswith("    ") and len(ranks) >= 20:
        whole = False
    return Ring(ranks[0], len(ranks) if whole else None, len(ranks))


def parse_hop(message: str) -> Hop | None:
    """The connection of a channel line; None for other lines and for transports that NCCL has not."""
    match = HOP.match(message)
    how = TRANSPORT.fullmatch(match["how"].rstrip()) if match else None
    if not match or not how:
        return None
    via: Literal["P2P", "SHM", "NET"] = "P2P" if how["P2P"] else "SHM" if how["SHM"] else "NET"
    side: Literal["send", "receive"] | None = "send" if match["side"] == "send" else None
    return Hop(
        src=int(match["src"]),
        dst=int(match["dst"]),
        via=via,
        how=how[0],
        side="receive" if match["side"] == "receive" else side,
        src_dev=match["src_dev"],
        dst_dev=match["dst_dev"],
        network=how["network"],
        gdr=how["gdr"] is not None if via == "NET" else None,
        pointer=match["pointer"],
    )


def parse_fabric(message: str) -> GpuFabric | None:
    """`MNNVL busId ...`: what NVML says about the fabric of one GPU.

    NCCL prints the 16 bytes of the cluster UUID as two numbers of the host's byte order, which is
    little-endian on all machines with NVLink; they are turned back, as nvidia-smi prints them.
    """
    match = FABRIC.match(message)
    bus = parse_bus(match["bus"]) if match else None
    if not match or not bus:
        return None
    state = int(match["state"])
    return GpuFabric(
        bus=bus,
        uuid=b"".join(int(match[half], 16).to_bytes(8, "little") for half in ("high", "low")).hex(),
        clique=int(match["clique"], 16),
        state=FABRIC_STATES[state] if state < len(FABRIC_STATES) else match["state"],
        health_mask=int(match["health"], 16),
    )


def parse_clique(message: str) -> Clique | None:
    """`MNNVL 1 cliqueId d26 cliqueSize 8 cliqueRank 6`: the communicator uses a domain of many hosts."""
    match = CLIQUE.match(message)
    return Clique(match["on"] != "0", match["id"], int(match["size"])) if match else None


def seems_cut(message: str) -> bool:
    """The message begins like a communicator or channel line; of use where no parser took it."""
    return BEGINNING.match(message) is not None
