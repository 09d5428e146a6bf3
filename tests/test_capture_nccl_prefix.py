"""Who wrote a line of an NCCL log, whatever carried it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.nccl_prefix import Record, is_partial, parse_records

MESSAGE = "Using network IB"

PREFIXED = {
    "gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "gpu-7:120:131 [3] INFO ": ("gpu-7", 120, 131, 3),
    "gpu-7:120 [3] NCCL INFO ": ("gpu-7", 120, None, 3),
    "::120:131 [0] NCCL INFO ": (None, 120, 131, 0),
    "[1,4]<stdout>:gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "[prterun-head-91@1,4]<stderr>: gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "12: gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "[node-9] gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "[pod/job-0/main] gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "(W pid=694) gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "(RayWorkerWrapper pid=1, ip=10.8.0.3) gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "(EngineCore_0 pid=17) (Worker_TP1 pid=20) gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "[2027-03-02 11:12:13] gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "2027-03-02T11:12:13.208-07:00gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "[0m gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "worker-1  | gpu-7:120:131 [3] NCCL INFO ": ("gpu-7", 120, 131, 3),
    "NCCL INFO ": (None, None, None, None),
    "[rank3]: NCCL INFO ": (None, None, None, None),
    "blade4: NCCL INFO ": ("blade4", None, None, None),
}


def only(line: str) -> Record:
    (record,) = parse_records([line])
    return record


@pytest.mark.parametrize("prefix", PREFIXED)
def test_every_prefix_names_its_writer(prefix: str) -> None:
    record = only(prefix + MESSAGE)
    assert (record.host, record.pid, record.tid, record.cuda) == PREFIXED[prefix]
    assert (record.message, record.level) == (MESSAGE, "INFO")


@pytest.mark.parametrize(
    "line",
    [
        "gpu-7:120:131 [3] misc/socket.cc:50 NCCL WARN Net failed",
        "[2027-03-02 11:12:13] gpu-7:120:131 [3] misc/socket.cc:50 (connect) NCCL WARN Net failed",
        "[1,2]<stdout>:gpu-7:120:131 [3] init.cc:497 NCCL WARN Net failed",
        "misc/socket.cc:50 NCCL WARN Net failed",
        "NCCL WARN Net failed",
    ],
)
def test_a_warning_is_one_with_and_without_time_function_and_writer(line: str) -> None:
    record = only(line)
    assert (record.level, record.message) == ("WARN", "Net failed")


def test_the_tag_of_mpirun_gives_the_rank() -> None:
    assert only("[1,14]<stdout>:a:1:2 [0] NCCL INFO x").mpi_rank == 14
    assert only("a:1:2 [0] NCCL INFO x").mpi_rank is None


def test_messages_of_processes_that_wrote_over_each_other_are_taken_apart() -> None:
    line = "[1,0]<stdout>:a:1:2 [0] NCCL INFO Using network IB[1,1]<stdout>:b:3:4 [1] NCCL INFO Launch mode"
    first, second = parse_records([line])
    assert (first.host, first.message, first.mpi_rank) == ("a", "Using network IB", 0)
    assert (second.host, second.message, second.mpi_rank) == ("b", "Launch mode", 1)


def test_the_version_line_and_the_old_plugin_need_no_prefix() -> None:
    assert only("[0m NCCL version 2.7.8+cuda11.1").level == "VERSION"
    plugin = only("10.0.8.8: WARN: Function: find Line: 543: NET/OFI no provider")
    assert (plugin.host, plugin.level, plugin.message) == ("10.0.8.8", "WARN", "NET/OFI no provider")


def test_ray_may_say_that_a_line_came_several_times() -> None:
    assert only("a:1:2 [0] NCCL INFO Using network IB [repeated 3x across cluster]").message == MESSAGE


@pytest.mark.parametrize(
    "line",
    [
        "export NCCL_DEBUG=INFO",
        "2027-03-02 11:12:13 [worker] INFO started via torchrun -> ok",
        "we saw NCCL INFO lines",
        "12:13:14 [0] INFO hello",
        "",
    ],
)
def test_other_lines_are_passed_over(line: str) -> None:
    assert [record for record in parse_records([line]) if record.host is not None] == []


def test_a_time_is_no_host() -> None:
    assert only("11:12:13 [0] NCCL INFO Using network IB").host is None


def test_a_line_that_stops_in_a_prefix_is_seen() -> None:
    writers = [("gpu-7", 120), (None, 5)]
    assert is_partial("[1,5]<stdout>:gp", writers)
    assert is_partial("gpu-7:12", writers)
    assert not is_partial("done", writers)
    assert not is_partial("[1,5]<stdout>:", writers)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(), max_size=5), st.sampled_from(sorted(PREFIXED)))
def test_no_text_makes_it_fail(pieces: list[str], prefix: str) -> None:
    for record in parse_records([prefix.join(pieces), prefix + "".join(pieces)]):
        assert record.pid is None or record.pid >= 0
