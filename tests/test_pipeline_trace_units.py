"""Files of units: JSON lines and CSV."""

from __future__ import annotations

import io

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_runs import Line, as_text, blocking, judged, read

from topocheck.errors import InputError, TopocheckError
from topocheck.pipeline import trace_units
from topocheck.pipeline.trace import MOST_STAGE_UNITS
from topocheck.pipeline.trace_units import UnitTraces, is_units
from topocheck.schema import schema_for

LINES = blocking([4, 11, 5], units=3, hosts=["blue-1", "blue-1", "blue-2"])


def as_csv(lines: list[Line], suffix: str = "ns", factor: float = 1) -> bytes:
    names = list(dict.fromkeys(name for line in lines for name in line))
    head = [name[:-2] + suffix if name.endswith("_ns") else name for name in names]
    rows = [
        [
            str(line[name] * factor if name.endswith("_ns") else line[name]) if name in line else ""
            for name in names
        ]
        for line in lines
    ]
    return "\n".join(",".join(row) for row in [head, *rows]).encode()


def test_csv_says_what_json_says() -> None:
    assert read(as_csv(LINES)).stages == moved(read(as_text(LINES)).stages, 1)


def moved(stages: object, lines: int) -> object:
    """Stages with line numbers as below a header."""
    import msgspec  # noqa: PLC0415

    return tuple(
        msgspec.structs.replace(
            stage,
            units=tuple(msgspec.structs.replace(unit, line=(unit.line or 0) + lines) for unit in stage.units),
        )
        for stage in stages  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize(("suffix", "factor"), [("us", 1e-3), ("ms", 1e-6), ("s", 1e-9)])
def test_times_may_have_another_unit_in_the_whole_file(suffix: str, factor: float) -> None:
    renamed = [
        {
            name[:-2] + suffix if name.endswith("_ns") else name: value * factor
            if name.endswith("_ns")
            else value
            for name, value in line.items()
        }
        for line in LINES
    ]
    assert read(as_text(renamed)).stages == read(as_text(LINES)).stages
    assert read(as_csv(LINES, suffix, factor)).stages == moved(read(as_text(LINES)).stages, 1)


def test_a_byte_order_mark_blank_lines_and_windows_ends_are_no_matter() -> None:
    text = b"\xef\xbb\xbf" + as_text(LINES).replace(b"\n", b"\r\n\r\n")
    assert [len(stage.units) for stage in read(text).stages] == [3, 3, 3]


def test_lines_without_a_host_are_of_one_machine_and_that_is_said() -> None:
    trace = read(as_text(blocking([5, 5], units=2)), "run.jsonl")
    assert {stage.clock for stage in trace.stages} == {"run.jsonl"}
    assert "run.jsonl: lines that name no host are taken as of one machine and one clock" in trace.notes


def test_microbatch_ids_that_come_again_are_told_apart_by_iteration() -> None:
    lines = [line | {"iteration": iteration} for iteration in range(2) for line in LINES[:3]]
    assert [unit.unit for unit in read(as_text(lines)).stages[0].units] == ["0/0", "1/0"]
    with pytest.raises(InputError, match="unit '0' of stage 0 stands here and in line 1"):
        read(as_text([*LINES[:3], *LINES[:3]]))


def test_the_lowest_rank_stands_for_a_stage() -> None:
    lines = [line | {"rank": 4 * line["stage"] + rank} for rank in (1, 0, 2) for line in LINES]
    trace = read(as_text(lines))
    assert [stage.rank for stage in trace.stages] == [0, 4, 8]
    assert "stage 1: rank 4 stands for its 3 ranks" in trace.notes


def test_a_stage_on_two_hosts_is_refused() -> None:
    with pytest.raises(InputError, match="stage 0 has times of blue-9 here and of blue-1 before"):
        read(as_text([LINES[0], LINES[3] | {"host": "blue-9"}]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"\n", "u:1: names no compute_start_ns"),
        (b'{"unit": 1}\n', "u:1: names no compute_start_ns"),
        (b'{"unit": 1, "compute_start_ns": 1, "compute_end_ns": 2}\n', "u:1: missing required field `stage`"),
        (
            b'{"unit": 1, "stage": 0, "compute_start_ns": 1, "compute_end_ms": 2}\n',
            "unknown field `compute_end_ms`",
        ),
        (
            b'{"unit": 1, "stage": 0, "compute_start_ns": "1", "compute_end_ns": 2}\n',
            "got `str` for `compute_start_ns`",
        ),
        (
            b'{"unit": 1, "stage": -1, "compute_start_ns": 1, "compute_end_ns": 2}\n',
            "stage -1 is not a number from 0",
        ),
        (
            b'{"unit": 1, "stage": 0, "compute_start_ns": 1, "compute_end_ns": 1e300}\n',
            "compute_end is no time: 1e+300",
        ),
        (b'{"unit": 1, "stage": 0, "compute_start_ns": 1, "compute_end', "ends in the middle of this line"),
        (b'{"unit": 1, "stage": 0, "compute_start_ns": 1,}\n', "is no JSON object"),
        (b"unit,stage,compute_start_ns,compute_end_ns\n1,0,5\n", "u:2: has 3 cells and the header has 4"),
        (b"unit,stage,compute_start_ns,compute_end_ns\n1,0,5,nan\n", "u:2: compute_end is no time: nan"),
        (b"unit,stage,compute_start_ns,compute_end_ns\n1,0,5,x\n", "u:2: expected `int | float"),
        (b'unit,stage,compute_start_ns,compute_end_ns\n1,0,5,"6\n', "u:2: is no CSV"),
        (b"unit,stage,compute_start_ns\n", "has no stages"),
    ],
)
def test_what_is_no_unit_is_told_with_its_line(text: bytes, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        read(text, "u")
    assert sentence in str(error.value)


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_units, "MOST_LINE_BYTES", 1000)
    monkeypatch.setattr(trace_units, "PIECE_BYTES", 100)
    with pytest.raises(InputError, match="u:2: is longer than 1 MB"):
        read(as_text(LINES[:1]) + b"x" * 5000, "u")
    assert read(as_text(LINES)).stages  # pieces of lines are put together


def test_of_a_long_trace_the_first_units_count_and_that_is_said() -> None:
    lines = blocking([1], units=MOST_STAGE_UNITS + 7)
    trace = read(as_text(lines))
    assert len(trace.stages[0].units) == MOST_STAGE_UNITS
    assert f"stage 0: the first {MOST_STAGE_UNITS:,} units count, 7 do not" in trace.notes


def test_the_schema_describes_the_lines() -> None:
    validator = jsonschema.Draft202012Validator(schema_for("unit"))
    for line in LINES:
        validator.validate(line)
    assert not validator.is_valid(LINES[0] | {"compute_strat_ns": 1})
    assert not validator.is_valid({"unit": 1, "stage": 0})


WHOLE = as_text(LINES)


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=200)
    | st.tuples(st.sampled_from([WHOLE, as_csv(LINES)]), st.integers(0, 3000), st.binary(max_size=3)).map(
        lambda torn: torn[0][: torn[1]] + torn[2] + torn[0][torn[1] + 1 :]
    )
    | st.lists(st.sampled_from(WHOLE.splitlines(keepends=True)), max_size=9).map(b"".join)
)
def test_any_text_is_read_or_refused_in_a_sentence(text: bytes) -> None:
    is_units(text)
    traces = UnitTraces()
    try:
        traces.read(io.BytesIO(text), "u")
        told = judged(traces.finish()).sentence
    except TopocheckError as error:
        told = str(error)
    assert told
    assert "\n" not in told
