"""A Slurm batch script: its directives, and what its commands start.

sbatch reads lines that begin with exactly `#SBATCH`, up to the first command (Slurm 26.11, man sbatch).
`#sbatch`, `# SBATCH` and what stands after a command is a comment to it, and means something else than its
author thinks: it is noted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from topocheck.commands.flags import take
from topocheck.commands.launch import Starter
from topocheck.commands.slurm_flags import TABLE, starter_of
from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.launch_command import DIRECTIVE, batch_start, script_lines
from topocheck.probes.capture.launch_facts import state_starter
from topocheck.probes.capture.log_line import Line
from topocheck.probes.capture.reading import Note, Reading, Text

__all__ = ["KIND", "parse"]

KIND = "slurm batch script"

MEANT = re.compile(r"#\s*SBATCH\s+-", re.IGNORECASE)
"""A comment that its author took for a directive. `##SBATCH` is the usual way to switch one off."""


def parse(text: Text) -> list[Reading]:
    """Read the script; [] if no line is a directive."""
    first = batch_start(text)
    if first is None:
        return []
    directives = [number for number, line in enumerate(text.lines, 1) if line.startswith(DIRECTIVE)]
    evidence = JobEvidence(KIND, text.source)
    command = first_command(text, first)
    words: list[str] = []
    for number in directives:
        if number < command:
            words += directive_words(text.lines[number - 1])
            evidence.lines.add(number)
    state_directives(evidence, text, directives, words)
    evidence.notes += notes(text, first, command)
    script_lines(text, evidence, first)
    evidence.notes.sort(key=lambda note: note.line or 0)
    return evidence.readings()


def first_command(text: Text, first: int) -> int:
    """Line of the first command: the first that is neither empty nor a comment."""
    for number in range(first, len(text.lines) + 1):
        line = text.lines[number - 1].strip()
        if line and not line.startswith("#"):
            return number
    return len(text.lines) + 1


def directive_words(line: str) -> list[str]:
    """Words of one directive; what follows a blank and `#` is a comment."""
    source = line.removeprefix(DIRECTIVE)
    try:
        return shlex.split(source, comments=True)
    except ValueError:  # a quote without its partner
        return source.split()


def state_directives(evidence: JobEvidence, text: Text, directives: list[int], words: list[str]) -> None:
    """What sbatch was told, each statement at its own line; the last of two wins, as in Slurm."""
    evidence.fact(Line(directives[0], ""), "launcher", "sbatch")
    whole = starter_of("sbatch", take(words, TABLE, of="sbatch"))
    for number in sorted(evidence.lines):
        alone = starter_of("sbatch", take(directive_words(text.lines[number - 1]), TABLE, of="sbatch"))
        state_starter(evidence, Line(number, ""), in_force(alone, whole))


def in_force(alone: Starter, whole: Starter) -> Starter:
    """What one directive states and no later one replaces."""
    fields = ("nodes", "processes", "processes_per_node", "gpus_per_node", "gpus_per_task")
    kept = {name: getattr(alone, name) for name in fields if getattr(alone, name) == getattr(whole, name)}
    options = {name: value for name, value in alone.options.items() if whole.options.get(name) == value}
    hosts = alone.hosts if alone.hosts == whole.hosts else ()
    return Starter(name="sbatch", hosts=hosts, options=options, **kept)


def notes(text: Text, first: int, command: int) -> Iterator[Note]:
    """Lines that look like directives and are none."""
    for number, line in enumerate(text.lines[first - 1 :], first):
        if line.startswith(DIRECTIVE) and number > command:
            words = f"sbatch reads no directives after the first command (line {command})"
            yield Note(number, "ignored", words)
        elif MEANT.match(line) and not line.startswith(DIRECTIVE):
            words = f"{line.split('-')[0].strip()!r} is a comment to sbatch, which reads {DIRECTIVE} alone"
            yield Note(number, "ignored", words)
