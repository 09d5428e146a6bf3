"""NVML asked one call at a time: each call announced, each failure kept as absence or as a fault.

What NVML does not have for a board, a place or a driver (Not Supported, a function that an older
driver lacks) is absence: the answer is None and nothing is wrong. Anything else is a fault, named with
its call and its GPUs. A GPU that fell off the bus is not asked again, and the others go on.

The binding is nvidia-ml-py (module pynvml), whose names are NVML's own. It is imported only once
NVIDIA's library is known to load.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from topocheck.probes.node.reader import Kind
from topocheck.probes.node.roots import NVML_LIBRARY
from topocheck.ranges import fold
from topocheck.snapshot import ProbeFault

__all__ = ["Answer", "Code", "Driver", "Gpu", "Part", "load_driver"]

Part = Literal["gpus", "links", "peers", "fabric", "state", "software"]
"""What a missing answer leaves without evidence, for `ProbeFault.part`."""


class Code(IntEnum):
    """nvmlReturn_t, as far as the probe tells its values apart (nvml.h of API 13)."""

    SUCCESS = 0
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    NO_DATA = 21
    VGPU_ECC_NOT_SUPPORTED = 22
    VERSION_MISMATCH = 25
    DEPRECATED = 26
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


ABSENCE = frozenset(
    {
        Code.NOT_SUPPORTED,
        Code.FUNCTION_NOT_FOUND,
        Code.NO_DATA,
        Code.VGPU_ECC_NOT_SUPPORTED,
        Code.VERSION_MISMATCH,
        Code.DEPRECATED,
    }
)
"""The board, the place or the driver has no such fact."""

LOST = frozenset({Code.GPU_IS_LOST, Code.RESET_REQUIRED, Code.GPU_NOT_FOUND})
"""Every further call on this GPU would fail as well, some of them after seconds."""

KINDS: dict[int, Kind] = {
    Code.NOT_SUPPORTED: "not-supported",
    Code.FUNCTION_NOT_FOUND: "not-supported",
    Code.NO_PERMISSION: "not-permitted",
    Code.DRIVER_NOT_LOADED: "absent",
    Code.LIBRARY_NOT_FOUND: "absent",
    Code.TIMEOUT: "timeout",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as NVML hands it out."""

    index: int
    """NVML index."""
    handle: object
    """nvmlDevice_t."""


class Answer(NamedTuple):
    """What one call gave."""

    value: Any
    """What the binding returned; None if the call failed."""
    code: int = Code.SUCCESS
    """nvmlReturn_t."""
    reason: str = ""
    """NVML's words for the code."""


class Driver:
    """NVML after nvmlInit."""

    def __init__(self, binding: Any, announce: Callable[[str], None]) -> None:
        """Take the module pynvml, and who is told of each call before it is made."""
        self.binding = binding
        self._announce = announce
        self._lost: set[int] = set()
        self._faults: dict[tuple[Part, Kind, str, str], dict[int, None]] = {}
        """GPUs by part, kind, reason and call."""

    def ask(self, part: Part, call: str, *arguments: object, expected: Collection[int] = ()) -> Answer:
        """Make one call; a Gpu among the arguments is passed as its handle.

        A failure with one of the `expected` codes is the caller's to judge and leaves no fault.
        """
        gpus = [argument.index for argument in arguments if isinstance(argument, Gpu)]
        if not self._lost.isdisjoint(gpus):
            return Answer(None, Code.GPU_IS_LOST)
        answer = self._make(call, arguments)
        if answer.code == Code.SUCCESS or answer.code in expected or answer.code in ABSENCE:
            return answer
        if answer.code in LOST and len(gpus) == 1:  # of two GPUs it may be either
            self._lost.update(gpus)
        self.note(part, KINDS.get(answer.code, "broken"), call, gpus, answer.reason)
        return answer

    def _make(self, call: str, arguments: tuple[object, ...]) -> Answer:
        shown = [
            f"GPU {argument.index}" if isinstance(argument, Gpu) else str(argument)
            for argument in arguments
            if isinstance(argument, Gpu | int)
        ]
        function = getattr(self.binding, call, None)
        if function is None:
            return Answer(None, Code.FUNCTION_NOT_FOUND, "an older nvidia-ml-py lacks the function")
        self._announce(f"{call}({', '.join(shown)})")
        try:
            return Answer(function(*[a.handle if isinstance(a, Gpu) else a for a in arguments]))
        except self.binding.NVMLError as error:
            return Answer(None, error.value, str(error))
        except UnicodeDecodeError:
            return Answer(None, Code.UNKNOWN, "the text that it gave is damaged")

    def words(self, code: int) -> str:
        """NVML's words for an nvmlReturn_t inside a structure."""
        return "Success" if code == Code.SUCCESS else str(self.binding.NVMLError(code))

    def give_up(self, gpu: Gpu) -> None:
        """Ask this GPU nothing more; every answer about it is None from here on."""
        self._lost.add(gpu.index)

    def note(self, part: Part, kind: Kind, call: str, gpus: Collection[int], reason: str) -> None:
        """Keep a fault; the same one of several GPUs, or of several calls, will be told once."""
        self._faults.setdefault((part, kind, reason, call), {}).update(dict.fromkeys(gpus))

    def faults(self) -> tuple[ProbeFault, ...]:
        """What went wrong so far."""
        calls: dict[tuple[Part, Kind, str, tuple[int, ...]], list[str]] = {}
        for (part, kind, reason, call), gpus in self._faults.items():
            calls.setdefault((part, kind, reason, tuple(sorted(gpus))), []).append(call)
        return tuple(
            ProbeFault(part=part, kind=kind, path=where(names, gpus), reason=reason)
            for (part, kind, reason, gpus), names in calls.items()
        )


def where(calls: list[str], gpus: tuple[int, ...]) -> str:
    """`nvmlDeviceGetSerial and 3 more calls on GPU 5`: the path of a fault."""
    more = len(calls) - 1
    which = calls[0] + (f" and {more} more call{'s' if more > 1 else ''}" if more else "")
    return which + (f" on GPU{'s' if len(gpus) > 1 else ''} {fold(gpus)}" if gpus else "")


def load_driver(library: str | None, announce: Callable[[str], None]) -> Driver | ProbeFault:
    """NVML ready to be asked, or why there is none. It is absence of evidence, never "no GPUs".

    The library is loaded by name here, before the binding is imported; the binding then finds it by
    its soname, wherever it came from.
    """
    if library is None:
        reason = "the file tree is not of the running machine, for which alone the driver answers"
        return ProbeFault(part="gpus", kind="absent", path=NVML_LIBRARY, reason=reason)
    try:
        ctypes.CDLL(library)
        binding = importlib.import_module("pynvml")
    except (OSError, ImportError) as error:
        return ProbeFault(part="gpus", kind="absent", path=library, reason=str(error))
    driver = Driver(binding, announce)
    answer = driver.ask("gpus", "nvmlInit")
    if answer.code == Code.SUCCESS:
        return driver
    kind = KINDS.get(answer.code, "broken")
    return ProbeFault(part="gpus", kind=kind, path="nvmlInit", reason=answer.reason)
