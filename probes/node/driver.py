"""NVML asked from outside: the child process of `topocheck.probes.node.nvml`, and what it came to."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from topocheck.probes.node.roots import NVML_LIBRARY, Roots
from topocheck.snapshot import ProbeFault

if TYPE_CHECKING:
    from topocheck.probes.node.child import Child
    from topocheck.probes.node.nvml import GpuReading

__all__ = ["CHILD", "ask_driver", "judge"]

CHILD = "topocheck.probes.node.nvml"
"""Module that reads the GPUs in a process of its own."""
CALL = "call "
"""What begins the line in which the child announces a call."""


def ask_driver(
    roots: Roots, deadline: float, seconds: float, *, identity: bool
) -> tuple[GpuReading | None, tuple[ProbeFault, ...]]:
    """What NVML says until `deadline` (time.monotonic()), `seconds` from the start.

    Where there is no library no process is started: to find out costs a hundredth of one. `identity` asks
    only which GPUs there are.
    """
    if roots.nvml is None:
        reason = "the file tree is not of the running machine, for which alone the driver answers"
        return None, (ProbeFault(part="gpus", kind="absent", path=NVML_LIBRARY, reason=reason),)
    try:
        ctypes.CDLL(roots.nvml)
    except OSError as error:
        return None, (ProbeFault(part="gpus", kind="absent", path=roots.nvml, reason=str(error)),)
    from topocheck.probes.node.child import run_child  # noqa: PLC0415 - only where there is a driver

    command = [sys.executable, "-m", CHILD, "--root", str(roots.root.absolute()), "--library", roots.nvml]
    try:
        child = run_child(
            [*command, *(["--identity"] if identity else [])],
            deadline,
            os.environ | {"PYTHONSAFEPATH": "1"},  # the folder that one stands in holds no modules
        )
    except OSError as error:
        reason = f"{sys.executable or 'python'}: {error.strerror or error}"
        return None, (ProbeFault(part="gpus", kind="broken", path="probe gpus", reason=reason),)
    return judge(child, seconds)


def judge(child: Child, seconds: float) -> tuple[GpuReading | None, tuple[ProbeFault, ...]]:
    """The last whole document of the child, and a fault if the child did not come to its end."""
    reading = last_reading(child.out)
    faults = () if reading is None else reading.faults
    if child.code == 0 and reading is not None:
        return reading, faults
    said = child.err.decode("utf-8", "replace").splitlines()
    calls = [line.removeprefix(CALL) for line in said if line.startswith(CALL)]
    known = reading is not None and reading.coverage.gpus == "all"
    if child.code is None:
        kind, why = "timeout", f"did not return within {seconds:g} s; its process {child.ending}"
    else:
        words = next((line for line in reversed(said) if line.strip() and not line.startswith(CALL)), "")
        kind, why = "broken", f"its process {child.ending}" + (f": {words[:200]}" if words else "")
    fault = ProbeFault(
        part="links" if known else "gpus",
        kind="timeout" if kind == "timeout" else "broken",
        path=calls[-1] if calls else "probe gpus",
        reason=why,
    )
    if reading is not None and reading.coverage.links == "all":
        reading = replace(reading, coverage=replace(reading.coverage, links="part"))
    return reading, (*faults, fault)


def last_reading(out: bytes) -> GpuReading | None:
    """The last document that is whole; a line without its end was cut."""
    from topocheck.probes.node.nvml import GpuReading  # noqa: PLC0415 - only where a driver answered

    for line in reversed(out.splitlines(keepends=True)):
        if line.endswith(b"\n"):
            try:
                return msgspec.json.decode(line, type=GpuReading)
            except msgspec.DecodeError:
                continue
    return None
