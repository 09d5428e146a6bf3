"""Work kept apart: what breaks, hangs or cannot be ended is told, and hides nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import msgspec
import pytest

from topocheck.probes.node.child import Child, run_child
from topocheck.probes.node.driver import ask_driver, judge
from topocheck.probes.node.isolate import Apart
from topocheck.probes.node.nvml import GpuReading
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Coverage, GpuId, ProbeFault

LONG = 60.0
"""Seconds that no test waits to the end."""


def soon(seconds: float = LONG) -> float:
    """A deadline."""
    return time.monotonic() + seconds


def test_what_was_found_comes_with_what_could_not_be_read() -> None:
    fault = ProbeFault(part="nics", kind="absent", path="/sys")
    probe = Apart("nics", "nics", lambda: (3, (fault,)))
    assert probe.result(soon(), 0) == (3, (fault,))


def test_a_probe_that_breaks_names_itself_and_the_place() -> None:
    def breaks() -> tuple[int, tuple[ProbeFault, ...]]:
        raise ValueError("no such thing")

    found, (fault,) = Apart("clock", "state", breaks).result(soon(), 7)
    assert found == 7
    assert (fault.part, fault.kind, fault.path) == ("state", "broken", "probe clock")
    assert fault.reason.startswith("ValueError: no such thing (test_probe_isolate.py, line ")


def test_a_probe_that_hangs_is_left_behind() -> None:
    never = threading.Event()

    def hangs() -> tuple[int, tuple[ProbeFault, ...]]:
        never.wait(LONG)
        return 1, ()

    probe = Apart("files", "files", hangs)
    found, (fault,) = probe.result(soon(0.05), 0)
    assert found == 0
    assert (fault.part, fault.kind, fault.path) == ("files", "timeout", "probe files")
    assert fault.reason.startswith("no answer within ")
    never.set()
    assert probe.result(soon(), 0) == (1, ())


def python(code: str, deadline: float) -> Child:
    """Run some Python."""
    return run_child([sys.executable, "-c", code], deadline)


def test_a_child_that_says_much_on_both_streams_is_heard_to_the_end() -> None:
    code = "import os\nfor _ in range(40): os.write(1, b'o' * 65536); os.write(2, b'e' * 65536)"
    child = python(code, soon())
    assert (len(child.out), len(child.err), child.code) == (40 * 65536, 40 * 65536, 0)


def test_a_child_has_no_input_to_wait_for() -> None:
    assert python("import sys; print(repr(sys.stdin.read()))", soon()).out == b"''\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
    ],
)
def test_how_a_child_ended_is_told(code: str, expected: str) -> None:
    assert python(code, soon()).ending == expected


def test_a_child_that_hangs_is_ended_and_what_it_said_is_kept() -> None:
    code = "import os, time; os.write(1, str(os.getpid()).encode()); time.sleep(600)"
    child = python(code, soon(2.0))
    assert (child.code, child.left, child.ending) == (None, None, "was ended")
    assert not os.path.exists(f"/proc/{int(child.out)}")  # noqa: PTH110 - one call


def test_a_child_that_closed_its_streams_and_hangs_is_ended_too() -> None:
    child = python("import os, time; os.close(1); os.close(2); time.sleep(600)", soon(1.0))
    assert (child.code, child.left) == (None, None)


UNKILLABLE = """
import os, sys, threading, time
from topocheck.probes.node.child import run_child
threading.Timer(0.5, os.setuid, [65534]).start()
child = run_child([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
                  time.monotonic() + 2)
print(child.left, child.code, child.out, child.ending, sep="|")
"""
"""A process that gives up its rights cannot end one that it started with them."""


def test_a_child_that_cannot_be_ended_is_left_behind_and_named() -> None:
    if os.geteuid():
        pytest.skip("only root can start what it may not end")
    done = subprocess.run(
        [sys.executable, "-c", UNKILLABLE], capture_output=True, text=True, check=True, timeout=LONG
    )
    left, code, out, ending = done.stdout.strip().split("|")
    os.kill(int(left), signal.SIGKILL)
    assert (code, out) == ("None", r"b'up\n'")
    assert ending == f"cannot be ended: process {left} is left behind"


def documents(*readings: GpuReading) -> bytes:
    """What the driver's child writes."""
    return b"".join(msgspec.json.encode(reading) + b"\n" for reading in readings)


ONE = GpuReading(ids=(GpuId(nvml=0),), coverage=Coverage(gpus="part", links="part"))
TWO = GpuReading(ids=(GpuId(nvml=0), GpuId(nvml=1)), coverage=Coverage(gpus="all", links="all"))


def test_the_call_in_flight_and_the_process_left_behind_are_named() -> None:
    said = b"call nvmlInit()\ncall nvmlDeviceGetUUID(GPU 3)\n"
    reading, (fault,) = judge(Child(documents(ONE), said, None, 4711), 2.0)
    assert reading == ONE
    assert (fault.part, fault.kind, fault.path) == ("gpus", "timeout", "nvmlDeviceGetUUID(GPU 3)")
    assert fault.reason == (
        "did not return within 2 s; its process cannot be ended: process 4711 is left behind"
    )


def test_after_a_hang_only_what_was_read_to_the_end_is_whole() -> None:
    reading, (fault,) = judge(Child(documents(ONE, TWO), b"call nvmlDeviceGetP2PStatus(GPU 0)\n", None), 2.0)
    assert reading is not None
    assert reading.coverage == Coverage(gpus="all", links="part")
    assert fault.part == "links"


@pytest.mark.parametrize("cut", [b"", b'{"ids":[{"nvml":0},{"nv', b"\xff\xfe\n"])
def test_a_document_that_was_cut_is_none(cut: bytes) -> None:
    reading, faults = judge(Child(documents(ONE) + cut, b"", 0), 2.0)
    assert reading == ONE
    assert faults == ()


@pytest.mark.parametrize(
    ("code", "err", "reason"),
    [
        (-11, b"call nvmlInit()\n", "its process ended by SIGSEGV"),
        (
            1,
            b"Traceback ...\nImportError: broken\n",
            "its process ended with exit code 1: ImportError: broken",
        ),
        (0, b"", "its process ended with exit code 0"),
    ],
)
def test_a_child_that_breaks_is_a_fault_with_its_last_words(code: int, err: bytes, reason: str) -> None:
    reading, (fault,) = judge(Child(b"", err, code), 2.0)
    assert reading is None
    assert (fault.part, fault.kind, fault.reason) == ("gpus", "broken", reason)


def test_no_library_is_found_out_without_a_process() -> None:
    roots = Roots.real()
    missing = Roots(sys=roots.sys, proc=roots.proc, dev=roots.dev, env={}, nvml="libnvidia-of-nobody.so.1")
    reading, (fault,) = ask_driver(missing, soon(), 2.0, identity=False)
    assert reading is None
    assert (fault.kind, fault.path) == ("absent", "libnvidia-of-nobody.so.1")
    assert "No such file" in fault.reason
