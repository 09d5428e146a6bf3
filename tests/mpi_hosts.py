"""Hosts of their own for mpirun on one machine: name, /sys, boot id and GPUs, behind an rsh agent."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from nvml_machine import library
from rooted import DESCRIPTIONS, lay_out
from slurm_hosts import BOOT_ID, gpus_of

__all__ = ["agent", "variables"]


def agent(folder: Path, names: Sequence[str]) -> Path:
    """A program that starts a command on a host, called as mpirun calls ssh; needs root."""
    if subprocess.run(["unshare", "-m", "-u", "true"], check=False, capture_output=True).returncode:
        pytest.skip("hosts of their own need the right to make namespaces")
    (folder / "machine.txt").touch()
    for index, name in enumerate(names, 1):
        shown = folder / "hosts" / name
        lay_out((DESCRIPTIONS / "hgx-h100.txt").read_text(encoding="utf-8"), shown)
        (shown / "boot_id").write_text(f"{uuid.UUID(int=index)}\n")
        (shown / "machine.txt").write_text(gpus_of(index))
    program = folder / "agent"
    program.write_text(
        '#!/bin/bash\nname=$1; shift\nexport there="$*"\n'
        f"shown={folder}/hosts/$name\n"
        'exec unshare -m -u bash -c "hostname $name; mount --bind $shown/sys /sys; '
        f"mount --bind $shown/boot_id {BOOT_ID}; "
        f'mount --bind $shown/machine.txt {folder}/machine.txt; eval \\"\\$there\\""\n'
    )
    program.chmod(0o755)
    return program


def variables(folder: Path) -> dict[str, str]:
    """Variables by which a task finds its host's GPUs."""
    return {
        "LD_LIBRARY_PATH": str(library().parent),
        "NVML_MACHINE": str(folder / "machine.txt"),
        "NVML_CALLS": "/dev/null",
    }
