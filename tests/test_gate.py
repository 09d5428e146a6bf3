"""One verdict for all gates of a run, whatever they see and whoever dies."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest
from gate_node import one, view, waiting

from topocheck.decision import REMARK_SCHEMA, digest_of
from topocheck.errors import UndecidedError, UsageError
from topocheck.gate import Decision, entry_name, pass_gate, progress
from topocheck.gather.entries import mark_of
from topocheck.gather.entryname import hosts
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.seal import sealed
from topocheck.gather.store import Entry, Refused


def together(
    store: Path, nodes: int, *, missing: int = 0, timeout_s: float = 20, broken: bool = False
) -> list[Decision]:
    """All gates of a run at once."""
    with ThreadPoolExecutor(nodes) as pool:
        started = [
            pool.submit(one, store, "r1", node, nodes, timeout_s, broken=broken)
            for node in range(nodes - missing)
        ]
        return [gate.result() for gate in started]


def test_all_gates_of_a_healthy_job_open_with_one_verdict(tmp_path: Path) -> None:
    found = together(tmp_path, 4)
    assert {decision.exit_code for decision in found} == {0}, found[0].report.sentence
    assert len({decision.by for decision in found}) == 1
    assert len({msgspec.json.encode(decision) for decision in found}) == 1


def test_all_gates_of_a_broken_job_shut(tmp_path: Path) -> None:
    found = together(tmp_path, 3, broken=True)
    assert {decision.exit_code for decision in found} == {1}
    assert "rank" in found[0].report.sentence
    assert {rule.id: rule.verdict for rule in found[0].report.rules}["ID001"] == "fail"


def test_a_node_that_stays_away_leaves_it_undecided_and_is_not_published(tmp_path: Path) -> None:
    found = together(tmp_path, 3, missing=1, timeout_s=1)
    assert {decision.exit_code for decision in found} == {3}
    assert FolderStore(tmp_path, "r1").verdict() is None


def test_a_late_gate_overtakes_what_was_undecided_and_finds_the_verdict_afterwards(tmp_path: Path) -> None:
    assert {decision.exit_code for decision in together(tmp_path, 2, missing=1, timeout_s=1)} == {3}
    assert one(tmp_path, "r1", 1, 2, 5).exit_code == 0
    assert one(tmp_path, "r1", 0, 2, 5).exit_code == 0


def test_a_second_run_with_the_same_id_gives_the_same_verdict_at_once(tmp_path: Path) -> None:
    first = together(tmp_path, 2)[0]
    assert one(tmp_path, "r1", 0, 2, 5, broken=True) == first


def test_a_pass_is_not_taken_by_a_node_that_it_was_given_without(tmp_path: Path) -> None:
    """A pod that is started again elsewhere has its job's id; what is wrong is wrong without it too."""
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    assert {decision.exit_code for decision in together(tmp_path / "good", 2)} == {0}
    with pytest.raises(UndecidedError, match="run r1 passed on 2 nodes without this one"):
        one(tmp_path / "good", "r1", 2, 2, 5)
    assert {decision.exit_code for decision in together(tmp_path / "bad", 2, broken=True)} == {1}
    assert one(tmp_path / "bad", "r1", 2, 2, 5).exit_code == 1


@pytest.mark.parametrize("code", [-256, 2, 3, 256])
def test_a_verdict_that_is_neither_open_nor_shut_is_none(tmp_path: Path, code: int) -> None:
    found = one(tmp_path, "r1", 0, 1, 5)
    report = msgspec.structs.replace(found.report, exit_code=code)
    forged = msgspec.json.encode(msgspec.structs.replace(found, report=report))
    (tmp_path / "r1" / "verdict.json.gz").write_bytes(gzip.compress(forged))
    with pytest.raises(UsageError, match=f"is none: it has exit code {code}$"):
        one(tmp_path, "r1", 0, 1, 5)


def test_another_run_in_the_same_store_knows_nothing_of_the_first(tmp_path: Path) -> None:
    together(tmp_path, 2)
    assert one(tmp_path, "r2", 0, 2, 1).exit_code == 3


def left(store: Path, name: str, data: bytes, run: str = "r1") -> None:
    folder = store / run / "entries"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json.gz").write_bytes(data)


def document(run: str = "r1", node: int = 1, nodes: int = 2) -> bytes:
    shown = view(run, node, nodes)
    return sealed(msgspec.json.encode(shown), shown.token or "")


SECOND = entry_name("node-1", "boot-of-node-1")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (SECOND, gzip.compress(document(run="r0")), "is of run r0"),
        (entry_name("node-7", "x"), gzip.compress(document()), "which its name denies"),
        (SECOND, gzip.compress(document())[:-20], "is cut"),
        (SECOND, b"\x1f\x8b\x08garbage", "is damaged"),
        (SECOND, gzip.compress(b"{}"), "schema"),
        (SECOND, gzip.compress(b" " * (17 << 20)), "more than 16 MiB"),
    ],
    ids=["another run", "another host", "cut", "damaged", "no snapshot", "a bomb"],
)
def test_an_entry_that_is_not_what_it_should_be_is_not_used_and_is_named(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    left(tmp_path, name, data)
    found = one(tmp_path, "r1", 0, 2, 1)
    assert found.exit_code == 3
    assert any(words in note for note in found.report.inputs[0].notes), found.report.inputs[0].notes


def test_an_entry_of_an_earlier_boot_gives_way_to_the_newer(tmp_path: Path) -> None:
    old = msgspec.structs.replace(view("r1", 1, 2), taken_at="2026-02-28T23:00:00Z")
    identity = old.identity
    host = msgspec.structs.replace(identity.host, boot_id="boot-before")
    old = msgspec.structs.replace(old, identity=msgspec.structs.replace(identity, host=host))
    left(
        tmp_path,
        entry_name("node-1", "boot-before"),
        gzip.compress(sealed(msgspec.json.encode(old), old.token or "")),
    )
    left(tmp_path, SECOND, gzip.compress(document()))
    found = one(tmp_path, "r1", 0, 2, 3)
    assert found.exit_code == 0, found.report.sentence
    assert "earlier boot of node-1" in found.report.inputs[0].notes[0]


def test_a_link_in_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(gzip.compress(document()))
    folder = tmp_path / "r1" / "entries"
    folder.mkdir(parents=True)
    (folder / f"{SECOND}.json.gz").symlink_to(tmp_path / "elsewhere")
    found = one(tmp_path, "r1", 0, 2, 1)
    assert found.exit_code == 3
    assert "is a link" in found.report.inputs[0].notes[0]


def test_a_run_that_another_user_began_is_refused_and_nobodys_is_a_squashed_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose the folder is gives the verdict, so that it has to be the owner of what this gate writes."""
    entries = FolderStore(tmp_path, "r1").entries
    own = entries.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)  # as a server shows it that writes for another
    squashed = FolderStore(tmp_path, "r1")
    squashed.publish("n.t0of1", b"x")
    assert squashed.entry("n.t0of1") == Entry("n.t0of1", b"x")
    monkeypatch.undo()
    if own:
        pytest.skip("root alone can give a folder to another user")
    os.chown(entries, 4242, -1)
    with pytest.raises(UsageError, match=r"r1: belongs to another user \(uid 4242\)"):
        FolderStore(tmp_path, "r1")
    assert list(entries.iterdir()) == [entries / "n.t0of1.json.gz"]


def test_an_entry_that_opens_and_cannot_be_read_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file that a server let go; the beginning of a process's memory is such a file everywhere."""
    store = FolderStore(tmp_path, "r1")
    store.entries = Path("/proc/self")
    monkeypatch.setattr("topocheck.gather.folder_store.PACKED", "")
    assert store.entry("mem") == Refused("mem", "Input/output error")


def test_a_store_that_is_a_link_a_file_or_everybodys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name, words in (
        ("link", "is a link"),
        ("file", "is no folder"),
        ("open", "sticky"),
        ("none", "make it"),
    ):
        with pytest.raises(UsageError, match=words):
            FolderStore(tmp_path / name, "r1")
    (tmp_path / "open").chmod(0o1777)
    FolderStore(tmp_path / "open", "r1")


def test_a_verdict_of_another_run_or_garbage_is_no_verdict(tmp_path: Path) -> None:
    FolderStore(tmp_path, "r1")
    (tmp_path / "r1" / "verdict.json.gz").write_bytes(gzip.compress(b'{"schema":"topocheck.verdict/1"}'))
    with pytest.raises(UsageError, match="cannot be read"):
        one(tmp_path, "r1", 0, 1, 1)


def test_old_runs_are_removed_and_this_one_is_not(tmp_path: Path) -> None:
    together(tmp_path, 2)
    store = FolderStore(tmp_path, "r2")
    for path in (tmp_path / "r1", tmp_path / "r1" / "entries"):
        os.utime(path, (0, 0))
    assert store.clean(7) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r2"]


def test_hosts_count_when_all_their_tasks_are_there() -> None:
    names = [entry_name("a", "1", task, 2) for task in range(2)]
    assert (hosts(names), hosts(names[:1]), hosts([*names, entry_name("b", "2")])) == (1, 0, 2)


def test_progress_names_who_has_not_reported() -> None:
    asked = waiting("r1", 0, 3, 60)
    asked = type(asked)(
        **{**{n: getattr(asked, n) for n in asked.__slots__}, "names": ("node-0", "node-1", "node-2")}
    )
    line = progress(asked, [entry_name("node-0", "x"), entry_name("node-2", "y")], 42.4)
    assert line == "waiting for 1 of 3 nodes: node-1; 42 s left"


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A small file system of its own."""
    if os.geteuid():
        pytest.skip("a small file system is mounted, which needs root")
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "none", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def test_a_full_disk_is_one_sentence_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "-o", "size=16k") as small:
        store = FolderStore(small, "r1")
        (small / "fill").write_bytes(b"x" * 8192)
        for write in (partial(store.publish, "n.t0of1"), store.decide, store.remark):
            with pytest.raises(UsageError, match="No space left"):
                write(os.urandom(65536))
        assert list(store.entries.iterdir()) == []
        assert [path.name for path in store.run.iterdir()] == ["entries"]


def test_a_store_that_can_only_be_read_is_one_sentence_and_shows_the_verdict_that_it_has(
    tmp_path: Path,
) -> None:
    with mounted(tmp_path / "store") as folder:
        assert one(folder, "r1", 0, 1, 5).exit_code == 0
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert one(folder, "r1", 0, 1, 5).exit_code == 0
        with pytest.raises(UsageError, match=r"r2.*Read-only file system"):
            one(folder, "r2", 0, 1, 5)


def test_the_gates_of_a_store_without_links_have_one_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the one that decided is killed before its verdict lies in its place."""

    def refused(_source: object, _target: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert {decision.exit_code for decision in together(tmp_path, 3)} == {0}
    tmp_path = tmp_path / "again"
    tmp_path.mkdir()
    assert FolderStore(tmp_path, "r1").decide(b"first") == b"first"
    assert FolderStore(tmp_path, "r1").decide(b"second") == b"first"
    (tmp_path / "r1" / "verdict.json.gz").unlink()  # as if the first had died in between
    assert FolderStore(tmp_path, "r1").decide(b"third") == b"first"
    assert not list(tmp_path.rglob(".*"))


def test_the_clock_set_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert {decision.exit_code for decision in together(tmp_path, 2)} == {0}


def test_unknown_is_not_kept_from_the_gate_that_knows(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, "r1")
    asked = waiting("r1", 0, 2, 0)
    shown = view("r1", 0, 2)
    first = pass_gate(store, sealed(msgspec.json.encode(shown), shown.token or ""), asked)
    assert (first.exit_code, store.verdict()) == (3, None)


def told(node: int, nodes: int, token: str) -> bytes:
    """What a node shows, as a document of its own."""
    shown = msgspec.structs.replace(view("r1", node, nodes), token=token)
    return sealed(msgspec.json.encode(shown), token)


def remark(store: FolderStore, document: bytes, **changes: object) -> None:
    """A remark over the one entry of node 0, as if node 1 had made it."""
    fields = {
        "schema": REMARK_SCHEMA,
        "run": "r1",
        "by": SECOND,
        "entries": digest_of([waiting("r1", 0, 2, 1).name]),
        "marks": [mark_of(document)],
        "found": None,
        "error": "plan.yaml: is refused",
        "exit_code": 2,
    }
    store.remark(msgspec.json.encode(fields | changes))


def test_what_was_undecided_is_not_adopted_by_who_shows_something_else_now(tmp_path: Path) -> None:
    """The same run id again, after the evidence was mended: the entries have the same names."""
    store = FolderStore(tmp_path, "r1")
    remark(store, told(0, 1, "a" * 16))
    assert pass_gate(store, told(0, 1, "b" * 16), waiting("r1", 0, 1, 5)).exit_code == 0


def test_where_verifying_is_refused_all_gates_are_told_so(tmp_path: Path) -> None:
    store, document = FolderStore(tmp_path, "r1"), told(0, 2, "a" * 16)
    remark(store, document)
    with pytest.raises(UsageError, match=r"^plan.yaml: is refused$"):
        pass_gate(store, document, waiting("r1", 0, 2, 0))


@pytest.mark.parametrize(
    "changes",
    [
        {"run": "r0"},
        {"schema": "topocheck.remark/2"},
        {"marks": []},
        {"entries": digest_of(["others"])},
        {"exit_code": 0},
        {"exit_code": 1},
        {"exit_code": 256},
        {"by": 7},
    ],
    ids=str,
)
def test_a_remark_of_something_else_or_one_that_would_be_a_verdict_is_none(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    store, document = FolderStore(tmp_path, "r1"), told(0, 2, "a" * 16)
    remark(store, document, **changes)
    found = pass_gate(store, document, waiting("r1", 0, 2, 0))
    assert (found.exit_code, found.by) == (3, waiting("r1", 0, 2, 0).name)


def test_a_remark_that_is_a_link_or_cut_is_none(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, "r1")
    (store.run / "remark.json.gz").symlink_to("/etc/passwd")
    assert store.remarked() is None
    store.remark(b"whole")
    assert store.remarked() == b"whole"
    packed = (store.run / "remark.json.gz").read_bytes()
    (store.run / "remark.json.gz").write_bytes(packed[:-4])
    assert store.remarked() is None
