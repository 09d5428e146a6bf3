"""`worker_node_and_gpu_ids = [...]`: node and GPUs of each worker of vLLM's Ray executor, in rank order.

A worker's place in the list is its rank (vllm/executor/ray_gpu_executor.py); GPU ids are Ray's, the
indices that the raylet counts by.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import parse_line
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import GpuId, RankClaim

__all__ = ["KIND", "parse"]

KIND = "ray worker list"
NAME = "worker_node_and_gpu_ids"

BEGIN = re.compile(NAME + r"\s*[=:]\s*\[")
WORKER = re.compile(
    r"\s*\(\s*(?P<quote>['\"])(?P<node>[\w.:-]{1,253})(?P=quote)\s*,\s*\[(?P<gpus>[^\[\]()]{0,4000})\]\s*,?\s*\)"
    r"\s*,?"
)
END = re.compile(r"\)\s*,?\s*\]|^\s*\]")
MOST_LINES = 20_000

Worker = tuple[str, tuple[str, ...]]
"""Node, and the ids of its GPUs."""


def parse(text: Text) -> list[Reading]:
    """Read the last list of workers; [] if there is none."""
    found = [
        (number, match.end())
        for number, line in enumerate(text.lines, 1)
        if NAME in line and (match := BEGIN.search(line))
    ]
    if not found:
        return []
    number, begin = found[-1]
    evidence = JobEvidence(KIND, text.source)
    line = parse_line(text.lines[number - 1], number)._replace(host=None)
    workers, closed, used = read_workers(text.lines, number, begin)
    evidence.lines.update(range(number, number + used))
    for earlier, _ in found[:-1]:
        evidence.notes.append(Note(earlier, "ignored", "a later list of workers follows: not used"))
    if not closed:
        evidence.note(line, "cut", f"the list is cut after {len(workers)} workers")
    evidence.engine = "vllm"
    evidence.fact(line, "option", "ray", "--distributed-executor-backend")
    if closed and workers:
        evidence.fact(line, "world", len(workers))
    for rank, (node, gpus) in enumerate(workers):
        site = evidence.site(node)
        known = gpu_id(gpus[0]) if len(gpus) == 1 else None
        gpu = site.gpu(known) if known else None
        size = len(workers) if closed else None
        evidence.claim(line._replace(host=node), RankClaim(rank=rank, size=size, gpu=gpu, family="ray"))
    evidence.whole = closed
    return evidence.readings()


def read_workers(lines: Sequence[str], number: int, begin: int) -> tuple[list[Worker], bool, int]:
    """Workers of the list that opens in a line, whether the list is closed, and how many lines it has.

    The list may be broken over lines, also in the middle of an id; they are joined without a blank.
    """
    parts = [lines[number - 1][begin:]]
    for line in islice(lines, number, number + MOST_LINES):
        if END.search("".join(parts[-2:])):
            break
        parts.append(line)
    content = "".join(parts)
    workers: list[Worker] = []
    place = 0
    while match := WORKER.match(content, place):
        ids = (part.strip(" '\"") for part in match["gpus"].split(","))
        workers.append((match["node"], tuple(filter(None, ids))))
        place = match.end()
    closed = content[place:].lstrip().startswith("]")
    return workers, closed, len(parts) if closed else 1


def gpu_id(text: str) -> GpuId | None:
    """A GPU by Ray's id: an index, or a UUID where CUDA_VISIBLE_DEVICES held UUIDs."""
    if text.isascii() and text.isdigit() and len(text) < 6:
        return GpuId(nvml=int(text))
    return GpuId(uuid=text) if text.startswith("GPU-") else None
