"""Flags out of words, by a table of those that matter.

A flag that the table does not have is kept with what follows it, and shown; what it might mean is never
guessed. Spelling follows the program: some take `-` and `_` alike, some do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from topocheck.commands.launch import Stated

__all__ = ["Table", "Taken", "from_variables", "join_address", "safe", "take"]

NEGATIVE = re.compile(r"-[0-9]+(?:\.[0-9]+)?")
SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
SHORTEST = 9
"""An abbreviation of a long flag is taken from this length on: `--tensor-parallel`."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """The flags of one program that placement hangs on."""

    values: Mapping[str, str]
    """What a flag states -> its spellings, blank between them. Each takes one value."""
    switches: Mapping[str, str] = field(default_factory=dict)
    """The same for flags without a value; they state `true`, and `--no-NAME` states `false`."""
    ignored: str = ""
    """Further flags with a value, which matter only because the value is no program or argument."""
    pairs: str = ""
    """Further flags with two values: mpirun's `-mca NAME VALUE`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What an environment variable states -> its name. Flags win over it."""
    dashes: Literal["either", "as written"] = "as written"
    """Whether `--a_b` is `--a-b` to this program."""
    glued: bool = False
    """Short flags take their value without a blank, as getopt has it: `-N2`."""
    abbreviated: bool = False
    """Long flags may be cut where only one of them fits, as argparse has it."""

    @cached_property
    def known(self) -> dict[str, tuple[str, int]]:
        """Spelling -> (what it states, number of values)."""
        found = {flag: (name, 1) for name, flags in self.values.items() for flag in flags.split()}
        found |= {flag: (name, 0) for name, flags in self.switches.items() for flag in flags.split()}
        found |= dict.fromkeys(self.ignored.split(), ("", 1))
        found |= dict.fromkeys(self.pairs.split(), ("", 2))
        return {self.spelling(flag): entry for flag, entry in found.items()}

    def spelling(self, flag: str) -> str:
        """The flag as it is looked up; what stands before a dot is the name of a group."""
        return flag.replace("_", "-") if self.dashes == "either" and flag.startswith("--") else flag


@dataclass(slots=True)
class Taken:
    """What one run over the words found."""

    stated: dict[str, Stated] = field(default_factory=dict)
    """What was stated last, by what it states."""
    given: list[tuple[str, Stated]] = field(default_factory=list)
    """All of it, in order."""
    unknown: list[str] = field(default_factory=list)
    """Flags that the table does not have, with what follows them."""
    rest: list[str] = field(default_factory=list)
    """Words that belong to no flag."""
    of: str = ""
    """Program whose flags they are, named in front of each origin; empty for the engine itself."""

    def state(self, name: str, text: str, origin: str) -> None:
        """Keep one value."""
        if name:
            self.stated[name] = Stated(text, f"{self.of} {origin}".lstrip())
            self.given.append((name, self.stated[name]))


def take(words: Sequence[str], table: Table, *, program: bool = False, of: str = "") -> Taken:
    """Sort words by the table. `of` is named in front of each flag.

    With `program`, the first word that belongs to no flag is the program that a launcher starts, and it
    and all after it are the rest; an unknown flag is then taken to have no value of its own.
    """
    known, taken, place = table.known, Taken(of=of), 0
    while place < len(words):
        word = words[place]
        place += 1
        if word == "--" and program:
            taken.rest += words[place:]
            break
        if not _is_flag(word):
            taken.rest += words[place - 1 :] if program else [word]
            if program:
                break
            continue
        found = _look_up(word, table, known)
        if found is None:
            values = [] if program or "=" in word else _values(words, place)
            place += len(values)
            taken.unknown.append(safe([word, *values]))
            continue
        flag, name, count, value = found
        if count == 0:
            taken.state(name, value or "true", flag)
            continue
        if value is None and (place >= len(words) or (_is_flag(words[place]) and count == 1)):
            taken.unknown.append(f"{flag} (without a value)")
            continue
        taken.state(name, words[place] if value is None else value, flag)
        place += count if value is None else count - 1
    return taken


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and NEGATIVE.fullmatch(word) is None


def _values(words: Sequence[str], place: int) -> list[str]:
    """Words up to the next flag."""
    values = []
    for word in words[place:]:
        if _is_flag(word):
            break
        values.append(word)
    return values


def _look_up(
    word: str, table: Table, known: Mapping[str, tuple[str, int]]
) -> tuple[str, str, int, str | None] | None:
    """(flag, what it states, number of values, value after `=`); None if the table does not have it."""
    head, sign, value = word.partition("=")
    flag = table.spelling(head)
    if flag in known:
        return (head, *known[flag], value if sign else None)
    if flag.startswith("--no-") and known.get("--" + flag[5:], ("", 1))[1] == 0:
        return head, known["--" + flag[5:]][0], 0, "false"
    if table.abbreviated and flag.startswith("--") and len(flag) >= SHORTEST:
        meant = {entry for full, entry in known.items() if full.startswith(flag + "-")}
        if len(meant) == 1:
            return (head, *meant.pop(), value if sign else None)
    short = word[:2]
    if table.glued and word[1] != "-" and known.get(short, ("", 0))[1] == 1:
        return short, known[short][0], 1, word[2:]
    return None


def safe(words: Sequence[str]) -> str:
    """A flag and its values as they may be shown: without what may be a secret."""
    head, sign, value = words[0].partition("=")
    if SECRET.search(head) and (value or len(words) > 1):
        return f"{head}{sign or ' '}***"
    return " ".join(words)


def join_address(stated: dict[str, Stated], address: str, port: str) -> None:
    """Put the port, stated apart, behind the address."""
    host, number = stated.get(address), stated.pop(port, None)
    if host is not None and number is not None and not host.text.endswith(f":{number.text}"):
        name = f"[{host.text}]" if host.text.count(":") > 1 and not host.text.startswith("[") else host.text
        stated[address] = Stated(f"{name}:{number.text}", f"{host.origin} and {number.origin}", host.given)


def from_variables(table: Table, environment: Mapping[str, str]) -> Iterator[tuple[str, Stated]]:
    """What variables state, for programs that read them where a flag is not given."""
    for name, variable in table.variables.items():
        if variable in environment:
            yield name, Stated(environment[variable], variable)
