"""Who wrote a line of an engine's log: the tags of whatever carried it, taken off the line.

Ray and vLLM name the process and its pid, Ray also the address (`(RayWorkerWrapper pid=1978,
ip=10.0.7.8) `), torch the rank (`[rank9]:`), torchrun role and local rank (`[default1]:`), Open MPI the
rank (`[1,4]<stdout>:`), srun the task (`4: `), kubectl the pod (`[pod/NAME/CONTAINER] `). Collectors put
a time before all that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from topocheck.probes.capture.nccl_prefix import CLOCK, MPI

__all__ = ["Line", "message", "parse_line", "parse_lines"]

PROCESS = re.compile(
    r"\((?P<process>[A-Za-z][\w:.-]{0,100})(?: pid=(?P<pid>\d{1,9}))?(?:, ip=(?P<ip>[\w.:-]{1,100}))?\) ?"
)
RANK = re.compile(r"\[rank(?P<rank>\d{1,9})\]: ?")
POD = re.compile(r"\[pod/(?P<pod>[a-z0-9.-]{1,253})/[a-z0-9.-]{1,63}\] ")
OTHER = re.compile(r"\[[a-z_]{1,40}\d{1,5}\]:|" + CLOCK + r" |\d{1,6}: |\[\d{1,2}m")
"""torchrun's tee, a collector's time, srun's task, a colour that lost its escape."""

LOGGER = re.compile(
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./<>-]{1,200}:\d{1,6}\] "  # vLLM
    r"|\[[DIWEF] [^\[\]]{1,100}\] "  # glog, as torch's own C++ code uses it
    r"|\[[DIWEF]\d{4} [^\[\]]{1,100}\] "
    r"|\[\d{4}-\d\d-\d\d[^\[\]]{1,60}\](?: \[\w{1,10}\])?(?: \[[\w.:]{1,100}\])? "  # SGLang, DeepSpeed
)

TAGS = (PROCESS, RANK, MPI, POD, OTHER)
MOST_TAGS = 8


class Line(NamedTuple):
    """One line without its tags, and what they said."""

    number: int
    """Line, from 1."""
    text: str
    """The line without its tags, and without blanks at its end."""
    process: str | None = None
    """Name of the process: `EngineCore_DP0`, `RayWorkerWrapper`."""
    pid: int | None = None
    """Process id in the writer's pid namespace."""
    host: str | None = None
    """Address or pod that a tag names; Ray names the address of other nodes than the driver's only."""
    rank: int | None = None
    """Global rank in torch.distributed, from `[rank9]:`."""


def parse_lines(lines: Iterable[str], words: Sequence[str]) -> Iterator[Line]:
    """The lines that hold one of `words`: logs are mostly other people's lines, and most are long."""
    for number, line in enumerate(lines, 1):
        if any(word in line for word in words):
            yield parse_line(line, number)


def message(text: str) -> str:
    """A line without the level, time and place that a logger put before its message."""
    logger = LOGGER.match(text)
    return text[logger.end() :] if logger else text


def parse_line(line: str, number: int) -> Line:
    """One line. A tag that is there twice counts as it is first."""
    found: dict[str, str] = {}
    begin = 0
    for _ in range(MOST_TAGS):
        tag = next((match for tag in TAGS if (match := tag.match(line, begin))), None)
        if tag is None:
            break
        begin = tag.end()
        kind = tag.re
        named = {} if kind is MPI else {name: value for name, value in tag.groupdict().items() if value}
        found = {**named, **found}
    return Line(
        number,
        line[begin:].rstrip(),
        found.get("process"),
        int(found["pid"]) if "pid" in found else None,
        found.get("ip") or found.get("pod"),
        int(found["rank"]) if "rank" in found else None,
    )
