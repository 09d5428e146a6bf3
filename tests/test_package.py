"""What is built and installed: every package, every page and template, one name."""

from __future__ import annotations

from fnmatch import fnmatch
from importlib.metadata import distribution, entry_points
from importlib.resources import files as resources
from pathlib import Path

from checkout import FOLDERS, ROOT, SOURCES, module_of, project

import topocheck

SETUPTOOLS = project()["tool"]["setuptools"]
PACKAGES: list[str] = SETUPTOOLS["packages"]


def folder_of(package: str) -> Path:
    """Where a package lies in the repository: the longest name of the table decides, as in setuptools."""
    root = max((name for name in FOLDERS if f"{package}.".startswith(f"{name}.")), key=len)
    return FOLDERS[root].joinpath(*package.removeprefix(root).split("."))


def test_every_package_is_built() -> None:
    assert sorted({module_of(path) for path in SOURCES if path.name == "__init__.py"}) == sorted(PACKAGES)


def test_every_module_lies_in_a_package() -> None:
    assert {module_of(path.parent / "__init__.py") for path in SOURCES} == set(PACKAGES)


def test_the_table_maps_the_folders_where_they_lie() -> None:
    table = {name: ROOT / folder for name, folder in SETUPTOOLS["package-dir"].items()}
    assert table == FOLDERS


def test_every_file_beside_the_code_is_built_too() -> None:
    data: dict[str, list[str]] = SETUPTOOLS["package-data"]
    missing = [
        f"{package}: {file.name}"
        for package in PACKAGES
        for file in folder_of(package).iterdir()
        if file.is_file()
        and file.suffix not in {".py", ".pyc"}
        and not any(fnmatch(file.name, pattern) for pattern in data.get(package, []))
    ]
    assert missing == []


def test_templates_are_found_as_resources_of_their_package() -> None:
    assert resources("topocheck.templates").joinpath("report.html.j2").is_file()


def test_types_are_shipped() -> None:
    assert resources("topocheck").joinpath("py.typed").is_file()


def test_the_version_stands_in_one_place() -> None:
    assert distribution("topocheck-placement").version == topocheck.__version__
    assert "version" not in project()["project"]


def test_the_command_and_the_rules_come_by_entry_points() -> None:
    (command,) = [point for point in entry_points(group="console_scripts") if point.name == "topocheck"]
    assert callable(command.load())
    (built_in,) = [point for point in entry_points(group="topocheck.rules") if point.name == "topocheck"]
    assert len(built_in.load()) > 20


def test_what_the_program_imports_is_declared() -> None:
    named = " ".join(project()["project"]["dependencies"])
    for library in ("click", "clustershell", "jinja2", "msgspec", "networkx", "nvidia-ml-py", "pyyaml"):
        assert library in named
