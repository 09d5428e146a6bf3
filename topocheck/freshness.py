"""Evidence that belongs to this run: its run id and its age, where the user asked for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from topocheck.plan import Expect
from topocheck.snapshot import Snapshot

__all__ = ["Admission", "Stale", "age_seconds", "oldest_and_newest"]

NOTHING = Expect()
AHEAD_S = 60.0
"""How far the clock of a host may be ahead of this one's before its time is doubted."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A snapshot that was not used."""

    host: str
    """Whose it is, as people call it."""
    reason: str
    """Why, in words: `it is of run 4711.0`."""
    source: str
    """File or stream that it came from."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What evidence must be to count. Captured text has neither run nor time: nothing is held against it."""

    expect: Expect = NOTHING
    now: str = ""
    """RFC 3339."""

    @property
    def open(self) -> bool:
        """Nothing was asked for."""
        return self.expect.run is None and self.expect.max_age_s is None

    def stale(self, snapshot: Snapshot, source: str = "") -> Stale | None:
        """Why a snapshot does not count; None if it does, or if nothing shows that it does not."""
        reason = self._reason(snapshot)
        if reason is None:
            return None
        host = snapshot.identity.host
        name = host.name or (host.aliases[0] if host.aliases else None) or host.boot_id or "this node"
        return Stale(name, reason, source or (snapshot.sources[0].name if snapshot.sources else "evidence"))

    def _reason(self, snapshot: Snapshot) -> str | None:
        asked = self.expect
        if asked.run is not None and snapshot.run is not None and snapshot.run != asked.run:
            return f"it is of run {snapshot.run[:80]}"
        age = age_seconds(snapshot.taken_at, self.now) if asked.max_age_s is not None else None
        if age is None or asked.max_age_s is None:
            return None
        if age > asked.max_age_s:
            return f"it was taken {spell(age)} ago ({snapshot.taken_at})"
        return f"it was taken {spell(-age)} from now ({snapshot.taken_at})" if age < -AHEAD_S else None


def age_seconds(taken_at: str | None, now: str) -> float | None:
    """Seconds from one RFC 3339 time to another; None if either is none."""
    try:
        taken = datetime.fromisoformat((taken_at or "").replace("Z", "+00:00"))
        return (datetime.fromisoformat(now.replace("Z", "+00:00")) - taken).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None


def oldest_and_newest(times: Iterable[str | None]) -> tuple[str, str] | None:
    """The first and the last of some RFC 3339 times, as whole seconds of UTC; None if none of them is one."""
    found = [moment for moment in map(utc_of, set(times)) if moment is not None]
    if not found:
        return None
    oldest, newest = (each.isoformat(timespec="seconds")[:19] + "Z" for each in (min(found), max(found)))
    return oldest, newest


def utc_of(time: str | None) -> datetime | None:
    """An RFC 3339 time in UTC; None if it is none, has no zone, or its zone leads out of the calendar."""
    try:
        given = datetime.fromisoformat((time or "").replace("Z", "+00:00"))
        return None if given.tzinfo is None else given.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def spell(seconds: float) -> str:
    """An age in the unit that fits."""
    for unit, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"
