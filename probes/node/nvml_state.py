"""What changes by itself on one GPU: memory in use, processes, errors, reasons for low clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from topocheck.probes.node.nvml_calls import Code, Driver, Gpu
from topocheck.snapshot import GpuState, Process

__all__ = ["Memory", "parse_throttle", "read_memory", "read_state"]

COMPUTE_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
"""nvmlComputeMode_t, in nvidia-smi's words."""

CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0
"""nvmlMemoryErrorType_t; nvmlEccCounterType_t since the driver was loaded."""

THROTTLE = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
"""nvmlClocksEventReason*, by bit, in the words of nvidia-smi --query-gpu=clocks_event_reasons.*."""

REASON_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
"""The same question by its name since driver 535 and before."""

PROCESS_CALLS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
"""The same question of drivers since 510 and before."""


class Memory(NamedTuple):
    """Memory of one GPU."""

    total_bytes: int | None = None
    used_bytes: int | None = None
    reserved_bytes: int | None = None
    """The driver's own; None where it is counted as used."""


def read_memory(driver: Driver, gpu: Gpu) -> Memory:
    """nvmlDeviceGetMemoryInfo_v2, else nvmlDeviceGetMemoryInfo, which counts the driver's reserve as used."""
    version = driver.binding.nvmlMemory_v2
    answer = driver.ask("state", "nvmlDeviceGetMemoryInfo", gpu, version)
    if answer.value is not None:
        return Memory(answer.value.total, answer.value.used, answer.value.reserved)
    if answer.code not in {Code.FUNCTION_NOT_FOUND, Code.VERSION_MISMATCH}:
        return Memory()
    old = driver.ask("state", "nvmlDeviceGetMemoryInfo", gpu).value
    return Memory() if old is None else Memory(old.total, old.used)


def read_state(
    driver: Driver,
    gpu: Gpu,
    ordinal: int,
    memory: Memory,
    *,
    mig: Sequence[int] | None,
    rates: tuple[int | None, ...] | None,
) -> GpuState:
    """State of one GPU. `mig` is its MIG mode now and after a reset, `rates` are those of its NVLinks."""
    mode = driver.ask("state", "nvmlDeviceGetComputeMode", gpu).value
    ecc = driver.ask("state", "nvmlDeviceGetEccMode", gpu).value
    rows = driver.ask("state", "nvmlDeviceGetRemappedRows", gpu).value or (None,) * 4
    return GpuState(
        gpu=ordinal,
        memory_used_bytes=memory.used_bytes,
        memory_reserved_bytes=memory.reserved_bytes,
        processes=read_processes(driver, gpu),
        compute_mode=None if mode is None else word(COMPUTE_MODES, mode),
        mig_pending=None if mig is None else mig[1] == 1,
        ecc=None if ecc is None else ecc[0] == 1,
        ecc_corrected=read_errors(driver, gpu, CORRECTED),
        ecc_uncorrected=read_errors(driver, gpu, UNCORRECTED),
        rows_remapped=None if rows[0] is None else rows[0] + rows[1],
        remap_pending=None if rows[2] is None else rows[2] == 1,
        remap_failed=None if rows[3] is None else rows[3] == 1,
        throttle=parse_throttle(ask_newest(driver, REASON_CALLS, gpu)),
        nvlink_megabytes_per_s=rates,
    )


def read_processes(driver: Driver, gpu: Gpu) -> tuple[Process, ...] | None:
    """Processes that compute on a GPU; None where the driver does not say.

    Their memory is None in MIG mode and without rights. In a container, processes of other pid
    namespaces have the pid 0 or are left out.
    """
    found = ask_newest(driver, PROCESS_CALLS, gpu)
    if found is None:
        return None
    pids = [Process(pid=process.pid, memory_bytes=process.usedGpuMemory) for process in found]
    return tuple(sorted(pids, key=lambda process: process.pid))


def read_errors(driver: Driver, gpu: Gpu, kind: int) -> int | None:
    """Memory errors since the driver was loaded (nvmlDeviceGetTotalEccErrors)."""
    errors: int | None = driver.ask("state", "nvmlDeviceGetTotalEccErrors", gpu, kind, VOLATILE).value
    return errors


def ask_newest(driver: Driver, calls: Sequence[str], gpu: Gpu) -> Any:
    """Answer by the newest of several names of one question that the driver has."""
    for call in calls:
        answer = driver.ask("state", call, gpu)
        if answer.code != Code.FUNCTION_NOT_FOUND:
            return answer.value
    return None


def parse_throttle(mask: int | None) -> tuple[str, ...] | None:
    """Reasons for low clocks; bits that have no name yet are named by their value."""
    if mask is None:
        return None
    return tuple(word(THROTTLE, bit, hex(1 << bit)) for bit in range(64) if mask >> bit & 1)


def word(words: Sequence[str], number: int, else_say: str | None = None) -> str:
    """Word for a number of an enumeration; the number itself if it is newer than the words."""
    return words[number] if number < len(words) else else_say or str(number)
