"""topocheck as a user runs it: a process of its own, with files, streams and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COMMAND", "Ran", "clean_environment", "topocheck"]

COMMAND = (sys.executable, "-c", "from topocheck.cli.main import main; main()")
"""What the console script `topocheck` does."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run left behind."""

    code: int
    """Exit code; negative where a signal ended it."""
    out: str
    """Standard output."""
    err: str
    """Standard error."""

    @property
    def last(self) -> str:
        """Last line of standard error: the verdict, or what was wrong with the input."""
        return self.err.rstrip("\n").rpartition("\n")[2]


def topocheck(
    *arguments: str | Path,
    stdin: str | bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = COMMAND,
) -> Ran:
    """Run one command to its end. `env` is added to a clean environment; text is UTF-8."""
    done = subprocess.run(
        [*command, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        check=False,
        cwd=cwd,
        env={**clean_environment(), **(env or {})},
        timeout=300,
    )
    return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def clean_environment() -> dict[str, str]:
    """This environment without what steers topocheck."""
    steering = ("TOPOCHECK_", "NO_COLOR", "FORCE_COLOR")
    return {name: value for name, value in os.environ.items() if not name.startswith(steering)}
