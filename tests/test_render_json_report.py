"""The report as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.render import json_report
from topocheck.report import Report


@pytest.mark.parametrize(
    "sample",
    [
        sample_report.healthy,
        sample_report.split_group,
        sample_report.unknown_only,
        sample_report.broken,
        lambda: sample_report.swept(250, marked=[3]),
    ],
)
def test_json_is_the_whole_report_and_reads_back_as_the_same(sample: Callable[[], Report]) -> None:
    made = sample()
    assert msgspec.json.decode(json_report.render(made), type=Report) == made


def test_json_is_indented_stable_and_ends_with_a_newline() -> None:
    text = json_report.render(sample_report.split_group())
    assert text.startswith('{\n  "schema": "topocheck.report/1",\n')
    assert text.endswith("}\n")
    assert text == json_report.render(sample_report.split_group())


def test_keys_are_those_of_the_types() -> None:
    document = json.loads(json_report.render(sample_report.split_group()))
    # A job of one world says nothing of worlds: its report is what it was before there were any.
    names = [field.name for field in msgspec.structs.fields(Report)]
    assert list(document) == [name for name in names if name != "worlds"]


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_text_makes_valid_json(text: str) -> None:
    document = json.loads(json_report.render(sample_report.hostile(text)).encode())
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert document["job"] == expected


def test_a_file_name_that_is_not_utf8_shows_the_replacement_character() -> None:
    assert json.loads(json_report.render(sample_report.hostile("caf\udce9")))["job"] == "caf\ufffd"
