"""What the gates of one run have left in their store: read once each, as it arrives, and let go.

A gate that waits reads while it waits, so that after the last entry only that one is left to read. Snapshots
are reduced host by host, in the order of the host's tasks: the answer does not hang on who came first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from topocheck.errors import SnapshotError
from topocheck.freshness import Admission
from topocheck.gather.entryname import PLACE, entry_name, host_of
from topocheck.gather.store import Refused, Store
from topocheck.gather.stream import decode_snapshot
from topocheck.inventory import Inventory
from topocheck.plan import Expect
from topocheck.snapshot import Snapshot

__all__ = ["Entries", "Seen", "mark_of"]

SEAL_BYTES = 64
"""The end of a document, in which its seal is: a random word and its length."""


class Seen(NamedTuple):
    """What is kept of an entry that was read."""

    host: str
    boot: str
    taken_at: str
    asked: str | None
    """What its gate was asked; None if it does not say."""
    seal: str
    """Token and end of the snapshot."""
    mark: str
    """Which of the documents that its gate published it was: see `mark_of`."""


class Entries:
    """The entries of one run, read into an inventory."""

    def __init__(self, store: Store, run: str) -> None:
        self.seen: dict[str, Seen] = {}
        """Entries that are used, by name."""
        self.refused: dict[str, str] = {}
        """Entries that are not, and why."""
        self._store = store
        self._run = run
        self._broken: dict[str, str] = {}
        self._begin()

    def _begin(self) -> None:
        self._inventory = Inventory()
        self._inventory.admission = Admission(Expect(run=self._run), "")
        self._held: dict[str, dict[int, tuple[str, Snapshot]]] = {}
        self._added: set[str] = set()

    def take(self, names: Iterable[str]) -> None:
        """Read what was not read yet."""
        for name in sorted(names):
            if name not in self.seen and name not in self.refused:
                self._take(name)

    def close(self, names: Iterable[str]) -> Inventory:
        """Read the rest, and give everything that is in force; what was refused before is looked at again."""
        self.refused = dict(self._broken)
        self.take(names)
        for name, reason in self._older().items():
            self._refuse(name, reason)
        self._add_held()
        if self._added & self.refused.keys():  # what is in an inventory cannot be taken out of it again
            self._begin()
            for name in sorted(self.seen):
                self._take(name)
            self._add_held()
        return self._inventory

    def _add_held(self) -> None:
        for place in sorted(self._held):
            self._add(place)

    def _take(self, name: str) -> None:
        """Read one entry, unless it is of another run or another host than its name says."""
        entry = self._store.entry(name)
        if entry is None or isinstance(entry, Refused):
            self._refuse(name, "is gone" if entry is None else entry.reason)
            return
        try:
            snapshot = decode_snapshot(entry.data, name, None)
        except SnapshotError as error:
            self._refuse(name, str(error))
            return
        host, match = snapshot.identity.host, PLACE.fullmatch(name)
        task, tasks = (int(match["task"]), int(match["tasks"])) if match else (0, 1)
        if snapshot.run != self._run:
            self._refuse(name, f"is of run {(snapshot.run or 'without an id')[:80]}")
        elif entry_name(host.name or "", host.boot_id or "", task, tasks) != name:
            self._refuse(name, f"claims to be of {(host.name or 'no host')[:80]}, which its name denies")
        else:
            self.seen[name] = seen_of(snapshot, entry.data)
            self._hold(name, task, tasks, snapshot)

    def _refuse(self, name: str, reason: str) -> None:
        self.seen.pop(name, None)
        self.refused[name] = reason

    def _hold(self, name: str, task: int, tasks: int, snapshot: Snapshot) -> None:
        """Keep a snapshot until all tasks of its host are there."""
        place = host_of(name)
        held = self._held.setdefault(place, {})
        held[task] = name, snapshot
        if len(held) == tasks:
            self._add(place)

    def _add(self, place: str) -> None:
        """The snapshots of one host into the inventory, save those whose hardware cannot be read."""
        for _, (name, snapshot) in sorted(self._held.pop(place).items()):
            if name not in self.seen:  # of an earlier boot
                continue
            self._added.add(name)  # also if it is refused half way: something of it may be in
            try:
                self._inventory.add(snapshot)
            except msgspec.MsgspecError as error:
                self._broken[name] = f"hardware, environment or network: {error}"
                self._refuse(name, self._broken[name])

    def _older(self) -> Mapping[str, str]:
        """Of two boots of one host the newer is in force; the older entry is of before the restart."""
        boots: dict[str, dict[str, str]] = {}
        for seen in self.seen.values():
            taken = boots.setdefault(seen.host, {})
            taken[seen.boot] = max(taken.get(seen.boot, ""), seen.taken_at)
        last = {host: max(taken, key=lambda boot: (taken[boot], boot)) for host, taken in boots.items()}
        return {
            name: f"is of an earlier boot of {seen.host}"
            for name, seen in self.seen.items()
            if seen.boot != last[seen.host]
        }

    def digest(self) -> str:
        """Digest over all entries that are used."""
        whole = hashlib.sha256()
        for name, seen in sorted(self.seen.items()):
            whole.update(f"{name}\0{seen.seal}\n".encode())
        return f"sha256:{whole.hexdigest()}"


def seen_of(snapshot: Snapshot, data: bytes) -> Seen:
    """What is kept of a snapshot."""
    host = snapshot.identity.host
    return Seen(
        host=host.name or "",
        boot=host.boot_id or "",
        taken_at=snapshot.taken_at or "",
        asked=snapshot.asked,
        seal=f"{snapshot.token}\0{snapshot.end}",
        mark=mark_of(data),
    )


def mark_of(document: bytes) -> str:
    """Tells a published document from what the same gate published before or after: a digest of its seal."""
    return hashlib.sha256(document[-SEAL_BYTES:]).hexdigest()[:8]
