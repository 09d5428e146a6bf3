"""Numbers out of an environment. A value that is no number becomes a note, never a guess."""

from __future__ import annotations

import re

from topocheck.launchers.launcher import Claim, Environment, Level, Note, NoteKind

__all__ = ["Variables", "number_of"]

NUMBER = re.compile(r"[0-9]{1,10}")
"""Ten digits, because Slurm's own step ids reach 4294967295."""


def number_of(text: str) -> int | None:
    """A number from 0 in plain ASCII digits; None for everything else, signs and blanks included."""
    return int(text) if NUMBER.fullmatch(text) else None


class Variables:
    """Variables of one process, read for one claim."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.notes: list[Note] = []

    def note(self, kind: NoteKind, text: str, variable: str | None = None) -> None:
        """Keep a note for the claim."""
        self.notes.append(Note(kind, text, variable))

    def number(self, *names: str) -> int | None:
        """Value of the first of these variables that is set; None, with a note, if it is no number."""
        name = next((name for name in names if name in self.env), None)
        if name is None:
            return None
        value = number_of(self.env[name])
        if value is None:
            self.note("malformed", f"{name} is {self.env[name][:40]!r}, which is no number from 0", name)
        return value

    def needed(self, *names: str) -> int | None:
        """As `number`, with a note if none of them is set."""
        if not any(name in self.env for name in names):
            self.note("incomplete", f"{' or '.join(names)} is not set", names[0])
        return self.number(*names)

    def same(self, name: str, value: int | None) -> None:
        """Note a contradiction if this variable holds another number than `value`."""
        other = self.number(name)
        if None not in (value, other) and value != other:
            self.note("contradictory", f"{name} is {other}, and its companions say {value}", name)

    def text(self, name: str) -> str | None:
        """A name; None if unset or empty. Cut at 255 characters, the longest host name."""
        return self.env.get(name, "").strip()[:255] or None

    def claim(
        self,
        family: str,
        level: Level = "process",
        *,
        rank: int | None = None,
        local_rank: int | None = None,
        node_rank: int | None = None,
        size: int | None = None,
        local_size: int | None = None,
        nodes: int | None = None,
        node_name: str | None = None,
        world: str = "",
    ) -> Claim:
        """The claim, with the notes so far and with those numbers noted that lie outside their range."""
        self._within("rank", rank, size)
        self._within("local rank", local_rank, local_size)
        self._within("node rank", node_rank, nodes)
        return Claim(
            family=family,
            level=level,
            rank=rank,
            local_rank=local_rank,
            node_rank=node_rank,
            size=size,
            local_size=local_size,
            nodes=nodes,
            node_name=node_name,
            world=world,
            notes=tuple(self.notes),
        )

    def _within(self, what: str, value: int | None, count: int | None) -> None:
        if value is not None and count is not None and value >= count:
            self.note("contradictory", f"{what} {value} is outside 0..{count - 1}")
