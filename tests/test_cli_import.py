"""`topocheck import`."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topocheck.cli.main import run
from topocheck.gather.files import Argument, arguments, gather
from topocheck.inventory import Inventory
from topocheck.snapshot import FullSnapshot

CAPTURES = Path(__file__).parent / "captures"
FLAT = [HealthCheck.function_scoped_fixture]
LISTED = "GPU 0: NVIDIA A40 (UUID: GPU-0e3a6b5c-92d4-4b1a-b6f8-1f20c7a95d31)\n"


def documents(text: str) -> list[FullSnapshot]:
    return [msgspec.json.decode(line, type=FullSnapshot) for line in text.splitlines()]


def hosts(files: list[Argument]) -> list[object]:
    """What verify takes from these files, without what names the file."""
    inventory = Inventory()
    gather(files, inventory)
    return [
        (machine.names, list(machine.gpus), machine.coverage, machine.shape and machine.shape.raw)
        for machine in inventory.machines
    ]


@pytest.mark.parametrize("capture", sorted(CAPTURES.iterdir()), ids=lambda path: path.name)
def test_verify_reads_the_same_from_the_snapshots_as_from_the_text(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    text = f"gpu-1={capture}"
    code = run(["import", text, "-o", str(out)])
    told = capsys.readouterr()
    if code == 2:
        assert not out.exists()
        assert told.err.splitlines()[-1].startswith("topocheck: ")
        return
    assert code == 0
    assert hosts(arguments([str(out)])) == hosts(arguments([text]))


def test_each_file_is_told_by_kind_facts_lines_and_hosts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.txt"
    path.write_text(LISTED)
    assert run(["import", str(path), f"gpu-7={path}"]) == 0
    told = capsys.readouterr()
    first, second = told.err.splitlines()
    assert first.startswith(f"{path}: nvidia-smi -L; 1 facts from 1 lines; names no host: NODE={path}")
    assert second.endswith("; hosts gpu-7")
    assert [s.identity.host.name for s in documents(told.out)] == [None, "gpu-7"]


def test_what_was_cut_or_repaired_is_told_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(CAPTURES / "nvlink-s-cut.txt")]) == 0
    assert any(
        line.startswith("  line ") and ": cut: " in line for line in capsys.readouterr().err.splitlines()
    )


def test_sources_carry_the_digest_of_the_file_as_it_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.txt.gz"
    path.write_bytes(gzip.compress(LISTED.encode()))
    assert run(["import", str(path)]) == 0
    (snapshot,) = documents(capsys.readouterr().out)
    assert [source.digest for source in snapshot.sources] == [
        f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    ]


def test_text_comes_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LISTED.encode())))
    assert run(["import", "gpu-3=-"]) == 0
    assert [s.identity.host.name for s in documents(capsys.readouterr().out)] == ["gpu-3"]


def test_a_host_name_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "list.txt"
    path.write_text(LISTED)
    assert run(["import", f"gpu\x1b[31m\u202e={path}"]) == 0
    assert "\x1b" not in (err := capsys.readouterr().err)
    assert "\u202e" not in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds nothing that topocheck recognises"),
        (b"good morning\n", "holds nothing that topocheck recognises"),
        (b"\x00\x01\x02", "is not text"),
        (b"\x1f\x8b\x08\x00", "cannot be read"),
        (gzip.compress(LISTED.encode(), mtime=0)[:-4] + b"\x00\x00\x00\x01", "cannot be read"),
        (b'{"schema":"topocheck.snapshot/1","identity":{"host":{}}}\n', "holds snapshots already"),
    ],
)
def test_what_cannot_be_imported_is_one_sentence_and_writes_nothing(
    content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, out = tmp_path / "good.txt", tmp_path / "bad", tmp_path / "out.jsonl"
    good.write_text(LISTED)
    bad.write_bytes(content)
    assert run(["import", str(good), str(bad), "-o", str(out)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"topocheck: {bad}")
    assert said in last
    assert not out.exists()


@pytest.mark.parametrize("arguments_", [[], ["no-such-file"], ["a=no-such-file"], ["nul\0byte"]])
def test_a_missing_file_is_refused(arguments_: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", *arguments_]) == 2
    assert capsys.readouterr().out == ""


def test_an_output_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.txt"
    path.write_text(LISTED)
    assert run(["import", str(path), "-o", str(tmp_path / "absent" / "out.jsonl")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@given(st.binary(max_size=300))
@settings(max_examples=50, deadline=None, suppress_health_check=FLAT)
def test_any_bytes_are_imported_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes
) -> None:
    path = tmp_path / "any"
    path.write_bytes(data)
    assert run(["import", str(path)]) in {0, 2}
    assert "internal error" not in capsys.readouterr().err
