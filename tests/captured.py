"""Real captures as evidence: what `verify` makes of a file of the collected cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from build import report

from topocheck.cli.main import run
from topocheck.plan import Plan
from topocheck.probes.capture.recognise import read_capture
from topocheck.report import Report
from topocheck.snapshot import FullSnapshot

__all__ = ["CASES", "answers", "of_capture", "read_text"]

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


def read_text(text: str, host: str | None = None, source: str = "capture.txt") -> list[FullSnapshot]:
    """Snapshots of a text; `host` is the label that a user would give."""
    views = [snapshot for reading in read_capture(text.encode(), source) for snapshot in reading.snapshots]
    if host is None:
        return views
    return [
        msgspec.structs.replace(
            view,
            identity=msgspec.structs.replace(
                view.identity, host=msgspec.structs.replace(view.identity.host, name=host)
            ),
        )
        for view in views
    ]


def of_capture(name: str, text: str | Plan, *more: FullSnapshot) -> Report:
    """What is said of a file of the cases; skips the test where they are not here."""
    path = CASES / name
    if not path.exists():
        pytest.skip("the collected cases are not here")
    return report(text, *read_text(path.read_text(encoding="utf-8", errors="replace"), source=name), *more)


def answers(folder: Path, plan: str, *evidence: str) -> dict[str, Any]:
    """Answers of `topocheck verify` about files of the cases, each NAME or LABEL=NAME, by rule.

    The report lies in `folder`. Skips the test where the cases are not here.
    """
    if not CASES.is_dir():
        pytest.skip("the collected cases are not here")
    place, out = folder / "plan.yaml", folder / "report.json"
    place.write_text(plan)
    named = [label + sign + str(CASES / path) for label, sign, path in (e.rpartition("=") for e in evidence)]
    run(["verify", "--plan", str(place), "--json", str(out), *named])
    return {each["id"]: each for each in json.loads(out.read_text())["rules"]}
