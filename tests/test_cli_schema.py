"""`topocheck schema`."""

from __future__ import annotations

import json

import jsonschema
import pytest

from topocheck.cli.main import run
from topocheck.schema import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_each_schema_is_printed_and_is_a_valid_schema(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", kind]) == 0
    out = capsys.readouterr().out
    document = json.loads(out)
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["title"] == f"topocheck.{kind}/1"
    assert out.endswith("}\n")


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["plan", "report"], ["\x1b[2J"]])
def test_another_document_is_refused_with_the_known_ones(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["schema", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "{" + "|".join(KINDS) + "}" in "".join(told.err.split())
