"""NVLinks of one GPU: how many, in which state, and what is at the far end.

State and speed of all links come by one nvmlDeviceGetFieldValues where the GPU has those fields
(Hopper and newer); nvmlDeviceGetNvLinkState is asked for what is left. There is no literal number of
links: GPUs have 4 to 36, and a driver may know of more than the binding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from topocheck.probes.node.nvml_calls import Code, Driver, Gpu
from topocheck.probes.node.nvml_identity import read_bus
from topocheck.snapshot import NvLink

__all__ = ["Links", "read_links"]

LINK_COUNT, SWITCH_LINK_COUNT, COMMON_SPEED = 91, 147, 90
"""NVML_FI_DEV_NVLINK_LINK_COUNT, _NVSWITCH_CONNECTED_LINK_COUNT, _NVLINK_SPEED_MBPS_COMMON."""

LINK_SPEED, LINK_STATE = 164, 165
"""NVML_FI_DEV_NVLINK_GET_SPEED and _GET_STATE; scopeId is the link."""

UP = {0: False, 1: True, 2: True, 3: False}
"""NVML_NVLINK_STATE_*: inactive, active, asleep (healthy), active but closed to traffic."""

FAR_ENDS: dict[int, Literal["gpu", "cpu", "switch"]] = {0: "gpu", 1: "cpu", 2: "switch"}
"""nvmlIntNvLinkDeviceType_t; 255 is unknown."""

VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of nvmlValue_t by nvmlValueType_t."""

VGPU = 2
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU: a guest, which is denied NVLink whether there is any or not."""

MOST_LINKS = 256
"""No GPU has as many: a driver that never says where the links end is not believed."""

Field = tuple[int, int]
"""(field id, scope id)."""


class Links(NamedTuple):
    """What NVML says about the NVLinks of one GPU."""

    links: tuple[NvLink, ...] | None = None
    """Each link; () is proven to have none, None is not known."""
    switched: bool | None = None
    """They lead to NVSwitches."""
    megabytes_per_s: tuple[int | None, ...] | None = None
    """Raw rate of each link that is up."""


def read_links(driver: Driver, gpu: Gpu, ordinals: Mapping[str, int], *, mig: bool) -> Links:
    """All NVLinks of a GPU. `ordinals` are the GPUs of the node by PCI address."""
    counts = read_fields(driver, gpu, [(LINK_COUNT, 0), (SWITCH_LINK_COUNT, 0), (COMMON_SPEED, 0)])
    count = counts.get((LINK_COUNT, 0))
    if count is not None and not 0 <= count <= MOST_LINKS:
        driver.note("links", "broken", "nvmlDeviceGetFieldValues", [gpu.index], f"it counts {count} links")
        return Links()
    numbers = range(count or 0)
    fields = [(field, link) for field in (LINK_STATE, LINK_SPEED) for link in numbers]
    values = read_fields(driver, gpu, fields) if fields else {}
    known = {link: UP.get(values[LINK_STATE, link]) for link in numbers if (LINK_STATE, link) in values}
    states = read_states(driver, gpu, count, known)
    if states is None or (not states and hidden(driver, gpu, mig=mig)):
        return Links()
    links = tuple(read_link(driver, gpu, link, state, ordinals) for link, state in enumerate(states))
    common = counts.get((COMMON_SPEED, 0))
    rates = [values.get((LINK_SPEED, link.link), common) if link.active else None for link in links]
    return Links(
        links,
        leads_to_switches(links, counts.get((SWITCH_LINK_COUNT, 0))),
        tuple(rate or None for rate in rates) if any(rates) else None,
    )


def read_fields(driver: Driver, gpu: Gpu, fields: Sequence[Field]) -> dict[Field, int]:
    """Values of those fields that the GPU has: each one carries its own nvmlReturn_t."""
    answer = driver.ask("links", "nvmlDeviceGetFieldValues", gpu, fields, expected={Code.INVALID_ARGUMENT})
    given = answer.value if answer.value is not None else ()
    return {
        field: read_value(entry)
        for field, entry in zip(fields, given, strict=False)
        if entry.nvmlReturn == Code.SUCCESS and entry.valueType < len(VALUE_FIELDS)
    }


def read_value(entry: Any) -> int:
    """The number in an nvmlFieldValue_t."""
    return int(getattr(entry.value, VALUE_FIELDS[entry.valueType]))


def read_states(
    driver: Driver, gpu: Gpu, count: int | None, known: Mapping[int, bool | None]
) -> list[bool | None] | None:
    """State of each link, from the fields where `known`; None if not even their number can be told.

    Where no field gives the number, the links end at the first one that the driver refuses: Invalid
    Argument beyond the last, Not Supported where there are none.
    """
    states: list[bool | None] = []
    for link in range(MOST_LINKS if count is None else count):
        state = known.get(link)
        if state is None:
            expected = {Code.INVALID_ARGUMENT}
            answer = driver.ask("links", "nvmlDeviceGetNvLinkState", gpu, link, expected=expected)
            if count is None and answer.code in {Code.INVALID_ARGUMENT, Code.NOT_SUPPORTED}:
                return states
            if count is None and answer.code != Code.SUCCESS:
                return None
            state = None if answer.value is None else answer.value == 1
        states.append(state)
    if count is None:
        driver.note("links", "broken", "nvmlDeviceGetNvLinkState", [gpu.index], "the links have no end")
        return None
    return states


def hidden(driver: Driver, gpu: Gpu, *, mig: bool) -> bool:
    """The driver may be silent about NVLinks that are there: in a vGPU guest, in MIG mode, of a lost GPU."""
    answer = driver.ask("links", "nvmlDeviceGetVirtualizationMode", gpu)
    return mig or answer.value == VGPU or answer.code == Code.GPU_IS_LOST


def read_link(
    driver: Driver, gpu: Gpu, link: int, active: bool | None, ordinals: Mapping[str, int]
) -> NvLink:
    """One link. What is at its far end is asked only if it is up: a link that is down has none."""
    if not active:
        return NvLink(link=link, active=active)
    version = driver.ask("links", "nvmlDeviceGetNvLinkVersion", gpu, link).value
    kind = driver.ask("links", "nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link).value
    remote = FAR_ENDS.get(kind)
    peer = None
    if remote in {None, "gpu"}:
        bus = read_bus(driver.ask("links", "nvmlDeviceGetNvLinkRemotePciInfo", gpu, link))
        peer = ordinals.get(bus or "")
        remote = remote if peer is None else "gpu"
    return NvLink(link=link, active=True, remote=remote, peer=peer, version=version)


def leads_to_switches(links: Sequence[NvLink], counted: int | None) -> bool | None:
    """Whether the links that are up lead to NVSwitches; None if their far ends are hidden or none is up."""
    ends = {link.remote for link in links if link.active}
    if "switch" in ends or counted:
        return True
    return None if not ends or None in ends else False
