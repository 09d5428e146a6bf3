"""`topocheck --help` and the help of every command."""

from __future__ import annotations

import re

import pytest

from topocheck.cli.main import COMMANDS, run

WIDTH = 80


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_has_help_that_fits_a_terminal(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, option]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(rf"Usage: \S+ {command} \[OPTIONS\]", lines[0])
    assert [line for line in lines if len(line) > WIDTH] == []


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    words = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.strip()]
    assert words == list(COMMANDS)
    assert [line for line in out.splitlines() if len(line) > WIDTH] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_is_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--no-such-option"]) == 2
    assert "Usage: " in capsys.readouterr().err
