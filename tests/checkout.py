"""The repository as the tests about it see it."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["FOLDERS", "ROOT", "SOURCES", "files", "is_checkout", "module_of", "project", "tree"]

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "topocheck": ROOT / "topocheck",
    "topocheck.probes": ROOT / "probes",
    "topocheck.rules": ROOT / "rules",
    "topocheck.templates": ROOT / "templates",
}
"""Top-level folders of the package by the name that they are imported as."""


def sources() -> list[Path]:
    """Every Python file of the package, relative to the repository; the links are not followed."""
    return sorted(
        path.relative_to(ROOT)
        for folder in FOLDERS.values()
        for path in folder.rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    )


SOURCES = sources()


def module_of(path: Path) -> str:
    """Dotted name as which a file of the package is imported: `rules/tensor.py` is topocheck.rules.tensor."""
    parts = path.with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts if parts[0] == "topocheck" else ("topocheck", *parts))


@cache
def tree(path: Path) -> ast.Module:
    """Syntax tree of a file of the repository."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


def project() -> dict[str, Any]:
    """pyproject.toml."""
    content: dict[str, Any] = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())
    return content


def is_checkout() -> bool:
    """Whether git looks after this copy; a source archive has no links and no dot files."""
    return (ROOT / ".git").exists()


def files() -> list[Path]:
    """Files that git has or would take, relative to the repository."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()]
