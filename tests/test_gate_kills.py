"""SIGKILL of any gate at any time: one verdict at most, no torn file, no hang, the right exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("gate_rounds.py")
ALL = 200
ROUNDS = int(
    os.environ.get("TOPOCHECK_GATE_ROUNDS")
    or (ALL if os.environ.get("TOPOCHECK_REQUIRE_REAL") == "1" else ALL // 5)
)
"""Rounds that are played; continuous integration plays all. TOPOCHECK_GATE_SEED plays others."""
SEED = os.environ.get("TOPOCHECK_GATE_SEED", "1")


def played(folder: Path, seed: str, rounds: int) -> subprocess.CompletedProcess[str]:
    """Rounds in a process that forks: this one may have threads."""
    source = os.pathsep.join(filter(None, (str(PROGRAM.parent), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), seed, str(rounds)],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_whoever_is_killed_nobody_gets_another_verdict(tmp_path: Path) -> None:
    done = played(tmp_path, SEED, ROUNDS)
    assert done.returncode == 0, done.stdout + done.stderr
    became = json.loads(done.stdout)
    assert became["decided"] + became["undecided"] == ROUNDS
    # The moments that matter were met: the gate that publishes, the first of all, one at its deadline.
    wanted = {"killed any", "killed first", "killed publishing", "killed entering", "killed deadline"}
    assert ROUNDS < 20 or wanted <= became.keys(), became


def test_the_rounds_see_a_store_in_which_the_last_verdict_wins(tmp_path: Path) -> None:
    """A verdict is renamed into place, late, instead of linked: whose turn comes meanwhile does the same."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nfrom pathlib import Path\n"
        "def link(aside, place):\n    time.sleep(1)\n    Path(aside).replace(place)\n"
        "os.link = link\n"
    )
    rounds = tmp_path / "rounds"
    rounds.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
        done = played(rounds, "1", 40)
    assert done.returncode == 1, done.stdout
    assert "verdict" in done.stderr
