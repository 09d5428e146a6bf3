"""Compiled templates that are kept beside their sources."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jinja2
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


def kept_in(folder: Path) -> list[Path]:
    """All files that are kept below a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_template_is_kept_and_compiled_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert [shown(tmp_path, "one"), shown(tmp_path, "one"), shown(tmp_path, "two")] == ["one", "one", "two"]
    assert len(kept_in(tmp_path)) == 1


def test_where_nothing_can_be_kept_the_template_is_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "file").write_text("")
    assert shown(tmp_path / "file", "one") == "one"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert shown(tmp_path / "new", "one") == "one"
    assert not (tmp_path / "new").exists()


def test_what_is_damaged_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    shown(tmp_path, "one")
    (kept,) = kept_in(tmp_path)
    whole = kept.read_bytes()
    middle = len(whole) // 2
    for damaged in (b"", whole[:40], whole[:55], whole[:-1], whole[:middle] + b"\xff" + whole[middle + 1 :]):
        kept.write_bytes(damaged)
        assert shown(tmp_path, "one") == "one"
        assert kept.read_bytes() == whole


def test_what_another_jinja_compiled_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    shown(tmp_path, "one")
    (kept,) = kept_in(tmp_path)
    before = kept.read_bytes()
    monkeypatch.setattr(jinja2, "__version__", "0.1")
    assert shown(tmp_path, "one") == "one"
    assert kept.read_bytes() != before


def test_nobody_else_may_write_what_will_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    before = os.umask(0)
    try:
        shown(tmp_path, "one")
    finally:
        os.umask(before)
    (kept,) = kept_in(tmp_path)
    assert [path.stat().st_mode & 0o022 for path in (kept, kept.parent)] == [0, 0]


def test_what_is_kept_lies_where_python_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "prefix"))
    assert shown(tmp_path / "source", "one") == "one"
    assert [path.relative_to(tmp_path).parts[0] for path in kept_in(tmp_path)] == ["prefix"]
