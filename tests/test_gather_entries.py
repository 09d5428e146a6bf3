"""Entries read as they arrive: the answer hangs neither on their order nor on what was there before."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from gate_node import name_of, view, waiting
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.gate import verified
from topocheck.gather.alone import Alone
from topocheck.gather.entries import Entries, mark_of
from topocheck.gather.entryname import absent, entry_name, hosts
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.seal import sealed
from topocheck.report import Report
from topocheck.snapshot import FullSnapshot, Host

NODES = 6
TASKS = 2
"""Gates of each of the nodes, one a task."""


def packed(shown: FullSnapshot) -> bytes:
    """A snapshot as a gate publishes it."""
    return sealed(msgspec.json.encode(shown), shown.token or "")


def task_of(node: int, task: int) -> FullSnapshot:
    """What the gate of one task shows: half of the ranks of its node."""
    shown = view("r1", node, NODES)
    half = len(shown.ranks) // TASKS
    return msgspec.structs.replace(shown, ranks=shown.ranks[task * half : (task + 1) * half])


LEFT = {
    entry_name(f"node-{node}", f"boot-of-node-{node}", task, TASKS): packed(task_of(node, task))
    for node in range(NODES)
    for task in range(TASKS)
}


def report(entries: Entries, store: Alone) -> Report:
    """What they say, without the time."""
    found = verified(waiting("r1", 0, NODES, 1), entries, store.names()).report
    record = None if found.record is None else msgspec.structs.replace(found.record, at="")
    return msgspec.structs.replace(found, at="", record=record)


@given(st.permutations(sorted(LEFT)), st.lists(st.integers(1, len(LEFT)), max_size=4))
@settings(max_examples=20, deadline=None)
def test_the_order_of_arrival_changes_nothing(order: list[str], looks: list[int]) -> None:
    """However often a gate looked in between, and whoever came first."""
    store, entries, whole = Alone(), Entries(Alone(), "r1"), Alone()
    entries = Entries(store, "r1")
    for number, name in enumerate(order, 1):
        store.publish(name, LEFT[name])
        whole.publish(name, LEFT[name])
        if number in looks:
            entries.take(store.names())
    found = report(entries, store)
    assert found.exit_code == 0, found.sentence
    assert msgspec.json.encode(found) == msgspec.json.encode(report(Entries(whole, "r1"), whole))


def of_boot(boot: str, taken_at: str) -> FullSnapshot:
    """Node 1 in another boot."""
    shown = view("r1", 1, 2)
    host = msgspec.structs.replace(shown.identity.host, boot_id=boot)
    identity = msgspec.structs.replace(shown.identity, host=host)
    return msgspec.structs.replace(shown, identity=identity, taken_at=taken_at)


def test_a_boot_that_is_replaced_after_it_was_read_is_taken_back(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, "r1")
    old = entry_name("node-1", "boot-before")
    store.publish(name_of(0), packed(view("r1", 0, 2)))
    store.publish(old, packed(of_boot("boot-before", "2026-02-28T23:00:00Z")))
    entries = Entries(store, "r1")
    entries.take(store.names())
    assert set(entries.seen) == {name_of(0), old}
    store.publish(name_of(1), packed(view("r1", 1, 2)))
    found = verified(waiting("r1", 0, 2, 1), entries, store.names())
    assert found.exit_code == 0, found.report.sentence
    assert entries.refused == {old: "is of an earlier boot of node-1"}


def test_an_entry_that_was_cut_is_looked_at_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, "r1")
    place = store.entries / f"{name_of(0)}.json.gz"
    whole = gzip.compress(packed(view("r1", 0, 1)))
    place.write_bytes(whole[:-9])
    entries = Entries(store, "r1")
    entries.take(store.names())
    assert entries.refused == {name_of(0): "is cut"}
    place.write_bytes(whole)
    assert verified(waiting("r1", 0, 1, 1), entries, store.names()).exit_code == 0


def test_hardware_that_cannot_be_read_leaves_nothing_of_its_node_behind() -> None:
    store = Alone()
    store.publish(name_of(0), packed(view("r1", 0, 2)))
    bad = packed(view("r1", 1, 2)).replace(b'"hardware":{', b'"hardware":{"gpus":7,"was":{', 1)
    bad = bad.replace(b',"ranks":', b'},"ranks":', 1) if bad.count(b"{") != bad.count(b"}") else bad
    store.publish(name_of(1), bad)
    entries = Entries(store, "r1")
    entries.take(store.names())
    inventory = entries.close(store.names())
    assert set(entries.seen) == {name_of(0)}
    assert list(entries.refused) == [name_of(1)]
    assert [machine.name for machine in inventory.machines] == ["node-0"]


def test_two_documents_of_one_gate_have_two_marks() -> None:
    first, second = (
        packed(msgspec.structs.replace(view("r1", 0, 1), token=token)) for token in ("a" * 16, "b" * 16)
    )
    assert mark_of(first) != mark_of(second)
    assert mark_of(first) == mark_of(bytes(first))


@pytest.mark.parametrize(
    ("names", "count"),
    [
        ([entry_name("a", "1")], 1),
        ([entry_name("a", "1"), entry_name("a", "1", 1, 2)], 0),
        ([entry_name("a", "1", task, 2) for task in range(2)], 1),
        ([entry_name("a", "1", 0, 2)], 0),
        (["not-a-name"], 0),
    ],
)
def test_a_host_counts_when_all_its_tasks_are_there(names: list[str], count: int) -> None:
    assert hosts(names) == count


def test_who_is_absent_is_named_by_short_names() -> None:
    there = [entry_name(Host(name="node-0.cluster").name or "", "x")]
    assert absent(("node-0", "node-1.cluster"), there) == ": node-1.cluster"
    assert absent((), there) == ""
