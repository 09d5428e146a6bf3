"""What the code promises about itself: layers, sizes, annotations, words."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest
from checkout import FOLDERS, ROOT, SOURCES, files, is_checkout, module_of, project, tree

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 50
ONE_VOCABULARY = {Path("topocheck/snapshot.py"): 600}
"""Modules that may be longer, and how long: the types of one document, each field with its meaning."""
SAY_NOTHING = re.compile(r"utils?|common|helpers?|misc|shared|base|managers?", re.IGNORECASE)
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
TOP_LEVEL = {
    "LICENSE",
    "README.md",
    "probes",
    "pyproject.toml",
    "rules",
    "templates",
    "tests",
    "topocheck",
}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Function = ast.FunctionDef | ast.AsyncFunctionDef

each_source = pytest.mark.parametrize("path", SOURCES, ids=str)


def functions(path: Path) -> Iterator[Function]:
    """All functions of a module, nested ones too."""
    return (node for node in ast.walk(tree(path)) if isinstance(node, Function))


def public(path: Path) -> Iterator[tuple[str, Definition]]:
    """Classes and functions of a module, and methods of its classes, without a leading underscore."""
    for node in tree(path).body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, Function) and not method.name.startswith("_"):
                        yield f"{node.name}.{method.name}", method


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the repository."""
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)


def test_imports_keep_to_the_layers() -> None:
    done = run(
        sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_layers_hold_for_every_module() -> None:
    graph = grimp.build_graph("topocheck", cache_dir=None)
    assert {module_of(path) for path in SOURCES} == graph.modules


@each_source
def test_a_module_fits_on_a_few_screens(path: Path) -> None:
    lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert lines <= ONE_VOCABULARY.get(path, MOST_LINES)


@each_source
def test_a_function_fits_on_one_screen(path: Path) -> None:
    lengths = {
        function.name: (function.end_lineno or 0) - function.lineno + 1 for function in functions(path)
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES_OF_A_FUNCTION} == {}


@each_source
def test_everything_is_annotated(path: Path) -> None:
    bare = []
    for function in functions(path):
        given = function.args
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        names = [a.arg for a in arguments if a is not None and a.annotation is None]
        bare += [f"{function.name}({name})" for name in names if name not in {"self", "cls"}]
        bare += [f"{function.name} ->"] if function.returns is None else []
    assert bare == []


@each_source
def test_what_is_public_says_what_it_means(path: Path) -> None:
    silent = [name for name, node in public(path) if not ast.get_docstring(node)]
    assert silent == []
    assert ast.get_docstring(tree(path)), "the module has no docstring"


@each_source
def test_a_module_says_what_it_offers(path: Path) -> None:
    module = importlib.import_module(module_of(path))
    if len(tree(path).body) == 1:
        pytest.skip("the module holds its docstring alone")
    assert module.__all__, "the module has no __all__"
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@each_source
def test_a_file_is_named_after_a_thing(path: Path) -> None:
    assert [part for part in (*path.parent.parts, path.stem) if SAY_NOTHING.fullmatch(part)] == []


@each_source
def test_only_the_edge_prints(path: Path) -> None:
    if path.parts[:2] in {("topocheck", "cli"), ("topocheck", "render")}:
        pytest.skip("the edge may print")
    calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def test_nothing_is_left_unfinished() -> None:
    texts = {
        path for path in every_file() if path.suffix in {".py", ".md", ".toml", ".j2", ".css", ".js", ""}
    }
    left = {
        f"{path}: {found[0]}"
        for path in texts
        if (found := UNFINISHED.search((ROOT / path).read_text(encoding="utf-8", errors="replace")))
    }
    assert left == set()


def test_the_top_level_has_what_it_needs_and_nothing_else() -> None:
    names = {path.parts[0] for path in every_file()}
    assert {name for name in names if not name.startswith(".")} == TOP_LEVEL


@pytest.mark.parametrize("name", ["probes", "rules", "templates"])
def test_a_link_shows_the_folder_where_it_is_imported(name: str) -> None:
    if not is_checkout():
        pytest.skip("a source archive has no links")
    link = ROOT / "topocheck" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..", name)
    assert link.resolve() == FOLDERS[f"topocheck.{name}"]


def test_lint_takes_everything_and_explains_what_it_leaves_out() -> None:
    assert project()["tool"]["ruff"]["lint"]["select"] == ["ALL"]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ignored = text.partition("\nignore = [\n")[2].partition("\n]")[0].splitlines()
    assert ignored
    assert [line for line in ignored if "# " not in line] == []


def every_file() -> list[Path]:
    """Files of the repository; without git those that lie there."""
    if is_checkout():
        return files()
    built = {"build", "dist", "PKG-INFO", "setup.cfg"}
    return [
        path.relative_to(ROOT)
        for entry in ROOT.iterdir()
        if entry.name not in built and not entry.name.startswith(".") and entry.suffix != ".egg-info"
        for path in ([entry] if entry.is_file() else entry.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
