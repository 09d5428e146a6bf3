"""A real Slurm whose nodes are hosts of their own: name, network, /sys, boot id and GPUs by namespaces.

Each slurmd runs in network, mount and UTS namespaces; a recorded /sys and the test double of NVML stand in
for the hardware. The controller and the bridge are in the namespaces of the caller.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from nvml_machine import library, machine
from rooted import DESCRIPTIONS, lay_out
from slurm_cluster import CONFIG, Cluster, prepare, stop, wait

__all__ = ["GPUS", "hosts", "serve"]

GPUS = 4
NET = f"10.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
NODE = "NodeName={name} NodeHostname={name} NodeAddr={address} CPUs=8 RealMemory=100 State=UNKNOWN\n"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def run(*command: str) -> None:
    """One command, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def names(count: int) -> list[str]:
    """Host names: short, for interfaces are named after them, and of this test run alone."""
    return [f"h{os.getpid() % 10_000}x{index}" for index in range(1, count + 1)]


@contextmanager
def hosts(folder: Path, count: int) -> Iterator[tuple[Cluster, Mapping[str, str]]]:
    """The cluster, and the variables by which a task finds its node's GPUs; needs root."""
    listed, bridge = names(count), f"tcb{os.getpid() % 10_000}"
    allowed = subprocess.run(["ip", "netns", "add", listed[0]], capture_output=True, text=True, check=False)
    if allowed.returncode:
        pytest.skip(f"no host of its own can be made here: {allowed.stderr.strip()}")
    run("ip", "netns", "del", listed[0])
    running = Cluster(folder)
    text = CONFIG.replace("127.0.0.1", f"{NET}.254")
    lines = "".join(NODE.format(name=name, address=f"{NET}.{n}") for n, name in enumerate(listed, 1))
    prepare(folder, text, lines, listed)
    munge = ["munged", "--force", "-S", f"{folder}/munge/socket", f"--key-file={folder}/munge/key"]
    munge += [f"--{what}-file={folder}/munge/{what}" for what in ("pid", "log", "seed")]
    described = folder / "machine.txt"
    described.touch()
    try:
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "addr", "add", f"{NET}.254/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        for command in (munge, ["slurmctld", "-f", f"{folder}/slurm.conf"]):
            subprocess.run(command, env=running.env, check=True, capture_output=True)
        for index, name in enumerate(listed, 1):
            start(folder, bridge, index, name, running.env)
        wait(running, count)
        yield (
            running,
            {
                "LD_LIBRARY_PATH": str(library().parent),
                "NVML_MACHINE": str(described),
                "NVML_CALLS": "/dev/null",
            },
        )
    finally:
        stop([*sorted(folder.glob("*.pid")), folder / "munge" / "pid"])
        for name in listed:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def furnish(folder: Path, bridge: str, name: str, address: str, boot: uuid.UUID) -> Path:
    """One host in its own network on the bridge; the folder of what it shows of itself."""
    run("ip", "netns", "add", name)
    run("ip", "link", "add", f"v{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
    run("ip", "link", "set", f"v{name}", "master", bridge, "up")
    run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
    run("ip", "-n", name, "link", "set", "eth0", "up")
    run("ip", "-n", name, "link", "set", "lo", "up")
    shown = folder / "hosts" / name
    lay_out((DESCRIPTIONS / "hgx-h100.txt").read_text(encoding="utf-8"), shown)
    (shown / "boot_id").write_text(f"{boot}\n")
    return shown


def start(folder: Path, bridge: str, index: int, name: str, env: Mapping[str, str]) -> None:
    """One host: its network, what it shows of itself, and its slurmd."""
    shown = furnish(folder, bridge, name, f"{NET}.{index}", uuid.UUID(int=index))
    (shown / "machine.txt").write_text(gpus_of(index))
    serve(folder, name, env)


def serve(folder: Path, name: str, env: Mapping[str, str]) -> None:
    """The slurmd of a host that is laid out; again, if it was ended."""
    shown = folder / "hosts" / name
    script = (
        f"hostname {name}; mount --bind {shown}/sys /sys; mount --bind {shown}/boot_id {BOOT_ID}; "
        f"mount --bind {shown}/machine.txt {folder}/machine.txt; "
        f"exec slurmd -f {folder}/slurm.conf -N {name}"
    )
    done = subprocess.run(
        ["ip", "netns", "exec", name, "unshare", "-m", "-u", "bash", "-c", script],
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def gpus_of(index: int) -> str:
    """The described machine with four GPUs, each with a UUID of its own."""
    lines = [f"system gpus {GPUS}"]
    lines += [f"gpu {gpu} uuid GPU-0000000{index}-0000-0000-0000-00000000000{gpu}" for gpu in range(GPUS)]
    return machine("hgx_h100").text + "".join(f"{line}\n" for line in lines)
