"""A real Slurm on this machine: munge, one controller, several node daemons, all in one folder."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["CONFIG", "Cluster", "cluster", "prepare", "stop", "wait"]

CONFIG = """\
ClusterName=placement
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
"""
NODE = (
    "NodeName=n{index} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 Boards=1 "
    "SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=100 State=UNKNOWN\n"
)
READY_S = 30


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """Environment of a user of it."""
        return {"PATH": os.environ["PATH"], "HOME": "/", "SLURM_CONF": str(self.folder / "slurm.conf")}

    def output(self, *command: str, env: dict[str, str] | None = None) -> str:
        """Standard output of a command of Slurm, which must succeed."""
        ran = subprocess.run(
            command,
            env=self.env | (env or {}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


@contextmanager
def cluster(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Nodes n1, n2 ... of four cores each; needs root."""
    _configure(folder, nodes)
    running = Cluster(folder)
    munge = ["munged", "--force", "-S", f"{folder}/munge/socket", f"--key-file={folder}/munge/key"]
    munge += [f"--{what}-file={folder}/munge/{what}" for what in ("pid", "log", "seed")]
    config = ["-f", f"{folder}/slurm.conf"]
    daemons = [["slurmd", *config, "-N", f"n{index}"] for index in range(1, nodes + 1)]
    try:
        for command in (munge, ["slurmctld", *config], *daemons):
            subprocess.run(command, env=running.env, check=True, capture_output=True)
        wait(running, nodes)
        yield running
    finally:
        stop([*sorted(folder.glob("*.pid")), folder / "munge" / "pid"])


def _configure(folder: Path, nodes: int) -> None:
    host, ports = socket.gethostname().split(".")[0], _free_ports(nodes)
    lines = [NODE.format(index=i, host=host, port=port) for i, port in enumerate(ports, 1)]
    prepare(folder, CONFIG, "".join(lines), [f"n{index}" for index in range(1, nodes + 1)])


def prepare(folder: Path, config: str, node_lines: str, names: Sequence[str]) -> None:
    """Configuration and key of a cluster in `folder`."""
    for name in ("munge", "state", *(f"spool/{name}" for name in names)):
        (folder / name).mkdir(parents=True)
    host, (port,) = socket.gethostname().split(".")[0], _free_ports(1)
    text = config.format(host=host, folder=folder, port=port) + node_lines
    (folder / "slurm.conf").write_text(text + "PartitionName=p Nodes=ALL Default=YES State=UP\n")
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def wait(running: Cluster, nodes: int) -> None:
    """Until all nodes are idle."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        if running.output("sinfo", "-hN", "-o", "%T").split() == ["idle"] * nodes:
            return
        time.sleep(0.1)
    raise AssertionError((running.folder / "slurmctld.log").read_text()[-2000:])


def stop(pid_files: Sequence[Path]) -> None:
    """End the daemons that wrote these files, and wait for them."""
    pids = [int(path.read_text()) for path in pid_files if path.exists() and path.read_text().strip()]
    for pid in pids:
        _signal(pid, signal.SIGTERM)
    end = time.monotonic() + 10
    while any(_signal(pid, 0) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> bool:
    """Send it; False if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
