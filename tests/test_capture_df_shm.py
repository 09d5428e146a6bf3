"""Shared memory: its size, and failures for want of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real import require
from torn_text import read

from topocheck.probes.capture.df_shm import KIND, KIND_FAILURE, parse, parse_size
from topocheck.probes.capture.text import read_text
from topocheck.snapshot import Limits

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
SHM = "/dev/shm"  # noqa: S108 - it is only measured
HEAD = "Filesystem      Size  Used Avail Use% Mounted on\n"


def limits(text: str) -> Limits:
    (reading,) = parse(read(text))
    assert reading.kind == KIND
    return reading.snapshots[0].limits


@pytest.mark.parametrize(
    ("text", "size", "free"),
    [
        (HEAD + "shm              64M   16M   48M  25% /dev/shm\n", 64 << 20, 48 << 20),
        (HEAD + "tmpfs           1.5T     0  1.5T   0% /dev/shm\n", 3 << 39, 3 << 39),
        ("shm 64M 0 64M 0% /dev/shm\n", 64 << 20, 64 << 20),
        ("$ df -H /dev/shm\n" + HEAD + "shm 68M 0 67M 0% /dev/shm\n", 68 * 10**6, 67 * 10**6),
        (
            "Filesystem 1K-blocks Used Available Use% Mounted on\ntmpfs 65536 0 1024 0% /dev/shm\n",
            1 << 26,
            1 << 20,
        ),
        ("shm on /dev/shm type tmpfs (rw,nosuid,nodev,noexec,relatime,size=65536k,inode64)\n", 1 << 26, None),
    ],
)
def test_the_size_of_shared_memory_is_bytes(text: str, size: int, free: int | None) -> None:
    assert limits(text) == Limits(shm_bytes=size, shm_free_bytes=free)


def test_the_size_is_of_the_container_that_the_command_ran_in() -> None:
    (reading,) = parse(read("kubectl exec pod-a -- df -h /dev/shm\n" + HEAD + "shm 64M 0 64M 0% /dev/shm\n"))
    (snapshot,) = reading.snapshots
    assert (snapshot.identity.host.name, snapshot.limits.scope) == ("pod-a", "container")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (
            "Error while creating shared memory segment /dev/shm/nccl-Xy1 (size 4194304)",
            "4194304 /dev/shm/nccl-Xy1",
        ),
        ("Error: failed to extend /dev/shm/nccl-Xy2 to 33030532 bytes", "33030532 /dev/shm/nccl-Xy2"),
        ("RuntimeError: DataLoader worker (pid 9) ... insufficient shared memory (shm)", "0"),
    ],
)
def test_a_failure_is_a_fact_of_its_host(line: str, value: str) -> None:
    (reading,) = parse(read(f"root@pod-b:/# python train.py\n{line}\n{line}\n"))
    (snapshot,) = reading.snapshots
    assert reading.kind == KIND_FAILURE
    assert snapshot.identity.host.name == "pod-b"
    assert snapshot.observed
    assert [(fact.kind, fact.value) for fact in snapshot.observed.facts] == [("shm-failed", value)]


def test_a_failure_in_nccls_log_is_of_the_host_that_wrote_it() -> None:
    line = (
        "gpu-43:77:88 [1] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-Q to 99 bytes"
    )
    (reading,) = parse(read(line + "\n"))
    (snapshot,) = reading.snapshots
    assert snapshot.identity.host.name == "gpu-43"
    assert snapshot.observed
    assert [fact.pid for fact in snapshot.observed.facts] == [77]


@pytest.mark.parametrize(
    "text", ["shm 64 0 64 0% /dev/shm\n", "mount /dev/shm first\n", "tmpfs 64M 0 64M 0% /run\n"]
)
def test_what_states_no_size_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@pytest.mark.parametrize(
    ("text", "size"), [("64M", 1 << 26), ("1.5Gi", 3 << 29), ("7", 7), ("", None), ("M", None)]
)
def test_sizes_have_suffixes(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("options", [("-h",), ("-H",), (), ("-m",)])
def test_what_this_machine_prints_is_what_its_kernel_says(options: tuple[str, ...]) -> None:
    require("df")
    if not Path(SHM).is_dir():
        pytest.skip(f"there is no {SHM} here")
    command = ("df", *options, SHM)
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    system = os.statvfs(SHM)
    size = limits(f"$ {' '.join(command)}\n{printed}").shm_bytes
    assert size == pytest.approx(system.f_blocks * system.f_frsize, rel=0.05)


LINES = st.sampled_from(
    [HEAD.strip(), "shm 64M 0 64M 0% /dev/shm", "shm 9 9 9 9% /dev/shm", "shared memory", "$ df -h",
     "Filesystem 1K-blocks", "shm on /dev/shm type tmpfs (size=1k)"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(LINES, max_size=8).map("\n".join)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80)
)
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        assert reading.kind in {KIND, KIND_FAILURE}


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_the_shared_capture_reads_as_its_truth_says() -> None:
    sized, failed = parse(read_text(CASES / "C53-shm-df.txt"))
    assert sized.snapshots[0].limits == Limits(scope="container", shm_bytes=64 << 20, shm_free_bytes=64 << 20)
    assert failed.snapshots[0].observed
    assert failed.snapshots[0].observed.facts[0].value == "9637888 /dev/shm/nccl-F9ffgB"
