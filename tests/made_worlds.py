"""Jobs of several worlds in a line each: plans, hosts that carry them, and the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from build import AT, comm, full, inventory, log, plan, snap

from topocheck.checklist import Gate
from topocheck.origin import NOTHING_TAKEN
from topocheck.report import Report, RuleReport
from topocheck.rules import RULES
from topocheck.snapshot import CommRank, FullSnapshot, RankClaim
from topocheck.worldreport import of_worlds, worlds_report
from topocheck.worldwise import Judgement

__all__ = [
    "DENSE",
    "POOLS",
    "TWINS",
    "accused",
    "carrier",
    "errors",
    "judgement",
    "of",
    "pools",
    "replica_log",
    "told",
]

POOLS = """engine: vllm
worlds:
  prefill: {parallel: {tensor: 4}, nodes: [node-a]}
  decode: {parallel: {tensor: 4, pipeline: 2}, nodes: [node-b, node-c]}
"""
"""Prefill on one node, decode on two."""
TWINS = "engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\nworlds: 2\n"
"""Two replicas with TP 4 on one node."""
DENSE = "engine: vllm\nparallel: {tensor: 4, data: 2}\nmodel: {layers: 32, heads: 32}\nnodes: [node-a]\n"
"""Dense data parallelism: vLLM makes a world of each replica."""


def of(
    world: str, ranks: Iterable[int], size: int | None, *, first: int = 0, **fields: Any
) -> tuple[RankClaim, ...]:
    """Claims of one world on one node, one a GPU from `first` on."""
    return tuple(
        RankClaim(
            rank=rank,
            world=world,
            size=size,
            local_rank=n,
            **({"gpu": first + n, "pid": 9000 + 100 * first + rank} | fields),
        )
        for n, rank in enumerate(ranks)
    )


def carrier(name: str, *claims: Sequence[RankClaim], count: int = 8, **parts: Any) -> FullSnapshot:
    """A node with the claims of all its worlds."""
    known = tuple(claim for world in claims for claim in world)
    made = snap(name, count=count, coverage=full(ranks="all"), **parts)
    return msgspec.structs.replace(made, ranks=known)


def pools(**of_decode: Any) -> list[FullSnapshot]:
    """POOLS, healthy; keywords change node-c."""
    return [
        carrier("node-a", of("prefill", range(4), 4), count=4),
        carrier("node-b", of("decode", range(4), 8), count=4),
        carrier("node-c", of("decode", range(4, 8), 8), **({"count": 4} | of_decode)),
    ]


def replica_log(host: str, *firsts: int, size: int = 4, **parts: Any) -> FullSnapshot:
    """A log in which each replica builds a communicator of its own, on GPUs from each of `firsts` on."""
    comms: list[CommRank] = []
    for number, first in enumerate(firsts):
        known = comm(f"0xa{host[-1]}{number}", range(size), host=host, size=size, line=10 + 10 * number)
        comms += [
            msgspec.structs.replace(entry, gpu=first + n, pid=7000 + first + n)
            for n, entry in enumerate(known)
        ]
    return log(host, comms, count=8, **parts)


def judgement(text: str, *snapshots: FullSnapshot) -> Judgement:
    """All answers about a job of several worlds."""
    found, _ = of_worlds(plan(text), inventory(*snapshots), RULES, NOTHING_TAKEN)
    assert found is not None, "the plan has one world"
    return found


def told(text: str, *snapshots: FullSnapshot, gate: Gate | None = None, whole: bool = False) -> Report:
    """What verify says."""
    return worlds_report(judgement(text, *snapshots), [], at=AT, gate=gate or Gate(), whole=whole)


def errors(found: Report) -> list[str]:
    """Messages of severity error, each with its rule."""
    return [
        f"{rule.id} {finding.message}"
        for rule in found.rules
        for finding in rule.findings
        if finding.severity == "error"
    ]


def accused(found: Report) -> list[RuleReport]:
    """Rules that fail."""
    return [rule for rule in found.rules if rule.verdict == "fail"]
