"""Words that the formats share."""

from __future__ import annotations

import unicodedata

import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.render.text import (
    count_findings,
    count_rules,
    fold,
    layer_range,
    printable,
    ranges,
    shorten,
    worst_first,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpu-0001", "gpu-0001"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("\x1b]0;title\x07host", "host"),
        ("\x1b]8;;http://there\x1b\\host", "host"),
        ("\x1b]0;never ended", ""),
        ("\x9b31mhost", "host"),
        ("\x1b(Bhost", "host"),
        ("host\x1b", "host"),
        ("two\nlines\tand\rmore", "two lines and more"),
        ("gpu\u202e1000\u2066-\u200fx\u061c", "gpu1000-x"),
        ("zero\u200bwidth\ufeff\u00ad", "zerowidth"),
        ("line\u2028para\u2029", "line para "),
        ("lone \udc80", "lone \ufffd"),
        ("bell\x07\x00\x7f\x85", "bell "),
        ("größe 大", "größe 大"),
        ("<b>&amp;", "<b>&amp;"),
    ],
)
def test_text_of_others_cannot_move_a_cursor_or_reverse_a_line(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=200, deadline=None)
def test_printable_text_has_no_controls_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert printable(shown) == shown
    shown.encode()


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([], ""),
        ([3], "3"),
        ([1, 2], "1, 2"),
        ([0, 1, 2, 3, 8], "0..3, 8"),
        ([8, 3, 2, 1, 0, 0], "0..3, 8"),
        ([5, 7, 9], "5, 7, 9"),
    ],
)
def test_neighbouring_numbers_fold(numbers: list[int], words: str) -> None:
    assert ranges(numbers) == words


@given(st.lists(st.integers(0, 60), max_size=40))
@settings(max_examples=50, deadline=None)
def test_folded_numbers_name_each_number_once(numbers: list[int]) -> None:
    unfolded: list[int] = []
    for part in ranges(numbers).split(", ") if numbers else []:
        first, _, last = part.partition("..")
        unfolded.extend(range(int(first), int(last or first) + 1))
    assert unfolded == sorted(set(numbers))


@pytest.mark.parametrize(
    ("subjects", "count", "words"),
    [
        (["rank 0", "rank 1", "rank 2", "rank 8"], 4, "ranks 0..2, 8"),
        (["rank 4"], 1, "rank 4"),
        (["gpu-0000", "gpu-0001"], 2, "gpu-0000; gpu-0001"),
        (["gpu-0000 GPU 1", "gpu-0000 GPU 2", "rank 3"], 3, "gpu-0000 GPUs 1, 2; rank 3"),
        (["rank 0", "rank 1"], 40, "ranks 0, 1; and 38 more"),
        ([], 3, "3 subjects"),
        ([], 0, ""),
        (["rank 007", "rank ²"], 2, "rank 007; rank ²"),
        (["rack 1", "rack 2"], 2, "rack 1, 2"),
    ],
)
def test_subjects_fold_into_one_phrase(subjects: list[str], count: int, words: str) -> None:
    assert fold(subjects, count) == words


@pytest.mark.parametrize(
    ("layers", "words"), [(None, ""), ([0, 16], "0..15"), ([4, 5], "4"), ([4, 4], "none"), ([3, 5], "3, 4")]
)
def test_the_end_of_a_layer_range_is_shown_inclusive(layers: list[int] | None, words: str) -> None:
    assert layer_range(layers) == words


@given(st.text(max_size=30), st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_shortened_text_keeps_to_its_limit(text: str, limit: int) -> None:
    assert len(shorten(text, limit)) <= limit
    assert len(text) > limit or shorten(text, limit) == text


def test_errors_come_before_warnings_and_waived_findings_last() -> None:
    found = [
        (rule.id, finding.waiver is not None) for rule, finding in worst_first(sample_report.split_group())
    ]
    assert found == [("TP001", False), ("CAP001", False), ("PP004", False), ("VER007", True)]


def test_every_kind_is_counted_zero_included() -> None:
    counts = sample_report.split_group().counts
    assert count_rules(counts) == "14 passed, 4 failed, 1 unknown, 1 not applicable, 0 broke"
    assert count_findings(counts) == "2 errors, 1 warning, 0 infos, 1 waived"
    assert "4 unknown (3 required)" in count_rules(sample_report.unknown_only().counts)
