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
SAY_NOTHING = re.compile(r"utils?|common|helpers?|misc|shared|base|managers?", re.IGNORECASE)
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
TEXTS = {"", ".css", ".j2", ".js", ".md", ".py", ".toml", ".yaml"}
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
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = run(sys.executable, "-c", lint)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_layers_hold_for_every_module() -> None:
    graph = grimp.build_graph("topocheck", cache_dir=None)
    assert {module_of(path) for path in SOURCES} == graph.modules


def test_a_module_fits_on_a_few_screens() -> None:
    lines = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {p: n for p, n in lines.items() if n > MOST_LINES} == {}


def test_a_function_fits_on_one_screen() -> None:
    lines = {
        f"{path}: {function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in SOURCES
        for function in functions(path)
    }
    assert {name: n for name, n in lines.items() if n > MOST_LINES_OF_A_FUNCTION} == {}


def test_everything_is_annotated() -> None:
    found = [f"{path}: {bare}" for path in SOURCES for each in functions(path) for bare in unannotated(each)]
    assert found == []


def unannotated(function: Function) -> Iterator[str]:
    """What of a signature has no type."""
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None and argument.annotation is None and argument.arg not in {"self", "cls"}:
            yield f"{function.name}({argument.arg})"
    if function.returns is None:
        yield f"{function.name} ->"


def test_what_is_public_says_what_it_means() -> None:
    silent = [
        f"{path}: {name}" for path in SOURCES for name, node in public(path) if not ast.get_docstring(node)
    ]
    assert silent == []
    assert [path for path in SOURCES if not ast.get_docstring(tree(path))] == []


def test_a_module_says_what_it_offers() -> None:
    for path in SOURCES:
        if len(tree(path).body) > 1:  # more than its docstring
            module = importlib.import_module(module_of(path))
            offered = getattr(module, "__all__", None)
            assert offered, f"{path} has no __all__"
            assert [name for name in offered if not hasattr(module, name)] == [], path


def test_a_file_is_named_after_a_thing() -> None:
    assert [p for p in SOURCES if any(SAY_NOTHING.fullmatch(part) for part in (*p.parts, p.stem))] == []


def test_only_the_edge_prints() -> None:
    inner = [
        path for path in SOURCES if path.parts[:2] not in {("topocheck", "cli"), ("topocheck", "render")}
    ]
    calls = [(path, node) for path in inner for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    assert [path for path, call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"] == []


def test_nothing_is_left_unfinished() -> None:
    left = {
        f"{path}: {found[0]}"
        for path in every_file()
        if path.suffix in TEXTS and (ROOT / path).is_file()
        if (found := UNFINISHED.search((ROOT / path).read_text(encoding="utf-8")))
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
