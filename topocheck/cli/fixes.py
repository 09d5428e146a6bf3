"""The folder of `topocheck verify --write-fixes`: written aside, then renamed, so that it is whole."""

from __future__ import annotations

import secrets
from pathlib import Path

from topocheck.cli.streams import say
from topocheck.errors import UsageError
from topocheck.fixes import MARK, NAMES, fixes_of
from topocheck.report import Report

__all__ = ["check_folder", "write_fixes"]


def check_folder(name: str) -> None:
    """Raise UsageError if the folder holds anything but the fixes of an earlier run."""
    folder = Path(name)
    try:
        if folder.exists() and not is_ours(folder):
            raise UsageError(
                f"--write-fixes {name}: it is there and holds other files: name a folder that is not there"
            )
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise refused(name, error) from None


def is_ours(folder: Path) -> bool:
    """It is a folder that is empty, or that an earlier run wrote."""
    if not folder.is_dir():
        return False
    found = {entry.name for entry in folder.iterdir()}
    if not found:
        return True
    readme = folder / "README.txt"
    return found <= set(NAMES) and readme.is_file() and readme.read_bytes().startswith(MARK.encode())


def write_fixes(report: Report, name: str) -> None:
    """Write the files, and say what was written. Raises UsageError if they cannot be."""
    files, notes = fixes_of(report)
    for note in notes:
        say(f"topocheck: --write-fixes: {note}")
    if not files:
        earlier = "; the files there are of an earlier run" if any_in(Path(name)) else ""
        say(f"topocheck: nothing to fix by files: no file was written to {name}{earlier}")
        return
    try:
        replace_folder(Path(name).resolve(), files)
    except (OSError, ValueError) as error:
        raise refused(name, error) from None
    say(f"topocheck: {name}: {', '.join(files)}")


def any_in(folder: Path) -> bool:
    """There are files in the folder."""
    return folder.is_dir() and any(folder.iterdir())


def replace_folder(folder: Path, files: dict[str, str]) -> None:
    """Put a folder with these files in the place of the one that is there, if any."""
    check_folder(str(folder))
    aside, old = (folder.with_name(f".{folder.name}.{secrets.token_hex(4)}") for _ in range(2))
    aside.mkdir()
    try:
        for name, text in files.items():
            (aside / name).write_text(text, encoding="utf-8")
        if any_in(folder):
            folder.rename(old)
        aside.rename(folder)
    except BaseException:
        remove(aside)
        raise
    remove(old)


def remove(folder: Path) -> None:
    """Remove a folder of fixes and the files in it, if it is there."""
    for name in NAMES:
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir():
        folder.rmdir()


def refused(name: str, error: OSError | ValueError) -> UsageError:
    """Why it cannot be written."""
    reason = getattr(error, "strerror", None) or str(error)
    return UsageError(f"--write-fixes {name}: cannot be written: {reason}")
