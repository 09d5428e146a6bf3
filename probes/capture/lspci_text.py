"""`lspci`, plain, with -n or -nn, with -D, and with -vvv as root.

A plain list names devices, and with -vv the bridges show which buses lie below them, so that the tree,
the widths of links and access control can be read. lspci knows neither UUIDs nor kernel names: GPUs are
known by their bus ids, NICs appear in the tree alone. It lists boards that no job can use, too, so it
never shows all GPUs. Facts in the vocabulary of LogFact:

| kind | value |
|---|---|
| `nvswitches` | number of NVSwitches on the PCI bus |
| `acs` | controls that are on at a bridge that `grep` left out: `SrcValid ReqRedir`; empty for none |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from topocheck.errors import CaptureError
from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.pci_tree import PciFunction, PciTree, build_tree, kind_of
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.probes.capture.text import is_elision
from topocheck.snapshot import (
    SCHEMA,
    At,
    Coverage,
    FullSnapshot,
    GpuId,
    GpuShape,
    Hardware,
    Host,
    Identity,
    LogFact,
    Observed,
    ProbeFault,
    Source,
    State,
)

__all__ = ["KIND", "parse"]

KIND = "lspci"

HEADING = re.compile(
    r"(?P<bus>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"(?:(?P<code>[0-9a-f]{4}): (?P<id>[0-9a-f]{4}:[0-9a-f]{4})\b.*|(?P<name>[A-Z0-9][^\[\]:]{2,60}?)"
    r"(?: \[(?P<class>[0-9a-f]{4})\])?: (?P<device>\S.{0,300}))"
)
ID = re.compile(r"\[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\](?!.*\[[0-9a-f]{4}:[0-9a-f]{4}\])")
LOST = re.compile(r"\(rev ff\)")
"""What a device that answers nothing has in all its registers."""

CLASSES = {
    "3D controller": 0x0302,
    "Display controller": 0x0380,
    "VGA compatible controller": 0x0300,
    "Processing accelerators": 0x1200,
    "PCI bridge": 0x0604,
    "Bridge": 0x0680,
    "Infiniband controller": 0x0207,
    "Ethernet controller": 0x0200,
    "Network controller": 0x0280,
    "Fabric controller": 0x0208,
}
"""Class by its name in pci.ids."""
OTHERS = frozenset(
    {
        "Host bridge",
        "ISA bridge",
        "SMBus",
        "System peripheral",
        "USB controller",
        "SATA controller",
        "Non-Volatile memory controller",
        "Communication controller",
        "Serial bus controller",
        "Signal processing controller",
        "Audio device",
        "Performance counters",
        "PIC",
        "RAID bus controller",
        "IOMMU",
        "Unassigned class",
        "Encryption controller",
    }
)
"""Further classes by name, of devices that have no part in the traffic of a job."""
VENDORS = {
    "NVIDIA": 0x10DE,
    "Advanced Micro Devices": 0x1002,
    "Red Hat": 0x1AF4,
    "VMware": 0x15AD,
    "Microsoft": 0x1414,
}
"""Vendor by the beginning of its name in pci.ids."""
VIRTUAL = frozenset({0x1AF4, 0x1B36, 0x15AD, 0x1414, 0x5853, 0x80EE})
"""virtio, QEMU, VMware, Hyper-V, Xen, VirtualBox: devices that only virtual machines have."""

BUSES = re.compile(r"\s+Bus: primary=[0-9a-f]{2}, secondary=(?P<secondary>[0-9a-f]{2}), .*")
NUMA = re.compile(r"\s+NUMA node: (?P<numa>[0-9]{1,3})\s*")
LINK = re.compile(
    r"\s+Lnk(?P<kind>Cap|Sta):\s.*?Speed (?P<speed>[0-9.]{1,5})GT/s.*?, Width x(?P<width>[0-9]{1,2})\b.*"
)
ACS = re.compile(r"\s*ACSCtl:\s+(?P<controls>(?:[A-Z]\w{2,20}[+-]\s*){3,10})")
DRIVER = re.compile(r"\s+Kernel driver in use: (?P<driver>[\w-]{1,40})\s*")
USABLE = frozenset({"nvidia", "amdgpu"})
"""Drivers of GPUs that compute."""


@dataclass(slots=True)
class Entry:
    """One device while its lines are read."""

    line: int
    function: PciFunction
    vendor: int | None
    lost: bool = False
    secondary: int | None = None
    """Bus behind a bridge."""
    root_port: bool = False
    detailed: bool = False
    """Its capabilities are shown in detail."""
    driver: str | None = None

    @property
    def domain(self) -> str:
        """PCI domain."""
        return self.function.bus.partition(":")[0]

    @property
    def number(self) -> int:
        """Number of the bus that it is on."""
        return int(self.function.bus.split(":")[1], 16)


@dataclass(slots=True)
class Listing:
    """One output while it is read."""

    section: Section
    entries: list[Entry] = field(default_factory=list)
    acs: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    """Access control of bridges that are not shown."""
    lines: set[int] = field(default_factory=set)
    cut: list[int] = field(default_factory=list)


def parse(text: Text) -> list[Reading]:
    """Read every listing that shows a GPU, an NVSwitch or access control, one Reading for each command."""
    likely = [
        number
        for number, line in enumerate(text.lines, 1)
        if "ACSCtl:" in line or (line[:1].isalnum() and _entry(text, number) is not None)
    ]
    if not likely:
        return []
    parts = sections(text)
    wanted = dict.fromkeys(section_at(parts, number) for number in likely)
    listings = (_listing(text, section) for section in wanted)
    return [reading for listing in listings if (reading := _reading(text, listing))]


def _entry(text: Text, number: int) -> Entry | None:
    """The line as the heading of a device; None if it is none."""
    line = text.lines[number - 1]
    match = HEADING.fullmatch(line) if len(line) < 400 and line[2:3] in ":0123456789abcdef" else None
    bus = parse_bus(match["bus"]) if match else None
    if match is None or bus is None:
        return None
    if match["code"]:
        code, vendor = int(match["code"], 16), int(match["id"][:4], 16)
    else:
        code = int(match["class"], 16) if match["class"] else CLASSES.get(match["name"], 0)
        ids = ID.search(match["device"])
        named = next((number for name, number in VENDORS.items() if match["device"].startswith(name)), None)
        vendor = int(ids["vendor"], 16) if ids else named or 0
    if code == 0 and not match["class"] and match["name"] not in OTHERS:
        return None
    function = PciFunction(bus=bus, kind=kind_of(code, vendor))
    return Entry(number, function, vendor or None, lost=LOST.search(line) is not None)


def _listing(text: Text, section: Section) -> Listing:
    listing = Listing(section)
    for number in range(section.start, section.end + 1):
        line = text.lines[number - 1]
        entry = _entry(text, number) if line[:1].isalnum() else None
        if entry:
            listing.entries.append(entry)
            listing.lines.add(number)
        elif is_elision(line):
            listing.cut.append(number)
        elif line[:1] in {" ", "\t"} and len(line) < 400:
            _detail(listing, number, line)
    return listing


def _detail(listing: Listing, number: int, line: str) -> None:
    """A line of -v below the heading of its device."""
    controls = ACS.match(line)
    acs = tuple(word[:-1] for word in controls["controls"].split() if word[-1] == "+") if controls else None
    if not listing.entries:
        if acs is not None:
            listing.acs.append((number, acs))
            listing.lines.add(number)
        return
    listing.lines.add(number)
    entry, stripped = listing.entries[-1], line.strip()
    function = entry.function
    if acs is not None:
        function.acs = acs
    elif buses := BUSES.fullmatch(line):
        entry.secondary = int(buses["secondary"], 16)
    elif numa := NUMA.fullmatch(line):
        function.numa = int(numa["numa"])
    elif link := LINK.fullmatch(line):
        entry.detailed = True
        _link(function, link["kind"], float(link["speed"]), int(link["width"]))
    elif driver := DRIVER.fullmatch(line):
        entry.driver = driver["driver"]
    elif "Root Port" in stripped and stripped.startswith("Capabilities:"):
        entry.root_port = True


def _link(function: PciFunction, kind: str, speed: float, width: int) -> None:
    if not 0 < width <= 32:
        return
    if kind == "Cap":
        function.max_width, function.max_speed_gts = width, speed
    else:
        function.width, function.speed_gts = width, speed


def _reading(text: Text, listing: Listing) -> Reading | None:
    entries = listing.entries
    gpus = [e for e in entries if e.function.kind == "gpu" and not e.lost and _usable(e)]
    switches = sum(entry.function.kind == "nvswitch" for entry in entries)
    lost = [entry for entry in entries if entry.lost and entry.function.kind == "gpu"]
    if not gpus and not switches and not listing.acs and not lost:
        return None
    notes: list[Note] = []
    if listing.cut:
        notes.append(Note(listing.cut[0], "cut", "devices were left out of the listing"))
    tree = _tree(text, listing, notes)
    facts = tuple(_facts(text, listing, switches))
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        coverage=Coverage(gpus="part" if gpus else None, observed="part" if facts else None),
        identity=Identity(
            host=Host(name=listing.section.host), gpus=tuple(GpuId(bus=e.function.bus) for e in gpus)
        ),
        hardware=Hardware(
            gpus=tuple(GpuShape(numa=e.function.numa, pci=tree.places.get(e.function.bus)) for e in gpus),
            pci=tree.nodes,
        ),
        state=State(pci=tree.links),
        observed=Observed(facts=facts) if facts else None,
        faults=tuple(_lost(text, lost)),
    )
    count = len(gpus) + len(tree.nodes) + len(facts) + len(lost)
    return Reading(KIND, (snapshot,), frozenset(listing.lines), count, tuple(notes))


def _usable(entry: Entry) -> bool:
    """A GPU that a job may use: not one that another driver than the vendors' holds (vfio-pci, ast)."""
    return entry.driver is None or entry.driver in USABLE


def _facts(text: Text, listing: Listing, switches: int) -> Iterator[LogFact]:
    if switches:
        first = next(entry.line for entry in listing.entries if entry.function.kind == "nvswitch")
        yield LogFact(kind="nvswitches", value=f"{switches}", at=At(source=text.source, line=first))
    seen: set[tuple[str, ...]] = set()
    for number, controls in listing.acs:
        if controls not in seen:
            seen.add(controls)
            yield LogFact(kind="acs", value=" ".join(controls), at=At(source=text.source, line=number))


def _lost(text: Text, lost: Iterable[Entry]) -> Iterator[ProbeFault]:
    for entry in lost:
        reason = f"GPU {entry.function.bus} answers nothing (rev ff): it fell off the bus"
        yield ProbeFault(part="gpus", kind="broken", path=f"{text.source}:{entry.line}", reason=reason)


def _tree(text: Text, listing: Listing, notes: list[Note]) -> PciTree:
    """The tree, if the listing shows it whole; a note says why not where one could expect it."""
    entries = listing.entries
    bridges = [entry for entry in entries if entry.secondary]
    if not bridges:
        return PciTree()
    if any(entry.vendor in VIRTUAL for entry in entries):
        words = "a virtual machine: its hypervisor makes the PCI tree up, which was not taken"
        notes.append(Note(entries[0].line, "ignored", words))
        return PciTree()
    behind = {(entry.domain, entry.secondary): entry for entry in bridges}
    if len(behind) < len(bridges):
        (domain, bus), _ = Counter((e.domain, e.secondary) for e in bridges).most_common(1)[0]
        raise _refuse(text, bridges[0].line, f"two bridges lead to bus {domain}:{bus or 0:02x}")
    for entry in entries:
        above = behind.get((entry.domain, entry.number))
        entry.function.above = above.function.bus if above else None
        entry.function.root = f"pci{entry.domain}:{entry.number:02x}"
        if entry.detailed and entry.function.kind == "bridge" and entry.function.acs is None:
            entry.function.acs = ()
    if not listing.section.lists_all("lspci") or listing.cut:
        tops = [e for e in bridges if e.function.above is None and not e.root_port]
        loose = [e for e in entries if e.function.kind == "gpu" and e.function.above is None]
        if tops or loose:
            words = "bridges may be missing in this part of a listing: no distances were taken from it"
            notes.append(Note(entries[0].line, "cut", words))
            return PciTree()
    try:
        return build_tree(entry.function for entry in entries)
    except ValueError as error:
        raise _refuse(text, bridges[0].line, f"the bridges above {error} form a circle") from error


def _refuse(text: Text, line: int, problem: str) -> CaptureError:
    return CaptureError(
        problem,
        path=text.source,
        line=line,
        fix="give the output of one lspci -vvv, as root, in a file of its own",
    )
