"""Nothing that is read can break the probe: any text, any tree, and the machine that the test runs on."""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from checkout import FOLDERS
from hypothesis import given, settings
from hypothesis import strategies as st
from rooted import machine

from topocheck.probes.node.amd import read_amd
from topocheck.probes.node.clock import Timex, read_clock
from topocheck.probes.node.identity import read_identity
from topocheck.probes.node.limits import read_limits
from topocheck.probes.node.nccl_files import read_nccl_files
from topocheck.probes.node.net import read_net
from topocheck.probes.node.nics import read_nics
from topocheck.probes.node.pci import read_pci
from topocheck.probes.node.roots import Roots
from topocheck.probes.node.software import read_software
from topocheck.probes.node.verbs import read_verbs
from topocheck.snapshot import (
    SCHEMA,
    FullSnapshot,
    Hardware,
    Identity,
    Network,
    ProbeFault,
    State,
)

MODULES = sorted(
    path.stem
    for path in (FOLDERS["topocheck.probes"] / "node").glob("*.py")
    if not path.stem.startswith("nvml")
)
LINES = (
    "4: ACTIVE",
    "400 Gb/sec (4X NDR)",
    "0x1f",
    "0a7f:bc12:45ef:d23b",
    "0000:0000:0000:0000:0000:ffff:0a14:0105",
    "16.0 GT/s PCIe",
    "     |-- 10.20.1.5\n        /32 host LOCAL",
    "Iface\nens1f0\t0001140A\t00000000\t0001\t0\t0\t0\t00FFFFFF",
    "fe80000000000000020c29fffe112233 02 40 20 80     ib0",
    "Max locked memory         65536                unlimited            bytes",
    "CapEff:\t00000000a80425fb",
    "HugePages_Total:       3\nHugepagesize:    2048 kB",
    "12:memory:/kubepods/pod5f/" + "a1" * 32,
    "3f0cf6a2-54b7-4c8e-9f1d-6a20c1d7e5b4",
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build",
    "torch-2.8.0+cu128.dist-info",
    "NCCL_IB_HCA==mlx5_0",
    "include /etc/ld.so.conf.d/*.conf\n/opt/lib",
    "nvidia_peermem 16384 0 - Live",
    "simd_count 1216",
    "flags : fpu hypervisor",
    "9223372036854771712",
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Text of the kernel with something put in its place, or any text."""
    text = draw(st.sampled_from(LINES) | st.text(max_size=40))
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.text(max_size=6)) + text[at + draw(st.integers(0, 5)) :]


ARGUMENTS: dict[str, tuple[st.SearchStrategy[Any], ...]] = {
    "acs.parse_acs": (st.binary(max_size=64) | st.binary(min_size=256, max_size=400),),
    "clock.parse_timex": (st.integers(0, 5), st.just(Timex(maxerror=1))),
    "hypervisor.parse_board": (damaged(), damaged()),
    "limits.parse_capability": (damaged(), st.integers(0, 63)),
    "limits.parse_limit": (damaged(), st.just("Max locked memory")),
    "pci_function.parse_path": (
        st.lists(damaged() | st.just("pci0000:00") | st.just("0000:00:01.0")).map(tuple),
    ),
}
"""What a parser takes, where that is not one text."""


def parsers() -> dict[str, Callable[..., object]]:
    """Every parser of the probe."""
    found = {}
    for stem in MODULES:
        module = importlib.import_module(f"topocheck.probes.node.{stem}")
        for name, thing in vars(module).items():
            if name.startswith("parse_") and thing.__module__ == module.__name__:
                found[f"{stem}.{name}"] = thing
    return found


def test_the_parsers_are_found() -> None:
    assert len(parsers()) > 25
    assert set(ARGUMENTS) <= set(parsers())


@pytest.mark.parametrize("name", sorted(parsers()))
def test_no_text_breaks_a_parser(name: str) -> None:
    parser = parsers()[name]

    @settings(max_examples=50, deadline=None)
    @given(st.tuples(*ARGUMENTS.get(name, (damaged(),))))
    def feed(arguments: tuple[object, ...]) -> None:
        parser(*arguments)

    feed()


def read_everything(roots: Roots) -> FullSnapshot:
    """A snapshot of all that lies in files."""
    faults: list[ProbeFault] = []

    def kept(found: tuple[Any, tuple[ProbeFault, ...]]) -> Any:
        faults.extend(found[1])
        return found[0]

    tree = kept(read_pci(roots))
    nics = kept(read_nics(roots, tree))
    gpus = kept(read_amd(roots, tree))
    net = kept(read_net(roots))
    return FullSnapshot(
        schema=SCHEMA,
        identity=Identity(host=kept(read_identity(roots)), gpus=gpus.ids, nics=nics.ids),
        hardware=Hardware(gpus=gpus.shapes, nics=nics.shapes, pci=tree.nodes),
        network=Network(nics=nics.networks, netdevs=net.netdevs),
        software=kept(read_software(roots)),
        limits=kept(read_limits(roots)),
        verbs=kept(read_verbs(roots)),
        files=kept(read_nccl_files(roots)),
        state=State(ports=nics.ports, addresses=net.addresses, pci=tree.links, clock=kept(read_clock(roots))),
        faults=tuple(faults),
    )


@pytest.mark.parametrize(
    "name", ["amd-mi300x", "efa-vm", "hgx-h100", "laptop", "pod-vf", "roce", "slingshot"]
)
def test_a_snapshot_of_each_machine_survives_json(name: str, tmp_path: Path) -> None:
    found = read_everything(machine(name, tmp_path, {"NODE_NAME": "n1"}))
    assert msgspec.json.decode(msgspec.json.encode(found), type=FullSnapshot) == found


def test_the_shape_has_no_identity(tmp_path: Path) -> None:
    found = read_everything(machine("hgx-h100", tmp_path))
    shape = msgspec.json.encode(found.hardware).decode()
    secrets = [*(nic.guid for nic in found.identity.nics), *(nic.bus for nic in found.identity.nics)]
    secrets += [found.identity.host.name, found.identity.host.boot_id, "10.66.0.17"]
    assert [secret for secret in secrets if secret is None or secret in shape] == []


def test_this_machine_is_read_and_every_fault_names_its_path_and_reason() -> None:
    found = read_everything(Roots.real())
    assert found.identity.host.boot_id
    assert found.limits.memlock_bytes is not None
    assert found.faults  # no machine has AMD and NVIDIA GPUs, Slingshot and InfiniBand, and no tests
    for fault in found.faults:
        assert fault.part
        assert fault.path
        assert fault.reason
    assert msgspec.json.decode(msgspec.json.encode(found), type=FullSnapshot) == found


def test_an_empty_tree_is_read(tmp_path: Path) -> None:
    found = read_everything(Roots.at(tmp_path))
    assert found.hardware == Hardware()
    assert {fault.kind for fault in found.faults} == {"absent"}


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_damaged_tree_breaks_no_reader(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["roce", "pod-vf", "slingshot"]))
    with tempfile.TemporaryDirectory() as folder:
        roots = machine(name, Path(folder))
        files = sorted(path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())
        for path in data.draw(st.lists(st.sampled_from(files), max_size=6, unique=True)):
            match data.draw(st.sampled_from(["bytes", "folder", "loop", "gone"])):
                case "bytes":
                    path.write_bytes(data.draw(st.binary(max_size=80)))
                case how:
                    path.unlink()
                    if how == "folder":
                        path.mkdir()
                    elif how == "loop":
                        path.symlink_to(path.name)
        found = read_everything(roots)
    assert msgspec.json.decode(msgspec.json.encode(found), type=FullSnapshot) == found


def test_the_probe_imports_no_library_that_is_slow_to_load() -> None:
    names = ", ".join(f"topocheck.probes.node.{stem}" for stem in MODULES if stem != "__init__")
    script = f"import sys, {names}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"click", "jinja2", "networkx", "pynvml", "rich", "torch", "yaml"}


def test_the_structure_of_the_clock_is_as_long_as_the_kernels() -> None:
    if ctypes.sizeof(ctypes.c_long) == 8:
        assert ctypes.sizeof(Timex) >= 208
