"""One GPU as `nvidia-smi -q` tells of it, as text or as XML.

Both print the same tree of headings, with small differences in spelling: `MIG Mode` / `Current` is
`mig_mode` / `current_mig` in XML. A heading that is not there, and N/A in all its spellings, is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.capture.fabric_words import fabric_heading, merge_fabrics, parse_fabric
from topocheck.probes.capture.gpu_block import read_uuid
from topocheck.probes.capture.prompt import extent
from topocheck.probes.capture.text import stated
from topocheck.snapshot import (
    SCHEMA,
    At,
    Coverage,
    Fabric,
    FullSnapshot,
    GpuId,
    GpuShape,
    GpuState,
    Hardware,
    Host,
    Identity,
    MigDevice,
    Platform,
    Process,
    Software,
    Source,
    State,
)

__all__ = ["Row", "Sheet", "heading", "sheets_snapshot"]

Path = tuple[str, ...]

MODEL: tuple[Path, ...] = (("product_name",),)
UUID: tuple[Path, ...] = (("gpu_uuid",), ("uuid",))
SERIAL: tuple[Path, ...] = (("serial_number",), ("serial",))
MINOR: tuple[Path, ...] = (("minor_number",),)
BUS: tuple[Path, ...] = (("pci", "bus_id"), ("pci", "pci_bus_id"))
MODULE: tuple[Path, ...] = (
    ("platform_info", "module_id"),
    ("platforminfo", "module_id"),
    ("module_id",),
    ("gpu_module_id",),
)
MIG: tuple[Path, ...] = (("mig_mode", "current"), ("mig_mode", "current_mig"))
MIG_PENDING: tuple[Path, ...] = (("mig_mode", "pending"), ("mig_mode", "pending_mig"))
COMPUTE_MODE: tuple[Path, ...] = (("compute_mode",),)
ECC: tuple[Path, ...] = (("ecc_mode", "current"), ("ecc_mode", "current_ecc"))
REMAP_PENDING: tuple[Path, ...] = (("remapped_rows", "pending"), ("remapped_rows", "remapped_row_pending"))
REMAP_FAILED: tuple[Path, ...] = (
    ("remapped_rows", "remapping_failure_occurred"),
    ("remapped_rows", "remapped_row_failure"),
)
REMAPPED: tuple[tuple[Path, ...], ...] = (
    (("remapped_rows", "correctable_error"), ("remapped_rows", "remapped_row_corr")),
    (("remapped_rows", "uncorrectable_error"), ("remapped_rows", "remapped_row_unc")),
)
"""Paths of a value: the text's, then the XML's."""

PLATFORM = {
    "chassis": ("chassis_serial_number", "rack_serial_number"),
    "slot": ("slot_number", "chassis_physical_slot_number"),
    "tray": ("tray_index", "compute_slot_index"),
    "host": ("host_id", "node_index"),
    "module": ("module_id",),
    "guid": ("gpu_fabric_guid",),
}
"""Headings of the place in the rack, by field: today's, then those of driver 565."""

REASONS = {
    "idle": "gpu_idle",
    "gpu_idle": "gpu_idle",
    "applications_clocks_setting": "applications_clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown",
    "display_clock_setting": "display_clock_setting",
    "display_clocks_setting": "display_clock_setting",
}
"""Reasons for low clocks, in the words of nvidia-smi --query-gpu=clocks_event_reasons.*."""

SWITCH = {"enabled": True, "yes": True, "disabled": False, "no": False}
SIZE = re.compile(r"([0-9]{1,9}) MiB")
WHOLE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Row:
    """One heading, and its value if it has one."""

    line: int
    path: Path
    """Headings from the GPU down, as `heading` spells them."""
    value: str | None = None
    """As printed."""


@dataclass(slots=True)
class Sheet:
    """All that is told of one GPU."""

    line: int
    bus: str | None = None
    """PCI address in its heading; None where the heading is not there."""
    rows: list[Row] = field(default_factory=list)

    def first(self, paths: Sequence[Path]) -> str | None:
        """The value at the first of these paths that states one."""
        for path in paths:
            for row in self.rows:
                if row.path == path and row.value is not None and (value := stated(row.value)):
                    return value
        return None

    def below(self, *tops: str) -> Iterator[Row]:
        """Rows with a value below one of these headings."""
        return (row for row in self.rows if row.value is not None and row.path[0] in tops)


def heading(text: str) -> str:
    """A heading or an XML tag in the one spelling: `FB Memory Usage` is `fb_memory_usage`."""
    return re.sub("[^a-z0-9]+", "_", text.strip().lower()).strip("_")


def sheets_snapshot(
    source: Source, host: str | None, sheets: Sequence[Sheet], software: Software, *, whole: bool
) -> tuple[FullSnapshot, int]:
    """The sheets of one node as evidence, and how many facts it has.

    nvidia-smi goes by NVML's index, so in a `whole` list the place is the index.
    """
    named = [sheet for sheet in sheets if sheet.bus or sheet.first(UUID)]
    ids = tuple(_id(sheet, place if whole else None) for place, sheet in enumerate(named))
    shapes = tuple(map(_shape, named))
    states = [_state(sheet, place) for place, sheet in enumerate(named)]
    unnamed = (_fabric(sheet, source) for sheet in sheets if not (sheet.bus or sheet.first(UUID)))
    fabrics = [fabric for place, sheet in enumerate(named) if (fabric := _fabric(sheet, source, place))]
    known = tuple(state for place, state in enumerate(states) if state != GpuState(gpu=place))
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(source,),
        coverage=Coverage(gpus=extent(whole) if named else None),
        identity=Identity(host=Host(name=host), gpus=ids),
        hardware=Hardware(gpus=shapes),
        fabric=merge_fabrics([*fabrics, *(fabric for fabric in unnamed if fabric)]),
        software=software,
        state=State(gpus=known),
    )
    return snapshot, sum(map(_facts, [*ids, *shapes, *known, *snapshot.fabric, software]))


def _facts(record: msgspec.Struct) -> int:
    """Number of fields that say something."""
    values = (getattr(record, name) for name in record.__struct_fields__)
    return sum(value is not None and value is not False and value not in ((), "unknown") for value in values)


def _id(sheet: Sheet, index: int | None) -> GpuId:
    uuid, serial, module = sheet.first(UUID), sheet.first(SERIAL), _number(sheet.first(MODULE))
    return GpuId(
        uuid=read_uuid(uuid) if uuid else None,
        bus=sheet.bus or parse_bus(sheet.first(BUS) or ""),
        nvml=index,
        model=sheet.first(MODEL),
        serial=serial if serial and serial.strip("0") else None,
        module=module or None,  # 0 is a board without modules
        minor=_number(sheet.first(MINOR)),
        platform=_platform(sheet),
        mig=tuple(_slices(sheet)) or (() if _lists_slices(sheet) else None),
    )


def _platform(sheet: Sheet) -> Platform | None:
    """Place in the rack; None where the board's own number is all that is told."""
    told = {row.path[-1]: value for row in sheet.below("platform_info", "platforminfo")
            if (value := stated(row.value or ""))}  # fmt: skip
    fields = {name: next((told[key] for key in keys if key in told), None) for name, keys in PLATFORM.items()}
    if all(value is None for name, value in fields.items() if name != "module"):
        return None
    guid = fields["guid"]
    return Platform(
        chassis=fields["chassis"],
        slot=_number(fields["slot"]),
        tray=_number(fields["tray"]),
        host=_number(fields["host"]),
        module=_number(fields["module"]),
        guid=guid.lower().removeprefix("0x") if guid else None,
    )


def _lists_slices(sheet: Sheet) -> bool:
    """Its MIG mode or its list of MIG devices, which may be `None`, is printed."""
    return _switch(sheet.first(MIG)) is not None or any(row.path[0] == "mig_devices" for row in sheet.rows)


def _slices(sheet: Sheet) -> Iterator[MigDevice]:
    """MIG devices; their UUIDs are in `nvidia-smi -L` alone."""
    found: list[dict[str, str]] = []
    for row in sheet.below("mig_device", "mig_devices"):
        if row.path[-1] == "index":
            found.append({})
        elif found:
            found[-1].setdefault(row.path[-1], row.value or "")
    for device in found:
        instance, part = device.get("gpu_instance_id"), device.get("compute_instance_id")
        yield MigDevice(gpu_instance=_number(instance), compute_instance=_number(part))


def _shape(sheet: Sheet) -> GpuShape:
    return GpuShape(
        model=sheet.first(MODEL),
        memory_bytes=_bytes(sheet.first([("fb_memory_usage", "total")])),
        mig=_switch(sheet.first(MIG)),
    )


def _state(sheet: Sheet, ordinal: int) -> GpuState:
    rows = [_number(sheet.first(paths)) for paths in REMAPPED]
    counted = [number for number in rows if number is not None]
    return GpuState(
        gpu=ordinal,
        memory_used_bytes=_bytes(sheet.first([("fb_memory_usage", "used")])),
        memory_reserved_bytes=_bytes(sheet.first([("fb_memory_usage", "reserved")])),
        processes=_processes(sheet),
        compute_mode=sheet.first(COMPUTE_MODE),
        mig_pending=_switch(sheet.first(MIG_PENDING)),
        ecc=_switch(sheet.first(ECC)),
        ecc_corrected=_errors(sheet, uncorrected=False),
        ecc_uncorrected=_errors(sheet, uncorrected=True),
        rows_remapped=sum(counted) if counted else None,
        remap_pending=_switch(sheet.first(REMAP_PENDING)),
        remap_failed=_switch(sheet.first(REMAP_FAILED)),
        throttle=_throttle(sheet),
    )


def _processes(sheet: Sheet) -> tuple[Process, ...] | None:
    """Processes that compute; those that only draw are left out, as NVML's list does."""
    rows = [row for row in sheet.rows if row.path[0] == "processes"]
    values = [row for row in rows if row.value is not None]
    found: list[dict[str, str]] = []
    for row in values:
        key = row.path[-1]
        if key in {"pid", "process_id"}:
            found.append({"pid": row.value or ""})
        elif found:
            found[-1].setdefault(key, row.value or "")
    if not found:  # `Processes : None`, and an empty element in XML
        silent = not rows or any(row.value and row.value.strip() != "None" for row in values)
        return None if silent else ()
    return tuple(
        Process(
            pid=int(process["pid"]),
            memory_bytes=_bytes(process.get("used_gpu_memory") or process.get("used_memory")),
            name=stated(process.get("name") or process.get("process_name") or ""),
        )
        for process in found
        if "C" in process.get("type", "C") and WHOLE.fullmatch(process["pid"])
    )


def _errors(sheet: Sheet, *, uncorrected: bool) -> int | None:
    """Memory errors since the driver was loaded, all memories together; None if none is counted."""
    numbers = []
    for row in sheet.below("ecc_errors"):
        old = bool({"single_bit", "double_bit"} & set(row.path))
        bad = "uncorr" in row.path[-1] or "double_bit" in row.path
        counts = row.path[-1] == "total" if old else "corr" in row.path[-1]
        if "volatile" in row.path and counts and bad == uncorrected:
            numbers.append(_number(row.value))
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _throttle(sheet: Sheet) -> tuple[str, ...] | None:
    """Reasons for low clocks that are active; None if none is told."""
    told: dict[str, bool] = {}
    for row in sheet.below("clocks_event_reasons", "clocks_throttle_reasons"):
        key = re.sub("^clocks_(?:event|throttle)_reason_", "", row.path[-1])
        if key in REASONS and row.value in {"Active", "Not Active"}:
            told[REASONS[key]] = row.value == "Active"
    return tuple(name for name in dict.fromkeys(REASONS.values()) if told.get(name)) if told else None


def _fabric(sheet: Sheet, source: Source, ordinal: int | None = None) -> Fabric | None:
    """Fabric of one GPU; of one that is not named if it has no ordinal."""
    rows = list(sheet.below("fabric"))
    words = {fabric_heading(row.path[-1]): row.value or "" for row in rows}
    at = At(source=source.name, line=rows[0].line if rows else sheet.line)
    found = parse_fabric(words, at, () if ordinal is None else (ordinal,))
    if found is None or ordinal is not None:
        return found
    return replace(found, unnamed=True)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and WHOLE.fullmatch(text) else None


def _bytes(text: str | None) -> int | None:
    """`81559 MiB` in bytes."""
    match = SIZE.fullmatch(text or "")
    return int(match[1]) << 20 if match else None


def _switch(text: str | None) -> bool | None:
    return SWITCH.get((text or "").lower())
