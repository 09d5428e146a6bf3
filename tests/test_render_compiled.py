"""Compiled templates that are kept beside their sources."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from topocheck.render.compiled import CompiledTemplates


def shown(folder: Path, source: str) -> str:
    """What a template renders to, by a new environment that keeps its templates in the folder."""
    kept = CompiledTemplates()
    kept.folder = folder
    return (
        Environment(loader=DictLoader({"a": source}), bytecode_cache=kept, autoescape=True)
        .get_template("a")
        .render()
    )


def test_a_template_is_kept_and_compiled_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert [shown(tmp_path, "one"), shown(tmp_path, "one"), shown(tmp_path, "two")] == ["one", "one", "two"]
    assert len(list(tmp_path.iterdir())) == 1


def test_where_nothing_can_be_kept_the_template_is_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "file").write_text("")
    assert shown(tmp_path / "file", "one") == "one"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert shown(tmp_path / "new", "one") == "one"
    assert not (tmp_path / "new").exists()
