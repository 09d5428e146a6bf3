"""Environment variables as `env`, `printenv`, `export -p`, `declare -x`, collect_env or a dict print them.

One snapshot for each listing, with the variables of the allow-list alone. A file that holds nothing but
NAME=VALUE lines is one; a log that happens to hold such a line is not. Quotes belong to the value where
`env` or collect_env printed it, and to the shell everywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from topocheck.launchers.allowed import allowed
from topocheck.launchers.numbering import disagreements, nested
from topocheck.launchers.resolve import RANK_FAMILIES, Resolution, resolve
from topocheck.probes.capture.printed_fields import parse_fields
from topocheck.probes.capture.prompt import Section, sections
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import SCHEMA, At, FullSnapshot, Host, Identity, JobFact, NodeClaim, Source

__all__ = ["KIND", "parse"]

KIND = "environment variables"

ASSIGNMENT = re.compile(
    r"\s{0,8}(?P<shell>export\s+|declare -x\s+|typeset -x\s+)?(?P<name>[A-Z_][A-Z0-9_]{0,200})="
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^'\"\s][^\s]*|)\s*(?:;\s*)?(?:#.*)?"
)
LITERAL = re.compile(r"(?P<name>[A-Za-z_]\w{0,200})=(?P<value>.*)")
COMMAND = re.compile(r"(?:^|[\s;&|(])(?:/usr/bin/|/bin/)?(?:env|printenv)\s*(?:$|[|>])")
SHELL_COMMAND = re.compile(r"(?:^|[\s;&])(?:export(?: -p)?|declare -xp?|declare -px|set)\s*(?:$|\|)")
TITLE = re.compile(r"\s*Environment Variables\s*", re.IGNORECASE)
RULER = re.compile(r"\s*=+\s*")
DICT = re.compile(r"(?:.{0,200}\benv\w{0,20}['\"]?\s*[:=]\s*)?\{(?=['\"][A-Z][A-Z0-9_]+['\"]: ['\"])")

OF_A_PROCESS = re.compile(
    r"(?:.*_)?(?:RANK|PROCID|LOCALID|NODEID|GTIDS|TASK_PID|RANK_LOCAL)|HOSTNAME|SLURMD_NODENAME|POD_(?:NAME|IP)"
)
"""Variables that differ between the processes of one job."""

OPTIONS = ("VLLM_HOST_IP", "CUDA_DEVICE_ORDER", "VLLM_PP_LAYER_PARTITION", "SGLANG_PP_LAYER_PARTITION")
"""Variables that are also facts of the job: rules look at them whatever host they were found on."""


@dataclass(slots=True)
class Listing:
    """One listing while it is read."""

    host: str | None = None
    literal: bool = False
    """Quotes and blanks belong to the values."""
    variables: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Value and line by name, names of the allow-list alone."""
    others: dict[str, tuple[str, int]] = field(default_factory=dict)
    """A second value and its line, of variables that have one."""
    several: bool = False
    """It is the listings of several processes run together."""
    lines: set[int] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)

    def take(self, line: int, name: str, value: str) -> None:
        """Take one variable; the same value again is no conflict."""
        self.lines.add(line)
        if not allowed(name):
            return
        value = value.strip()
        if not self.literal and len(value) > 1 and value[0] in "'\"" and value[-1] == value[0]:
            value = value[1:-1].strip()
        if not self.literal and ("$" in value or "`" in value):
            self.notes.append(Note(line, "ignored", f"{name} is computed by a shell: its value is not shown"))
            return
        known = self.variables.setdefault(name, (value, line))
        if known[0] != value:
            self.others.setdefault(name, (value, line))

    def settle(self) -> None:
        """Variables with two values: a contradiction, unless listings of several processes run together."""
        several = self.several = any(OF_A_PROCESS.fullmatch(name) for name in self.others)
        for name, (value, line) in self.others.items():
            first, where = self.variables[name]
            if not several:
                words = f"{name} is {value!r} here and {first!r} in line {where}"
                self.notes.append(Note(line, "contradictory", words))
        if several:
            words = (
                f"variables of several processes run together: {len(self.others)} that differ are left out"
            )
            self.notes.append(Note(min(line for _, line in self.others.values()), "ignored", words))
            self.variables = {
                name: known for name, known in self.variables.items() if name not in self.others
            }


def parse(text: Text) -> list[Reading]:
    """Read every listing of variables; [] if there is none."""
    found: list[Listing] = []
    if any(is_known(line) for line in text.lines):
        for section in sections(text):
            found += listings(text.lines, section)
    found += dicts(text.lines)
    return [reading(text, listing) for listing in found if listing.variables]


def is_known(line: str) -> bool:
    """The line assigns a variable of the allow-list."""
    match = (
        LITERAL.match(line.lstrip().removeprefix("export ").removeprefix("declare -x "))
        if "=" in line
        else None
    )
    return match is not None and allowed(match["name"])


def listings(lines: Sequence[str], section: Section) -> Iterator[Listing]:
    """The listings of one section: its command's, those under a title, or the whole section."""
    command = section.command or ""
    numbers = range(section.start, section.end + 1)
    titled = [number for number in numbers if "nvironment" in lines[number - 1] and is_title(lines, number)]
    if COMMAND.search(command):
        yield literal(lines, numbers, section.host)
    elif titled:
        for number in titled:
            begin = number + 1 + bool(RULER.fullmatch(lines[number]) if number < len(lines) else None)
            yield literal(lines, until_blank(lines, begin, section.end), section.host)
    elif SHELL_COMMAND.search(command) or is_listing(lines, numbers):
        yield shell(lines, numbers, section.host)
    else:
        for part in paragraphs(lines, numbers):
            if len(part) > 2 and is_listing(lines, part, whole=True):
                yield shell(lines, part, section.host)


def is_title(lines: Sequence[str], number: int) -> bool:
    """The title of collect_env's section, which a ruler or a variable follows."""
    after = lines[number] if number < len(lines) else ""
    follows = RULER.fullmatch(after) or LITERAL.fullmatch(after)
    return TITLE.fullmatch(lines[number - 1]) is not None and follows is not None


def until_blank(lines: Sequence[str], begin: int, end: int) -> range:
    """Lines from `begin` up to the first blank one."""
    stop = begin
    while stop <= end and lines[stop - 1].strip():
        stop += 1
    return range(begin, stop)


def paragraphs(lines: Sequence[str], numbers: range) -> Iterator[range]:
    """Parts of a section between blank lines."""
    begin = numbers.start
    for number in numbers:
        if not lines[number - 1].strip():
            yield range(begin, number)
            begin = number + 1
    yield range(begin, numbers.stop)


def is_listing(lines: Sequence[str], numbers: range, *, whole: bool = False) -> bool:
    """Most lines, or all, are assignments, comments aside, and one is of a known variable."""
    written = [lines[number - 1] for number in numbers if is_written(lines[number - 1])]
    matches = [match for line in written if len(line) < 4000 and (match := ASSIGNMENT.fullmatch(line))]
    enough = len(matches) == len(written) if whole else 2 * len(matches) > len(written)
    return enough and any(allowed(match["name"]) for match in matches)


def is_written(line: str) -> bool:
    """Neither blank nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")


def literal(lines: Sequence[str], numbers: range, host: str | None) -> Listing:
    """A listing whose values stand as they are."""
    listing = Listing(host, literal=True)
    for number in numbers:
        match = LITERAL.fullmatch(lines[number - 1]) if len(lines[number - 1]) < 100_000 else None
        if match:
            listing.take(number, match["name"], match["value"])
    return named(listing)


def shell(lines: Sequence[str], numbers: range, host: str | None) -> Listing:
    """A listing that a shell could read."""
    listing = Listing(host)
    for number in numbers:
        line = lines[number - 1]
        match = ASSIGNMENT.fullmatch(line) if is_written(line) and len(line) < 4000 else None
        if match:
            listing.take(number, match["name"], match["value"])
    return named(listing)


def dicts(lines: Sequence[str]) -> Iterator[Listing]:
    """Variables that Python printed as a dict of its own line: `env_vars: {'NCCL_DEBUG': 'INFO'}`."""
    for number, line in enumerate(lines, 1):
        match = DICT.match(line) if "{'" in line or '{"' in line else None
        if match is None:
            continue
        fields, closed = parse_fields(line[match.end() :])
        if any(not re.fullmatch(r"[A-Za-z_]\w*", name) for name in fields):
            continue
        listing = Listing(literal=True)
        for name, value in fields.items():
            listing.take(number, name, value)
        if not closed:
            listing.notes.append(Note(number, "cut", "the dict of variables is cut"))
        yield named(listing)


def named(listing: Listing) -> Listing:
    """The listing with the host that it names itself, where no prompt does.

    srun hands the submitting shell's HOSTNAME on: with Slurm only SLURMD_NODENAME counts.
    """
    listing.settle()
    slurm = any(name.startswith("SLURM") for name in listing.variables)
    for name in ("SLURMD_NODENAME", *(() if slurm else ("HOSTNAME",))):
        value = listing.variables.get(name, ("", 0))[0]
        if listing.host is None and re.fullmatch(r"[A-Za-z0-9][\w.-]{0,252}", value) and value != "localhost":
            listing.host = value
    return listing


def reading(text: Text, listing: Listing) -> Reading:
    """One listing as evidence."""
    values = {name: value for name, (value, _) in listing.variables.items()}
    snapshot = FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=text.source, kind=KIND),),
        identity=Identity(host=Host(name=listing.host)),
        environment=values,
        job=tuple(facts(text, listing)),
        **claimed(text, listing, values),
    )
    return Reading(KIND, (snapshot,), frozenset(listing.lines), len(values), tuple(listing.notes))


def claimed(text: Text, listing: Listing, values: dict[str, str]) -> dict[str, Any]:
    """What launchers say of the node, and of each other, to the process whose variables these are.

    Its rank is not taken: which process of which GPU it is, a listing does not show.
    """

    def at(variable: str) -> At:
        line = listing.variables.get(variable, ("", min(listing.lines)))[1]
        return At(source=text.source, line=line)

    found = resolve(values)
    node = node_of(found, at(""))
    if listing.several:
        return {"node_claim": node}
    return {
        "node_claim": node,
        "disagreements": disagreements(found, values, at=at),
        "nested": nested(found, at("")),
    }


def node_of(found: Resolution, at: At) -> NodeClaim | None:
    """The index of the node or pod, unless a process's own claim would hold it.

    A launcher of tasks that starts one on a node numbers nodes by it.
    """
    chosen, node = found.chosen, found.node
    if node is None or node.node_rank is None:
        return None
    agent = chosen is not None and chosen.local_size == 1 and chosen.family not in RANK_FAMILIES
    if chosen is not None and None not in (chosen.rank, chosen.node_rank) and not agent:
        return None
    return NodeClaim(
        node_rank=node.node_rank,
        nodes=node.nodes,
        local_size=node.local_size,
        world=node.world,
        family=node.family,
        at=at,
    )


def facts(text: Text, listing: Listing) -> Iterator[JobFact]:
    """What the variables say of the whole job."""
    variables = listing.variables
    for name in OPTIONS:
        if name in variables:
            value, line = variables[name]
            at = At(source=text.source, line=line)
            yield JobFact(kind="option", name=name, value=value, host=listing.host, at=at)
    if variables.get("MASTER_ADDR", ("", 0))[0]:
        address, line = variables["MASTER_ADDR"]
        port = variables.get("MASTER_PORT", ("", 0))[0]
        value = f"{address}:{port}" if port else address
        at = At(source=text.source, line=line)
        yield JobFact(kind="rendezvous", name="master", value=value, host=listing.host, at=at)
