r"""Simple commands out of shell text: words, variables in front, and where they stand.

Only what is certain is done: continuation lines, quotes, comments, `&&`, `;`, `|`, redirections, and
variables that the same text sets once to a constant. Conditions and loops are not followed: their
commands are listed as they stand. `$(...)` stays one word.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Command", "commands", "constants", "expand"]

TOKEN = re.compile(
    r"""(?P<continuation>\\\n)
      | (?P<redirect>(?:(?<!\S)[0-9]{1,3}|&)?(?:<<<|<<-?|>>|>&|<&|<>|>\||>|<)&?[ \t]*)
      | (?P<plain>\\. | '[^']*' | "(?:\\.|[^"\\])*" | `[^`]*` | \$\{[^}\n]*\}
          | [^\\'"`$#\n;&|<>(){}\s]+ | [ \t]+)
      | (?P<substitution>\$\()
      | (?P<array>(?<==)\()
      | (?P<comment>\#[^\n]*)
      | (?P<end>\n | ;;? | && | \|\|? | &)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
FIRST = re.compile(r"(?:[ \t(]|(?:if|then|elif|else|do|while|until|time|exec|!|\{)(?=[ \t]))+")
"""Words of the shell in front of a command."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
DECLARES = re.compile(r"[ \t]*(?:export|declare|readonly|local|typeset)[ \t]+(?:-[A-Za-z]+[ \t]+)*")
USE = re.compile(
    r"""(?P<array>"?\$\{(?P<all>[A-Za-z_]\w*)\[[@*]\]\}"?)
      | (?P<scalar>\$(?:\{(?P<long>[A-Za-z_]\w*)\}|(?P<short>[A-Za-z_]\w*)))""",
    re.VERBOSE,
)
SPECIAL = re.compile(r"""[;&|<>\n'"`\\]""")
"""What would mean something else if the value were put into the text as it is."""
WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s;&|<>'"])*""")
LONGEST = 20_000
"""A command that variables make longer than this is kept as it was written."""
PARENTHESIS = re.compile(r"[()]")


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command."""

    words: tuple[str, ...]
    """Its words, quotes removed."""
    environment: Mapping[str, str]
    """Variables set in front of it: `VAR=x command`."""
    line: int
    """Line of the text where it starts, from 1."""
    separator: str
    """What follows it: `&&`, `|`, `;`, a newline, or nothing."""


def commands(text: str) -> Iterator[Command]:
    """All simple commands in order; assignments alone are commands without words."""
    for source, line, separator in _pieces(text):
        words = _split(source)
        environment = {}
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            environment[match[1]] = match[2]
            words = words[1:]
        if words or environment:
            yield Command(tuple(words), environment, line, separator)


def constants(text: str) -> dict[str, str]:
    """Variables that the text sets, everywhere to one and the same constant; arrays as their words.

    One that is set twice to different values, read from the caller, or made by a command is left out.
    """
    found: dict[str, set[str]] = {}
    for source, _, _ in _pieces(text):
        stripped = DECLARES.sub("", source, count=1)
        match = ASSIGNMENT.fullmatch(stripped.strip())
        if match is None:
            continue
        value = match[2]
        if value.startswith("(") and value.endswith(")"):
            value = " ".join(value[1:-1].split())
        elif value and not _is_one_word(value):
            continue
        else:
            value = " ".join(shlex.split(value))
            if SPECIAL.search(value):
                continue
        found.setdefault(match[1], set()).add(value)
    single = {name: next(iter(values)) for name, values in found.items() if len(values) == 1}
    return {name: value for name, value in single.items() if "$(" not in value and "`" not in value}


def expand(text: str, known: Mapping[str, str]) -> str:
    """The text with those variables replaced, unless that makes it unreasonably long."""
    for _ in range(5):
        longer = USE.sub(lambda use: _value(use, known), text)
        if longer == text or len(longer) > LONGEST + len(text):
            break
        text = longer
    return text


def _value(use: re.Match[str], known: Mapping[str, str]) -> str:
    name = use["all"] or use["long"] or use["short"]
    value = known.get(name)
    if value is None or re.search(rf"\$\{{?{re.escape(name)}\b", value):
        return use[0]
    return value


def _pieces(text: str) -> Iterator[tuple[str, int, str]]:
    """(source of a command, line where it starts, separator after it)."""
    source, start = "", 1
    for kind, token, line in _tokens(text):
        if not source.strip():
            source, start = "", line
        if kind == "end":
            if source:
                yield source, start, token
            source = ""
        elif kind != "comment" or (source and not source[-1].isspace()):
            source += token
    if source.strip():
        yield source, start, ""


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """(kind, text, line): what belongs to a command as `plain`, redirections and documents left out."""
    line, position, document = 1, 0, ""
    ends = _ends(text) if "$(" in text else {}
    while match := TOKEN.match(text, position):
        kind, part, start = match.lastgroup or "plain", match[0], position
        position = match.end()
        if kind == "redirect":
            position = _skip_word(text, position)
            if part.strip() in {"<<", "<<-"}:
                document = text[match.end() : position].strip("'\"\\")
        elif kind == "end" and document and part == "\n":
            yield kind, part, line
            position, document = _after_document(text, position, document), ""
        elif kind == "substitution":
            end = ends.get(position - 1)
            part, position = ("$", start + 1) if end is None else (shlex.quote(text[start:end]), end)
            yield "plain", part, line
        elif kind == "array":
            part, position = _array(text, start, position)
            yield "plain", part, line
        else:
            yield kind, " " if kind == "continuation" else part, line
        line += text.count("\n", start, position)


def _array(text: str, start: int, position: int) -> tuple[str, int]:
    """(`( words )` without comments and line ends, place after it); `(` alone if it has no end nearby."""
    end = text.find(")", position, position + LONGEST)
    if end < 0:
        return "(", position
    words = re.sub(r"(?:^|(?<=\s))#[^\n]*", "", text[start : end + 1])
    return " ".join(words.replace("\\\n", " ").split()), end + 1


def _ends(text: str) -> dict[int, int]:
    """Place of each opening parenthesis -> place after the one that closes it."""
    opened: list[int] = []
    ends = {}
    for match in PARENTHESIS.finditer(text):
        if match[0] == "(":
            opened.append(match.start())
        elif opened:
            ends[opened.pop()] = match.end()
    return ends


def _skip_word(text: str, position: int) -> int:
    """Place after the word that a redirection goes to."""
    match = WORD.match(text, position)
    return match.end() if match else position


def _after_document(text: str, position: int, end: str) -> int:
    """Place after the here-document that starts at `position` and ends with the line `end`."""
    match = re.compile(rf"^[ \t]*{re.escape(end)}[ \t]*$", re.MULTILINE).search(text, position)
    return match.end() if match else position


def _split(source: str) -> list[str]:
    source = DECLARES.sub("", FIRST.sub("", source, count=1) if FIRST.match(source) else source, count=1)
    try:
        return shlex.split(source, posix=True)
    except ValueError:  # a quote without its partner
        return source.split()


def _is_one_word(value: str) -> bool:
    try:
        return len(shlex.split(value)) <= 1
    except ValueError:
        return False
