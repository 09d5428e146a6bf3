"""A kept report, checked: any change of the file, of its inputs, of its verdict is found."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st
from report_sections import pipelined

from topocheck.audit import Checked, Given, check_file, check_inputs, check_verdict, given_files, pair
from topocheck.errors import InputError
from topocheck.keptreport import MOST_PAGE, parse_kept, read_kept
from topocheck.render import html, json_report
from topocheck.render.embedded import seal
from topocheck.report import AuditReport, InputReport, Report
from topocheck.sourcecode import source_digest

REPORT = sample_report.split_group()
PAGE = html.render(REPORT).encode()
LARGE = html.render(sample_report.swept(252, marked=[3])).encode()


def checked(data: bytes) -> list[Checked]:
    return list(check_file(parse_kept(data, "r.html")))


def states(found: list[Checked]) -> set[str]:
    return {each.state for each in found}


def made(name: str, digest: str) -> InputReport:
    return InputReport(name=name, kind="topocheck snapshots", digest=digest, hosts=[], notes=[])


@pytest.mark.parametrize("data", [PAGE, LARGE, json_report.render(REPORT).encode()])
def test_a_file_as_it_was_written_is_the_same(data: bytes) -> None:
    assert states(checked(data)) == {"same"}


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.integers(1, 255), st.sampled_from([PAGE, LARGE]))
def test_any_changed_byte_of_a_page_is_found(place: int, change: int, page: bytes) -> None:
    data = bytearray(page)
    data[place % len(data)] ^= change
    try:
        found = checked(bytes(data))
    except InputError:
        return
    assert "differs" in states(found)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 4000))
def test_any_lost_part_of_a_page_is_found(place: int, length: int) -> None:
    at = place % len(PAGE)
    try:
        found = checked(PAGE[:at] + PAGE[at + length + 1 :])
    except InputError:
        return
    assert "differs" in states(found)


def test_a_page_whose_digests_were_mended_too_is_still_not_what_its_report_renders_to() -> None:
    words = b"Tensor group 0 (ranks 0..3) is split"
    start = PAGE.index(words)
    body = PAGE[:start] + b"Tensor group 0 (ranks 0..3) is whole" + PAGE[start + len(words) :]
    mended = seal(body[: body.rindex(b"<!-- sha256:")].decode()).encode()
    found = checked(mended)
    assert [each.state for each in found] == ["differs", "same", "same"]
    assert "line " in found[0].said
    assert "whole" in found[0].said
    assert "split" in found[0].said


def test_the_first_place_is_named_by_line_and_column() -> None:
    (found, *_) = checked(PAGE.replace(b"<title>", b"<TITLE>", 1))
    line = PAGE[: PAGE.index(b"<title>")].count(b"\n") + 1
    assert f"line {line}, column 2 has" in found.said


@pytest.mark.parametrize("report", [REPORT, sample_report.healthy()])
def test_a_page_of_another_version_is_checked_by_its_digests_alone(report: Report) -> None:
    older = html.render(msgspec.structs.replace(report, tool="topocheck 0.0.1")).encode()
    found = checked(older)
    assert [each.state for each in found] == ["undecided", "same", "same"]
    assert "was made by topocheck 0.0.1, and this is topocheck" in found[0].said
    assert "differs" in states(checked(older.replace(b"gpu-0000", b"gpu-0009", 1)))


def test_a_page_of_another_build_of_this_version_is_no_forgery() -> None:
    audit = AuditReport(plan="evidence", plan_digest="sha256:" + "0" * 64, build="sha256:" + "1" * 64)
    (found, *_) = checked(html.render(msgspec.structs.replace(REPORT, audit=audit)).encode())
    assert (found.state, "another build" in found.said) == ("undecided", True)
    same = msgspec.structs.replace(audit, build=source_digest())
    assert states(checked(html.render(msgspec.structs.replace(REPORT, audit=same)).encode())) == {"same"}


def test_a_page_whose_report_cannot_be_rendered_was_changed() -> None:
    report = msgspec.structs.replace(REPORT, pipeline=pipelined())
    page = html.render(report)
    spoiled = page.replace('"virtual_stages": 1', '"virtual_stages": 0', 1)
    assert spoiled != page
    found = checked(spoiled.encode())
    assert [each.state for each in found] == ["differs"] * 3
    assert "holds a report that topocheck never writes" in found[0].said


def test_a_json_report_that_was_edited_is_not_what_topocheck_writes() -> None:
    document = json_report.render(REPORT).encode()
    assert states(checked(document.replace(b'"verdict"', b'"verdict" ', 1))) == {"differs"}
    assert states(checked(document.replace(b"{", b'{"more": 1,', 1))) == {"differs"}


NO_REPORTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "holds no report of topocheck"),
    "words": (b"hello", "holds no report of topocheck"),
    "another page": (b"<!DOCTYPE html><html></html>", "holds no report of topocheck"),
    "two pages": (PAGE + PAGE, "holds 2 reports"),
    "half": (PAGE[: PAGE.index(b'id="report"') + 900], "is cut off inside the report"),
    "no JSON": (b"{", "is no report of topocheck"),
    "a snapshot": (b'{"schema": "topocheck.snapshot/1"}', "is of schema 'topocheck.snapshot/1'"),
    "the next version": (b'{"schema": "topocheck.report/2"}', "topocheck.report/1 is known"),
    "half a report": (b'{"schema": "topocheck.report/1"}', "is no report of topocheck"),
    "deep": (b'{"schema": ' + b"[" * 100_000, "is no report of topocheck"),
    "no UTF-8": (b'{"schema": "\xff"}', "is no report of topocheck"),
    "NULs": (bytes(1000), "holds no report of topocheck"),
    "too large": (b"<" * (MOST_PAGE + 1), "is larger than 64 MiB"),
}


@pytest.mark.parametrize(("data", "words"), NO_REPORTS.values(), ids=NO_REPORTS.keys())
def test_what_is_no_report_is_refused_in_one_sentence(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        parse_kept(data, "r.html")
    assert "\n" not in str(raised.value)


def test_a_file_of_a_gigabyte_is_not_read_as_a_page(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(InputError, match="is larger than any report"):
        read_kept(str(path))


@settings(max_examples=50, deadline=None)
@given(
    st.binary(max_size=200), st.sampled_from([b"", b"{", b'<script id="report">', PAGE[:9000], LARGE[-9000:]])
)
def test_any_bytes_are_refused_or_read(data: bytes, before: bytes) -> None:
    try:
        checked(before + data)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017  a file that is read raises nothing


def test_inputs_are_paired_by_name_then_by_bytes_then_by_the_end_of_the_path() -> None:
    recorded = [
        made("job/a.txt", "d1"),
        made("job/b.txt", "d2"),
        made("job/c.txt", "d3"),
        made("e.txt", "d5"),
    ]
    files = [
        Given("job/a.txt", "d9"),
        Given("copy/renamed", "d2"),
        Given("copy/c.txt", "d8"),
        Given("x/job/c.txt", "d7"),
    ]
    pairs, extra = pair(recorded, files)
    assert [file and file.path for _, file in pairs] == ["job/a.txt", "copy/renamed", "x/job/c.txt", None]
    assert [file.path for file in extra] == ["copy/c.txt"]


def test_changed_missing_and_extra_inputs_are_named_one_by_one() -> None:
    recorded = [made("a", "d1"), made("b", "d2"), made("c", "d3"), made("d", "")]
    pairs, extra = pair(recorded, [Given("a", "d1"), Given("b", "d9"), Given("z", "d8")])
    found = list(check_inputs(pairs, extra))
    assert [(each.what, each.state) for each in found] == [
        ("input a", "same"),
        ("input b", "differs"),
        ("input c", "undecided"),
        ("input d", "undecided"),
        ("input z", "differs"),
    ]
    assert "is changed: b has d9, recorded is d2" in found[1].said
    assert found[2].said.startswith("is missing")
    assert found[4].said.startswith("is extra")


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    (found,) = given_files([str(path)])
    assert found.digest == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with pytest.raises(InputError, match="No such file"):
        given_files([str(tmp_path / "b")])


def test_a_verdict_that_does_not_follow_again_names_its_first_difference() -> None:
    assert check_verdict(REPORT, REPORT).state == "same"
    rules = [msgspec.structs.replace(each, passed=each.passed + 1) for each in REPORT.rules]
    found = check_verdict(REPORT, msgspec.structs.replace(REPORT, rules=rules))
    assert (found.state, "rules[EV001].passed is 3, the report has 2" in found.said) == ("differs", True)
    older = msgspec.structs.replace(REPORT, tool="topocheck 0.0.1", rules=rules)
    assert check_verdict(older, REPORT).state == "undecided"
    assert check_verdict(older, msgspec.structs.replace(older, tool=REPORT.tool)).state == "same"
