"""Lines by which a job shows that it works: requests that a server answered, training steps that ended.

Servers of vLLM, SGLang and TensorRT-LLM write uvicorn's access log. Only requests that a model computes
count: a health check says nothing of the ranks. Of each kind the last line is kept, since what matters is
what came after a restart. uvicorn writes the line when the answer begins: of a streamed answer it shows no
more than that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, parse_lines
from topocheck.probes.capture.reading import Reading, Text

__all__ = ["KIND", "parse"]

KIND = "progress lines"

REQUEST = re.compile(r'"POST (?P<path>/[^\s"?]{1,200})[^\s"]{0,500} HTTP/\d(?:\.\d)?" (?P<status>\d{3})\b')
COMPUTED = frozenset(
    {
        "completions",
        "responses",
        "messages",
        "generate",
        "generate_stream",
        "embeddings",
        "encode",
        "embed",
        "score",
        "rerank",
        "classify",
        "pooling",
        "transcriptions",
    }
)
"""Last parts of paths for which a model computes."""

STEPS = (
    ("megatron", " iteration ", re.compile(r"\biteration\s{1,10}(\d{1,9})/\s{0,10}\d{1,9} \| ")),
    ("torchtitan", "step:", re.compile(r"\bstep:\s{0,5}(\d{1,9})\s{1,5}(?:\S{1,40}\s{1,5})?loss:")),
    ("deepspeed", "skipped=", re.compile(r"\bstep=(\d{1,9}), skipped=\d{1,9}, lr=")),
)
"""Engine, a word to look for first, and the line that each step ends with."""

WORDS = (" HTTP/", *(word for _, word, _ in STEPS))


def parse(text: Text) -> list[Reading]:
    """Read the last lines of each kind; [] if there are none."""
    evidence = JobEvidence(KIND, text.source)
    last: dict[tuple[str, str | None], tuple[Line, str, str, str | None]] = {}
    for line, kind, name, value, engine in statements(text):
        last[kind, line.host] = line, name, value, engine
    for (kind, _), (line, name, value, engine) in last.items():
        evidence.engine = engine
        evidence.fact(line, kind, value, name)
    return evidence.readings()


def statements(text: Text) -> Iterator[tuple[Line, str, str, str, str | None]]:
    """(line, kind, name, value, engine) of every line."""
    for line in parse_lines(text.lines, WORDS):
        match = REQUEST.search(line.text)
        if match and match["path"].rpartition("/")[2] in COMPUTED and match["status"][0] in "25":
            kind = "request-done" if match["status"][0] == "2" else "request-failed"
            yield line, kind, match["path"], match["status"], None
            continue
        for engine, word, pattern in STEPS:
            step = pattern.search(line.text) if word in line.text else None
            if step:
                yield line, "step-done", "", step[1], engine
                break
