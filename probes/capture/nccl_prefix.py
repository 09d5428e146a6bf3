"""Who wrote a line of an NCCL log: NCCL's own prefix, and the tags of whatever carried the line.

NCCL writes `host:pid:tid [cudaDev] NCCL INFO message`, warnings with `file:line` and since 2.26 a
time in front (src/debug.cc). Before 2.3 the word NCCL is missing, a process without a host name
writes `::pid`, copies lose the tid or the whole prefix. mpirun, srun, Ray, vLLM, kubectl and log
collectors put tags before all that; several processes may share one line. The version line and the
plugin's `INFO: Function:` lines never have a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, cast

__all__ = ["Record", "Writer", "is_partial", "parse_records", "without_tags"]

Level = Literal["INFO", "WARN", "VERSION"]

Writer = tuple[str | None, int | None]
"""A process: host name and pid."""

MARK = re.compile(r"(?:NCCL (INFO|WARN)|(?<=\] )(INFO)) ")
"""Where a message begins; before 2.3 there is no word NCCL after `[2] `."""

WRITER = re.compile(
    r"(?P<host>[A-Za-z0-9_.-]{0,253}):(?P<pid>\d{1,9})(?::(?P<tid>\d{1,9}))? \[(?P<cuda>-?\d{1,3})\] "
    r"(?:\S{1,200} (?:\([^()\s]{1,100}\) )?)?$"  # file:line and function, in warnings and plugins
)

REACH = 500
"""A prefix stands at most so many characters before its message; keeps hostile lines cheap."""

CLOCK = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
TIME = re.compile(CLOCK)

MPI = re.compile(r"\[(?:[^\[\],<>]{1,100}@)?\d{1,9},(?P<rank>\d{1,9})\]<std(?:out|err)>: ?")
"""Open MPI's `--tag-output`: job and rank in MPI_COMM_WORLD."""

TAGS = re.compile(
    r"(?:\s+|" + MPI.pattern.replace("?P<rank>", "?:") + r"|\[\d{1,2}m|" + CLOCK + r"|\d{1,9}: "
    r"|\([^()]{1,200}\) |\[[^\[\]]{1,200}\]:? |\| )*"
)

NODE = re.compile(
    r"(?!(?:INFO|WARN|ERROR|stdout|stderr|rank\d*|\d+): )(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252}): "
    r"(?=(?:INFO|WARN): Function|NCCL )"
)
"""pdsh, clush and old mpirun put `host: ` before each line; believed only before a line of NCCL."""

BARE = re.compile(r"(?:\S{1,200}:\d{1,6} (?:\([^()\s]{1,100}\) )?)?NCCL (?P<level>INFO|WARN) (?P<message>.*)")
OFI = re.compile(r"(?P<level>INFO|WARN): Function: \S{1,100} Line: \d{1,6}: (?P<message>NET/OFI .*)")
LOOSE = re.compile(
    r"(?:(?:Channel|Ring) \d{1,5}(?:/\d{1,5})? : )?\d{1,9}\[[0-9a-f]{1,13}\] -> .* via "
    r"|Duplicate GPU detected"
)


class Record(NamedTuple):
    """One message of an NCCL log and who wrote it."""

    line: int
    """Line, from 1."""
    message: str
    """What NCCL said, without any prefix."""
    level: Level = "INFO"
    """How it was said; VERSION is the line `NCCL version ...` that has no prefix."""
    host: str | None = None
    """Host name, cut by NCCL at the first dot; None if the line names none."""
    pid: int | None = None
    """Process id in the writer's pid namespace."""
    tid: int | None = None
    """Thread id."""
    cuda: int | None = None
    """CUDA device that was current in the thread when it wrote."""
    mpi_rank: int | None = None
    """Rank of the process in MPI_COMM_WORLD, from mpirun's tag."""

    @property
    def writer(self) -> Writer:
        """The process: host name and pid."""
        return (self.host, self.pid)


def parse_records(lines: Iterable[str]) -> Iterator[Record]:
    """All messages of NCCL in a text, in order; other lines are passed over."""
    for number, line in enumerate(lines, 1):
        # Logs are mostly other people's lines: plain searches first.
        if (
            "NCCL " in line
            or "] INFO " in line
            or (" via " in line and " -> " in line)
            or "NET/OFI " in line
            or "Duplicate GPU" in line
        ):
            yield from parse_line(line, number)


def parse_line(line: str, number: int) -> Iterator[Record]:
    """The messages of one line; several if processes wrote over each other."""
    found = [(mark, writer) for mark, writer in writers(line) if writer]
    if not found:
        record = parse_bare(line, number)
        if record:
            yield record
        return
    begin = 0
    tagged = "<std" in line
    for place, (mark, writer) in enumerate(found):
        tag = MPI.search(line, begin, writer.start()) if tagged else None
        begin = mark.end()
        last = place + 1 == len(found)
        message = line[begin:] if last else without_tag(line[begin : found[place + 1][1].start()])
        yield make_record(number, message, mark, writer, tag)


def writers(line: str) -> Iterator[tuple[re.Match[str], re.Match[str] | None]]:
    """Each place where a message begins, with the prefix of its writer if it has one."""
    begin = 0
    for mark in MARK.finditer(line):
        begin = max(begin, mark.start() - REACH)
        writer = WRITER.search(line, begin, mark.start())
        if writer and line[writer.start() - 1 : writer.start()] == ":":
            # A collector may glue its time to the host name: `...12:27:13.208-07:00node-a:79:79 [0] `.
            for clock in TIME.finditer(line, begin, mark.start()):
                begin = clock.end()
            writer = WRITER.search(line, begin, mark.start())
        yield mark, writer
        begin = mark.end()


def make_record(
    number: int, message: str, mark: re.Match[str], writer: re.Match[str], tag: re.Match[str] | None
) -> Record:
    """Put a record together from the pieces of its line."""
    host = writer["host"]
    return Record(
        line=number,
        message=tidy(message),
        level=cast("Level", mark[1] or mark[2]),
        host=None if not host or host.isdigit() else host,  # `10` is what NCCL leaves of 10.0.0.1
        pid=int(writer["pid"]),
        tid=int(writer["tid"]) if writer["tid"] else None,
        cuda=max(int(writer["cuda"]), 0),
        mpi_rank=int(tag["rank"]) if tag else None,
    )


def parse_bare(line: str, number: int) -> Record | None:
    """A message whose line names no process; at most `host: ` stands before it."""
    rest, host = without_tags(line)
    match = BARE.match(rest) or OFI.match(rest)
    if match:
        return Record(number, tidy(match["message"]), cast("Level", match["level"]), host)
    if rest.startswith("NCCL version "):
        return Record(number, tidy(rest), "VERSION", host)
    if LOOSE.match(rest):
        return Record(number, tidy(rest), "WARN" if rest.startswith("Dup") else "INFO", host)
    return None


def without_tags(line: str) -> tuple[str, str | None]:
    """What is left of a line without the tags before it, and the host that a tag names."""
    tags = TAGS.match(line)
    rest = line[tags.end() :] if tags else line
    node = NODE.match(rest)
    return (rest[node.end() :], node["host"]) if node else (rest, None)


def without_tag(message: str) -> str:
    """A message without the tag of the message that follows on the same line."""
    tag = MPI.search(message)
    return message[: tag.start()] if tag else message


def tidy(message: str) -> str:
    """A message without Ray's `[repeated 3x across cluster]` and without trailing blanks."""
    return message.partition(" [repeated ")[0].rstrip()


def is_partial(line: str, writers: Iterable[Writer]) -> bool:
    """The line stops inside the prefix of a process that wrote other lines: the text was cut there."""
    rest, _ = without_tags(line)
    rest = rest.strip()
    prefixes = {f"{host or ':'}:{pid}:" for host, pid in writers if pid is not None}
    return bool(rest) and any(prefix.startswith(rest) for prefix in prefixes)
