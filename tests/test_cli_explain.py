"""`topocheck explain` and `topocheck rules`."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topocheck.cli.main import run
from topocheck.rule import FAMILIES
from topocheck.rules import RULES

IDS = [rule.id for rule in RULES]
FLAT = [HealthCheck.function_scoped_fixture]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_explain_prints_the_page_with_the_severity_that_the_code_gives(
    rule: object, capsys: pytest.CaptureFixture[str]
) -> None:
    found = next(known for known in RULES if known is rule)
    assert run(["explain", found.id]) == 0
    heading, empty, severity = capsys.readouterr().out.splitlines()[:3]
    assert (heading, empty) == (f"## {found.id} {found.name}", "")
    assert severity.startswith(f"Severity: {found.severity}")
    assert ("required" in severity) is found.required


def test_explain_takes_several_ids_in_either_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "tp001", "PP003"]) == 0
    out = capsys.readouterr().out
    assert out.index("## TP001") < out.index("## PP003")
    assert out.endswith("\n")
    assert not out.endswith("\n\n")


def test_the_beginning_of_an_id_lists_the_rules_that_begin_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "tp"]) == 0
    out = capsys.readouterr().out
    assert [name for name in IDS if name in out] == [name for name in IDS if name.startswith("TP")]
    assert "### What it checks" not in out


@pytest.mark.parametrize(
    ("given_id", "said"),
    [
        ("TP999", "TP has TP001, TP002"),
        ("TPO01", "did you mean TP001?"),
        ("tp-001", "did you mean TP001?"),
        ("", "topocheck rules lists them"),
        ("\x1b[31m", "topocheck rules lists them"),
        ("X" * 5000, "topocheck rules lists them"),
    ],
)
def test_an_unknown_id_is_one_sentence_with_a_suggestion(
    given_id: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", given_id]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1
    assert "\x1b" not in told.err
    assert len(told.err) < 300


@given(st.text(max_size=12))
@settings(max_examples=50, deadline=None, suppress_health_check=FLAT)
def test_any_word_is_explained_or_refused(capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert run(["explain", "--", word]) in {0, 2}
    assert "internal error" not in capsys.readouterr().err


def test_rules_lists_every_rule_with_severity_mark_and_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for rule in RULES:
        line = next(line for line in lines if line.split()[:1] == [rule.id])
        assert line.endswith(rule.name)
        assert rule.severity in line.split()
        assert ("*" in line.split()) is rule.required
        assert rule.title in lines


def test_rules_stand_in_the_order_of_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    families = list(FAMILIES)
    assert listed == sorted(IDS, key=lambda name: (families.index(name.rstrip("0123456789")), name))


def test_rules_as_json_are_data_and_select_narrows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "--json", "--select", "TP", "--select", "tp001", "--select", "PP003"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = sorted(name for name in IDS if name.startswith("TP"))
    assert [rule["id"] for rule in found] == [*wanted, "PP003"]
    assert set(found[0]) == {"id", "name", "severity", "required", "family", "package"}


def test_a_selection_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "--select", "QQ"]) == 2
    assert "no rule 'QQ'" in capsys.readouterr().err
