"""A launch command at a prompt, on a line of its own, or in a shell script: what it asks for.

A line is a command if it stands at a prompt, or if it starts with a program that launches and has a flag
that this program knows; a sentence about torchrun is neither. Files that it names are not read: they lie
on another machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from topocheck.commands import Found, Launch, Starter, Stated, parse_script
from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.launch_facts import state_launch
from topocheck.probes.capture.log_line import Line
from topocheck.probes.capture.prompt import BARE_PROMPT, NAMED_PROMPT, section_at, sections
from topocheck.probes.capture.reading import Reading, Text

__all__ = ["DIRECTIVE", "KIND", "batch_start", "parse", "script_lines"]

KIND = "launch command"

WORDS = (
    "vllm",
    "sglang",
    "trtllm-",
    "torchrun",
    "torch.distributed",
    "deepspeed",
    "accelerate",
    "mpirun",
    "mpiexec",
    "srun",
    "sbatch",
    "model-parallel-size",
    "torchtitan",
)
"""A line without any of these launches nothing that topocheck knows."""
STARTS = re.compile(
    r"(?:[A-Za-z_]\w*=(?:\"[^\"]*\"|'[^']*'|[^\s\"']\S*)?\s+|(?:sudo|nohup|exec|time|env|numactl|timeout|bash|sh)\s+"
    r"|cd\s+\S+\s*&&\s*)*"
    r"(?:\S*/)?(?:vllm\s+serve|sglang\s+serve|trtllm-serve|torchrun|deepspeed|accelerate\s+launch|mpirun|mpiexec|srun"
    r"|sbatch|ray\s+job\s+submit|kubectl\s+exec|python[0-9.]*\s+(?:-\S+\s+)*?-m\s+(?:vllm|sglang|torch\.distributed"
    r"|deepspeed|accelerate)\S*)(?=\s)"
)
HELPERS = frozenset(
    {
        "ray",
        "hostname",
        "nvidia-smi",
        "scontrol",
        "echo",
        "mkdir",
        "cp",
        "rm",
        "ls",
        "cat",
        "sleep",
        "pip",
        "ping",
    }
)
"""Programs that a launcher starts beside the job: they say nothing of its ranks."""
CONTAINER_PROMPT = re.compile(r"(?:Singularity|Apptainer)>\s+(?P<command>\S.*)")
SHEBANG = re.compile(r"#!\s*\S*/(?:env\s+)?(?:ba|da|k|z)?sh\b")
DIRECTIVE = "#SBATCH"
CONTINUED = re.compile(r"\\\s*$")
SECOND_PROMPT = re.compile(r"^\s*>\s+")
MOST_LINES = 400
"""Lines of one command."""
LONGEST, LONGEST_PROMPT = 50_000, 4000
"""Characters of a line that is looked at, with and without a prompt."""


def parse(text: Text) -> list[Reading]:
    """All launch commands of a text; [] if there are none. Slurm's scripts have a parser of their own."""
    if not any(word in line for line in text.lines for word in WORDS):
        return []
    evidence = JobEvidence(KIND, text.source)
    batch = batch_start(text)
    if batch is None and text.lines and SHEBANG.match(text.lines[0]):
        return script_lines(text, evidence, 1).readings()
    found = list(launches(text.lines[: None if batch is None else batch - 1]))
    parts = sections(text) if found else ()
    for number, last, launch in found:
        state_launch(evidence, Line(number, "", host=section_at(parts, number).host), launch)
        evidence.lines.update(range(number, last + 1))
    return evidence.readings()


def batch_start(text: Text) -> int | None:
    """Line where a Slurm batch script starts, which reaches to the end of the text; None if there is none."""
    for number, line in enumerate(text.lines, 1):
        if line.startswith(DIRECTIVE):
            before = range(number, 0, -1)
            return next((first for first in before if text.lines[first - 1].startswith("#!")), number)
    return None


def script_lines(text: Text, evidence: JobEvidence, first: int) -> JobEvidence:
    """State what the commands of a shell script ask for, from line `first` to the end of the text."""
    for found in parse_script("\n".join(text.lines[first - 1 :])[: MOST_LINES * LONGEST]):
        number = first + found.line - 1
        if is_helper(found.launch):
            continue
        state_launch(evidence, Line(number, ""), found.launch)
        evidence.lines.add(number)
    return evidence


def launches(lines: Sequence[str]) -> Iterator[tuple[int, int, Launch]]:
    """(first line, last line, launch) of each command; lines that end in a backslash go on."""
    place = 0
    while place < len(lines):
        line = lines[place]
        start = place
        place += 1
        if len(line) > LONGEST or not (command := candidate(line)):
            continue
        parts = [command]
        while CONTINUED.search(parts[-1]) and place < len(lines) and place - start < MOST_LINES:
            parts.append(SECOND_PROMPT.sub("", lines[place]))
            place += 1
        joined = " ".join(CONTINUED.sub("", part) for part in parts)
        if any(word in joined for word in WORDS):
            for found in parse_script(joined):
                if not is_helper(found.launch) and (command_of(line) is not None or is_certain(found)):
                    yield start + 1, place, found.launch


def candidate(line: str) -> str | None:
    """The command of a line: what stands after a prompt, or the line itself if a launcher starts it."""
    if not any(word in line for word in WORDS) and not CONTINUED.search(line):
        return None
    command = command_of(line)
    if command is not None:
        return command
    bare = line.lstrip()
    return bare if STARTS.match(bare) else None


def command_of(line: str) -> str | None:
    """What stands after the prompt of a line; None if it has none."""
    if len(line) > LONGEST_PROMPT:
        return None
    for prompt in (NAMED_PROMPT, BARE_PROMPT, CONTAINER_PROMPT):
        match = prompt.fullmatch(line)
        if match and match["command"]:
            return match["command"]
    return None


def is_helper(launch: Launch) -> bool:
    """A launcher starts a tool and not the job."""
    return launch.engine is None and launch.program.rpartition("/")[2] in HELPERS


def is_certain(found: Found) -> bool:
    """A flag or a number was understood, so that this is a command and no sentence that begins like one."""
    launch = found.launch
    if launch.sizes or launch.own_nodes or launch.own_rendezvous or launch.options:
        return True
    return any(
        starter.hosts
        or starter.options
        or any(value is not None and value.given for value in counts(starter))
        for starter in launch.starters
    )


def counts(starter: Starter) -> tuple[Stated | None, ...]:
    """The numbers of one launcher."""
    return (starter.nodes, starter.processes, starter.processes_per_node, starter.gpus_per_task)
