"""A thousand gates on one folder: one verdict, few readers, and few operations on the store for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gate_crowd import DEAD

from topocheck.gate import LOOKERS
from topocheck.gather.folder_store import FolderStore

PROGRAM = Path(__file__).with_name("gate_crowd.py")
MANY = 1000
READERS = 6
"""Gates that verify, at most: one, and further ones where a busy machine keeps it from it for turns."""
FIRST = 12
"""Gates that may find themselves the first for a while: as many as arrive before all that arrived before."""

Ends = list[dict[str, Any]]


def crowd(folder: Path, nodes: int, timeout_s: float, kind: str) -> Ends:
    """What became of each gate, and what it asked of the store."""
    source = os.pathsep.join(filter(None, (str(PROGRAM.parent), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), str(nodes), str(timeout_s), kind],
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ends: Ends = json.loads(done.stdout)["ends"]
    return ends


def answers(ends: Ends) -> set[tuple[int, str, str]]:
    """Exit code, author and sentence: all gates have one of each."""
    return {(end["code"], end["by"], end["sentence"]) for end in ends}


def held_to_few(ends: Ends, readers: int = READERS) -> None:
    """One gate, or a few, read all entries; the others ask for the verdict, and seldom for more."""
    counts = [end["asked"] for end in ends]
    reads = sorted((count.get("entry", 0) for count in counts), reverse=True)
    assert sum(read > len(counts) * 0.9 for read in reads) <= readers, reads[:20]
    assert sum(reads) <= (readers + 3) * len(counts), reads[:20]
    assert not any(reads[readers + FIRST :]), reads[:20]
    for count in sorted(counts, key=lambda each: each["names"])[: -FIRST - LOOKERS]:
        assert count["publish"] == 1
        assert count["names"] <= 5
        assert count.get("remarked", 0) <= 2 + count["verdict"]


def test_a_thousand_gates_at_once_have_one_verdict_and_few_of_them_read(tmp_path: Path) -> None:
    ends = crowd(tmp_path, MANY, 120, "healthy")
    assert len(ends) == MANY
    ((code, _, sentence),) = answers(ends)
    assert code == 0, sentence
    assert len(FolderStore(tmp_path / "store", "r1").names()) == MANY
    held_to_few(ends)


def test_one_broken_node_of_many_shuts_all_gates(tmp_path: Path) -> None:
    nodes = 200
    ends = crowd(tmp_path, nodes, 120, "broken")
    ((code, _, sentence),) = answers(ends)
    assert (code, len(ends)) == (1, nodes), sentence
    held_to_few(ends)


def test_a_node_that_stays_away_is_named_to_all_and_few_read_for_it(tmp_path: Path) -> None:
    ends = crowd(tmp_path, MANY, 20, "away")
    assert len(ends) == MANY - 1
    ((code, sentence),) = {(code, sentence) for code, _, sentence in answers(ends)}
    assert code == 3
    assert sentence.startswith(f"node {MANY - 1} never reported")
    assert FolderStore(tmp_path / "store", "r1").verdict() is None
    assert sum(end["asked"].get("remark", 0) for end in ends) <= READERS
    held_to_few(ends)


def test_gates_that_are_dead_at_the_deadline_hang_nobody(tmp_path: Path) -> None:
    """Nor do all others read everything because of them: with each turn twice as many may."""
    nodes = 200
    ends = crowd(tmp_path, nodes, 6, "dead")
    assert len(ends) == nodes - 1 - DEAD
    assert {code for code, _, _ in answers(ends)} == {3}
    held_to_few(ends, readers=DEAD + READERS)


def test_what_is_undecided_over_all_nodes_is_found_once(tmp_path: Path) -> None:
    """No node is missing, but evidence of one is: the others do not wait for their turns to find the same."""
    nodes = 200
    ends = crowd(tmp_path, nodes, 120, "bare")
    ((code, sentence),) = {(code, sentence) for code, _, sentence in answers(ends)}
    assert (code, len(ends)) == (3, nodes), sentence
    assert sum(end["asked"].get("remark", 0) for end in ends) <= READERS
    held_to_few(ends)
