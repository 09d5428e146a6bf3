"""Limits of a process as shells, the kernel and prlimit print them."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real import require
from torn_text import read

from topocheck.probes.capture.text import read_text
from topocheck.probes.capture.ulimit import parse
from topocheck.snapshot import Limits

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
PROC = """\
Max open files            1024                 524288               files
Max locked memory         8388608              unlimited            bytes
"""
BASH = "max locked memory           (kbytes, -l) {}\nopen files                          (-n) {}\n"


def limits(text: str) -> Limits:
    (reading,) = parse(read(text))
    (snapshot,) = reading.snapshots
    return snapshot.limits


@pytest.mark.parametrize(
    ("text", "memlock", "nofile"),
    [
        (BASH.format(8192, 1048576), 8192 << 10, 1048576),
        (BASH.format("unlimited", "unlimited"), -1, -1),
        ("-l: locked-in-memory size (kbytes)  64\n-n: file descriptors              1024\n", 65536, 1024),
        ("locked memory(kbytes)  64\nnofiles(descriptors) 256\n", 65536, 256),
        (PROC, 8388608, 1024),
        ("MEMLOCK    max locked-in-memory address space 8388608 8388608 bytes\n", 8388608, None),
        ("$ ulimit -l\n64\n", 65536, None),
        ("# ulimit -l\nunlimited\n", -1, None),
        ("ulimit -l\n\n8192\n$ ulimit -n\n1024\n", 8192 << 10, None),
    ],
)
def test_a_limit_is_bytes_or_files(text: str, memlock: int | None, nofile: int | None) -> None:
    assert limits(text) == Limits(memlock_bytes=memlock, nofile=nofile)


@pytest.mark.parametrize(
    ("prompt", "host", "scope"),
    [
        ("root@gpu-42:~# ulimit -a", "gpu-42", "unknown"),
        ("kubectl exec -it trainer-0 -- bash -c 'ulimit -a'", "trainer-0", "container"),
        ("$ srun -w node1 bash -c 'ulimit -a'", "node1", "unknown"),
    ],
)
def test_limits_are_of_what_the_command_shows(prompt: str, host: str, scope: str) -> None:
    (reading,) = parse(read(f"{prompt}\n{BASH.format(64, 1024)}"))
    (snapshot,) = reading.snapshots
    assert (snapshot.identity.host.name, snapshot.limits.scope) == (host, scope)


def test_of_several_tasks_the_smallest_limit_counts() -> None:
    (reading,) = parse(read("$ srun -l -w node1 bash -c 'ulimit -l'\n0: unlimited\n1: 64\n"))
    assert reading.snapshots[0].limits.memlock_bytes == 65536
    assert [note.kind for note in reading.notes] == ["ignored"]


@pytest.mark.parametrize(
    "text",
    [
        "ulimit -l unlimited\n64\n",
        "64\n",
        "ulimit is a builtin\n",
        "max locked memory is too small\n",
        "$ ulimit -Hl\n64\n",
    ],
)
def test_what_states_no_limit_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@pytest.mark.parametrize(
    "command",
    [("bash", "-c", "ulimit -a"), ("dash", "-c", "ulimit -a"), ("zsh", "-c", "ulimit -a"), ("prlimit",),
     ("cat", "/proc/self/limits")],
)  # fmt: skip
def test_what_this_machine_prints_is_what_its_kernel_says(command: tuple[str, ...]) -> None:
    require(command[0])
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    known = limits(printed)
    memlock, nofile = (
        resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE)
    )
    assert known.nofile == nofile
    assert known.memlock_bytes is not None
    assert known.memlock_bytes == memlock or known.memlock_bytes >> 10 == memlock >> 10


LINES = st.sampled_from(
    [*BASH.format(64, "unlimited").split("\n"), "ulimit -l", "64", "unlimited", "$ ulimit -l",
     "kubectl exec p -- ulimit -l", "9" * 25, "0: 7", "open files (-n) x", "text"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(LINES, max_size=10).map("\n".join)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80)
)
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        found = reading.snapshots[0].limits
        assert found.memlock_bytes is None or found.memlock_bytes >= -1


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_the_shared_listing_reads_as_its_truth_says() -> None:
    (reading,) = parse(read_text(CASES / "C39-ulimit-a.txt"))
    assert reading.snapshots[0].limits == Limits(memlock_bytes=65536, nofile=1024)
