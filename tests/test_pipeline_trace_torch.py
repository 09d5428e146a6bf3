"""Traces of the PyTorch profiler: what counts as computing and as transfer, and which unit is which."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_runs import HOSTS, MS, blocking, judged, there_and_back
from profiler_traces import BASE_NS, write_profiles

from topocheck.errors import InputError, TopocheckError, UsageError
from topocheck.pipeline import trace_events
from topocheck.pipeline.trace import Trace, stage_times
from topocheck.pipeline.trace_events import EventFile
from topocheck.pipeline.trace_files import read_traces
from topocheck.pipeline.trace_torch import read_profile

Backend = Literal["gloo", "nccl"]
SLOW = blocking([20, 60, 20], units=6)


def traces(folder: Path) -> Trace:
    return read_traces([str(folder)])


def changed(path: Path, change: Any) -> None:
    """Write a trace again with other contents."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_a_profile_gives_the_units_that_the_program_would_have_written(
    tmp_path: Path, backend: Backend
) -> None:
    write_profiles(tmp_path, SLOW, backend)
    trace = traces(tmp_path)
    assert [round(time) for time in stage_times(trace)] == [20 * MS, 60 * MS, 20 * MS]
    for stage in trace.stages:
        written = [line for line in SLOW if line["stage"] == stage.stage]
        for unit, line in zip(stage.units, written, strict=True):
            assert (unit.unit, unit.backward) == (str(line["unit"]), False)
            for name in (
                "receive_end_ns",
                "compute_start_ns",
                "compute_end_ns",
                "send_start_ns",
                "send_end_ns",
            ):
                found = getattr(unit, name)
                assert found is None if name not in line else abs(found - BASE_NS - line[name]) <= 1000, name
    assert [(f.kind, f.where) for f in judged(trace).findings] == [("neighbour", "stage 1")]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_profile_reads_alike_in_pieces_of_any_size(
    tmp_path: Path, indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path, *_) = write_profiles(tmp_path, SLOW, indent=indent)
    events = len(json.loads(path.read_text())["traceEvents"])
    for size in (61, 1000, 1 << 14, 1 << 23):
        monkeypatch.setattr(trace_events, "PIECE_BYTES", size)
        file = EventFile(io.BytesIO(path.read_bytes()), "t")
        assert sum(map(len, file)) == events
        assert file.header.host_name == "blue-1"


def test_objects_in_events_and_text_that_looks_like_their_end_do_not_part_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path, *_) = write_profiles(tmp_path, SLOW)

    def odd(document: dict[str, Any]) -> None:
        for event in document["traceEvents"]:
            event["args"] = {"a": [{"x": 1}, {"y": 2}], "b": '}, {"ph": ]}', **event["args"]}
        document["after"] = [{"z": 1}, {"z": 2}] * 40

    changed(path, odd)
    events = len(json.loads(path.read_text())["traceEvents"])
    for size in (300, 5000):
        monkeypatch.setattr(trace_events, "PIECE_BYTES", size)
        assert sum(map(len, EventFile(io.BytesIO(path.read_bytes()), "t"))) == events


def test_what_stands_behind_the_events_counts_too(tmp_path: Path) -> None:
    for path in write_profiles(tmp_path, SLOW):
        changed(path, lambda document: document.update(traceEvents=document.pop("traceEvents")))
        document = json.loads(path.read_text())
        last = {key: document.pop(key) for key in ("distributedInfo", "host_name")}
        path.write_text(json.dumps(document | last))
    assert [stage.host for stage in traces(tmp_path).stages] == ["blue-1"] * 3


def test_gzip_is_unpacked(tmp_path: Path) -> None:
    for path in write_profiles(tmp_path, SLOW):
        path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert len(traces(tmp_path).stages) == 3


def test_ranks_are_ordered_by_who_sends_to_whom(tmp_path: Path) -> None:
    write_profiles(tmp_path, SLOW, stage_ranks=[5, 1, 3])
    assert [stage.rank for stage in traces(tmp_path).stages] == [5, 1, 3]


def test_other_pipelines_are_left_out_and_said(tmp_path: Path) -> None:
    for first in (0, 1):
        write_profiles(tmp_path, SLOW, stage_ranks=[first, first + 2, first + 4])
    trace = traces(tmp_path)
    assert [stage.rank for stage in trace.stages] == [0, 2, 4]
    assert any("3 more ranks are given (--ranks chooses another)" in note for note in trace.notes)
    assert [stage.rank for stage in read_traces([str(tmp_path)], [(1, 3, 5)]).stages] == [1, 3, 5]


def test_a_stage_without_a_trace_is_named(tmp_path: Path) -> None:
    paths = write_profiles(tmp_path, SLOW)
    with pytest.raises(InputError, match="rank 1 sends to or receives from rank 2, whose trace is not given"):
        read_traces([str(path) for path in paths[:2]])
    with pytest.raises(InputError, match="holds no rank 7: stages are the ranks 0, 7"):
        read_traces([str(tmp_path)], [(0, 7)])


@pytest.mark.parametrize("ranks", ["[0, 1, 2]", "", "[0, 1, ..., 2]"])
def test_a_collective_of_one_stage_is_computing_and_one_that_may_join_stages_is_not(
    tmp_path: Path, ranks: str
) -> None:
    def join(document: dict[str, Any]) -> None:
        for event in document["traceEvents"]:
            if event["args"].get("Collective name") == "allreduce":
                event["args"]["Process Group Ranks"] = ranks

    for path in write_profiles(tmp_path, SLOW, "nccl"):
        changed(path, join)
    assert [round(time) for time in stage_times(traces(tmp_path))] == [
        pytest.approx(2 * whole * MS / 3, rel=1e-4) for whole in (20, 60, 20)
    ]


def test_what_comes_back_is_the_backward_pass_of_the_same_unit_and_aligns_clocks(tmp_path: Path) -> None:
    write_profiles(tmp_path, there_and_back(), hosts=dict(enumerate(HOSTS)))
    trace = traces(tmp_path)
    assert [round(time) for time in stage_times(trace)] == [15 * MS, 15 * MS]
    assert [stage.host for stage in trace.stages] == HOSTS
    keys = {(str(number), backward) for number in range(10) for backward in (False, True)}
    assert [{unit.key for unit in stage.units} for stage in trace.stages] == [keys, keys]
    report = judged(trace)
    assert report.clocks[1].basis == "transfers in both directions"
    assert report.bubble is not None
    assert (report.bubble.units, report.bubble.rounds) == (10, 10)


def test_two_tensors_of_one_boundary_are_one_transfer(tmp_path: Path) -> None:
    def twice(document: dict[str, Any]) -> None:
        for event in list(document["traceEvents"]):
            if "SendRecv" in event["name"]:
                end = event["ts"] + event["dur"]
                event["dur"] -= 40.0
                copy = event | {"name": "copy", "args": {}, "ts": end - 38, "dur": 4.0}
                document["traceEvents"] += [copy, event | {"ts": end - 30, "dur": 30.0}]

    for path in write_profiles(tmp_path, SLOW, "nccl"):
        changed(path, twice)
    trace = traces(tmp_path)
    assert [len(stage.units) for stage in trace.stages] == [6, 6, 6]
    assert [(f.kind, f.where) for f in judged(trace).findings] == [("neighbour", "stage 1")]


def test_profilers_that_start_apart_are_brought_together_by_their_times(tmp_path: Path) -> None:
    paths = write_profiles(tmp_path, SLOW)
    begin = min(line["compute_start_ns"] for line in SLOW if line["stage"] == 1 and line["unit"] == 2) / 1000

    def late(document: dict[str, Any]) -> None:
        document["traceEvents"] = [event for event in document["traceEvents"] if event["ts"] >= begin]

    changed(paths[1], late)
    trace = traces(tmp_path)
    assert any("stages 0 and 1 begin" in note for note in trace.notes)
    ids = [{unit.unit for unit in stage.units} for stage in trace.stages]
    assert {"3", "4", "5"} <= ids[0] & ids[1] & ids[2]


def test_traces_of_two_clocks_under_one_name_are_refused(tmp_path: Path) -> None:
    paths = write_profiles(tmp_path, SLOW)
    changed(paths[1], lambda document: document.update(baseTimeNanoseconds=BASE_NS - 10**12))
    with pytest.raises(
        UsageError, match="6 of 6 transfers from stage 0 to stage 1 are received before they are"
    ):
        traces(tmp_path)


def test_annotations_of_torch_are_computing_less_the_transfers_in_them(tmp_path: Path) -> None:
    def annotate(document: dict[str, Any]) -> None:
        events = document["traceEvents"]
        spans = [event for event in events if event["name"] == "aten::linear"]
        for number, event in enumerate(spans):
            end = next(e for e in events if e["name"] == "aten::relu" and e["ts"] >= event["ts"])
            before = max(
                (e["ts"] for e in events if e["name"] == "c10d::recv_" and e["ts"] < event["ts"]), default=0
            )
            start = max(before - 1, 0) or event["ts"]
            span = {"ts": start, "dur": end["ts"] + end["dur"] - start, "args": {}}
            events.append(event | {"cat": "user_annotation", "name": f"Forward {number}"} | span)
        document["traceEvents"] = [event for event in events if not event["name"].startswith("aten")]

    for path in write_profiles(tmp_path, SLOW):
        changed(path, annotate)
    assert [round(time / MS) for time in stage_times(traces(tmp_path))] == [20, 60, 20]


def test_transfers_without_a_peer_are_refused_with_the_cure(tmp_path: Path) -> None:
    for path in write_profiles(tmp_path, SLOW):
        changed(
            path,
            lambda document: [event["args"].pop("Concrete Inputs", 0) for event in document["traceEvents"]],
        )
    with pytest.raises(
        InputError, match="none says which rank is on the other side: profile with record_shapes"
    ):
        traces(tmp_path)


def test_kernels_that_do_not_say_what_they_are_stay_unknown_and_are_told(tmp_path: Path) -> None:
    for path in write_profiles(tmp_path, SLOW, "nccl"):
        changed(path, coalesce)
    trace = read_traces([str(tmp_path)], [(0, 1, 2)])
    assert any("do not say which of the two they are (batch_isend_irecv)" in note for note in trace.notes)


def coalesce(document: dict[str, Any]) -> None:
    """Make sends and receives such of a group that is launched together."""
    for event in document["traceEvents"]:
        if "SendRecv" in event["name"]:
            event["args"] = {"Collective name": "coalesced", "Process Group Ranks": "[0, 1, 2]"}


def test_a_rank_that_is_not_said_can_be_given(tmp_path: Path) -> None:
    paths = write_profiles(tmp_path, SLOW)
    for path in paths:
        changed(path, lambda document: document.pop("distributedInfo"))
    with pytest.raises(InputError, match="does not say its rank: say it as RANK=FILE"):
        traces(tmp_path)
    assert len(read_traces([f"{rank}={path}" for rank, path in enumerate(paths)]).stages) == 3


def test_a_rank_that_is_said_wrong_or_twice_is_refused(tmp_path: Path) -> None:
    paths = write_profiles(tmp_path, SLOW)
    with pytest.raises(InputError, match="is of rank 0 and not of rank 4"):
        read_traces([f"4={paths[0]}"])
    with pytest.raises(InputError, match="is of rank 0, and so is"):
        read_traces([str(paths[0]), str(paths[0])])


def test_both_kinds_at_once_are_refused(tmp_path: Path) -> None:
    paths = write_profiles(tmp_path, SLOW)
    units = tmp_path / "u.jsonl"
    units.write_text('{"unit": 1, "stage": 0, "compute_start_ns": 1, "compute_end_ns": 2}\n')
    with pytest.raises(UsageError, match=r"is a file of units and .* a trace of the profiler"):
        read_traces([str(paths[0]), str(units)])


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_half_written_trace_is_told(tmp_path: Path, part: float, indent: int | None) -> None:
    (path, *_) = write_profiles(tmp_path, SLOW, indent=indent)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(InputError, match=r"ends in the middle of its events, after [0-9,]+ bytes"):
        read_traces([str(path)])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"dur": -5}, "event 'aten::linear' starts at 1e\\+06 us and lasts -5 us"),
        ({"ts": -5}, "times are negative or beyond any clock"),
        ({"ts": 1e300}, "times are negative or beyond any clock"),
        ({"ts": "soon"}, "has an event that the profiler does not write \\(expected `float`, got `str`"),
    ],
)
def test_times_that_are_none_are_told(tmp_path: Path, change: dict[str, object], sentence: str) -> None:
    (path, *_) = write_profiles(tmp_path, SLOW)
    changed(path, lambda document: document["traceEvents"][1].update(change))
    with pytest.raises(InputError, match=sentence):
        read_traces([str(path)])


@pytest.mark.parametrize(
    "text", [b"{}", b'{"schemaVersion": 1}', b'{"traceEvents": 5}', b'{"a": "traceEvents\\": ["}']
)
def test_json_without_events_is_refused(text: bytes) -> None:
    with pytest.raises(InputError, match="holds no traceEvents"):
        EventFile(io.BytesIO(text), "t")


def test_a_stage_that_did_nothing_is_refused(tmp_path: Path) -> None:
    paths = write_profiles(tmp_path, SLOW)
    changed(paths[2], lambda document: document.update(traceEvents=[]))
    with pytest.raises(InputError, match="holds no unit of work of stage 2"):
        traces(tmp_path)


def test_a_trace_without_transfers_is_refused(tmp_path: Path) -> None:
    write_profiles(tmp_path, blocking([5], units=2))
    with pytest.raises(InputError, match="has no send or receive between ranks"):
        traces(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    (path, *_) = write_profiles(tmp_path_factory.mktemp("torn"), blocking([5, 5], units=2), "nccl")
    return path.read_bytes()


@settings(max_examples=80, deadline=None)
@given(place=st.integers(0, 6000), length=st.integers(0, 40), middle=st.binary(max_size=8))
def test_any_trace_is_read_or_refused_in_a_sentence(
    whole: bytes, place: int, length: int, middle: bytes
) -> None:
    torn = whole[:place] + middle + whole[place + length :]
    try:
        told = str(read_profile(io.BytesIO(torn), "t", None).rank)
    except TopocheckError as error:
        told = str(error)
    assert told
    assert "\n" not in told
