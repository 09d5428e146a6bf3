"""Lines by which a job says that it will not run: an engine's refusal, and the end of initialisation.

A refusal (`refused`) has its cause in it. An abort (`abort`) is an uncaught exception, a store or
watchdog that waited too long, a broken full mesh, a launcher that gives up. NCCL's own warnings belong to
the parser of its log. An exception that a logger printed may have been caught and is none of these,
unless the words say that it was fatal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, message, parse_line
from topocheck.probes.capture.reading import Reading, Text

__all__ = ["ABORTS", "KIND", "REFUSALS", "parse"]

KIND = "failure lines"

REFUSALS = (
    ("vllm", "please ensure that world_size ("),
    ("vllm", ") is larger than the number of available GPUs ("),
    ("vllm", ") cannot be larger than the number of available GPUs ("),
    ("vllm", "must be less than or equal to the number of visible devices ("),
    ("vllm", "The number of required GPUs exceeds the total number of available GPUs in the "),
    ("vllm", "Current node has no GPU available."),
    ("vllm", "does not allocate any GPUs on the driver node"),
    ("vllm", "Every node should have a unique IP address."),
    ("vllm", "Total number of attention heads ("),
    ("vllm", "is less than desired GPU memory utilization"),
    ("vllm", "No available memory for the cache blocks"),
    ("sglang", "tp_size must be divisible by number of nodes"),
    ("sglang", "Not enough memory. Please try to increase --mem-fraction-static"),
    ("deepspeed", " specificied on host "),
    ("deepspeed", "not found in hostfile"),
    ("tensorrt_llm", "world_size must equal to "),
    ("megatron", ") is not divisible by total_model_size ("),
    ("megatron", ") is not divisible by tensor_model_parallel_size"),
    (None, "There are not enough slots available in the system to satisfy the "),
)
"""(engine, words) by which a program refuses sizes or resources; the spelling is the program's own."""

ABORTS = (
    "clients joined.",  # TCPStore waited for the other ranks
    "DistStoreError: ",
    "DistBackendError: ",
    "DistNetworkError: ",
    "RendezvousTimeoutError",
    "RendezvousConnectionError",
    "ChildFailedError",
    "Watchdog caught collective operation timeout",
    "watchdog thread terminated with exception",
    "connectFullMesh failed",
    "terminate called after throwing an instance of",
    "The server socket has failed to listen on any local network address",
    "EngineCore failed to start",
    "EngineCore encountered a fatal error",
    "Engine core initialization failed",
    "WorkerProc failed to start",
    "WorkerProc initialization failed",
    "Error executing method init_device",
    "Error executing method 'init_device'",
    "Scheduler hit an exception",
    "Received sigquit from a child process",
    "scheduler died",
    "Watchdog timeout (self.watchdog",
    "Failed to initialize executor on rank ",
    "ActorDiedError",
    "The actor died unexpectedly before finishing this task",
    "The actor died because of an error raised in its creation task",
    "MPI_ABORT was invoked on rank ",
    "noticed that process rank ",
    "detected that one or more processes exited with non-zero status",
    "exits with return code = ",
    "Job step aborted",
    "DUE TO TASK FAILURE",
)
"""Words by which initialisation, or the job, ended."""

FAILED = re.compile(
    r"srun: error: (?P<host>[\w.-]{1,253}): tasks? (?P<tasks>[\d,\[\]-]{1,200}): "
    r"(?:Exited with exit code [1-9]|Killed|Aborted|Segmentation fault|Terminated|Bus error)"
    r"|failed \(exitcode: -?[1-9]\d{0,2}\) local_rank: \d{1,6} \(pid: \d{1,9}\) of binary: "
)
EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w{0,100}\.){0,12}[A-Z]\w{0,100}(?:Error|Exception|Interrupt|Exit)(?:: .*)?"
)


WORDS = (
    *ABORTS,
    *(words for _, words in REFUSALS),
    *("Error", "Exception", "Interrupt", "Exit", "srun: error: ", "failed (exitcode: "),
)


def parse(text: Text) -> list[Reading]:
    """Read all lines of failure; [] if there are none."""
    evidence = JobEvidence(KIND, text.source)
    for line, kind, engine in failures(text):
        evidence.engine = engine
        evidence.fact(line, kind, message(line.text))
    return evidence.readings()


def failures(text: Text) -> Iterator[tuple[Line, str, str | None]]:
    """(line, `refused` or `abort`, engine whose words they are) in order of their lines."""
    found = []
    last: dict[tuple[str | None, int | None, str | None], Line] = {}
    for number, raw in enumerate(text.lines, 1):
        if not raw.strip() or not (last or has_words(raw)):
            continue
        line = parse_line(raw, number)
        key = (line.process, line.pid, line.host)
        last.pop(key, None)
        outcome = judge(line)
        if outcome:
            found.append(outcome)
        elif EXCEPTION.fullmatch(line.text):
            last[key] = line
    found += [(line, "abort", None) for line in last.values()]
    yield from sorted(found, key=lambda outcome: outcome[0].number)


def has_words(raw: str) -> bool:
    """The line may hold a refusal, an abort or an exception."""
    for words in WORDS:  # noqa: SIM110 - asked of every line of every log, a generator costs twice
        if words in raw:
            return True
    return False


def judge(line: Line) -> tuple[Line, str, str | None] | None:
    """What one line says by itself. An exception is uncaught where torch's hook put the rank before it."""
    text = line.text
    if "NCCL INFO" in text or "NCCL WARN" in text:
        return None
    for engine, words in REFUSALS:
        if words in text:
            return line, "refused", engine
    match = FAILED.search(text)
    if match:
        host = match["host"] or line.host
        return line._replace(host=host), "abort", None
    hooked = line.rank is not None and EXCEPTION.fullmatch(text)
    if hooked or any(words in text for words in ABORTS):
        return line, "abort", None
    return None
