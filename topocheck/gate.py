"""One answer on every node: publish what this node shows, wait for the others, verify, adopt one verdict.

Any gate that holds all evidence, or reaches its deadline, may verify, and the first verdict that is published
is everybody's. They take turns, by the names of their entries: the first reads while it waits, verifies at
once and is as a rule the only one that does; whoever comes after it gives it time, and goes on if it is dead.
With each turn twice as many may go, so that few read everything and nobody waits for the dead one by one.

`unknown` is no verdict: it is left as a remark, which says the same to those that see the same entries, and
may be overtaken by a verdict.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from topocheck.answer import Declared, answer
from topocheck.checklist import Gate
from topocheck.decision import (
    DECIDED,
    REMARK_SCHEMA,
    SCHEMA,
    Decision,
    Remark,
    decode_remark,
    decode_verdict,
    digest_of,
)
from topocheck.errors import TopocheckError, UndecidedError
from topocheck.gather.entries import Entries, mark_of
from topocheck.gather.entryname import absent, entry_name, host_of, hosts
from topocheck.gather.store import Store
from topocheck.inventory import Inventory
from topocheck.question import difference, question
from topocheck.ranges import first
from topocheck.report import InputReport, Report

__all__ = ["SCHEMA", "Decision", "Waiting", "Watch", "entry_name", "pass_gate", "verified"]

POLL_S, MOST_POLL_S, POLL_OF_EACH_S = 0.2, 0.5, 0.0004
"""How often a gate looks for the verdict: less often in a large job, whose store many ask."""
LOOKERS = 4
"""Gates that look for entries as often; the others wait for the verdict."""
SLOW_POLL_S, SLOW_POLL_OF_EACH_S = 3.0, 0.01
"""How often those others look for entries, and for a remark."""
TURN_S, TURN_OF_EACH_S = 0.4, 0.004
"""A turn: what reading and verifying may take, more for each entry."""
PROGRESS_S = 10.0


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
    tell_every_s: float = PROGRESS_S
    store_name: str = "store"
    pause: Callable[[float], None] = time.sleep

    @property
    def question(self) -> str:
        """What is asked, to be compared with what the other gates were asked."""
        return question(self.declared, self.gate, self.expected)


def pass_gate(store: Store, snapshot: bytes, asked: Waiting) -> Decision:
    """Publish, wait, verify, adopt. Gives the verdict in force, or what is undecided at the deadline.

    The deadline is `timeout_s` and, for who finds it passed without a word of the gates before it, a turn or
    several of them. Raises UsageError where the store cannot be used or its verdict answers another question,
    UndecidedError where the store is away or its pass is not of this node, and what verifying raises.
    """
    known = decided(store, asked)
    if known is not None:  # a second run with the same id, or a gate that comes late
        return known
    watch = Watch(store, asked)
    watch.begin(snapshot)
    while (found := watch.look()) is None:
        asked.pause(watch.poll_s)
    return found


def decided(store: Store, asked: Waiting) -> Decision | None:
    """The verdict of this run, if there is one. Raises as `adopted`."""
    data = store.verdict()
    return None if data is None else adopted(data, asked)


def adopted(data: bytes, asked: Waiting) -> Decision:
    """A verdict as this gate's own. Raises UsageError for one that is none or answers another question.

    Raises UndecidedError for a pass that was given without this node: a pod that was started again elsewhere,
    or one node more than were expected.
    """
    found = decode_verdict(data, asked.run, asked.store_name, asked.question)
    if found.exit_code == 0 and host_of(asked.name) not in found.hosts:
        raise UndecidedError(
            f"{asked.store_name}: run {asked.run} passed on {len(found.hosts)} nodes without this one: give "
            "another try another --run-id, and --expect as many nodes as take part"
        )
    return found


class Watch:
    """One gate's wait: what it saw of the store, and whether it is its turn."""

    def __init__(self, store: Store, asked: Waiting) -> None:
        self._store = store
        self._asked = asked
        self._mark = ""
        self._entries = Entries(store, asked.run)
        self._names: Sequence[str] = ()
        self._place = asked.expected
        """Of this gate among those that published, from 0."""
        self.poll_s = min(MOST_POLL_S, max(POLL_S, POLL_OF_EACH_S * asked.expected))
        """How long to pause between two looks."""
        self._told = self._start = time.monotonic()
        self._slow_s = max(SLOW_POLL_S, SLOW_POLL_OF_EACH_S * asked.expected)
        self._listed = self._listened = -self._slow_s
        self._late = False
        self._due: float | None = None
        """Since when somebody ought to verify: all have published, or the deadline is passed."""
        self._heard: bytes | None = None
        self._remark: Remark | None = None

    def begin(self, snapshot: bytes) -> None:
        """Publish what this node shows. Raises UsageError where that is not possible."""
        self._mark = mark_of(snapshot)
        self._store.publish(self._asked.name, snapshot)

    def look(self) -> Decision | None:
        """Look once; None as long as there is nothing to say. Raises as `pass_gate` does."""
        known = decided(self._store, self._asked)
        if known is not None:
            return known
        now = time.monotonic()
        self._listen(now)
        if self._is_to_list(now):
            self._list(now)
        if self._due is not None:
            if self._remark is not None and self._fits(self._remark):
                return self._remark.answer()
            turn_s = TURN_S + TURN_OF_EACH_S * len(self._names)
            return self._settle(now) if now - self._due >= self._place.bit_length() * turn_s else None
        if self._place == 0:
            self._entries.take(self._names)
        if now - self._told >= self._asked.tell_every_s:
            self._told = now
            left_s = self._asked.timeout_s - (now - self._start)
            self._asked.tell(progress(self._asked, self._names, left_s))
        return None

    def _listen(self, now: float) -> None:
        """Take note of a new remark: where there is one, there may be new entries too."""
        if self._due is None and now - self._listened < self._slow_s:
            return
        self._listened = now
        heard = self._store.remarked()
        if heard != self._heard:
            self._heard, self._remark = heard, decode_remark(heard, self._asked.run)
            self._listed = -self._slow_s

    def _is_to_list(self, now: float) -> bool:
        late = now - self._start >= self._asked.timeout_s
        if late and not self._late:
            self._late = True
            return True
        waits_s = self._slow_s if self._due is None else SLOW_POLL_S
        return now - self._listed >= (POLL_S if self._place < LOOKERS else waits_s)

    def _list(self, now: float) -> None:
        """See who has published, and whether somebody ought to verify."""
        self._names, self._listed = sorted(self._store.names()), now
        own = self._asked.name
        self._place = self._names.index(own) if own in self._names else len(self._names)
        is_due = self._late or hosts(self._names) >= self._asked.expected
        self._due = (now if self._due is None else self._due) if is_due else None

    def _fits(self, remark: Remark) -> bool:
        """The gate that made the remark saw the same entries, and this gate's own as it is now."""
        return self._mark in remark.marks and remark.entries == digest_of(self._names)

    def _settle(self, now: float) -> Decision:
        """Verify what is there, and tell the others what came of it."""
        self._list(now)
        if self._remark is not None and self._fits(self._remark):
            return self._remark.answer()
        inventory = self._entries.close(self._names)
        try:
            found = judged(self._asked, self._entries, inventory)
        except TopocheckError as error:
            self._leave(None, str(error), error.exit_code)
            raise
        in_force = published(self._store, self._asked, found)
        if in_force.exit_code not in DECIDED:
            self._leave(found, "", found.exit_code)
        return in_force

    def _leave(self, found: Decision | None, error: str, exit_code: int) -> None:
        """Leave a remark. Where that is not possible the others find out themselves."""
        remark = Remark(
            schema=REMARK_SCHEMA,
            run=self._asked.run,
            by=self._asked.name,
            entries=digest_of(self._names),
            marks=sorted({seen.mark for seen in self._entries.seen.values()}),
            found=found,
            error=error,
            exit_code=exit_code,
        )
        try:
            self._store.remark(msgspec.json.encode(remark))
        except TopocheckError as problem:
            self._asked.tell(f"the other gates cannot be told that it is undecided: {problem}")


def published(store: Store, asked: Waiting, found: Decision) -> Decision:
    """The verdict in force after this one was published; unknown is no verdict, and is given as it is."""
    if found.exit_code not in DECIDED:
        return decided(store, asked) or found
    return adopted(store.decide(msgspec.json.encode(found)), asked)


def verified(asked: Waiting, entries: Entries, names: Iterable[str]) -> Decision:
    """What the entries of these names say. Raises UsageError where they cannot be read, and as `judged`."""
    return judged(asked, entries, entries.close(names))


def judged(asked: Waiting, entries: Entries, inventory: Inventory) -> Decision:
    """What the evidence that is there says. Raises what verifying raises."""
    shown = [entries.seen[name].host or name for name in sorted(entries.seen)]
    notes = [f"{name}: not used: {reason}" for name, reason in sorted(entries.refused.items())]
    source = InputReport(
        name=asked.store_name,
        kind=f"gates of run {asked.run}",
        digest=entries.digest(),
        hosts=list(dict.fromkeys(shown))[:64],
        notes=notes[:64],
    )
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    whole, collects = asked.expected <= 256, gc.isenabled()
    gc.disable()  # evidence is frozen and has no cycles: collecting it again and again only costs
    try:
        report = answer(asked.declared, inventory, [source], asked.gate, at=now, whole=whole)
    finally:
        if collects:
            gc.enable()
    report = undecided(report, asked, entries)
    return Decision(
        schema=SCHEMA,
        run=asked.run,
        by=asked.name,
        asked=asked.question,
        hosts=sorted({host_of(name) for name in entries.seen}),
        report=report,
    )


def undecided(report: Report, asked: Waiting, entries: Entries) -> Report:
    """A pass over fewer nodes than were expected is none, nor one that some nodes would not adopt."""
    used = sorted(entries.seen)
    lacking = asked.expected - hosts(used)
    if report.exit_code != 0:
        return report
    if lacking > 0:
        words = f"{lacking} of {asked.expected} nodes did not report{absent(asked.names, used)}"
        return unknown(report, "nodes_missing", words)
    words = disagreement(entries)
    return unknown(report, "nodes_disagree", words) if words else report


def unknown(report: Report, reason: str, sentence: str) -> Report:
    """The report with exit code 3."""
    return msgspec.structs.replace(
        report, verdict="unknown", exit_code=3, exit_reason=reason, sentence=sentence
    )


def disagreement(entries: Entries) -> str:
    """Which nodes were asked something else than most, in one sentence; empty if none was."""
    questions = Counter(seen.asked for _, seen in sorted(entries.seen.items()) if seen.asked is not None)
    if len(questions) <= 1:
        return ""
    (most, count), *others = questions.most_common()
    odd = [seen.host or name for name, seen in sorted(entries.seen.items()) if seen.asked not in (None, most)]
    return (
        f"{first(dict.fromkeys(odd), 6)}: the {difference(most, others[0][0])} there is another than that of "
        f"{count} of {len(entries.seen)} gates: give all nodes the same"
    )


def progress(asked: Waiting, names: Sequence[str], left_s: float) -> str:
    """`waiting for 2 of 64 nodes: node-07, node-31; 250 s left`."""
    lacking = asked.expected - hosts(names)
    who = absent(asked.names, names)
    return f"waiting for {lacking} of {asked.expected} nodes{who}; {left_s:.0f} s left"
