"""Limits, and whose they are."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from rooted import lay_out, machine, roots_at

from topocheck.probes.node.container import Container, parse_cgroups, parse_container, read_container
from topocheck.probes.node.limits import (
    parse_capability,
    parse_hugepages,
    parse_limit,
    parse_memory_limit,
    read_limits,
)
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Limits

POD = "8d1c0a61f00f5a2f6c0f3fd0f1f9f4a6d8f6c1c9c6d5e1d9a3a7b5c2e4f60718"


def test_a_step_on_a_host_has_the_limit_of_its_job(tmp_path: Path) -> None:
    limits, faults = read_limits(machine("hgx-h100", tmp_path))
    assert limits == Limits(
        scope="host",
        memlock_bytes=-1,
        ipc_lock=True,
        nofile=1048576,
        memory_bytes=2147483648000,
        hugepages_bytes=512 * 2048 * 1024,
    )
    assert [(fault.kind, fault.path) for fault in faults] == [("absent", str(tmp_path / "dev/shm"))]


def test_a_pod_has_the_limits_of_its_container(tmp_path: Path) -> None:
    limits, _ = read_limits(machine("pod-vf", tmp_path))
    assert (limits.scope, limits.container) == ("container", POD)
    assert (limits.memlock_bytes, limits.ipc_lock, limits.memory_bytes) == (65536, False, 64 << 30)


def test_this_process_has_the_limits_that_the_system_tells_it() -> None:
    limits, _ = read_limits(Roots.real())
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    assert limits.memlock_bytes == soft  # RLIM_INFINITY is -1 as well
    assert limits.nofile == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if Path("/dev/shm").is_dir():  # noqa: S108 - the place itself is asked about
        found = os.statvfs("/dev/shm")  # noqa: S108 - as above
        assert limits.shm_bytes == found.f_blocks * found.f_frsize


def test_the_nearest_memory_limit_of_version_2_counts(tmp_path: Path) -> None:
    lay_out(
        "proc/self/cgroup = 0::/a/b\n"
        "sys/fs/cgroup/a/b/memory.max = max\n"
        "sys/fs/cgroup/a/memory.max = 4096000",
        tmp_path,
    )
    assert read_limits(roots_at(tmp_path))[0].memory_bytes == 4096000
    (tmp_path / "sys/fs/cgroup/a/memory.max").write_text("max\n")
    assert read_limits(roots_at(tmp_path))[0].memory_bytes == -1


def test_a_cgroup_tree_that_is_not_there_limits_nothing_known(tmp_path: Path) -> None:
    lay_out("proc/self/cgroup = 0::/a", tmp_path)
    limits, faults = read_limits(roots_at(tmp_path))
    assert limits.memory_bytes is None
    assert (str(tmp_path / "sys/fs/cgroup"), "absent") in [(fault.path, fault.kind) for fault in faults]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max\n", -1),
        ("9223372036854771712\n", -1),
        ("68719476736", 68719476736),
        ("0", 0),
        ("-1", None),
        ("some", None),
        ("1" * 40, None),
    ],
)
def test_a_memory_limit_is_a_number_or_none_at_all(text: str, limit: int | None) -> None:
    assert parse_memory_limit(text) == limit


def test_limits_are_found_by_name() -> None:
    text = "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         65536      unlimited    bytes\n"
    assert parse_limit(text, "Max locked memory") == 65536
    assert parse_limit(text.replace("65536", "unlimited"), "Max locked memory") == -1
    assert parse_limit(text, "Max open files") is None


def test_a_capability_is_a_bit() -> None:
    assert parse_capability("CapEff:\t0000000000004000\n", 14) is True
    assert parse_capability("CapEff:\t00000000a80425fb\n", 14) is False
    assert parse_capability("CapPrm:\t0000000000004000\n", 14) is None


def test_huge_pages_need_number_and_size() -> None:
    assert parse_hugepages("HugePages_Total:       3\nHugepagesize:    2048 kB\n") == 3 * 2048 * 1024
    assert parse_hugepages("HugePages_Total:       3\n") is None


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"/docker/{POD}", POD),
        (f"/kubepods.slice/kubepods-pod5f.slice/cri-containerd-{POD}.scope", POD),
        (f"/system.slice/crio-{POD}.scope/container", POD),
        (f"/docker/{'a' * 64}/docker/{POD}", POD),
        ("/user.slice/user-1000.slice", None),
        (f"/x/{POD}0", None),
        ("/", None),
    ],
)
def test_a_container_is_named_in_its_cgroup(path: str, container: str | None) -> None:
    assert parse_container(path) == container


def test_cgroups_of_both_versions_are_read() -> None:
    text = "12:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\nbroken\n5:memory:relative\n"
    assert parse_cgroups(text) == {"cpu": "/a", "cpuacct": "/a", "name=systemd": "/b", "": "/c"}


@pytest.mark.parametrize(
    ("pid", "cgroup", "scope"),
    [
        ("pid:[4026531836]", "cgroup:[4026531835]", "host"),
        ("pid:[4026533801]", "cgroup:[4026531835]", "container"),
        ("pid:[4026531836]", "cgroup:[4026533802]", "container"),
        ("pid:[4026531836]", None, "unknown"),
        (None, None, "unknown"),
    ],
)
def test_namespaces_tell_a_host_from_a_container(
    tmp_path: Path, pid: str | None, cgroup: str | None, scope: str
) -> None:
    lay_out("proc/self/cgroup = 0::/", tmp_path)
    for name, target in (("pid", pid), ("cgroup", cgroup)):
        if target:
            lay_out(f"proc/self/ns/{name} -> {target}", tmp_path)
    container, faults = read_container(roots_at(tmp_path))
    assert container == Container(None, scope, {"": "/"})  # type: ignore[arg-type]  # of the table above
    assert faults == ()
