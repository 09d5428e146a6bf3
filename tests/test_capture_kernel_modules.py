"""`lsmod`: the module by which NICs reach GPU memory, and proof that there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torn_text import read

from topocheck.probes.capture.kernel_modules import parse
from topocheck.probes.capture.text import read_text

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
HEAD = "Module                  Size  Used by\n"
OTHERS = "nvidia              56807424  12 nvidia_uvm\nib_core               430080  9 rdma_cm,mlx5_ib\n"


def module(text: str) -> str | None:
    (reading,) = parse(read(text))
    verbs = [snapshot.verbs for snapshot in reading.snapshots if snapshot.verbs]
    return verbs[0].peer_memory if verbs else None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$ lsmod | grep peermem\nnvidia_peermem         16384  0\n", "nvidia_peermem"),
        ("nvidia_peermem         16384  0\n", "nvidia_peermem"),
        (HEAD + OTHERS + "nv_peer_mem            16384  0\n", "nv_peer_mem"),
        ("nvidia_peermem 16384 0 - Live 0x0000000000000000 (OE)\n", "nvidia_peermem"),
        ("ib_core  430080  9 rdma_cm,nvidia_peermem,mlx5_ib\n", "nvidia_peermem"),
        ("$ lsmod\n" + HEAD + OTHERS, ""),
        (HEAD + OTHERS, ""),
        ("$ lsmod | grep peer\n", ""),
        ("$ lsmod | grep -iE 'nvidia_peermem|nv_peer_mem'\n", ""),
        ("$ grep -e peer /proc/modules\n", ""),
    ],
)
def test_a_module_is_loaded_or_proven_not_to_be(text: str, found: str) -> None:
    assert module(text) == found


def test_asking_for_one_module_proves_nothing_of_the_other() -> None:
    (reading,) = parse(read("root@gpu-44:~# lsmod | grep nvidia_peermem\n"))
    assert reading.snapshots == ()
    assert [note.text for note in reading.notes] == [
        "nvidia_peermem is not loaded; nv_peer_mem was not asked for"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "$ lsmod | head -3\n" + HEAD + OTHERS,
        HEAD + OTHERS + "...\n",
        HEAD + OTHERS + "bash: something went wrong\n",
        "$ lsmod\nbash: lsmod: command not found\n",
        "$ lsmod | grep -v peer\n",
        "modprobe nvidia_peermem first\n",
    ],
)
def test_a_list_that_may_lack_modules_proves_nothing(text: str) -> None:
    assert parse(read(text)) == []


def test_the_host_is_that_of_the_prompt() -> None:
    (reading,) = parse(read("root@gpu-44:~# lsmod | grep peermem\nnvidia_peermem         16384  0\n"))
    assert reading.snapshots[0].identity.host.name == "gpu-44"


LINES = st.sampled_from(
    [HEAD.strip(), *OTHERS.split("\n"), "nvidia_peermem 16384 0", "$ lsmod", "$ lsmod | grep peer",
     "lsmod | grep '", "nv_peer_mem", "...", "text", "x 1 1"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(LINES, max_size=10).map("\n".join)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=80)
)
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        assert all(snapshot.verbs for snapshot in reading.snapshots)


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_the_shared_log_shows_a_loaded_module() -> None:
    (reading,) = parse(read_text(CASES / "C45-nccl-gdr-disabled.log"))
    (snapshot,) = reading.snapshots
    assert snapshot.verbs
    assert snapshot.verbs.peer_memory == "nvidia_peermem"
