"""`topocheck diff` and `verify --since`, as users call them."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest
from build import TWO, pair, snap
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import UsageError
from topocheck.gather.earlier import read_whereabouts
from topocheck.schema import schema_for
from topocheck.snapshot import FullSnapshot

SWAPPED = [snap("node-a", range(4, 8)), snap("node-b", range(4))]


def topocheck(*words: str | Path, give: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "topocheck", *map(str, words)]
    return subprocess.run(command, input=give, capture_output=True, check=False)


def written(path: Path, snapshots: list[FullSnapshot]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(view) + b"\n" for view in snapshots))
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return written(tmp_path / "before.jsonl", pair())


@pytest.fixture
def after(tmp_path: Path) -> Path:
    return written(tmp_path / "after.jsonl", SWAPPED)


@pytest.fixture
def report(tmp_path: Path, before: Path) -> Path:
    (tmp_path / "plan.yaml").write_text(TWO)
    path = tmp_path / "report.json"
    done = topocheck("verify", "--plan", tmp_path / "plan.yaml", "--json", path, before)
    assert path.exists(), done.stderr
    return path


def test_it_is_quiet_when_nothing_moved(before: Path, report: Path) -> None:
    for baseline in (before, report):
        done = topocheck("diff", baseline, before)
        assert (done.returncode, done.stdout) == (0, b"")
        assert done.stderr == b"SAME: nothing moved: 8 ranks, 8 GPUs, 2 nodes compared\n"


def test_what_moved_fits_a_terminal(before: Path, after: Path) -> None:
    done = topocheck("diff", before, after)
    assert done.returncode == 1
    lines = done.stdout.decode().splitlines()
    assert lines == ["ranks", "  ranks 0..3  node-a -> node-b", "  ranks 4..7  node-b -> node-a"]
    assert all(len(line) <= 80 for line in lines)
    assert done.stderr == b"MOVED: moved or changed: 8 ranks\n"


def test_what_is_not_shown_is_no_proof(before: Path, tmp_path: Path) -> None:
    half = written(tmp_path / "half.jsonl", pair()[:1])
    done = topocheck("diff", before, half)
    assert done.returncode == 3
    assert b"not shown now: anything of node-b" in done.stdout


def test_json_follows_its_schema(before: Path, after: Path) -> None:
    done = topocheck("diff", "--json", before, after)
    found = json.loads(done.stdout)
    jsonschema.validate(found, schema_for("diff"))
    assert (found["schema"], found["exit_code"], done.returncode) == ("topocheck.diff/1", 1, 1)


def test_folders_packed_files_and_standard_input_are_taken(before: Path, tmp_path: Path) -> None:
    folder = tmp_path / "looks"
    folder.mkdir()
    for view in pair():
        written(folder / f"{view.identity.host.name}.json", [view])
    packed = tmp_path / "before.jsonl.gz"
    packed.write_bytes(gzip.compress(before.read_bytes()))
    assert topocheck("diff", folder, packed).returncode == 0
    assert topocheck("diff", "-", before, give=before.read_bytes()).returncode == 0


def test_a_report_may_come_by_standard_input(before: Path, report: Path) -> None:
    assert topocheck("diff", "-", before, give=report.read_bytes()).returncode == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("-", "-"), "standard input can be read once"),
        (("absent.json", "-"), "no such file"),
    ],
)
def test_bad_usage_is_one_sentence(words: tuple[str, str], problem: str) -> None:
    done = topocheck("diff", *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert problem in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_a_report_of_another_form_is_refused(before: Path, tmp_path: Path) -> None:
    for text in (
        '{"schema": "topocheck.report/9", "placement": null}',
        '{"schema": "topocheck.report/1"}',
        '{"schema": "topocheck.report/1", "placement": 7}',
        '{"schema": "topocheck.report/1", "placement": ',
    ):
        (tmp_path / "odd.json").write_text(text)
        done = topocheck("diff", tmp_path / "odd.json", before)
        assert done.returncode == 2
        assert b"topocheck verify --json" in done.stderr
        assert done.stderr.count(b"\n") == 1


@given(st.binary(max_size=200))
@settings(max_examples=50, deadline=None)
def test_any_file_is_a_look_or_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "look"
    path.write_bytes(b'{"schema": "topocheck.report/1", ' + data)
    with pytest.raises(UsageError):
        read_whereabouts(str(path))


def test_since_makes_a_move_a_finding(report: Path, before: Path, after: Path) -> None:
    plan = report.parent / "plan.yaml"
    again = topocheck("verify", "--plan", plan, "--since", report, "--json", "-", before)
    verdicts = {rule["id"]: rule["verdict"] for rule in json.loads(again.stdout)["rules"]}
    assert verdicts["OBS005"] == "pass"
    moved = topocheck("verify", "--plan", plan, "--since", before, "--json", "-", after)
    found = next(rule for rule in json.loads(moved.stdout)["rules"] if rule["id"] == "OBS005")
    assert (found["verdict"], moved.returncode) == ("fail", 1)
    assert "ranks 0..3 were on node-a, now node-b" in found["findings"][0]["message"]


def test_without_since_nobody_asks(report: Path, before: Path) -> None:
    done = topocheck("verify", "--plan", report.parent / "plan.yaml", "--json", "-", before)
    found = next(rule for rule in json.loads(done.stdout)["rules"] if rule["id"] == "OBS005")
    assert found["verdict"] == "not-applicable"


def test_help_tells_since_and_baseline_apart() -> None:
    words = re.sub(r"\s+", " ", topocheck("verify", "--help").stdout.decode())
    assert "It compares the job; --baseline compares findings." in words
