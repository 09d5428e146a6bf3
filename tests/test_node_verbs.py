"""Whether RDMA can be used here: device nodes, libraries, modules, plugins."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from rooted import lay_out, machine, roots_at

from topocheck.probes.node.libraries import library_folders, parse_ld_conf
from topocheck.probes.node.reader import Reader
from topocheck.probes.node.roots import Roots
from topocheck.probes.node.verbs import VERBS_LIBRARY, parse_modules, parse_release, read_verbs
from topocheck.snapshot import Library, VerbsDevice


def test_a_pod_has_the_names_of_three_devices_and_the_node_of_one(tmp_path: Path) -> None:
    machine("pod-vf", tmp_path)
    verbs, faults = read_verbs(roots_at(tmp_path, live=True))
    assert verbs.devices == (VerbsDevice(name="uverbs18", nic="mlx5_18", openable=True),)
    assert verbs.scope == "container"
    assert (verbs.peer_memory, verbs.dma_buf) == ("", False)
    assert {fault.path for fault in faults} <= {VERBS_LIBRARY}


def test_a_node_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    machine("pod-vf", tmp_path)
    (tmp_path / "dev/infiniband/uverbs4").mkdir()
    verbs, faults = read_verbs(roots_at(tmp_path, live=True))
    assert (verbs.devices or ())[0] == VerbsDevice(
        name="uverbs4", nic="mlx5_4", openable=False, reason="Is a directory"
    )
    assert ("broken", str(tmp_path / "dev/infiniband/uverbs4")) in [(f.kind, f.path) for f in faults]


def test_nothing_of_a_recorded_machine_is_opened_or_loaded(tmp_path: Path) -> None:
    verbs, _ = read_verbs(machine("pod-vf", tmp_path))
    assert [device.openable for device in verbs.devices or ()] == [None]
    assert verbs.library is None


def test_modules_plugins_and_providers_of_a_bare_machine(tmp_path: Path) -> None:
    verbs, faults = read_verbs(machine("hgx-h100", tmp_path))
    assert (verbs.peer_memory, verbs.dma_buf, verbs.providers) == ("nvidia_peermem", True, ("mlx5",))
    assert verbs.plugins == (
        Library(name="libnccl-net.so", folder="/opt/hpcx/lib"),
        Library(name="libnccl-net-ofi.so", folder="/opt/amazon/ofi-nccl/lib", searched=False),
    )
    assert [(fault.kind, fault.path) for fault in faults] == [("absent", str(tmp_path / "dev/infiniband"))]


def test_an_old_kernel_has_no_dma_buf_for_rdma(tmp_path: Path) -> None:
    roots = machine("hgx-h100", tmp_path)
    (tmp_path / "proc/sys/kernel/osrelease").write_text("5.4.0-190-generic\n")
    assert read_verbs(roots)[0].dma_buf is False


def test_a_plugin_in_the_search_path_is_searched(tmp_path: Path) -> None:
    verbs, _ = read_verbs(
        machine("efa-vm", tmp_path, {"LD_LIBRARY_PATH": "/opt/amazon/ofi-nccl/lib64/::/opt/amazon/efa/lib64"})
    )
    assert verbs.plugins == (
        Library(name="libnccl-net-ofi.so", folder="/opt/amazon/ofi-nccl/lib64"),
        Library(name="libfabric.so.1", folder="/opt/amazon/efa/lib64"),
    )


def test_the_library_is_loadable_where_the_loader_finds_it() -> None:
    try:
        ctypes.CDLL(VERBS_LIBRARY)
    except OSError:
        found = False
    else:
        found = True
    verbs, faults = read_verbs(Roots.real())
    assert verbs.library is found
    assert (VERBS_LIBRARY in [fault.path for fault in faults]) is not found


def test_configurations_that_include_each_other_end(tmp_path: Path) -> None:
    lay_out(
        "etc/ld.so.conf = include ld.so.conf.d/*\n"
        "etc/ld.so.conf.d/a <<\ninclude /etc/ld.so.conf\n/opt/a\n>>\n"
        "etc/ld.so.conf.d/b <<\n# a comment\n/opt/b # another\n>>",
        tmp_path,
    )
    folders = library_folders(Reader("verbs"), roots_at(tmp_path))
    assert [*folders][:2] == ["/opt/a", "/opt/b"]
    assert folders["/opt/b"] is True


def test_a_configuration_has_folders_and_includes() -> None:
    assert parse_ld_conf("include a/*.conf b\n\n/usr/x=libc6 # y\nhwcap 1 x\n") == (
        ("/usr/x",),
        ("a/*.conf", "b"),
    )


def test_modules_are_first_words() -> None:
    assert parse_modules("nvidia 1 2 - Live\n\nmlx5_ib 3\n") == {"nvidia", "mlx5_ib"}


@pytest.mark.parametrize(
    ("text", "release"),
    [("5.15.0-1053-generic\n", (5, 15)), ("6.8-rc1", (6, 8)), ("linux", None), ("", None)],
)
def test_a_release_begins_with_two_numbers(text: str, release: tuple[int, int] | None) -> None:
    assert parse_release(text) == release
