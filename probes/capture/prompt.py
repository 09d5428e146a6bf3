"""Whose output a part of a captured text is: prompts and commands, and the sections between them.

A prompt may name the host (`root@node-a:/work# nvidia-smi`), and a command may run elsewhere than at
its prompt (`ssh node-b nvidia-smi`, `kubectl exec pod-a -- nvidia-smi`, `srun -w node1 nvidia-smi`). A
prompt without a name ends what stood before it and says nothing. One section runs from a prompt or
bare command to the next, and a listing that reaches from its command to the end of its section is
whole.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topocheck.probes.capture.reading import Text
from topocheck.snapshot import Extent

__all__ = ["Section", "extent", "host_before", "section_at", "sections"]

NAMED_PROMPT = re.compile(
    r"(?:\([^()]{1,60}\)\s*)*"  # (env) of conda and venv
    r"(?:"
    r"\[?[A-Za-z_][\w.-]*@(?P<at>[A-Za-z0-9][\w.-]*)(?:[: ][^\s#$%>\]][^#$%>\]]{0,200})?[:\]]?\s?[#$%>\u276f]"
    r"|(?P<colon>[A-Za-z0-9][\w.-]*):[~/][^\s#$%>]*\s?[#$%>]"  # SUSE: node-a:~ #
    r")(?:\s+(?P<command>\S.*)|\s*)"
)

BARE_PROMPT = re.compile(
    r"(?:\([^()]{1,60}\)\s*)*"
    r"(?:(?:[~/][\w./~-]*)?\s?[$%]|[\u279c\u276f\u00bb]\s+(?:[~/]\S*|[\w.-]+)?(?:\s+git:\(\S*\))?)\s+(?P<command>\S.*)"
)

TOOLS = re.compile(
    r"nvidia-smi|ibstat|ibstatus|ibv_devinfo|ibv_devices|ibdev2netdev|show_gids|lspci|rdma|numactl|lscpu"
    r"|kubectl|oc|ssh|srun|mpirun|mpiexec|pdsh|clush|docker|podman|singularity|apptainer"
)
"""Commands recognised without a prompt, and after a root prompt that could be a comment (`# ...`)."""

RUNS_ELSEWHERE = frozenset({"mpirun", "mpiexec", "salloc", "sbatch", "pdsh", "clush", "ansible"})
"""Launchers whose command line does not say which of several hosts wrote a line."""

BEFORE_COMMAND = re.compile(r"sudo|time|env|nohup|exec|[A-Za-z_]\w*=.*")

SSH_TAKES_VALUE = re.compile(r"-[BbcDEeFIiJLlmOopQRSWw]")
KUBECTL_TAKES_VALUE = re.compile(
    r"-[ncsf]|--(?:namespace|container|context|cluster|kubeconfig|server|user|filename)"
)

SELECTION = re.compile(r"\|(?!\s*tee\b)|\s(?:-i|--id)\b")
HOST_NAME = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,252})")


@dataclass(frozen=True, slots=True)
class Section:
    """Lines that belong together: the output of one command, or what stands before the first."""

    start: int
    """First line of the output, from 1; the line after the prompt or command."""
    end: int
    """Last line of the output; less than `start` if there is none."""
    command: str | None = None
    """Command line that wrote it, without its prompt; None if none is shown."""
    host: str | None = None
    """Host that prompt or command names."""

    def lists_all(self, tool: str) -> bool:
        """Its command is shown, runs this tool, and asks for no selection: no `-i 0`, no `| head`."""
        command = self.command or ""
        return tool in command and not SELECTION.search(command)


def sections(text: Text) -> tuple[Section, ...]:
    """All sections of a text, in order; the lines before the first prompt are a section of their own."""
    marks = [(0, None, None), *_marks(text)]
    ends = [line - 1 for line, _, _ in marks[1:]] + [len(text.lines)]
    return tuple(
        Section(line + 1, end, command, host) for (line, command, host), end in zip(marks, ends, strict=True)
    )


def section_at(parts: Sequence[Section], line: int) -> Section:
    """The section that a line lies in; a prompt line counts to the section that it opens."""
    return parts[bisect_right(parts, line, key=lambda part: part.start - 1) - 1]


def extent(whole: bool) -> Extent:
    """`all` for a part that nothing was cut from, else `part`."""
    return "all" if whole else "part"


def host_before(text: Text, line: int) -> str | None:
    """Host that the nearest prompt or command at or above a line names; None if it names none."""
    return section_at(sections(text), line).host


def _marks(text: Text) -> Iterator[tuple[int, str | None, str | None]]:
    """(line, command, host) of each prompt or bare command."""
    for number, line in enumerate(text.lines, 1):
        if len(line) > 2000:
            continue
        found = _prompt(line)
        if found is None:
            continue
        command, host = found
        yield number, command, _host_of_command(command, host)


def _prompt(line: str) -> tuple[str | None, str | None] | None:
    """(command, host) if the line is a prompt, a bare command or a file header; else None."""
    if line.startswith("==> ") and line.endswith(" <=="):  # head and tail of several files
        return None, None
    match = NAMED_PROMPT.fullmatch(line) if "@" in line or ":~" in line or ":/" in line else None
    if match:
        return match["command"], match["at"] or match["colon"]
    match = BARE_PROMPT.fullmatch(line)
    if match:
        return match["command"], None
    command = line.removeprefix("# ")
    return (command, None) if _is_command(command) else None


def _is_command(line: str) -> bool:
    """The line is a command of a known tool and no sentence about it."""
    first, _, rest = line.partition(" ")
    tool = _tool(first)
    if not TOOLS.fullmatch(tool) or rest.lstrip().startswith((":", "=")):
        return False
    if tool == "ssh":
        return any(TOOLS.fullmatch(_tool(word)) for word in rest.split())
    return tool not in {"kubectl", "oc"} or "exec" not in rest.split() or " -- " in rest


def _host_of_command(command: str | None, prompt: str | None) -> str | None:
    """Host whose output follows: the one a remote command names, else the prompt's."""
    words = _words(command or "")
    while words and BEFORE_COMMAND.fullmatch(words[0]):
        words = words[1:]
    if not words:
        return prompt
    tool, rest = _tool(words[0]), words[1:]
    if tool == "ssh":
        return _single(_first_argument(rest, SSH_TAKES_VALUE).rpartition("@")[2])
    if tool in {"kubectl", "oc"}:
        return _pod(rest, prompt)
    if tool == "srun":
        return _single(_nodelist(rest))
    return None if tool in RUNS_ELSEWHERE else prompt


def _tool(word: str) -> str:
    """Name of a command without its folder."""
    return word.rpartition("/")[2]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote without its partner
        return command.split()


def _first_argument(words: Sequence[str], takes_value: re.Pattern[str]) -> str:
    """The first word that is neither an option nor an option's value; empty if there is none."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = takes_value.fullmatch(word) is not None
        else:
            return word
    return ""


def _pod(words: Sequence[str], prompt: str | None) -> str | None:
    """Pod of `kubectl exec`; a deployment or the like is no single host."""
    if "exec" not in words:
        return prompt
    target = _first_argument(words[words.index("exec") + 1 :], KUBECTL_TAKES_VALUE)
    return _single(target.removeprefix("pod/").removeprefix("pods/"))


def _nodelist(words: Sequence[str]) -> str:
    """Value of srun's -w or --nodelist; empty if it has none."""
    for number, word in enumerate(words):
        if word == "--" or TOOLS.fullmatch(_tool(word)):
            break
        if word in {"-w", "--nodelist"}:
            return words[number + 1] if number + 1 < len(words) else ""
        for prefix in ("--nodelist=", "-w"):
            if word.startswith(prefix):
                return word[len(prefix) :]
    return ""


def _single(name: str) -> str | None:
    """The name if it names one host; None for a list, a range or nothing."""
    return name if HOST_NAME.fullmatch(name) else None
