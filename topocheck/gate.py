"""One answer on every node: publish what this node shows, wait for the others, verify, adopt one verdict.

Any gate that holds all evidence, or reaches its deadline, verifies; the result is the same whoever does it,
and the first verdict that is published is everybody's. `unknown` is no verdict: it is never published, and
may be overtaken by one.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from topocheck.answer import Declared, answer
from topocheck.checklist import Gate
from topocheck.errors import SnapshotError, UsageError
from topocheck.freshness import Admission
from topocheck.gather.store import Refused, Store
from topocheck.gather.stream import decode_snapshot
from topocheck.inventory import Inventory
from topocheck.plan import Expect
from topocheck.ranges import first
from topocheck.report import InputReport, Report
from topocheck.snapshot import Snapshot

__all__ = ["SCHEMA", "Decision", "Waiting", "entry_name", "pass_gate"]

SCHEMA = "topocheck.verdict/1"

POLL_S, SLOW_POLL_S = 0.2, 3.0
"""How often a gate looks for the verdict, and how often for entries if many gates do."""
LOOKERS = 4
"""Gates of a large job that look for entries often; the others wait for the verdict."""
TURN_S, ENTRY_S = 0.4, 0.01
"""How long each gate leaves the verifying to the one before it, and how much longer for each entry to read.

So a thousand gates do not read a thousand entries each while the first is at it; in a large job the turn of
most never comes before the deadline.
"""
PROGRESS_S = 10.0
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9.-]+")
PLACE = re.compile(r"(?P<host>.+)\.t(?P<task>[0-9]{1,6})of(?P<tasks>[0-9]{1,6})")
"""Names of entries: host, digest of host and boot, task and tasks on that host."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of a run."""

    schema: str
    """`topocheck.verdict/` and the major version."""
    run: str
    """Run that it is of."""
    by: str
    """Entry of the gate that verified."""
    report: Report
    """The whole answer."""

    @property
    def exit_code(self) -> int:
        """What every gate of the run exits with."""
        return self.report.exit_code


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one gate waits for, and how."""

    run: str
    """Run id."""
    name: str
    """This gate's entry."""
    expected: int
    """Nodes."""
    declared: Declared
    gate: Gate
    names: Sequence[str] = ()
    """Names of the nodes, where plan or launcher tell."""
    timeout_s: float = 300.0
    tell: Callable[[str], None] = lambda _: None
    """Takes a line of progress."""
    store_name: str = "store"
    pause: Callable[[float], None] = time.sleep


@dataclass(slots=True)
class Seen:
    """Entries read so far: each is read once."""

    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def entry_name(host: str, boot: str, task: int = 0, tasks: int = 1) -> str:
    """Name of an entry: readable, of letters that every store takes, and of this host and boot alone."""
    plain = NOT_IN_A_NAME.sub("-", host).strip("-.")[:100] or "host"
    digest = hashlib.sha256(f"{host}\0{boot}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{plain}-{digest}.t{task}of{max(tasks, task + 1)}"


def pass_gate(store: Store, snapshot: bytes, asked: Waiting) -> Decision:
    """Publish, wait, verify, adopt. Gives the verdict in force, or what is undecided at the deadline.

    Raises UsageError where the store cannot be used, and what verifying raises.
    """
    known = decided(store, asked)
    if known is not None:  # a second run with the same id, or a gate that comes late
        return known
    store.publish(asked.name, snapshot)
    start = told = time.monotonic()
    listed, complete_at = -SLOW_POLL_S, None
    names: Sequence[str] = ()
    while True:
        now = time.monotonic()
        known = decided(store, asked)
        if known is not None:
            return known
        late = now - start >= asked.timeout_s
        if late or now - listed >= (POLL_S if looks_often(asked) else SLOW_POLL_S):
            names, listed = store.names(), now
        whole = hosts(names) >= asked.expected
        complete_at = (now if complete_at is None else complete_at) if whole else None
        if late or (complete_at is not None and now - complete_at >= turn(asked, names)):
            return settle(store, asked, names)
        if now - told >= PROGRESS_S:
            told = now
            asked.tell(progress(asked, names, asked.timeout_s - (now - start)))
        asked.pause(POLL_S)


def settle(store: Store, asked: Waiting, names: Iterable[str]) -> Decision:
    """Verify what is there, and publish that or adopt what another published; unknown is no verdict."""
    found = verified(store, asked, names)
    if found.exit_code not in (0, 1):
        return decided(store, asked) or found
    return decode(store.decide(msgspec.json.encode(found)), asked)


def decided(store: Store, asked: Waiting) -> Decision | None:
    """The verdict of this run, if there is one."""
    data = store.verdict()
    return None if data is None else decode(data, asked)


def decode(data: bytes, asked: Waiting) -> Decision:
    """A verdict from the store. Raises UsageError for one that is none, or of another run."""
    try:
        found = msgspec.json.decode(data, type=Decision)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{asked.store_name}: the verdict of run {asked.run} cannot be read: {error}"
        ) from None
    if found.run != asked.run or found.schema != SCHEMA:
        raise UsageError(f"{asked.store_name}: the verdict there is of run {found.run[:80]}, not {asked.run}")
    return found


def hosts(names: Iterable[str]) -> int:
    """Hosts all of whose tasks have published."""
    found: dict[str, tuple[set[int], int]] = {}
    for name in names:
        match = PLACE.fullmatch(name)
        if match:
            tasks, count = found.setdefault(match["host"], (set(), int(match["tasks"])))
            tasks.add(int(match["task"]))
            found[match["host"]] = tasks, max(count, int(match["tasks"]))
    return sum(len(tasks) >= count for tasks, count in found.values())


def looks_often(asked: Waiting) -> bool:
    """Some gates of a large job look for entries often: all of them would be too much for the store."""
    digest = hashlib.sha256(asked.name.encode()).digest()
    return int.from_bytes(digest[:4], "big") % max(1, asked.expected) < LOOKERS


def turn(asked: Waiting, names: Sequence[str]) -> float:
    """Seconds from the last entry until this gate verifies: the first of all does at once."""
    place = names.index(asked.name) if asked.name in names else len(names)
    return place * (TURN_S + ENTRY_S * len(names))


def verified(store: Store, asked: Waiting, names: Iterable[str]) -> Decision:
    """What the evidence that is there says."""
    seen, inventory = Seen(), Inventory()
    for name in sorted(names):
        take(store, asked, name, seen)
    inventory.admission = Admission(Expect(run=asked.run), "")
    newest(seen)
    for name in sorted(seen.snapshots):
        add(inventory, name, seen)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    shown = [view.identity.host.name or name for name, view in sorted(seen.snapshots.items())]
    notes = [f"{name}: not used: {reason}" for name, reason in sorted(seen.refused.items())]
    source = InputReport(
        name=asked.store_name,
        kind=f"gates of run {asked.run}",
        digest=digest_of(seen),
        hosts=list(dict.fromkeys(shown))[:64],
        notes=notes[:64],
    )
    report = answer(asked.declared, inventory, [source], asked.gate, at=now, whole=asked.expected <= 256)
    report = undecided(report, asked, sorted(seen.snapshots))
    return Decision(schema=SCHEMA, run=asked.run, by=asked.name, report=report)


def undecided(report: Report, asked: Waiting, names: Sequence[str]) -> Report:
    """A pass over fewer nodes than were expected is none: what the others show is not known."""
    lacking = asked.expected - hosts(names)
    if lacking <= 0 or report.exit_code != 0:
        return report
    return msgspec.structs.replace(
        report,
        verdict="unknown",
        exit_code=3,
        exit_reason="nodes_missing",
        sentence=f"{lacking} of {asked.expected} nodes did not report{absent(asked, names)}",
    )


def add(inventory: Inventory, name: str, seen: Seen) -> None:
    """One snapshot into the inventory, unless its hardware cannot be read."""
    try:
        inventory.add(seen.snapshots[name])
    except msgspec.MsgspecError as error:
        seen.refused[name] = f"hardware or environment: {error}"


def take(store: Store, asked: Waiting, name: str, seen: Seen) -> None:
    """Read one entry, unless it is of another run or another host than its name says."""
    entry = store.entry(name)
    if entry is None or isinstance(entry, Refused):
        seen.refused[name] = "is gone" if entry is None else entry.reason
        return
    try:
        snapshot = decode_snapshot(entry.data, name, None)
    except SnapshotError as error:
        seen.refused[name] = str(error)
        return
    host, match = snapshot.identity.host, PLACE.fullmatch(name)
    task, tasks = (int(match["task"]), int(match["tasks"])) if match else (0, 1)
    if snapshot.run != asked.run:
        seen.refused[name] = f"is of run {(snapshot.run or 'without an id')[:80]}"
    elif entry_name(host.name or "", host.boot_id or "", task, tasks) != name:
        seen.refused[name] = f"claims to be of {(host.name or 'no host')[:80]}, which its name denies"
    else:
        seen.snapshots[name] = snapshot


def newest(seen: Seen) -> None:
    """Of two boots of one host the newer is in force; the older entry is of before the restart."""
    by_host: dict[str, dict[str, str]] = {}
    for snapshot in seen.snapshots.values():
        host = snapshot.identity.host
        boots = by_host.setdefault(host.name or "", {})
        boots[host.boot_id or ""] = max(boots.get(host.boot_id or "", ""), snapshot.taken_at or "")
    for name, snapshot in list(seen.snapshots.items()):
        host = snapshot.identity.host
        boots = by_host[host.name or ""]
        last = max(boots, key=lambda boot: (boots[boot], boot))
        if (host.boot_id or "") != last:
            seen.refused[name] = f"is of an earlier boot of {host.name}"
            del seen.snapshots[name]


def digest_of(seen: Seen) -> str:
    """Digest over all entries that were used."""
    whole = hashlib.sha256()
    for name, snapshot in sorted(seen.snapshots.items()):
        whole.update(f"{name}\0{snapshot.token}\0{snapshot.end}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def progress(asked: Waiting, names: Sequence[str], left_s: float) -> str:
    """`waiting for 2 of 64 nodes: node-07, node-31; 250 s left`."""
    lacking = asked.expected - hosts(names)
    who = absent(asked, names)
    return f"waiting for {lacking} of {asked.expected} nodes{who}; {left_s:.0f} s left"


def absent(asked: Waiting, names: Iterable[str]) -> str:
    """`: node-07, node-31`, of the nodes whose names are known; short and full names are one host's."""
    there = {
        match["host"].rpartition("-")[0].partition(".")[0] for n in names if (match := PLACE.fullmatch(n))
    }
    away = [
        name
        for name in asked.names
        if NOT_IN_A_NAME.sub("-", name.partition(".")[0]).strip("-.") not in there
    ]
    return f": {first(away, 6)}" if away and len(away) < len(asked.names) else ""
