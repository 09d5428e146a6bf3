"""`ray list nodes` and `ray list actors`: which nodes a Ray cluster has, and on which of them workers are.

As a table or as JSON (ray/util/state/state_cli.py of Ray 2.60). What is dead is left out. The name of an
actor of vLLM or SGLang tells its rank:

    vllm_Worker_<instance>_TP1_PP0            axes of size 1 left out (vllm/v1/executor/ray_utils.py)
    sglang_scheduler_node<IP>_dp0_pp1_tp3_... <IP> is the node of rank 0 whatever the actor's own is

vLLM's PP and PCP in these names are not the rank's coordinates where both sizes are above 1, but TP first, PP
next and PCP last always count up to the rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import msgspec

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line
from topocheck.probes.capture.reading import Note, Reading, Text
from topocheck.snapshot import RankClaim

__all__ = ["KIND", "parse"]

KIND = "ray list"
LAUNCHER = "ray"

HEX = "[0-9a-f]{56}"
NODE = re.compile(
    rf"\s*\d{{1,6}}\s+(?P<id>{HEX})\s+(?P<address>[0-9a-fA-F.:]{{2,45}})\s+(?:True|False)\s+"
    r"(?P<state>ALIVE|DEAD)\b"
)
GPUS = re.compile(r"(?<![\w:])GPU: (?P<whole>\d{1,6}(?:\.0*)?(?=\s|$))?")
ACTOR = re.compile(
    r"\s*\d{1,6}\s+[0-9a-f]{32}\s+(?P<class>[\w.<>]{1,200})\s+(?P<state>[A-Z_]{4,40})\s+[0-9a-f]{8}\s+"
    rf"(?P<name>\S{{1,300}})\s+(?P<id>{HEX})\s+(?P<pid>\d{{1,9}})\b"
)
VLLM = re.compile(r"vllm_Worker_(?P<instance>.{0,200}?)(?P<axes>(?:_(?:TP|PP|PCP)\d{1,6})*)")
SGLANG = re.compile(
    r"(?P<instance>sglang_scheduler_node.{1,100}?_)dp(\d{1,6})_pp(\d{1,6})_tp(\d{1,6})_pg.{1,100}"
)
NODE_JSON, ACTOR_JSON = '[{"node_id":', '[{"actor_id":'
AXES = ("TP", "PP", "PCP")
INDENT = " " * 40
MOST_AHEAD = 60
"""Lines of one node's row."""
WHOLE = re.compile("object_store_memory")
"""Ray sorts a node's resources, and each node has this one."""
MOST_GPUS = 100_000
LIMIT = 100
"""Rows that Ray lists unless it is told another limit (ray/util/state/common.py, DEFAULT_LIMIT)."""
NODE_ROW, ACTOR_ROW = (re.compile(rf"\s*(\d{{1,6}})\s+{form}\s") for form in (HEX, "[0-9a-f]{32}"))
LONGER = "how many there are is not known, list them with --limit 10000"
LONGEST = 4000
"""Characters of a line of a table."""


@dataclass(frozen=True, slots=True)
class ListedNode:
    """One node of a list."""

    line: int
    id: str
    address: str
    """Address under which it joined; empty if not shown."""
    alive: bool
    gpus: int | None
    """GPUs that it offers; None if its resources are not shown to their end."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One actor that is a rank."""

    line: int
    alive: bool
    engine: str
    instance: str
    """Start of its name, which the workers of one engine share."""
    node: str
    """Id of its node."""
    pid: int | None
    places: tuple[int, int, int]
    """Numbers in its name, fastest axis first."""


def parse(text: Text) -> list[Reading]:
    """Read all nodes and actors; [] if there are none."""
    evidence = JobEvidence(KIND, text.source)
    addresses = nodes(evidence, [*listed_nodes(text)], whole=not at_limit(text, NODE_JSON, NODE_ROW))
    jobs: dict[tuple[str, str], list[Worker]] = {}
    for worker in listed_workers(text):
        jobs.setdefault((worker.engine, worker.instance), []).append(worker)
    jobs = {name: found for name, found in jobs.items() if any(worker.alive for worker in found)}
    for found in jobs.values():
        if at_limit(text, ACTOR_JSON, ACTOR_ROW):
            evidence.note(Line(found[0].line, ""), "cut", f"{LIMIT} actors are listed, Ray's limit: {LONGER}")
        elif len(jobs) > 1:
            words = f"workers of {len(jobs)} engines: which of them is which replica their names do not tell"
            evidence.note(Line(found[0].line, ""), "ignored", words)
        else:
            workers(evidence, found, addresses)
    return evidence.readings()


def at_limit(text: Text, start: str, row: re.Pattern[str]) -> bool:
    """A list ends where Ray's own limit cuts it, and no other limit was asked for."""
    if any("--limit" in line for line in text.lines):
        return False
    numbers = {int(match[1]) for line in text.lines if (match := row.match(line[:LONGEST]))}
    in_table = LIMIT - 1 in numbers and LIMIT not in numbers
    return in_table or any(len(decoded(line, start)) == LIMIT for line in text.lines)


def nodes(evidence: JobEvidence, listed: Sequence[ListedNode], *, whole: bool) -> dict[str, str]:
    """State the nodes that live, their addresses and GPUs; the addresses by id. All are shown if `whole`."""
    found = {node.id: node for node in listed if node.alive}
    for node in found.values():
        line = Line(node.line, "")
        evidence.fact(line, "cluster-node", node.address, node.id)
        evidence.sizes(line, "cluster-node-gpus", [(node.id, node.gpus)])
    counts = [node.gpus for node in found.values() if node.gpus is not None]
    if found and not whole:
        words = f"{LIMIT} nodes are listed, Ray's limit: {LONGER}"
        evidence.note(Line(listed[0].line, ""), "cut", words)
    elif found:
        first = Line(min(node.line for node in found.values()), "")
        evidence.fact(first, "cluster-nodes", len(found), LAUNCHER)
        if len(counts) == len(found):
            evidence.fact(first, "cluster-gpus", sum(counts), LAUNCHER)
    dead = [node.line for node in listed if not node.alive]
    evidence.lines.update(dead)
    if dead:
        evidence.notes.append(Note(dead[0], "ignored", f"{len(dead)} nodes are dead"))
    return {node.id: node.address for node in found.values() if node.address}


def listed_nodes(text: Text) -> Iterator[ListedNode]:
    """Every node of every list."""
    for number, line in enumerate(text.lines, 1):
        for node in decoded(line, NODE_JSON):
            if isinstance(node.get("node_id"), str):
                known = offered(node.get("resources_total"))
                address, alive = str(node.get("node_ip") or ""), node.get("state") == "ALIVE"
                yield ListedNode(number, str(node["node_id"]), address, alive, known)
        match = NODE.match(line) if len(line) < LONGEST else None
        if match:
            words = "\n".join(row(text.lines, number))
            found = GPUS.search(words)
            shown = {"GPU": float(found["whole"] or -1)} if found else dict.fromkeys(WHOLE.findall(words))
            known = offered(shown)
            yield ListedNode(number, match["id"], match["address"], match["state"] == "ALIVE", known)


def offered(resources: object) -> int | None:
    """GPUs among a node's resources; Ray leaves out those of which it has none. None if not known."""
    gpus = resources.get("GPU", 0) if isinstance(resources, dict) and resources else None
    if isinstance(gpus, bool) or not isinstance(gpus, int | float) or not 0 <= gpus < MOST_GPUS:
        return None
    return int(gpus) if gpus == int(gpus) else None


def row(lines: Sequence[str], number: int) -> Iterator[str]:
    """The line of a node and those of its further resources, which stand below each other."""
    yield lines[number - 1]
    for line in lines[number : number + MOST_AHEAD]:
        if not line.startswith(INDENT):
            return
        yield line[:LONGEST]


def decoded(line: str, start: str) -> list[dict[str, object]]:
    """The rows of a JSON list that begins like this; [] for what is none, or is cut."""
    if not line.lstrip().startswith(start):
        return []
    try:
        return msgspec.json.decode(line.strip(), type=list[dict[str, object]])
    except (msgspec.DecodeError, RecursionError):
        return []


def listed_workers(text: Text) -> Iterator[Worker]:
    """Actors whose name tells a rank, dead ones too: what is left of a job counts no world of its own."""
    for number, line in enumerate(text.lines, 1):
        for actor in decoded(line, ACTOR_JSON):
            name, node, pid = actor.get("name"), actor.get("node_id"), actor.get("pid")
            if isinstance(name, str) and isinstance(node, str):
                alive, known = actor.get("state") == "ALIVE", pid if isinstance(pid, int) else None
                yield from worker_of(number, name, node, known, alive=alive)
        match = ACTOR.match(line) if len(line) < LONGEST else None
        if match:
            alive = match["state"] == "ALIVE"
            yield from worker_of(number, match["name"], match["id"], int(match["pid"]), alive=alive)


def worker_of(line: int, name: str, node: str, pid: int | None, *, alive: bool) -> Iterator[Worker]:
    """The rank that a name tells of; nothing for an actor that is none."""
    match = VLLM.fullmatch(name)
    if match:
        numbers = {axis: int(place) for axis, place in re.findall(r"_(TP|PP|PCP)(\d{1,6})", match["axes"])}
        tensor, stage, context = (numbers.get(axis, 0) for axis in AXES)
        yield Worker(line, alive, "vllm", match["instance"], node, pid, (tensor, stage, context))
    match = SGLANG.fullmatch(name)
    if match:
        replica, stage, tensor = map(int, match.groups()[1:])
        yield Worker(line, alive, "sglang", match["instance"], node, pid, (tensor, stage, replica))


def workers(evidence: JobEvidence, every: Sequence[Worker], addresses: Mapping[str, str]) -> None:
    """State the ranks of one engine, if all of them are there: sizes follow from the names alone."""
    sizes = [max(worker.places[axis] for worker in every) + 1 for axis in range(len(AXES))]
    found = [worker for worker in every if worker.alive]
    world = prod(sizes)
    evidence.engine = found[0].engine
    line = Line(found[0].line, "")
    evidence.lines.update(worker.line for worker in found)
    if len(found) != world or len({worker.places for worker in found}) != world:
        evidence.note(line, "cut", f"{len(found)} workers of {world} are shown: their ranks are not known")
        return
    name = "--distributed-executor-backend" if evidence.engine == "vllm" else "--use-ray"
    evidence.fact(line, "option", LAUNCHER if evidence.engine == "vllm" else "true", name)
    evidence.fact(line, "world", world)
    for worker in found:
        tensor, stage, outer = worker.places
        rank = (outer * sizes[1] + stage) * sizes[0] + tensor
        claim = RankClaim(rank=rank, size=world, pid=worker.pid, family=LAUNCHER)
        evidence.claim(Line(worker.line, "", host=addresses.get(worker.node, worker.node)), claim)
    evidence.whole = True
