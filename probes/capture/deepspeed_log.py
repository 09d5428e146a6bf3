"""Log of the deepspeed launcher and of DeepSpeed's start: hosts, ranks, devices, layers of each stage.

The launcher prints the whole world: the slots of each host and the global ranks on it. LOCAL_RANK is the
global rank modulo the host's number of processes, which is not the position of the slot where hosts have
unequal numbers (deepspeed/launcher/launch.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, parse_lines
from topocheck.probes.capture.reading import Reading, Text
from topocheck.snapshot import GpuId, RankClaim

__all__ = ["KIND", "parse"]

KIND = "deepspeed log"
ENGINE = "deepspeed"
COMM = f"engine:{ENGINE}"

NUMBER = r"(\d{1,9})"
WORLD_INFO = re.compile(r"WORLD INFO DICT: \{(.{1,1000000})\}")
MAPPING = re.compile(r"global_rank_mapping=defaultdict\(<class 'list'>, \{(.{1,1000000})\}\)")
HOST_LIST = re.compile(r"'([\w.:-]{1,253})': \[([\d, ]{0,100000})\]")
COUNTS = re.compile(rf"nnodes={NUMBER}, num_local_procs={NUMBER}, node_rank={NUMBER}")
WORLD = re.compile(rf"dist_world_size={NUMBER}")
VERSION = re.compile(r"DeepSpeed info: version=([\w.+-]{1,60}?)(?:,|\s|$)")
MPI = re.compile(
    rf"Discovered MPI settings of world_rank={NUMBER}, local_rank={NUMBER}, world_size={NUMBER}, "
    rf"master_addr=([^\s,]{{1,300}}), master_port={NUMBER}"
)
STAGE = re.compile(rf"RANK={NUMBER} STAGE={NUMBER} LAYERS={NUMBER} \[{NUMBER}, {NUMBER}\) STAGE_PARAMS=")

PRINTED = re.compile(rf"stage={NUMBER} layers={NUMBER}\s*")
"""PipelineModule prints these to standard output, each stage once (pipe/module.py)."""
VISIBLE = re.compile(r"Setting CUDA_VISIBLE_DEVICES=([\w,/-]{0,2000})")
SPAWNED = re.compile(
    rf"process {NUMBER} spawned with command: .{{0,20000}}?--local_rank[= ',]{{1,4}}{NUMBER}"
)
TOPOLOGY = re.compile(r"Using topology: \s*\{(.{1,1000000})\}")
COORDINATE = re.compile(rf"ProcessCoord\(([\w=, ]{{1,200}})\): {NUMBER}")
AXES = {"pipe": "pipeline", "data": "data", "model": "tensor"}

WORDS = (
    "WORLD INFO DICT:",
    "global_rank_mapping=",
    "num_local_procs=",
    "dist_world_size=",
    "DeepSpeed info:",
    "Discovered MPI settings",
    " STAGE_PARAMS=",
    "Setting CUDA_VISIBLE_DEVICES=",
    "spawned with command:",
    "Using topology:",
    "stage=",
)


def parse(text: Text) -> list[Reading]:
    """Read all lines of DeepSpeed; [] if there are none."""
    lines = list(parse_lines(text.lines, WORDS))
    evidence = JobEvidence(KIND, text.source, ENGINE)
    launcher(evidence, lines)
    worlds = {int(match[1]) for line in lines if (match := WORLD.search(line.text))}
    world = worlds.pop() if len(worlds) == 1 else None
    stages: dict[int, tuple[Line, int, int]] = {}
    printed: dict[int, tuple[Line, int]] = {}
    for line in lines:
        statements(evidence, line)
        placed(evidence, line)
        match = PRINTED.fullmatch(line.text)
        if match:
            printed[int(match[1])] = line, int(match[2])
        match = STAGE.search(line.text)
        if match:
            rank, stage, _, begin, end = map(int, match.groups())
            evidence.member(line, COMM, rank, world)
            evidence.fact(line, "coordinates", f"pipeline {stage}", str(rank))
            stages[stage] = line, begin, end
    layers(evidence, stages or counted(printed))
    if evidence.lines:
        evidence.fact(Line(min(evidence.lines), ""), "engine", ENGINE)
    return evidence.readings()


def host_lists(content: str) -> dict[str, list[int]]:
    """`'work1': [0, 1], 'work2': [0, 1]` as numbers by host, in order."""
    return {
        host: [int(number) for number in numbers.split(",") if number.strip().isdigit()]
        for host, numbers in HOST_LIST.findall(content)
    }


def launcher(evidence: JobEvidence, lines: list[Line]) -> None:
    """What the launcher prints once on each node, the same everywhere."""
    slots: dict[str, list[int]] = {}
    assigned: dict[str, Line] = {}
    for line in lines:
        match = WORLD_INFO.search(line.text)
        if match:
            slots = host_lists(match[1])
            evidence.fact(line, "nodes", len(slots))
            evidence.fact(line, "node-order", " ".join(slots))
            for host, numbers in slots.items():
                evidence.fact(line, "include", ",".join(map(str, numbers)), host)
        match = MAPPING.search(line.text)
        if match:
            assigned[match[1]] = line
    if assigned:  # the last one counts: the launcher prints it again when it starts again
        content, line = assigned.popitem()
        assign(evidence, line, host_lists(content), slots)


def assign(
    evidence: JobEvidence, line: Line, ranks: Mapping[str, list[int]], slots: Mapping[str, list[int]]
) -> None:
    """Ranks of each host, with their devices where the slots are shown."""
    world = sum(map(len, ranks.values()))
    for node, (host, numbers) in enumerate(ranks.items()):
        devices = slots.get(host, [])
        site = evidence.site(host)
        for rank in numbers:
            local = rank % len(numbers)
            gpu = site.gpu(GpuId(nvml=devices[local])) if len(devices) == len(numbers) else None
            claim = RankClaim(rank=rank, size=world, local_rank=local, node_rank=node, gpu=gpu, family=ENGINE)
            evidence.claim(line._replace(host=host), claim)


def statements(evidence: JobEvidence, line: Line) -> None:
    """Counts, versions, and what MPI told."""
    match = COUNTS.search(line.text)
    if match:
        evidence.fact(line, "nodes", int(match[1]))
        evidence.fact(line, "processes-per-node", int(match[2]), "agent")
        evidence.fact(line, "node-rank", int(match[3]))
    match = WORLD.search(line.text)
    if match:
        evidence.fact(line, "world", int(match[1]))
    match = VERSION.search(line.text)
    if match:
        evidence.fact(line, "engine-version", match[1])
        evidence.version(line, engine=ENGINE, engine_version=match[1])
    match = MPI.search(line.text)
    if match:
        rank, local, world = int(match[1]), int(match[2]), int(match[3])
        evidence.fact(line, "world", world)
        evidence.fact(line, "rendezvous", f"{match[4]}:{match[5]}", "master")
        evidence.member(line, COMM, rank, world, cuda=local)


def placed(evidence: JobEvidence, line: Line) -> None:
    """Devices and processes of one node, and the coordinates of all ranks."""
    match = VISIBLE.search(line.text)
    if match:
        evidence.fact(line, "option", match[1], "CUDA_VISIBLE_DEVICES")
    match = SPAWNED.search(line.text)
    if match:
        evidence.fact(line, "process", f"local rank {match[2]}", match[1])
    match = TOPOLOGY.search(line.text)
    for coordinate in COORDINATE.finditer(match[1]) if match else ():
        places = re.findall(r"(\w+)=(\d{1,9})", coordinate[1])
        words = ", ".join(f"{AXES[axis]} {place}" for axis, place in places if axis in AXES)
        evidence.fact(line, "coordinates", words, coordinate[2])


def counted(printed: Mapping[int, tuple[Line, int]]) -> dict[int, tuple[Line, int, int]]:
    """Ranges of layers from their numbers, as far as the stages follow each other from the first."""
    found: dict[int, tuple[Line, int, int]] = {}
    end = 0
    for stage in range(len(printed)):
        if stage in printed:
            line, count = printed[stage]
            found[stage] = line, end, end + count
            end += count
    return found


def layers(evidence: JobEvidence, stages: Mapping[int, tuple[Line, int, int]]) -> None:
    """Layers of each stage, if every stage from the first layer on was seen."""
    expected, sizes = 0, []
    for place, stage in enumerate(sorted(stages)):
        _, begin, end = stages[stage]
        if stage != place or begin != expected or end < begin:
            evidence.note(stages[stage][0], "cut", "stages before this one are not shown: no layer list")
            return
        sizes.append(end - begin)
        expected = end
    if sizes:
        evidence.fact(stages[0][0], "layers", ",".join(map(str, sizes)))
