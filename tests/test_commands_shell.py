"""Shell text falls into simple commands; only what is certain is replaced."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.commands.shell import commands, constants, expand

SCRIPT = """\
#!/bin/bash
export NNODES=2   # nodes
GPUS=8
MASTER=$(scontrol show hostnames "$LIST" | head -n1)
ARGS=(
    --nproc_per_node $GPUS  # on each node
    --nnodes "$NNODES"
)
if [ -z "$X" ]; then
    MODE=a
else
    MODE=b
fi
torchrun ${ARGS[@]} \\
    --master_addr $MASTER train.py --mode $MODE
"""


def words_of(text: str) -> list[list[str]]:
    return [list(command.words) for command in commands(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b  'c d' \"e f\" g\\ h", [["a", "b", "c d", "e f", "g h"]]),
        ("a && b; c | d &\ne", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a --x 'b && c' # no && more", [["a", "--x", "b && c"]]),
        ("a \\\n  b \\\n  c\nd", [["a", "b", "c"], ["d"]]),
        ("a > out 2>&1 < in &> all >> more b", [["a", "b"]]),
        ("a --addr $(first $(x) | head -1):29500 b", [["a", "--addr", "$(first $(x) | head -1):29500", "b"]]),
        ("a `hostname -i` b", [["a", "`hostname", "-i`", "b"]]),
        ("cat <<EOF > f\ntorchrun no\nEOF\nb", [["cat"], ["b"]]),
        ("if true; then a b; fi", [["true"], ["a", "b"], ["fi"]]),
        ("time exec a b", [["a", "b"]]),
        ("(cd x && a b", [["cd", "x"], ["a", "b"]]),
        ("a it's", [["a", "it's"]]),
        ("a b#c", [["a", "b#c"]]),
        ("", []),
    ],
)
def test_text_falls_into_commands_and_words(text: str, words: list[list[str]]) -> None:
    assert words_of(text) == words


def test_variables_in_front_of_a_command_are_its_environment() -> None:
    (command,) = commands("A=1 B='x y'  vllm serve m")
    assert command.words == ("vllm", "serve", "m")
    assert command.environment == {"A": "1", "B": "x y"}
    (exported,) = commands("export A=1 B=2")
    assert (exported.words, exported.environment) == ((), {"A": "1", "B": "2"})


def test_a_command_knows_its_line_and_what_follows_it() -> None:
    found = [
        (command.words[0], command.line, command.separator) for command in commands("\n\na && b\n\nc |\nd")
    ]
    assert found == [("a", 3, "&&"), ("b", 3, "\n"), ("c", 5, "|"), ("d", 6, "")]


def test_constants_are_set_once_to_what_needs_no_shell() -> None:
    known = constants(SCRIPT)
    assert known["NNODES"] == "2"
    assert known["ARGS"] == '--nproc_per_node $GPUS --nnodes "$NNODES"'
    assert "MASTER" not in known
    assert "MODE" not in known


def test_known_variables_are_replaced_and_others_stay() -> None:
    text = expand(SCRIPT, constants(SCRIPT))
    launch = [command for command in commands(text) if command.words[:1] == ("torchrun",)]
    assert launch[0].words == (
        *("torchrun", "--nproc_per_node", "8", "--nnodes", "2"),
        *("--master_addr", "$MASTER", "train.py", "--mode", "$MODE"),
    )
    assert launch[0].line == 14


@pytest.mark.parametrize("value", ['"a; b"', "'x | y'", '"a > b"', "$(x)", "`x`", "$A"])
def test_a_value_that_would_mean_more_in_the_text_is_not_put_in(value: str) -> None:
    assert expand("go $A", constants(f"A={value}\n")) == "go $A"


def test_variables_that_name_each_other_come_to_an_end() -> None:
    known = {"A": "$B$B", "B": "$C$C", "C": "$A$A"}
    assert len(expand("$A", known)) < 1_000_000


@given(st.text(st.sampled_from("ab =$(){}[]'\"`\\\n;&|<>#-@*"), max_size=80))
@settings(max_examples=200, deadline=None)
def test_any_text_is_split_without_an_error(text: str) -> None:
    lines = text.count("\n") + 1
    for command in commands(expand(text, constants(text))):
        assert command.words or command.environment
        assert command.line >= 1
    assert all(1 <= command.line <= lines for command in commands(text))
