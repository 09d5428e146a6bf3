"""Switches of a network as captured text describes them: which hosts hang on which, and what joins them.

Every name is led by who says it (`slurm/leaf0`), for what two tools call one name need not be one switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from topocheck.errors import CaptureError
from topocheck.hostlist import expand
from topocheck.probes.capture.reading import Note, Reading
from topocheck.snapshot import SCHEMA, At, FullSnapshot, Host, Identity, JobFact, Source

__all__ = ["Switches", "hosts"]


@dataclass(slots=True)
class Switches:
    """What one text says of the switches of one network."""

    kind: str
    """What the text is recognised as."""
    source: str
    """Name of the text."""
    system: str
    """Who names the switches: slurm, aws, infiniband ..."""
    facts: list[JobFact] = field(default_factory=list)
    lines: set[int] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)

    def hold(self, line: int, switch: str, names: Iterable[str]) -> None:
        """Hosts that hang directly on a switch."""
        self._state(line, "switch-nodes", switch, names)

    def join(self, line: int, switch: str, others: Iterable[str]) -> None:
        """Switches that this one is joined to: those below it in a tree, those cabled to it in a fabric."""
        self._state(line, "switch-links", switch, (f"{self.system}/{word(other)}" for other in others))

    def ignore(self, line: int | None, text: str) -> None:
        """Something that was seen and not used."""
        self.notes.append(Note(line, "ignored", text))

    def _state(self, line: int, kind: str, switch: str, values: Iterable[str]) -> None:
        value, name = " ".join(dict.fromkeys(values)), f"{self.system}/{word(switch)}"
        self.lines.add(line)
        if value:
            at = At(source=self.source, line=line)
            self.facts.append(JobFact(kind=kind, name=name, value=value, at=at))

    def readings(self) -> list[Reading]:
        """All of it as one Reading; [] if there is nothing."""
        if not self.facts:
            return []
        snapshot = FullSnapshot(
            schema=SCHEMA,
            sources=(Source(name=self.source, kind=self.kind),),
            identity=Identity(host=Host()),
            job=tuple(self.facts),
        )
        return [
            Reading(self.kind, (snapshot,), frozenset(self.lines), len(self.facts), tuple(self.notes)),
        ]


def word(name: str) -> str:
    """A name without blanks, which part names in a fact."""
    return "_".join(name.split())


def hosts(text: str, source: str, line: int) -> Sequence[str]:
    """Names of a host list. Raises CaptureError for one that cannot be read."""
    try:
        return expand(text)
    except ValueError as error:
        raise CaptureError(
            f"names of nodes or switches cannot be read: {error}",
            path=source,
            line=line,
            fix="give the file as Slurm reads it, for instance Nodes=n[01-16]",
        ) from None
