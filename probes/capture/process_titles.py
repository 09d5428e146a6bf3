"""Process titles of vLLM and SGLang in listings of `ps` or nvidia-smi: coordinates of the workers that run.

A title names only the axes whose size is above 1, and vLLM's workers of a dense model no DP. API servers,
engine cores, controllers and detokenisers are processes and no ranks. A title from /proc/PID/comm is cut
at 15 characters: what stood after them is not known.
"""

from __future__ import annotations

import re

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line
from topocheck.probes.capture.prompt import Section, section_at, sections
from topocheck.probes.capture.reading import Note, Reading, Text

__all__ = ["KIND", "parse"]

KIND = "process titles"
COMM_LENGTH = 15
"""Characters that the kernel keeps of a command's name (TASK_COMM_LEN without its NUL)."""

TITLE = re.compile(r"(?<![\w:'\"./])(?P<title>(?P<engine>VLLM|sglang)::(?P<name>\w{1,100}))(?=[\s|:]|$)")
WORKER = re.compile(r"(?:Worker|scheduler)(?P<axes>(?:_(?:ATTN_CP|MOE_DP|PCP|DCP|DP|PP|TP|EP)\d{1,6})*)")
AXES = {
    "DP": "data",
    "PP": "pipeline",
    "PCP": "context",
    "ATTN_CP": "context",
    "MOE_DP": "moe_data",
    "TP": "tensor",
    "DCP": "decode_context",
    "EP": "expert",
}

SMI_ROW = re.compile(r"\|\s+(?P<gpu>\d{1,3})\s+(?:N/A|\d+)\s+(?:N/A|\d+)\s+(?P<pid>\d{1,9})\s+[CGM+]+\s")
"""A row of nvidia-smi's table of processes: GPU, GI, CI, PID, type, name."""


def parse(text: Text) -> list[Reading]:
    """Read all titles in listings; [] if there are none."""
    evidence = JobEvidence(KIND, text.source)
    helpers: list[int] = []
    parts: tuple[Section, ...] = ()
    column = None
    for number, raw in enumerate(text.lines, 1):
        if "PID" in raw:
            column = pid_column(raw, column)
        match = TITLE.search(raw) if "::" in raw and len(raw) < 4000 else None
        pid = pid_before(raw[: match.start()], column) if match else None
        if match is None or pid is None:
            continue
        parts = parts or sections(text)
        line = Line(number, raw, pid=pid, host=section_at(parts, number).host)
        if not worker(evidence, line, match):
            evidence.lines.add(number)
            helpers.append(number)
    if helpers:
        words = f"{len(helpers)} processes are no ranks: servers, engine cores, detokenisers and the like"
        evidence.notes.append(Note(helpers[0], "ignored", words))
    return evidence.readings()


def worker(evidence: JobEvidence, line: Line, match: re.Match[str]) -> bool:
    """Take one title; False if it is none of a worker."""
    evidence.engine = "vllm" if match["engine"] == "VLLM" else "sglang"
    evidence.fact(line._replace(host=None), "engine", evidence.engine)
    if not match["name"].startswith(("Worker", "schedul")):
        return False
    found = WORKER.fullmatch(match["name"])
    if found is None or len(match["title"]) == COMM_LENGTH:
        evidence.note(line, "cut", f"the title {match['title']} is cut: its coordinates are not known")
        return True
    tokens = re.findall(r"_([A-Z]+(?:_[A-Z]+)?)(\d+)", found["axes"])
    places = [(AXES[token], int(number)) for token, number in tokens]
    evidence.sizes(line, "rank-coordinate", places)
    words = ", ".join(f"{axis} {place}" for axis, place in places)
    evidence.fact(line, "process", words, str(line.pid))
    row = SMI_ROW.match(line.text)
    if row:
        evidence.fact(line, "device", int(row["gpu"]), words)
    return True


def pid_column(header: str, known: int | None) -> int | None:
    """Position of PID among the words of a header; what was known if the line is none."""
    words = header.split()
    return words.index("PID") if "PID" in words and words[-1] in {"CMD", "COMMAND", "ARGS"} else known


def pid_before(before: str, column: int | None) -> int | None:
    """Pid in the columns before a title; None where the line is no row of a listing.

    Without a header it is the first column, or the second after a user (`ps -ef`, `ps aux`).
    """
    row = SMI_ROW.match(before + " ")
    if row:
        return int(row["pid"])
    words = before.split()
    if column is None or column >= len(words) or not words[column].isdecimal():
        column = 0 if words and words[0].isdecimal() else 1
        if column and not (len(words) > 3 and re.fullmatch(r"[\d.]{1,9}", words[2])):
            return None
    return int(words[column]) if re.fullmatch(r"[0-9]{1,9}", words[column]) else None
