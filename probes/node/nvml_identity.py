"""Which GPUs these are: what no two GPUs have in common.

The order is NVML's index, which is the order of PCI addresses in practice but promised by nobody; the
UUID is what identifies.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.node.nvml_calls import Answer, Code, Driver, Gpu
from topocheck.snapshot import GpuId, MigDevice, Platform, Scope

__all__ = ["find_gpus", "parse_platform", "read_bus", "read_id", "read_scope"]

PLATFORM_VERSIONS = (0x0200002C, 0x0100002C)
"""nvmlPlatformInfo_v2 and _v1: the version above, the size of the structure (44 bytes) below."""

PLATFORM_SIZE = 44


def find_gpus(driver: Driver) -> tuple[list[Gpu], bool | None]:
    """GPUs that this process may open, and whether there are no others; None if nobody can tell.

    nvmlDeviceGetCount_v2 counts GPUs too that the process may not open: those are not the job's and
    are left out. A GPU that breaks when it is opened stays in the list, and nothing is known of it.
    """
    count = driver.ask("gpus", "nvmlDeviceGetCount").value
    if count is None:
        return [], None
    gpus = []
    for index in range(count):
        unopened = Gpu(index, index)
        answer = driver.ask("gpus", "nvmlDeviceGetHandleByIndex", unopened)
        if answer.code == Code.NO_PERMISSION:
            continue
        if answer.code != Code.SUCCESS:
            driver.give_up(unopened)
        gpus.append(whole_gpu(driver, Gpu(index, answer.value)))
    return gpus, len(gpus) == count


def whole_gpu(driver: Driver, gpu: Gpu) -> Gpu:
    """The GPU itself where the handle is that of a MIG slice, which refuses most questions.

    The binding hands out the c_uint itself, which equals no number.
    """
    answer = driver.ask("gpus", "nvmlDeviceIsMigDeviceHandle", gpu)
    if answer.value is None or answer.value.value != 1:
        return gpu
    parent = driver.ask("gpus", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", gpu)
    return gpu if parent.value is None else Gpu(gpu.index, parent.value)


def read_scope(sys: Path, count: int) -> Scope:
    """Whose numbering NVML's indexes are: the host's if NVML shows all GPUs that the kernel drives.

    /sys/bus/pci/drivers/nvidia holds a link for each of them, in a container too.
    """
    folder = sys / "bus/pci/drivers/nvidia"
    try:
        driven = sum(1 for entry in folder.iterdir() if parse_bus(entry.name))
    except OSError:
        return "unknown"
    return "host" if count >= driven else "container"


def read_id(driver: Driver, gpu: Gpu, scope: Scope, *, mig: bool | None) -> GpuId:
    """Everything that names one GPU. `mig` is its MIG mode, None where it is not known."""
    ask = driver.ask
    return GpuId(
        uuid=ask("gpus", "nvmlDeviceGetUUID", gpu).value,
        bus=read_bus(ask("gpus", "nvmlDeviceGetPciInfo_v3", gpu)),
        nvml=gpu.index,
        scope=scope,
        serial=ask("gpus", "nvmlDeviceGetSerial", gpu).value,
        module=read_module(driver, gpu),
        minor=ask("gpus", "nvmlDeviceGetMinorNumber", gpu).value,
        platform=read_platform(driver, gpu),
        mig=read_mig(driver, gpu) if mig else None if mig is None else (),
    )


def read_module(driver: Driver, gpu: Gpu) -> int | None:
    """Place on the baseboard; NVML says 0 of a board without modules.

    Handed a reference, every version of the binding fills it and returns the nvmlReturn_t; without one,
    12.560 refuses to be called.
    """
    module = ctypes.c_uint()
    answer = driver.ask("gpus", "nvmlDeviceGetModuleId", gpu, ctypes.byref(module))
    return module.value or None if answer.value == Code.SUCCESS else None


def read_bus(answer: Answer) -> str | None:
    """PCI address in an nvmlPciInfo_t; None for NVML's `FFFFFFFF:FF:FF.0`."""
    return None if answer.value is None else parse_bus(answer.value.busId)


def read_mig(driver: Driver, gpu: Gpu) -> tuple[MigDevice, ...]:
    """Slices of a GPU in MIG mode. Places without one answer Not Found, and others may follow."""
    most = driver.ask("gpus", "nvmlDeviceGetMaxMigDeviceCount", gpu).value or 0
    slices = []
    for place in range(most):
        call = "nvmlDeviceGetMigDeviceHandleByIndex"
        handle = driver.ask("gpus", call, gpu, place, expected={Code.NOT_FOUND}).value
        if handle is not None:
            slices.append(read_slice(driver, Gpu(gpu.index, handle)))
    return tuple(slices)


def read_slice(driver: Driver, part: Gpu) -> MigDevice:
    """One slice, by its own handle."""
    return MigDevice(
        uuid=driver.ask("gpus", "nvmlDeviceGetUUID", part).value,
        name=driver.ask("gpus", "nvmlDeviceGetName", part).value,
        gpu_instance=driver.ask("gpus", "nvmlDeviceGetGpuInstanceId", part).value,
        compute_instance=driver.ask("gpus", "nvmlDeviceGetComputeInstanceId", part).value,
    )


def read_platform(driver: Driver, gpu: Gpu) -> Platform | None:
    """Place in the rack (nvmlDeviceGetPlatformInfo)."""
    for version in PLATFORM_VERSIONS:
        content = (ctypes.c_ubyte * PLATFORM_SIZE)()
        ctypes.c_uint.from_buffer(content).value = version
        answer = driver.ask("gpus", "nvmlDeviceGetPlatformInfo", gpu, ctypes.byref(content))
        if answer.code == Code.SUCCESS:
            return parse_platform(bytes(content))
        if answer.code != Code.VERSION_MISMATCH:
            return None
    return None


def parse_platform(content: bytes) -> Platform:
    r"""An nvmlPlatformInfo_t by the places of its bytes.

    nvidia-ml-py declares them as characters, which cuts the GUID at a zero byte and makes of slot 5
    the text `\x05`.
    """
    version = int.from_bytes(content[:4], "little")
    chassis = content[20:36].rstrip(b"\0")
    words = chassis.decode("ascii", "replace") if version == PLATFORM_VERSIONS[0] else chassis.hex()
    slot, tray, host, peer_type, module = content[36:41]
    guid = content[4:20].rstrip(b"\0")
    return Platform(
        chassis=words or None,
        slot=slot,
        tray=tray,
        host=host,
        peer_type=peer_type,
        module=module,
        guid=content[4:12].hex() if guid else None,
    )
