"""Start-up log of vLLM, 0.6 to 0.33: sizes, ranks, rendezvous, layers, and what Ray gave it.

`non-default args` is what was asked for; the engine line and the lines of the workers are what is in
force. The engine line of a dense model's replica shows data_parallel_size=1 whatever the user asked, so a
data size is taken from it only above 1. A rank line gives a rank of the torch world that its
distributed_init_method names: each replica of a dense model has its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, message, parse_line, parse_lines
from topocheck.probes.capture.printed_fields import Printed, read_fields, whole
from topocheck.probes.capture.reading import Reading, Text
from topocheck.snapshot import GpuId

__all__ = ["KIND", "parse"]

KIND = "vllm log"
ENGINE = "vllm"

SIZES = {
    "tensor_parallel_size": "tensor",
    "pipeline_parallel_size": "pipeline",
    "data_parallel_size": "data",
    "prefill_context_parallel_size": "context",
    "decode_context_parallel_size": "decode_context",
}
AXES = {
    "DP": "data",
    "PP": "pipeline",
    "PCP": "context",
    "TP": "tensor",
    "DCP": "decode_context",
    "EP": "expert",
}

OPTIONS = (
    "distributed_executor_backend",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "ubatch_size",
    "enable_dbo",
    "speculative_config",
    "enable_expert_parallel",
    "all2all_backend",
    "data_parallel_size_local",
    "data_parallel_start_rank",
    "data_parallel_backend",
    "device_ids",
    "headless",
    "disable_custom_all_reduce",
)
"""Arguments that a rule may look at; they become facts under the flag's own spelling."""

HEAD = re.compile(r"(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:|\(\w+ pid=\d+")
"""How another message begins."""

NUMBER = r"(\d{1,9})"
VERSION = r"v?([\w.+-]{1,60})"
"""A version as it is printed in running text."""

ARGS = re.compile(r"non-default args: \{|api_server\.py:\d{1,6}\] args: Namespace\(")
ENGINE_LINE = re.compile(rf"Initializing an? (?:V\d )?LLM engine \({VERSION}\) with config: ")
HEADLESS = re.compile(
    rf"Launching vLLM \({VERSION}\) headless multiproc executor, with head node address ([^\s,]{{1,300}})"
)
HEADLESS_DP = re.compile(r"in headless mode, with head node address (?:tcp://)?([^\s,]{1,300}?)\.?(?:\s|$)")
RANK = re.compile(
    rf"world_size={NUMBER} rank={NUMBER} local_rank={NUMBER} distributed_init_method=(\S{{1,300}}) backend="
)
GROUP = re.compile(
    rf"rank {NUMBER} in world size {NUMBER} is assigned as ((?:[A-Z]{{2,4}} rank (?:\d{{1,9}}|N/A)(?:, )?)+)"
)
LEADER = re.compile(
    rf"DP group leader: node_rank={NUMBER}, node_rank_within_dp={NUMBER}, master_addr=([^\s,]{{1,300}}), "
    rf"mq_connect_ip=([^\s,]{{1,300}}) \(local\), world_size={NUMBER}, local_world_size={NUMBER}"
)
RESERVED = re.compile(
    rf"tensor_parallel_size={NUMBER} is bigger than a reserved number of GPUs \({NUMBER} GPUs\) "
    r"in a node ([\w.-]{1,100}[\w-])"
)
BUNDLES = re.compile(r"creating a placement group of specs for \d+ seconds\. specs=(\[.{1,20000}?\])\. Check")
INIT_METHOD = re.compile(r"(?<!\w)distributed_init_method=['\"]?tcp://([^\s,'\"]{1,300})")
EXECUTOR = re.compile(r"Defaulting to use (\w{1,30}) for distributed inference")
PREFIX_AXES = re.compile(r"_(DP|PP|PCP|TP|DCP|EP)(\d{1,6})(?!\d)")
MODELS = "Detected different devices in the system:"

WORDS = (
    "non-default args",
    "args: Namespace(",
    "LLM engine (v",
    "distributed_init_method=",
    "in world size",
    "vLLM",
    "head node address",
    "DP group leader:",
    "from node_rank",
    "unevenly partitioned",
    "reserved number of GPUs",
    "this process group spans across nodes",
    "creating a placement group",
    "Defaulting to use",
    "\u2588",  # the logo with the version
    MODELS,
)


def parse(text: Text) -> list[Reading]:
    """Read all lines of vLLM; [] if there are none."""
    evidence = JobEvidence(KIND, text.source, ENGINE)
    coordinates(evidence, text)
    for line in parse_lines(text.lines, WORDS):
        if line.text.startswith("[20") or "NCCL INFO" in line.text:  # SGLang's time, NCCL's own lines
            continue
        printed(evidence, line, text)
        if MODELS in line.text:
            mixed_models(evidence, line, text)
        for pattern, take in STATEMENTS:
            match = pattern.search(line.text)
            if match:
                take(evidence, line, match)
    return evidence.readings()


def comm(method: str) -> str:
    """Name of the torch world that one init method builds."""
    return f"engine:{ENGINE} {method}"


def coordinates(evidence: JobEvidence, text: Text) -> None:
    """Coordinates in the name of a worker, `(Worker_PP1_TP0 pid=17)`, once for each name and pid.

    `(RayWorkerWrapper pid=17, ip=10.0.7.8)` has none, and shows that Ray's executor started it.
    """
    known = set()
    for number, raw in enumerate(text.lines, 1):
        tag = raw[:300].partition(")")[0] if "Worker_" in raw or "(RayWorker" in raw else ""
        if not tag or tag in known:
            continue
        known.add(tag)
        line = parse_line(raw, number)
        if line.process and line.process.startswith("RayWorker"):  # RayWorkerWrapper, RayWorkerProc
            evidence.fact(line._replace(host=None), "option", "ray", "--distributed-executor-backend")
        elif line.process and line.process.startswith(("Worker_", "VllmWorker_")):
            for axis, place in PREFIX_AXES.findall(line.process):
                evidence.fact(line, "rank-coordinate", place, AXES[axis])


def printed(evidence: JobEvidence, line: Line, text: Text) -> None:
    """Arguments and the engine's configuration."""
    match = ARGS.search(line.text)
    if match:
        requested(evidence, line, take_printed(evidence, line, text, match.end()))
    match = ENGINE_LINE.search(line.text)
    if match:
        version(evidence, line, match)
        fields = read_fields(text.lines, line.number, line.text[match.end() :], HEAD.match)
        effective(evidence, line, fields)


def take_printed(evidence: JobEvidence, line: Line, text: Text, begin: int) -> Printed:
    """What was printed from here on; a note if its end is missing."""
    found = read_fields(text.lines, line.number, line.text[begin:], HEAD.match)
    evidence.lines.update(found.lines)
    if not found.closed:
        evidence.note(line, "cut", "the arguments are cut: what is not shown is not known")
    elif len(found.lines) > 1:
        evidence.note(line, "repaired", f"the arguments are broken over {len(found.lines)} lines: joined")
    return found


def requested(evidence: JobEvidence, line: Line, printed: Printed) -> None:
    """What the user asked for."""
    evidence.fact(line, "engine", ENGINE)
    evidence.sizes(line, "requested-size", [(axis, printed.number(name)) for name, axis in SIZES.items()])
    for name, kind in (("nnodes", "nodes"), ("node_rank", "node-rank")):
        number = printed.number(name)
        if number is not None:
            evidence.fact(line, kind, number)
    for name, subsystem in (("master_addr", "master"), ("data_parallel_address", "dp-master")):
        if printed.fields.get(name, "None") not in ("None", ""):
            evidence.fact(line, "rendezvous", printed.fields[name], subsystem)
    for name in OPTIONS:
        if printed.fields.get(name, "None") not in ("None", "False"):
            evidence.fact(line, "option", printed.fields[name], "--" + name.replace("_", "-"))


def effective(evidence: JobEvidence, line: Line, printed: Printed) -> None:
    """Sizes in force, as far as the engine line tells them."""
    for name, axis in SIZES.items():
        size = printed.number(name)
        if size is not None and (axis != "data" or size > 1):
            evidence.fact(line, "size", size, axis)
    speculative = printed.fields.get("speculative_config", "None")
    if speculative != "None":
        evidence.fact(line, "option", speculative, "--speculative-config")


def version(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """The version of vLLM, first group of the match."""
    found = match[1].rstrip(".")
    evidence.fact(line, "engine", ENGINE)
    evidence.fact(line, "engine-version", found)
    evidence.version(line, engine=ENGINE, engine_version=found)


def rank(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """A worker of one torch world."""
    world, number, local, method = int(match[1]), int(match[2]), int(match[3]), match[4]
    evidence.fact(line, "world", world)
    evidence.member(line, comm(method), number, world, cuda=local)


def group(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """Where the engine put a rank. Which torch world it is of, the line does not say."""
    number, world = int(match[1]), int(match[2])
    evidence.fact(line, "world", world)
    pairs = re.findall(r"([A-Z]{2,4}) rank (\d+)", match[3])
    known = [f"{AXES[axis]} {place}" for axis, place in pairs if axis in AXES]
    evidence.fact(line, "coordinates", ", ".join(known), str(number))
    members = [(key, seen) for key, seen in evidence.site(line.host).comms.items() if key[1] == number]
    if not members:
        evidence.member(line, f"engine:{ENGINE}", number, world)


def rendezvous(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """Address of torch's rendezvous."""
    evidence.fact(line, "rendezvous", match[1], "dist-init")


def head(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """A node without an API server."""
    version(evidence, line, match)
    evidence.fact(line, "rendezvous", match[2].rstrip("."), "master")


def leader(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """First node of a replica; its own address is the local one."""
    evidence.fact(line, "node-rank", int(match[1]), match[4])
    evidence.fact(line, "rendezvous", match[3], "master")
    evidence.fact(line, "processes-per-node", int(match[6]))


def reserved(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """Ray gave the job fewer GPUs on a node than TP is wide. The node may have more."""
    evidence.sizes(line, "requested-size", [("tensor", whole(match[1]))])
    evidence.fact(line, "reserved-gpus", int(match[2]), match[3])
    site = evidence.site(match[3])
    site.gpus += [GpuId()] * (min(int(match[2]), 64) - len(site.gpus))


def bundles(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """Ray has not given the placement group that was asked for."""
    pinned = re.search(r"'node:([\w.:-]{1,100})'", match[1])
    evidence.fact(line, "bundles", match[1].count("{"), pinned[1] if pinned else "")


def mixed_models(evidence: JobEvidence, line: Line, text: Text) -> None:
    """GPUs of several models, and CUDA_DEVICE_ORDER is not PCI_BUS_ID: vLLM warns of both together."""
    words = line.text.partition(MODELS)[2]
    names, found, _ = words.partition(". Please make sure")
    if not words.strip():  # older versions put the names on a line of their own
        names = text.lines[line.number] if line.number < len(text.lines) else ""
        evidence.lines.add(line.number + 1)
    elif not found:
        evidence.note(line, "cut", "the list of models is cut")
    models = [name.strip() for name in names.split(",") if name.strip()]
    evidence.fact(line, "gpu-models", ", ".join(models))
    evidence.fact(line, "option", "not PCI_BUS_ID", "CUDA_DEVICE_ORDER")


def told(kind: str, name: str = "") -> Callable[[JobEvidence, Line, re.Match[str]], None]:
    """A statement whose value is the first group of its pattern."""
    return lambda evidence, line, match: evidence.fact(line, kind, match[1].replace(" ", ""), name)


def spans(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """Custom all-reduce is built for tensor groups alone, and found one on several nodes."""
    evidence.fact(line, "group-spans-nodes", message(line.text), "tensor")


def nccl(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """NCCL that the workers load."""
    evidence.version(line, nccl=match[1])


STATEMENTS: tuple[tuple[re.Pattern[str], Callable[[JobEvidence, Line, re.Match[str]], None]], ...] = (
    (re.compile(rf"(?:vLLM (?:API )?server|\u2588.{{0,80}}) version {VERSION}"), version),
    (HEADLESS, head),
    (INIT_METHOD, rendezvous),
    (RANK, rank),
    (GROUP, group),
    (LEADER, leader),
    (HEADLESS_DP, told("rendezvous", "dp-master")),
    (re.compile(rf"Inferred data_parallel_rank \d{{1,9}} from node_rank {NUMBER}"), told("node-rank")),
    (re.compile(r"Hidden layers were unevenly partitioned: \[([\d, ]{1,10000})\]"), told("layers")),
    (RESERVED, reserved),
    (re.compile(r"Custom allreduce is disabled because this process group spans across nodes"), spans),
    (BUNDLES, bundles),
    (EXECUTOR, told("option", "--distributed-executor-backend")),
    (re.compile(r"vLLM is using nccl==([\d.]{1,30})"), nccl),
)
