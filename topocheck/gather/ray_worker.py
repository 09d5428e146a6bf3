"""The probe as a worker of Ray runs it: in a process of its own, which is ended where it hangs."""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

from topocheck.gather.store import MOST_BYTES
from topocheck.probes.node.child import run_child
from topocheck.visible import LISTS

__all__ = ["job_environment", "packed_snapshot"]

RAYLET = "RAY_RAYLET_PID"
"""Ray's own variable: the process of the node that started this worker."""
LONGEST = 300


def packed_snapshot(run: str, timeout_s: float, left_s: float) -> tuple[bytes, str]:
    """Snapshot of this node, packed by zlib, or nothing and the reason."""
    command = [sys.executable, "-m", "topocheck", "probe", "--timeout", f"{timeout_s:g}", "--run", run]
    try:
        child = run_child(command, time.monotonic() + left_s, job_environment(os.environ, Path("/proc")))
    except OSError as error:
        return b"", f"the probe cannot be started there: {error}"
    if child.code != 0:
        last = child.err.decode("utf-8", "replace").strip().rpartition("\n")[2][:LONGEST]
        return b"", f"the probe there {child.ending}{': ' * bool(last)}{last}"
    if len(child.out) > MOST_BYTES:
        return b"", f"its snapshot is longer than {MOST_BYTES >> 20} MiB"
    return zlib.compress(child.out), ""


def job_environment(env: Mapping[str, str], proc: Path) -> dict[str, str]:
    """What the workers of a job find on this node: a task of no GPU is shown none, which no other is.

    Ray empties the lists of visible devices of such a task (older releases always, 2.60 where
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO is set; ray/_private/utils.py). The list is then the raylet's.
    The modules of this worker are those of the probe.
    """
    found = dict(env)
    emptied = [name for name in LISTS if env.get(name) == ""]
    node = raylet_environment(env.get(RAYLET, ""), proc) if emptied else {}
    for name in emptied:
        del found[name]
        if node.get(name):
            found[name] = node[name]
    found["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return found


def raylet_environment(pid: str, proc: Path) -> dict[str, str]:
    """Variables of the node's raylet; {} where they cannot be read."""
    if not pid.isascii() or not pid.isdecimal():
        return {}
    try:
        text = (proc / pid / "environ").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals}
