"""Many gates at once, and a store that somebody fills with what no job has."""

from __future__ import annotations

import gzip
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from gate_node import one, view, waiting

from topocheck.errors import UsageError
from topocheck.gate import entry_name, pass_gate
from topocheck.gather import folder_store
from topocheck.gather.folder_store import MOST_ENTRIES, FolderStore
from topocheck.gather.seal import sealed
from topocheck.snapshot import FullSnapshot

LINKS = 30_000
Found = TypeVar("Found")


def at_once(count: int, work: Callable[[int], Found]) -> list[Found]:
    """The same work in so many threads, none of which begins before all are there."""
    ready = threading.Barrier(count)

    def begin(number: int) -> Found:
        ready.wait(60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def bytes_of(shown: FullSnapshot) -> bytes:
    """A snapshot as a gate publishes it."""
    return sealed(msgspec.json.encode(shown), shown.token or "")


def left(store: Path, name: str, data: bytes) -> Path:
    """An entry that somebody put there."""
    folder = store / "r1" / "entries"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json.gz"
    path.write_bytes(data)
    return path


def test_of_many_verdicts_at_once_one_is_in_force_for_all(tmp_path: Path) -> None:
    found = at_once(64, lambda number: FolderStore(tmp_path, "r1").decide(b"verdict %d" % number))
    assert len(set(found)) == 1
    assert FolderStore(tmp_path, "r1").verdict() == found[0]
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize(
    ("taken_at", "refused"), [("2026-02-28T23:00:00Z", "else"), ("2026-03-01T01:00:00Z", "own")]
)
def test_a_snapshot_that_takes_another_nodes_name_is_no_further_node(
    tmp_path: Path, taken_at: str, refused: str
) -> None:
    """It may put the true one out of force, and is then named; never does it stand for the one that lacks."""
    forged = msgspec.structs.replace(view("r1", 1, 2), taken_at=taken_at)
    host = msgspec.structs.replace(forged.identity.host, name="node-0", boot_id="boot-of-else")
    forged = msgspec.structs.replace(forged, identity=msgspec.structs.replace(forged.identity, host=host))
    name = entry_name("node-0", "boot-of-else")
    left(tmp_path, name, gzip.compress(bytes_of(forged)))
    found = one(tmp_path, "r1", 0, 2, 2)
    assert found.exit_code != 0, found.report.sentence
    (note,) = found.report.inputs[0].notes
    own = entry_name("node-0", "boot-of-node-0")
    assert note == f"{name if refused == 'else' else own}: not used: is of an earlier boot of node-0"


def test_an_entry_of_a_hundred_megabytes_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left(tmp_path, entry_name("node-1", "boot-of-node-1"), b"")
    os.truncate(path, 100 << 20)
    unpacked: list[int] = []
    real = folder_store.unpacked

    def watched(name: str, packed: bytes) -> object:
        unpacked.append(len(packed))
        return real(name, packed)

    monkeypatch.setattr(folder_store, "unpacked", watched)
    found = one(tmp_path, "r1", 0, 2, 2)
    assert found.exit_code == 3
    assert "larger than 16 MiB" in found.report.inputs[0].notes[0]
    assert max(unpacked) < 1 << 20


def test_a_node_whose_own_snapshot_is_too_large_is_named(tmp_path: Path) -> None:
    shown = view("r1", 0, 1)
    large = bytes_of(msgspec.structs.replace(shown, environment={"PADDING": "x" * (17 << 20)}))
    found = pass_gate(FolderStore(tmp_path, "r1"), large, waiting("r1", 0, 1, 2))
    assert found.exit_code == 3
    assert "unpacks to more than 16 MiB" in found.report.inputs[0].notes[0]


def test_two_hundred_thousand_files_that_are_no_entries_are_passed_by_and_one_more_is_refused(
    tmp_path: Path,
) -> None:
    """However many there are, no more are looked at: a million are refused as soon."""
    folder = FolderStore(tmp_path, "r1").entries
    (folder / "junk").touch()
    for number in range(1, MOST_ENTRIES):
        if number % LINKS == 1:  # a file has so many links at most
            (folder / f"junk{number}").touch()
            junk = folder / f"junk{number}"
        else:
            os.link(junk, folder / f"junk{number}")
    assert one(tmp_path, "r1", 0, 1, 30).exit_code == 0
    (tmp_path / "r1" / "verdict.json.gz").unlink()
    (folder / "one-more").touch()
    with pytest.raises(UsageError, match="more than 200,000 files, which no job has: empty it"):
        one(tmp_path, "r1", 0, 1, 30)
    shutil.rmtree(folder)  # or it lies about for three more runs of the tests
