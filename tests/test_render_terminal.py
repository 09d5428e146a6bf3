"""The report for a terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.render import terminal
from topocheck.report import Report

SAMPLES = [
    sample_report.healthy,
    sample_report.split_group,
    sample_report.unknown_only,
    sample_report.broken,
]
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def test_a_healthy_job_prints_a_few_lines_and_says_that_it_is_only_predicted() -> None:
    text = terminal.render(sample_report.healthy(), colour=False)
    assert text.startswith("PASS: Both tensor groups stay on one node each")
    assert len(text.splitlines()) <= 10
    assert "predicted, not proven" in text
    assert "CUDA_VISIBLE_DEVICES is unset" in text
    assert "18 passed, 0 failed" in text
    assert text.endswith("\n")


def test_a_broken_job_leads_with_the_decisive_sentence() -> None:
    text = terminal.render(sample_report.split_group(), colour=False)
    assert " ".join(text.splitlines()[:2]).startswith(
        "FAIL: Tensor group 0 (ranks 0..3) is split over gpu-0000 and gpu-0001"
    )


def test_a_finding_shows_rule_subjects_evidence_and_fix() -> None:
    text = terminal.render(sample_report.split_group(), width=200, colour=False)
    assert "  TP001 error  Tensor groups 0 and 1 have two ranks" in text
    assert "about     ranks 0..7" in text
    assert "evidence  plan.yaml:2  parallel: {tensor: 4, pipeline: 2}" in text
    assert "fix       Give both nodes slots=4" in text
    assert "waived    known, board on order (infra, until 2031-04-01)" in text


def test_findings_come_worst_first_and_gaps_after_them() -> None:
    text = terminal.render(sample_report.split_group(), colour=False)
    order = ["TP001 error", "CAP001 error", "PP004 warning", "VER007 waived", "Missing evidence", "rules "]
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_a_gap_names_the_command_that_supplies_it_and_the_rules_that_wait() -> None:
    text = terminal.render(sample_report.unknown_only(), colour=False)
    assert text.startswith("UNKNOWN: Not decided")
    assert "1. any evidence of the node (gpu-0001)" in text
    assert "give      topocheck probe > gpu-0001.json" in text
    assert "blocks    EV001, TP002" in text


def test_an_undecided_rule_without_a_gap_says_why() -> None:
    text = terminal.render(sample_report.unknown_only(), colour=False)
    assert "CAP001 unknown  no GPU was seen" in text


def test_a_rule_that_broke_is_named_as_trouble_of_the_checker() -> None:
    text = terminal.render(sample_report.broken(), colour=False)
    assert "trouble of topocheck, not of the job" in text
    assert "TP001 broke  KeyError" in text


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("sample", SAMPLES)
def test_no_line_is_wider_than_the_terminal(
    sample: Callable[[], Report], width: int, *, verbose: bool
) -> None:
    for line in terminal.render(sample(), width=width, colour=False, verbose=verbose).splitlines():
        assert len(line) <= width
        assert line == line.rstrip()


def test_verbose_adds_the_rules_and_the_ranks() -> None:
    text = terminal.render(sample_report.split_group(), width=120, colour=False, verbose=True)
    assert re.search(r"TP001 +fail +1/1/0 +each tensor group stays in one node", text)
    assert re.search(r"^  2 +dp0 pp0 tp2 +0 +0\.\.15 +gpu-0001 +0 +GPU-00000001", text, re.MULTILINE)


def test_the_table_of_ranks_is_cut_and_says_so() -> None:
    text = terminal.render(sample_report.swept(32), colour=False, verbose=True)
    assert "and 192 more of 256 ranks" in text
    assert len(text.splitlines()) < 120


def test_very_many_findings_are_cut_and_said_so() -> None:
    rule = sample_report.failed(
        sample_report.by_id("TP001"), [sample_report.finding(f"Wrong {number}.") for number in range(50)]
    )
    made = sample_report.report("Much is wrong.", [rule], verdict="fail", reason="findings")
    assert "30 more findings; --verbose shows them all" in terminal.render(made, colour=False)
    assert "Wrong 49." in terminal.render(made, colour=False, verbose=True)


def test_a_pass_does_not_hide_that_optional_rules_lack_evidence() -> None:
    rules = sample_report.catalogue({"TP003": sample_report.unknown(sample_report.by_id("TP003"), 0)})
    made = sample_report.report("All required rules pass.", rules)
    text = terminal.render(made, colour=False)
    assert "1 unknown" in text
    gap = sample_report.unknown_only().gaps[0]
    text = terminal.render(msgspec.structs.replace(made, gaps=[gap]), colour=False)
    assert "1 rules lack evidence, none of them required" in " ".join(text.split())


@pytest.mark.parametrize("sample", SAMPLES)
def test_colours_change_no_text(sample: Callable[[], Report]) -> None:
    coloured = terminal.render(sample(), colour=True, verbose=True)
    assert COLOURS.search(coloured)
    assert COLOURS.sub("", coloured) == terminal.render(sample(), colour=False, verbose=True)


def test_without_rich_colours_are_left_out() -> None:
    code = (
        "import sys; sys.modules['rich'] = sys.modules['rich.console'] = None\n"
        "import sample_report\n"
        "from topocheck.render import terminal\n"
        "report = sample_report.healthy()\n"
        "assert terminal.render(report, colour=True) == terminal.render(report, colour=False)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=_tests())


def test_rich_is_not_imported_for_plain_text() -> None:
    code = (
        "import sys, sample_report\n"
        "from topocheck.render import terminal\n"
        "terminal.render(sample_report.split_group(), colour=False, verbose=True)\n"
        "assert not {'rich', 'jinja2', 'networkx'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=_tests())


def _tests() -> str:
    """Folder of the samples, so that another interpreter finds them."""
    return sample_report.__file__.rpartition("/")[0]


@given(text=st.text(st.characters(), max_size=200), verbose=st.booleans())
@settings(max_examples=50, deadline=None)
def test_hostile_text_cannot_reach_the_terminal(text: str, *, verbose: bool) -> None:
    rendered = terminal.render(sample_report.hostile(text), colour=False, verbose=verbose)
    assert all(character.isprintable() for line in rendered.split("\n") for character in line)


def test_markup_of_rich_in_a_host_name_is_only_text() -> None:
    made = sample_report.hostile("[bold red]node[/bold red] [link=http://x]")
    coloured = terminal.render(made, colour=True)
    assert "[bold red]node[/bold red]" in coloured
    assert "\x1b]8" not in coloured


def test_endless_text_is_cut() -> None:
    rendered = terminal.render(sample_report.hostile("x" * 100_000), colour=False, verbose=True)
    assert len(rendered) < 40_000
