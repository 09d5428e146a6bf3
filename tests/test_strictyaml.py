"""Only one plain document is composed, by both loaders alike."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import PlanError
from topocheck.strictyaml import compose, describe, line_of, quoted

LOADERS = [yaml.SafeLoader, yaml.CSafeLoader]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\n---\nb: 2\n", "p:2: a second YAML document starts here: keep one plan in a file"),
        ("a: !!python/object:os.system x", "p:1: the tag 'tag:yaml.org,2002:python/object:os.system' is not"),
        ('a:\nb: !!int "4"', "p:2: the tag 'tag:yaml.org,2002:int' is not allowed in a plan: remove it"),
        ("a: " + "[" * 30 + "]" * 30, "p:1: is nested too deeply: a plan nests three deep"),
        ("a: \x00", "p:1: holds the character U+0000 and is no plain text"),
        ("a: 1\n#\u2028", "p:2: holds the character U+2028 and is no plain text"),
        ("a: 1\n\ud800", "p:2: holds the character U+D800 and is no plain text"),
        ("a: b: c", "p:1: is not valid YAML (mapping values are not allowed"),
        ("a: *b", "p:1: is not valid YAML (found undefined alias"),
        ('a: "\\UFFFFFFFF"', "is not valid YAML ("),
        ("%YAML 3.0\n---\na: 1", "p:1: is not valid YAML (found incompatible YAML document"),
    ],
)
def test_what_no_plan_needs_is_refused(loader: type[yaml.SafeLoader], text: str, sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        compose(text, "p", loader)
    assert sentence in str(caught.value)


def test_tabs_are_named_as_the_cause() -> None:
    with pytest.raises(PlanError, match=r"p:2: .*: indent with spaces, not with tabs"):
        compose("a:\n\tb: 1\n", "p")


def test_aliases_multiply_nothing() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    root = compose(bomb, "p")
    assert len(root.value) == 60


def test_a_node_is_described_as_yaml_reads_it() -> None:
    root = compose("a: [1, 010, 1:30, 0x1f, 0b1, 1.5, off, 2026-01-02, ~, '', '7', {}, []]\nb:\n", "p")
    assert [describe(node) for node in root.value[0][1].value] == [
        "the number 1",
        "010, which YAML reads as octal",
        "1:30, which YAML reads as a number to the base 60",
        "0x1f, which YAML reads as hexadecimal",
        "0b1, which YAML reads as binary",
        "the fraction 1.5",
        "the yes/no value off",
        "the date 2026-01-02",
        "the empty value ~",
        'the text ""',
        'the text "7"',
        "keys and values",
        "a list",
    ]
    assert describe(root.value[1][1]) == "nothing"
    assert line_of(root.value[1][0]) == 2


def test_quoted_text_is_short_and_harmless() -> None:
    assert quoted("a\x1b[2J\u202eb") == "'a\\x1b[2J\\u202eb'"
    assert len(quoted("x" * 1000)) == 65


@pytest.mark.parametrize("loader", LOADERS)
@given(text=st.text(st.sampled_from("ab:-,[]{}&*!|>'\"%@`#?~ \n\t\\0xU1\u2028\x00"), max_size=40))
@settings(max_examples=100, deadline=None)
def test_any_text_is_composed_or_refused(loader: type[yaml.SafeLoader], text: str) -> None:
    assert isinstance(composed(text, loader), (yaml.MappingNode, str))


def composed(text: str, loader: type[yaml.SafeLoader]) -> yaml.MappingNode | str:
    try:
        return compose(text, "p", loader)
    except PlanError as error:
        return str(error)
