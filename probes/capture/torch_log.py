"""What PyTorch and its launchers log: torchrun's agents, Lightning, accelerate, torchtitan, Gloo.

torchrun prints one block for each node: which global ranks its agent starts. Lightning announces each
process; two processes that announce one rank are two lines. `[rank9]:` before a line is torch's own rank
of the process that wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, message, parse_line, parse_lines
from topocheck.probes.capture.printed_fields import whole
from topocheck.probes.capture.reading import Reading, Text
from topocheck.snapshot import RankClaim

__all__ = ["KIND", "parse"]

KIND = "torch log"
MOST_FIELDS = 12
"""Lines of an agent's block."""
COMM = "engine:torch"

NUMBER = r"(\d{1,9})"
RENDEZVOUS = "Rendezvous complete for workers. Result:"
FIELD = re.compile(r"\s*([a-z_]{2,40})=(.{0,100000})")
LIGHTNING = re.compile(
    rf"[Ii]nitializing (?:ddp|distributed): GLOBAL_RANK: {NUMBER}, MEMBER: {NUMBER}/{NUMBER}"
)
VISIBLE = re.compile(rf"LOCAL_RANK: {NUMBER} - CUDA_VISIBLE_DEVICES: \[([\w,/ -]{{0,2000}})\]")
TITAN = re.compile(r"Building device mesh with parallelism: ((?:\w{2,20}=\d{1,9}(?:, )?)+)")
OLD_TITAN = re.compile(r"Building \d-D device mesh with \[([\w', ]{1,200})\], \[([\d, ]{1,200})\]")
ACCELERATE = re.compile(r"Distributed environment: [A-Z_]{2,40}\b")
COLLECTIVE = re.compile(rf"\[r(?:ank)?{NUMBER}@([\w.:-]{{1,253}})\] .{{0,200}}\b(?:ws|world_size)={NUMBER}")
CLIENTS = re.compile(rf"({NUMBER}/{NUMBER}) clients joined")
UNSUPPORTED = re.compile(r"(\S.{2,80}) with CUDA capability (sm_\d{2,4}[a-z]?) is not compatible")
AGAIN = re.compile(r"\] (?:Worker group|Detected \d{1,9} new nodes) .{0,200}will restart worker group")
LOOPBACK = "Using the loopback address as fallback"
WORLD = re.compile(rf"\b(?:world_size|WORLD_SIZE|MEMBER: \d{{1,9}}/|global_world_sizes=\[)[=: ]?{NUMBER}")

AXES = {
    "pp": "pipeline",
    "dp_replicate": "data_replicate",
    "dp_shard": "data_shard",
    "cp": "context",
    "tp": "tensor",
    "ep": "expert",
    "etp": "expert_tensor",
}
"""torchtitan's names of axes."""

WORDS = (
    RENDEZVOUS,
    "GLOBAL_RANK: ",
    "CUDA_VISIBLE_DEVICES: [",
    "device mesh with",
    "Distributed environment: ",
    "world_size",
    "ws=",
    "clients joined",
    "will restart worker group",
    "with CUDA capability",
    LOOPBACK,
    "[rank",
)


def parse(text: Text) -> list[Reading]:
    """Read all lines of PyTorch; [] if there are none."""
    evidence = JobEvidence(KIND, text.source)
    lines = list(parse_lines(text.lines, WORDS))
    worlds = {int(match[1]) for line in lines if (match := WORLD.search(line.text))}
    world = worlds.pop() if len(worlds) == 1 else None
    agents(evidence, text, [line for line in lines if RENDEZVOUS in line.text])
    for line in lines:
        if line.rank is not None:
            evidence.member(line, COMM, line.rank, world)
        if "Distributed environment: " in line.text and ACCELERATE.search(line.text):
            accelerate(evidence, line, text)
        for word, pattern, take in STATEMENTS:
            match = pattern.search(line.text) if word in line.text else None
            if match:
                take(evidence, line, match)
        if LOOPBACK in line.text:
            evidence.fact(line, "rendezvous", "127.0.0.1", "gloo")
            evidence.stated(line, "gloo-loopback", message(line.text))
    return evidence.readings()


def block(line: Line, text: Text, most: int) -> dict[str, str]:
    """Indented `name=value` lines that follow a title; the title's own tags may stand before each."""
    fields: dict[str, str] = {}
    for number in range(line.number + 1, min(line.number + most, len(text.lines)) + 1):
        match = FIELD.fullmatch(parse_line(text.lines[number - 1], number).text)
        if match is None:
            break
        fields.setdefault(match[1], match[2].strip())
    return fields


def numbers(value: str) -> list[int]:
    """`[0, 1]` as numbers; [] if it is no such list."""
    parts = [whole(part) for part in value.removeprefix("[").removesuffix("]").split(",")]
    return [] if None in parts or not value.endswith("]") else [part for part in parts if part is not None]


def agents(evidence: JobEvidence, text: Text, titles: list[Line]) -> None:
    """The blocks of the nodes' agents (torch/distributed/elastic/agent/server/api.py), last start first."""
    blocks = [(line, block(line, text, MOST_FIELDS)) for line in titles]
    starts = [whole(fields.get("restart_count", "")) or 0 for _, fields in blocks]
    found = []
    latest = max(starts, default=0)
    if latest:
        evidence.fact(titles[starts.index(latest)], "restart", latest)
    for (line, fields), start in zip(blocks, starts, strict=True):
        evidence.lines.update(range(line.number, line.number + len(fields) + 1))
        if start < latest:
            evidence.note(line, "ignored", f"restart {start}: the workers were started again later")
        else:
            found.append((line, fields))
    unnamed = {fields.get("group_rank") for line, fields in found if line.host is None}
    for line, fields in found:
        agent(evidence, line, fields, places=line.host is not None or len(unnamed) == 1)
    if len(unnamed) > 1:
        words = (
            f"blocks of {len(unnamed)} agents whose hosts are not named: where their ranks lie is not shown"
        )
        evidence.note(found[0][0], "ignored", words)


def agent(evidence: JobEvidence, line: Line, fields: Mapping[str, str], *, places: bool) -> None:
    """One agent's block. It `places` its ranks where all blocks of its host are of one node."""
    local, ranks = numbers(fields.get("local_ranks", "")), numbers(fields.get("global_ranks", ""))
    sizes = set(numbers(fields.get("global_world_sizes", "")))
    node, size = whole(fields.get("group_rank", "")), sizes.pop() if len(sizes) == 1 else None
    if not ranks or len(local) != len(ranks):
        evidence.note(line, "cut", "an agent's block is cut: its ranks are not known")
        return
    if node is not None:
        evidence.fact(line, "node-ranks", ",".join(map(str, ranks)), str(node))
    evidence.sizes(line, "world", [("", size)])
    evidence.sizes(line, "nodes", [("", whole(fields.get("group_world_size", "")))])
    if "master_addr" in fields:
        port = fields.get("master_port", "")
        evidence.fact(line, "rendezvous", fields["master_addr"] + (f":{port}" if port else ""), "master")
    for local_rank, rank in zip(local, ranks, strict=True) if places else ():
        evidence.claim(
            line, RankClaim(rank=rank, size=size, local_rank=local_rank, node_rank=node, family="torchrun")
        )


def accelerate(evidence: JobEvidence, line: Line, text: Text) -> None:
    """The state that accelerate prints of one process (accelerate/state.py)."""
    fields = {}
    for number in range(line.number + 1, min(line.number + 5, len(text.lines)) + 1):
        name, sign, value = parse_line(text.lines[number - 1], number).text.strip().partition(": ")
        if not sign:
            break
        fields[name] = value.strip()
    size, rank = whole(fields.get("Num processes", "")), whole(fields.get("Process index", ""))
    if size is None or rank is None:
        return
    evidence.lines.update(range(line.number, line.number + len(fields) + 1))
    evidence.fact(line, "world", size)
    evidence.member(
        line, "engine:accelerate", rank, size, cuda=whole(fields.get("Device", "")[len("cuda:") :])
    )


def lightning(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """A process announces its global rank; MEMBER is that rank plus one."""
    rank, member, world = map(int, match.groups())
    if member != rank + 1 or member > world:
        words = f"GLOBAL_RANK {rank} and MEMBER {member}/{world} do not belong together: not used"
        evidence.note(line, "contradictory", words)
        return
    evidence.fact(line, "world", world)
    evidence.fact(line, "rank", rank, line.host or "", again=True)


def visible(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """Devices that a Lightning process sees. Its LOCAL_RANK is no global rank."""
    evidence.fact(line, "option", match[2].replace(" ", ""), "CUDA_VISIBLE_DEVICES")


def titan(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """Sizes of torchtitan's mesh."""
    evidence.fact(line, "engine", "torchtitan")
    pairs = re.findall(r"(\w+)=(\d+)", match[1])
    evidence.sizes(line, "size", [(AXES[name], int(size)) for name, size in pairs if name in AXES])


def old_titan(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """The same before the sizes had names: axes of size 1 are left out."""
    names, sizes = re.findall(r"\w+", match[1]), re.findall(r"\d+", match[2])
    if len(names) != len(sizes):
        evidence.note(line, "contradictory", f"{len(names)} axes and {len(sizes)} sizes: not used")
        return
    evidence.fact(line, "engine", "torchtitan")
    pairs = zip(names, sizes, strict=True)
    evidence.sizes(line, "size", [(AXES[name], int(size)) for name, size in pairs if name in AXES])


def collective(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """A script that names rank and host of each of its workers."""
    rank, host, world = int(match[1]), match[2], int(match[3])
    evidence.fact(line, "world", world)
    evidence.member(line._replace(host=host), COMM, rank, world)


def clients(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """A rendezvous store that waited in vain; its clients are ranks or agents."""
    evidence.fact(line, "store-clients", match[1])


def unsupported(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """A GPU that this PyTorch has no code for."""
    evidence.fact(line, "unsupported-gpu", match[2], match[1])


def again(evidence: JobEvidence, line: Line, match: re.Match[str]) -> None:
    """An agent that will start its workers once more (elastic/agent/server/api.py)."""
    evidence.fact(line, "restart", message(line.text), again=True)


STATEMENTS: tuple[tuple[str, re.Pattern[str], Callable[[JobEvidence, Line, re.Match[str]], None]], ...] = (
    ("GLOBAL_RANK: ", LIGHTNING, lightning),
    ("CUDA_VISIBLE_DEVICES: [", VISIBLE, visible),
    ("device mesh with", TITAN, titan),
    ("device mesh with", OLD_TITAN, old_titan),
    ("@", COLLECTIVE, collective),
    ("clients joined", CLIENTS, clients),
    ("with CUDA capability", UNSUPPORTED, unsupported),
    ("will restart worker group", AGAIN, again),
)
