"""A real Ray cluster whose nodes are hosts of their own: name, network, /sys, boot id and GPUs by namespaces.

As in KubeRay the head has no GPU; every other node has those that its test double of NVML describes. Each
raylet runs in network, mount and UTS namespaces, so that nothing is shared but the processes' numbers.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from nvml_machine import library
from real import require
from shell import COMMAND
from slurm_hosts import BOOT_ID, GPUS, furnish, gpus_of, run

__all__ = ["GPUS", "RayHost", "RayHosts", "ray_hosts"]

NET = f"10.{177 + os.getpid() % 70}.{os.getpid() // 70 % 250}"
READY_S = 90
PORT = 6379


@dataclass
class RayHost:
    """One host and its raylet."""

    name: str
    address: str
    shown: Path
    """What it shows of itself; a test may write there."""
    started: subprocess.Popen[bytes]
    """`ray start --block`, whose namespaces are the host's."""

    def enter(self) -> list[str]:
        """How to run something on this host."""
        return ["nsenter", f"--target={self.started.pid}", "--net", "--mount", "--uts"]

    @property
    def raylet(self) -> int:
        """Process of the raylet."""
        for pid in pids_of(self.name):
            if Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() == "raylet":
                return pid
        raise AssertionError(f"{self.name} has no raylet")

    def stop(self, number: signal.Signals) -> None:
        """Send the raylet a signal."""
        os.kill(self.raylet, number)


@dataclass
class RayHosts:
    """A running cluster; the head first."""

    folder: Path
    env: Mapping[str, str]
    hosts: list[RayHost] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Under which the cluster is found."""
        return f"{self.hosts[0].address}:{PORT}"

    def command(self, on: RayHost, *arguments: str | Path) -> list[str]:
        """A topocheck command on a host."""
        return [*on.enter(), *COMMAND, *map(str, arguments)]

    def topocheck(
        self, *arguments: str | Path, on: int = 0, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a topocheck command on a host to its end."""
        return subprocess.run(
            self.command(self.hosts[on], *arguments),
            env={**self.env, "RAY_ADDRESS": self.address, **(env or {})},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )


def pids_of(name: str) -> list[int]:
    """Processes in the network of a host."""
    done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


@contextmanager
def ray_hosts(count: int) -> Iterator[RayHosts]:
    """The cluster; needs root. The head is one of its hosts."""
    for program in ("ray", "ip", "unshare", "nsenter", "gcc"):
        require(program)
    names, bridge = (
        [f"r{os.getpid() % 10_000}x{index}" for index in range(count)],
        f"tcr{os.getpid() % 10_000}",
    )
    allowed = subprocess.run(["ip", "netns", "add", names[0]], capture_output=True, text=True, check=False)
    if allowed.returncode:
        pytest.skip(f"no host of its own can be made here: {allowed.stderr.strip()}")
    run("ip", "netns", "del", names[0])
    folder = Path(tempfile.mkdtemp(prefix="tcr", dir="/tmp"))  # sockets need a short path
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    env |= {"RAY_USAGE_STATS_ENABLED": "0", "NVML_CALLS": "/dev/null", "HOME": env.get("HOME", "/")}
    cluster = RayHosts(folder, env)
    (folder / "machine.txt").touch()
    (folder / "ray").mkdir()
    try:
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "link", "set", bridge, "up")
        for index, name in enumerate(names):
            cluster.hosts.append(start(cluster, bridge, index, name))
            wait(cluster.hosts[-1])
        yield cluster
    finally:
        for name in names:
            end(pids_of(name))
        for host in cluster.hosts:
            host.started.wait(10)
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def end(pids: Sequence[int]) -> None:
    """Kill what is left in a host."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def start(cluster: RayHosts, bridge: str, index: int, name: str) -> RayHost:
    """One host: its network, what it shows of itself, and its raylet."""
    address, folder = f"{NET}.{index + 1}", cluster.folder
    shown = furnish(folder, bridge, name, address, uuid.UUID(int=index + 1))
    (shown / "machine.txt").write_text(gpus_of(index) if index else "system gpus 0\n")
    (shown / "modules").mkdir()
    mounts = {"sys": "/sys", "boot_id": BOOT_ID, "machine.txt": f"{folder}/machine.txt"}
    binds = "; ".join(f"mount --bind {shown}/{source} {target}" for source, target in mounts.items())
    joins = f"--address={NET}.1:{PORT}" if index else f"--head --port={PORT} --include-dashboard=false"
    script = (
        f"hostname {name}; {binds}; mount -t tmpfs tmpfs {folder}/ray; "
        f"exec {sys.executable} -m ray.scripts.scripts start --block {joins} "
        f"--node-ip-address={address} --num-cpus=1 --object-store-memory=80000000 "
        f"--disable-usage-stats {'' if index else f'--temp-dir={folder}/ray'}"
    )
    doubled = {"LD_LIBRARY_PATH": str(library().parent), "NVML_MACHINE": f"{folder}/machine.txt"}
    with (shown / "out").open("wb") as out:
        started = subprocess.Popen(
            ["ip", "netns", "exec", name, "unshare", "-m", "-u", "bash", "-c", script],
            env={**cluster.env, "PYTHONPATH": f"{shown}/modules", **(doubled if index else {})},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    return RayHost(name, address, shown, started)


def wait(host: RayHost) -> None:
    """Until its raylet has joined."""
    until, log = time.monotonic() + READY_S, host.shown / "out"
    while b"Ray runtime started" not in log.read_bytes():
        late = time.monotonic() > until
        assert not late, log.read_text()
        assert host.started.poll() is None, log.read_text()
        time.sleep(0.2)
