"""The header of nccl-tests: ranks, hosts, processes and GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.nccl_tests import parse
from topocheck.probes.capture.reading import Reading, Text
from topocheck.probes.capture.text import read_text

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


def read(path: Path) -> Reading:
    (reading,) = parse(read_text(path, path.name))
    return reading


def places(reading: Reading) -> dict[int, tuple[str | None, int | None, str | None]]:
    """Rank -> host, process, bus id."""
    return {
        claim.rank: (host.identity.host.name, claim.pid, host.identity.gpus[claim.gpu or 0].bus)
        for host in reading.snapshots
        for claim in host.ranks
    }


def test_each_rank_has_host_process_and_gpu() -> None:
    reading = read(CAPTURES / "nccl-tests-header.txt")
    assert places(reading) == {
        0: ("col-1", 9001, "0001:00:00.0"),
        1: ("col-1", 9002, "0002:00:00.0"),
        2: ("col-2", 112233, "0001:00:00.0"),
        3: ("col-2", 112234, "0002:00:00.0"),
    }
    first, second = reading.snapshots
    assert {gpu.model for gpu in first.identity.gpus} == {"NVIDIA H200"}
    assert {gpu.nvml for gpu in first.identity.gpus} == {None}  # `device` is the CUDA index
    assert [claim.size for claim in first.ranks] == [4, 4]
    assert (first.coverage.ranks, second.coverage.ranks) == ("all", "all")
    assert (first.software.nccl, second.software.nccl) == ("2.27.3", None)
    assert reading.notes == ()


def test_old_headers_have_no_group_no_process_and_no_address() -> None:
    reading = read(CAPTURES / "nccl-tests-old.txt")
    assert places(reading) == {
        0: ("vintage-a", 4410, None),
        1: ("vintage-a", 4411, None),
        2: ("vintage-b", None, None),
    }
    assert [len(snapshot.identity.gpus) for snapshot in reading.snapshots] == [2, 1]
    assert {snapshot.coverage.ranks for snapshot in reading.snapshots} == {"part"}  # the text ends with it
    assert [note.kind for note in reading.notes] == ["cut"]


HEADER = "#  Rank {:2d} Group  0 Pid {:6d} on {:>10s} device {:2d} [{:04x}:{:02x}:{:02x}] {}"


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 99999),
    st.integers(1, 4_000_000),
    st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True),
    st.integers(0, 15),
    st.integers(0, 0xFFFF),
)
def test_every_width_of_the_format_is_read(rank: int, pid: int, host: str, device: int, domain: int) -> None:
    line = HEADER.format(rank, pid, host, device, domain, 6, 0, "NVIDIA GB300")
    (reading,) = parse(Text("x", (line,)))
    assert places(reading) == {rank: (host, pid, f"{domain:04x}:06:00.0")}


def test_a_header_that_is_not_whole_says_so() -> None:
    lines = ("# Using devices", HEADER.format(1, 2, "a", 0, 0, 6, 0, "X"), "# size")
    (reading,) = parse(Text("x", lines))
    assert reading.snapshots[0].coverage.ranks == "part"
    assert reading.snapshots[0].ranks[0].size is None


def test_a_rank_that_comes_again_begins_another_run() -> None:
    line = HEADER.format(0, 2, "a", 0, 0, 6, 0, "X")
    assert len(parse(Text("x", (line, line)))) == 2
    assert parse(Text("x", ("# Rank order", "Rank 0 on a", ""))) == []


@pytest.mark.parametrize(
    ("code", "version"), [("2708", "2.7.8"), ("21805", "2.18.5"), ("22907", "2.29.7"), ("20911", "2.9.11")]
)
def test_the_version_code_is_spelled_out(code: str, version: str) -> None:
    head = f"# nccl-tests version 2.1.0 nccl-headers={code} nccl-library={code}"
    (reading,) = parse(Text("x", (head, HEADER.format(0, 2, "a", 0, 0, 6, 0, "X"))))
    assert reading.snapshots[0].software.nccl == version


@settings(max_examples=50, deadline=None)
@given(st.text(), st.integers(0, 600), st.integers(0, 50))
def test_damaged_headers_never_fail(noise: str, place: int, cut: int) -> None:
    text = (CAPTURES / "nccl-tests-header.txt").read_text()
    parse(Text("x", tuple((text[:place] + noise + text[place + cut :]).split("\n"))))


def test_c65_eight_ranks_on_two_trays() -> None:
    path = CASES / "C65-nccl2297-gb300-2tray-mnnvl.log"
    if not path.exists():
        pytest.skip("shared cases are not here")
    reading = read(path)
    buses = ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"]
    assert places(reading) == {
        rank: (f"tray-0{4 + rank // 4}", (4157 if rank < 4 else 5257) + rank, buses[rank % 4])
        for rank in range(8)
    }
