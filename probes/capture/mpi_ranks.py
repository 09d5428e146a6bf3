"""Lines tagged with the rank of their writer, on which it names its host or a device that does not exist.

Open MPI's `[1,13]<stdout>:`, MPICH's `[13] `, Slurm's `13: ` and torch's `[rank13]:`. nccl-tests prints its
host before a fault: `10.0.0.138: Test CUDA failure common.cu:732 'invalid device ordinal'`.
"""

from __future__ import annotations

import re

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line
from topocheck.probes.capture.reading import Reading, Text

__all__ = ["KIND", "parse"]

KIND = "ranks by launcher tag"

TAG = re.compile(
    r"\[\d{1,9},(?P<openmpi>\d{1,9})\]<(?:stdout|stderr|stddiag)>:\s?"
    r"|\[(?P<hydra>\d{1,9})\] (?=\S)|(?P<slurm>\d{1,9}): (?=\S)|\[rank(?P<torch>\d{1,9})\]:\s?"
)
FAULT = "invalid device ordinal"
TEST = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,252}): Test (?:CUDA|NCCL) failure\b")
WORDS = (FAULT, ": Test CUDA failure", ": Test NCCL failure")


def parse(text: Text) -> list[Reading]:
    """Ranks that say where they are, and those whose device does not exist; [] if none does."""
    evidence = JobEvidence(KIND, text.source)
    for number, line in enumerate(text.lines, 1):
        if any(word in line for word in WORDS) and (tag := TAG.match(line)):
            state(evidence, number, next(filter(None, tag.groups())), line[tag.end() :])
    return evidence.readings()


def state(evidence: JobEvidence, number: int, rank: str, message: str) -> None:
    """One tagged line."""
    named = TEST.match(message)
    host = named["host"] if named else ""
    where = Line(number, "", host=host or None)
    if host:
        evidence.fact(where, "rank", int(rank), host)
    if FAULT in message:
        evidence.fact(where, "device-error", int(rank), host)
