"""Where a machine is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topocheck.probes.node.roots import BOOT_ID, NVML_LIBRARY, Roots


def test_the_real_machine_is_where_the_kernel_shows_it() -> None:
    roots = Roots.real()
    assert (roots.sys, roots.proc, roots.dev) == (Path("/sys"), Path("/proc"), Path("/dev"))
    assert roots.env is os.environ
    assert roots.nvml == NVML_LIBRARY


def test_a_tree_of_another_boot_has_no_driver(tmp_path: Path) -> None:
    assert Roots.at(tmp_path).nvml is None
    (tmp_path / BOOT_ID).parent.mkdir(parents=True)
    (tmp_path / BOOT_ID).write_text("1b2c3d4e-0000-4000-8000-00000000cafe\n")
    roots = Roots.at(tmp_path)
    assert roots.nvml is None
    assert roots.proc == tmp_path / "proc"


def test_the_tree_of_the_running_kernel_mounted_elsewhere_has_its_driver(tmp_path: Path) -> None:
    boot = Path("/") / BOOT_ID
    if not boot.exists():
        pytest.skip("this kernel shows no boot id")
    (tmp_path / BOOT_ID).parent.mkdir(parents=True)
    (tmp_path / BOOT_ID).write_bytes(boot.read_bytes())
    assert Roots.at(tmp_path).nvml == NVML_LIBRARY


def test_a_library_inside_a_recorded_tree_is_data_and_never_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / NVML_LIBRARY).write_bytes(b"\x7fELF")
    assert Roots.at(tmp_path).nvml is None
