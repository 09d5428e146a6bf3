"""Versions are known by names of files; nothing is imported."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
from rooted import lay_out, machine, roots_at

from topocheck.probes.node.roots import Roots
from topocheck.probes.node.software import parse_driver, parse_metadata_name, read_software
from topocheck.snapshot import Software

PACKAGES = "usr/lib/python3.12/dist-packages"


def test_driver_torch_nccl_and_engine_of_an_image(tmp_path: Path) -> None:
    software, faults = read_software(machine("hgx-h100", tmp_path))
    assert software == Software(
        driver="570.124.06",
        open_driver=True,
        torch="2.6.0+cu124",
        cuda_runtime="12.4",
        nccl="2.21.5",
        engine="vllm",
        engine_version="0.8.4",
    )
    assert faults == ()


def test_a_library_in_the_search_path_goes_before_the_wheel(tmp_path: Path) -> None:
    roots = machine("hgx-h100", tmp_path, {"LD_LIBRARY_PATH": "/usr/lib/x86_64-linux-gnu"})
    assert read_software(roots)[0].nccl == "2.26.2"


def test_the_environment_of_the_job_goes_before_the_system(tmp_path: Path) -> None:
    roots = machine("hgx-h100", tmp_path, {"VIRTUAL_ENV": "/srv/venv"})
    lay_out("srv/venv/lib/python3.11/site-packages/torch-2.9.0.dist-info/", tmp_path)
    assert read_software(roots)[0].torch == "2.9.0"


def test_two_engines_leave_the_engine_open(tmp_path: Path) -> None:
    lay_out(f"{PACKAGES}/vllm-0.8.4.dist-info/\n{PACKAGES}/sglang-0.4.6.dist-info/", tmp_path)
    software, _ = read_software(roots_at(tmp_path))
    assert (software.engine, software.engine_version) == (None, None)


def test_a_machine_without_driver_and_packages_says_so(tmp_path: Path) -> None:
    software, faults = read_software(machine("laptop", tmp_path))
    assert software == Software()
    assert [(fault.part, fault.kind) for fault in faults] == [("software", "absent"), ("software", "absent")]


def test_a_virtual_machine_is_named(tmp_path: Path) -> None:
    assert read_software(machine("efa-vm", tmp_path))[0].hypervisor == "Some Cloud p9.96xlarge"


def test_the_driver_of_amd_is_a_driver_too(tmp_path: Path) -> None:
    assert read_software(machine("amd-mi300x", tmp_path))[0].driver == "6.10.5"


def test_packages_of_this_interpreter_are_found_and_not_imported() -> None:
    before = "torch" in sys.modules
    software, _ = read_software(Roots.real())
    assert ("torch" in sys.modules) is before
    try:
        expected: str | None = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        expected = None
    if expected is not None:
        assert software.torch == expected


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023",
            ("535.129.03", False),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build  (x@y)",
            ("580.65.06", True),
        ),
        ("GCC version: 13.2.0", (None, None)),
        ("", (None, None)),
    ],
)
def test_the_driver_tells_its_version_and_flavour(text: str, found: tuple[str | None, bool | None]) -> None:
    assert parse_driver(text) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("torch-2.8.0+cu128.dist-info", ("torch", "2.8.0+cu128")),
        ("nvidia_nccl_cu12-2.27.3.dist-info", ("nvidia_nccl_cu12", "2.27.3")),
        ("megatron.core-0.12.1-py3.12.egg-info", ("megatron_core", "0.12.1")),
        ("torch", None),
        ("-1.dist-info", None),
    ],
)
def test_a_metadata_folder_is_named_after_its_distribution(name: str, found: tuple[str, str] | None) -> None:
    assert parse_metadata_name(name) == found
