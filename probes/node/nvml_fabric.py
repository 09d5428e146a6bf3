"""The NVLink fabric of a GPU: which domain it was registered in, and how well it is.

NVML has four calls for it in two layouts. Structures are filled as bytes and read by their places,
since nvidia-ml-py declares other layouts in other versions (12.560 has the UUID six times as long).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable

import msgspec

from topocheck.probes.node.nvml_calls import Code, Driver, Gpu
from topocheck.snapshot import At, Fabric

__all__ = ["merge_fabrics", "parse_fabric", "read_fabric"]

VERSIONED = (0x03000028, 0x02000024)
"""nvmlGpuFabricInfo_v3 and _v2: the version above, the size of the structure below."""

UNVERSIONED_SIZE = 28
"""Bytes of nvmlGpuFabricInfo_t, which begins with the UUID."""

STATES = ("Not Supported", "Not Started", "In Progress", "Completed")
"""NVML_GPU_FABRIC_STATE_*, in nvidia-smi's words."""

COMPLETED = 3
"""The state in which alone the status means anything."""

HEALTH = {1: "Healthy", 2: "Unhealthy", 3: "Limited Capacity"}
"""NVML_GPU_FABRIC_HEALTH_SUMMARY_*, in nvidia-smi's words; 0 is not supported."""

REFUSED = frozenset({Code.VERSION_MISMATCH, Code.INVALID_ARGUMENT, Code.FUNCTION_NOT_FOUND})
"""How a driver says that it does not know a layout; an older one may."""


def read_fabric(driver: Driver, gpu: Gpu, ordinal: int) -> Fabric | None:
    """Fabric of one GPU by the newest layout that the driver knows; None where it says nothing.

    nvmlDeviceGetGpuFabricInfoV with version 3, then 2, then nvmlDeviceGetGpuFabricInfo. A GPU without a
    fabric refuses them all (Not Supported); the state Not Supported is another thing, a GPU's own word.
    """
    for version in VERSIONED:
        content = (ctypes.c_ubyte * (version & 0xFFFF))()
        ctypes.c_uint.from_buffer(content).value = version
        code = fill(driver, "nvmlDeviceGetGpuFabricInfoV", gpu, content)
        if code == Code.SUCCESS:
            return parse_fabric(bytes(content)[4:], ordinal, driver.words)
        if code not in REFUSED:
            return None
    content = (ctypes.c_ubyte * UNVERSIONED_SIZE)()
    code = fill(driver, "nvmlDeviceGetGpuFabricInfo", gpu, content)
    return parse_fabric(bytes(content), ordinal, driver.words) if code == Code.SUCCESS else None


def fill(driver: Driver, call: str, gpu: Gpu, content: ctypes.Array[ctypes.c_ubyte]) -> int:
    """Let NVML fill a structure."""
    return driver.ask("fabric", call, gpu, ctypes.byref(content), expected=REFUSED).code


def parse_fabric(content: bytes, ordinal: int, words: Callable[[int], str]) -> Fabric:
    """An nvmlGpuFabricInfo of any layout without its version; the older ones end before the health."""
    status, clique = (int.from_bytes(content[start : start + 4], "little") for start in (16, 20))
    state = content[24]
    return Fabric(
        gpus=(ordinal,),
        cluster_uuid=content[:16].hex(),
        clique=clique,
        state=STATES[state] if state < len(STATES) else str(state),
        status=words(status) if state == COMPLETED else None,
        health_mask=int.from_bytes(content[28:32], "little") if len(content) >= 32 else None,
        health=HEALTH.get(content[32]) if len(content) > 32 else None,
        at=At(source="nvmlDeviceGetGpuFabricInfoV"),
    )


def merge_fabrics(fabrics: Iterable[Fabric]) -> tuple[Fabric, ...]:
    """One entry for all GPUs that agree."""
    alike: dict[Fabric, list[int]] = {}
    for fabric in fabrics:
        alike.setdefault(msgspec.structs.replace(fabric, gpus=()), []).extend(fabric.gpus)
    return tuple(msgspec.structs.replace(fabric, gpus=tuple(gpus)) for fabric, gpus in alike.items())
