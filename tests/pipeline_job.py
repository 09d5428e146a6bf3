"""A small real pipeline: three stages over gloo with torch on the CPU, healthy or with one injected fault."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from real import require

__all__ = ["Fault", "run_pipeline"]

WORKER = Path(__file__).with_name("pipeline_worker.py")
TIMEOUT_S = 120
STAGES = 3

SLOW_LINK = """
set -e
ip link set lo up
unshare -n sh -c 'until [ -e /sys/class/net/far ] || ip link show far >/dev/null 2>&1; do sleep 0.05; done
                  ip link set lo up; ip addr add 10.201.0.2/24 dev far; ip link set far up
                  GLOO_SOCKET_IFNAME=far RANK=2 exec "$@"' sh "$@" &
far=$!
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
ip link add near type veth peer name far netns "$far"
ip addr add 10.201.0.1/24 dev near
ip link set near up
tc qdisc add dev near root tbf rate 300mbit burst 64k latency 2s
export GLOO_SOCKET_IFNAME=near
RANK=0 "$@" & first=$!
RANK=1 "$@" & second=$!
wait "$first"; wait "$second"; wait "$far"
"""
"""Stages 0 and 1 in one network namespace, stage 2 in another, and 300 Mbit/s between them."""

Fault = str
"""healthy, slow stage, slow link, or starved."""

JOBS: dict[Fault, dict[str, object]] = {
    "healthy": {},
    "slow stage": {"compute_ms": [40, 100, 40]},
    "slow link": {"bytes": 2 << 20},  # 56 ms, and more than socket buffers hold
    "starved": {"input_ms": 80},
}
NORMAL = {
    "compute_ms": [40] * STAGES,
    "units": 12,
    "bytes": 64 << 10,
    "input_ms": 0,
    "annotate": False,
    "suffix": "",
}


def run_pipeline(fault: Fault, out: Path, **changes: object) -> Sequence[Path]:
    """Run it once; gives the trace of each rank. Skips the test where what it needs is missing."""
    require("torch")
    out.mkdir()
    job = NORMAL | JOBS[fault] | changes
    command = [sys.executable, str(WORKER), str(out), json.dumps(job)]
    env = os.environ | {
        "WORLD_SIZE": str(STAGES),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": "1",
    }
    if fault == "slow link":
        _needs_namespaces()
        env["MASTER_ADDR"] = "10.201.0.1"
        _wait([_started(["unshare", "-n", "bash", "-c", SLOW_LINK, "bash", *command], env)])
    else:
        _wait([_started(command, env | {"RANK": str(rank)}) for rank in range(STAGES)])
    return sorted(out.iterdir())


def _started(command: Sequence[str], env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _wait(started: Sequence[subprocess.Popen[str]]) -> None:
    """All must succeed."""
    try:
        errors = [process.communicate(timeout=TIMEOUT_S)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(started), errors


def _free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _needs_namespaces() -> None:
    """A link is slowed in a network namespace, which takes rights and a kernel that shapes traffic."""
    for program in ("unshare", "ip", "tc"):
        require(program)
    shaped = "ip link set lo up && tc qdisc add dev lo root tbf rate 1gbit burst 64k latency 1s"
    if subprocess.run(["unshare", "-n", "sh", "-c", shaped], check=False, capture_output=True).returncode:
        pytest.skip("a slow link needs the right to make a network namespace, and a kernel with tbf")
