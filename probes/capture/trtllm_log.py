"""Start-up log of TensorRT-LLM, 0.12 to 1.2: ranks, world, devices.

The prefix of a line bears the rank in MPI_COMM_WORLD (`[TRT-LLM] [RANK 3] [I]`, older `[MPI_Rank 3]`);
the C++ runtime tells world, local size and the GPU of each rank.
"""

from __future__ import annotations

import re

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, parse_lines
from topocheck.probes.capture.reading import Reading, Text

__all__ = ["KIND", "parse"]

KIND = "tensorrt-llm log"
ENGINE = "tensorrt_llm"
COMM = f"engine:{ENGINE}"

NUMBER = r"(\d{1,9})"
VERSION = re.compile(r"\[TensorRT-LLM\] TensorRT[- ]LLM version: v?([\w.+-]{1,60})")
RANK = re.compile(rf"\[TRT-LLM\] \[(?:RANK|MPI_Rank) {NUMBER}\] \[")
MPI = re.compile(rf"MPI size: {NUMBER}, (?:MPI local size: {NUMBER}, )?rank: {NUMBER}")
SESSION = re.compile(rf"start MpiSession with {NUMBER} workers")
DEVICE = re.compile(rf"Rank {NUMBER} is using GPU {NUMBER}")
SIZES = re.compile(rf"TP: {NUMBER}, PP: {NUMBER}, CP: ?{NUMBER}(?:, gpusPerNode: {NUMBER})?")


def parse(text: Text) -> list[Reading]:
    """Read all lines of TensorRT-LLM; [] if there are none."""
    lines = list(parse_lines(text.lines, ("[TensorRT-LLM]", "[TRT-LLM]")))
    evidence = JobEvidence(KIND, text.source, ENGINE)
    worlds = {int(found) for line in lines for found in worlds_of(line)}
    world = worlds.pop() if len(worlds) == 1 else None
    for line in lines:
        ranks(evidence, line, world)
        sizes(evidence, line)
        match = VERSION.search(line.text)
        if match:
            evidence.fact(line, "engine", ENGINE)
            evidence.fact(line, "engine-version", match[1].rstrip("."))
            evidence.version(line, engine=ENGINE, engine_version=match[1].rstrip("."))
    return evidence.readings()


def worlds_of(line: Line) -> list[str]:
    """World sizes that a line tells."""
    return [match[1] for match in (MPI.search(line.text), SESSION.search(line.text)) if match]


def ranks(evidence: JobEvidence, line: Line, world: int | None) -> None:
    """Ranks, and the GPUs that they say they use."""
    for match in (MPI.search(line.text), RANK.search(line.text)):
        if match:
            evidence.member(line, COMM, int(match[match.re.groups]), world)
    match = DEVICE.search(line.text)
    if match:
        evidence.member(line, COMM, int(match[1]), world, cuda=int(match[2]))


def sizes(evidence: JobEvidence, line: Line) -> None:
    """World, ranks a node, and sizes in force."""
    for found in worlds_of(line):
        evidence.fact(line, "world", int(found))
    match = MPI.search(line.text)
    if match and match[2]:
        evidence.fact(line, "processes-per-node", int(match[2]), "launcher")
    match = SIZES.search(line.text)
    if match:
        axes = zip(("tensor", "pipeline", "context"), match.groups(), strict=False)
        evidence.sizes(line, "size", [(axis, int(size)) for axis, size in axes])
        if match[4]:
            evidence.fact(line, "gpus-per-node", int(match[4]))
