"""OBS: after a restart nothing moved that should not, and the job works again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from topocheck.ask import Ask
from topocheck.communicators import DUPLICATE
from topocheck.diff import compare
from topocheck.difference import Change, Difference, Kind
from topocheck.jobfacts import facts_of
from topocheck.kinds import with_strays
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, read_at, rule, the
from topocheck.snapshot import At, JobFact
from topocheck.subjects import INNER
from topocheck.traffic import global_members
from topocheck.whereabouts import Whereabouts, whereabouts_of

__all__ = ["RULES"]

COUNT = "TORCHELASTIC_RESTART_COUNT"
LOG = "the NCCL_DEBUG=INFO log of every node since the restart"
CAUSES: dict[Kind, tuple[str, str]] = {
    "node": ("a node is another machine", "if it was exchanged on purpose, take a new baseline"),
    "rank": (
        "ranks lie elsewhere",
        "start the ranks where they were (hostfile order, node ranks); if that is meant, take a new baseline",
    ),
    "gpu": ("GPUs are others", "check the card, and what names GPUs by index or UUID: CUDA_VISIBLE_DEVICES"),
    "link": ("links changed", "drain the node and check its NVLinks: they were better, or otherwise, before"),
    "nic": (
        "NICs changed",
        "check NCCL_IB_HCA and rails by PCI address: names of NICs move when some are gone",
    ),
    "version": ("versions changed", "run what ran before on all nodes, or take a new baseline"),
}
"""Kind of change -> cause, and what to do."""
MOST_TOLD = 3
NOWHERE = "none"
"""What a comparison calls the place of a rank that the earlier look does not show."""


def with_baseline(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, if an earlier look at it was given."""
    if placement.inventory.earlier is None:
        return NotApplicable("no earlier look is given (--since)")
    return the(placement)


@rule("OBS005", "nothing moved since the baseline", over=with_baseline, severity="error")
def nothing_moved(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Ranks, GPUs, links, NICs and versions beside an earlier report or earlier snapshots."""
    earlier = placement.inventory.earlier
    if earlier is None:
        return
    ask.know()
    machines = [node.machine for node in placement.nodes if node.machine is not None]
    now = whereabouts_of("now", machines, [placement])
    found = compare(of_world(earlier, placement), now)
    unseen = [change for change in found.changes if change.kind == "rank" and change.before == NOWHERE]
    for kind in CAUSES:
        changes = [change for change in found.changes if change.kind == kind and change not in unseen]
        if changes:
            yield moved(earlier.name, kind, changes)
    if unseen:
        about = [change.about for change in unseen]
        ask.gap("where these ranks were before", about, "a baseline with the evidence of every node")
    for lack in found.lacks:
        ask.gap(f"{lack.what}, which the baseline shows", lack.about, "the same evidence as for the baseline")
    if not compared(found) and not found.lacks:
        ask.gap(
            "something that the baseline shows too", [earlier.name], "a report of verify --json as baseline"
        )


def of_world(earlier: Whereabouts, placement: Placement) -> Whereabouts:
    """What of an earlier look is of one world: its ranks, and the nodes that carried them."""
    if not placement.facts.worlds:
        return earlier
    name = placement.facts.name
    ranks = {
        basis: {key: seat for key, seat in seats.items() if key[0] == name}
        for basis, seats in earlier.ranks.items()
    }
    carried = {seat.node for seats in ranks.values() for seat in seats.values()}
    nodes = {key: node for key, node in earlier.nodes.items() if key in carried}
    return Whereabouts(earlier.name, nodes, ranks)


def compared(found: Difference) -> bool:
    """Something was held against something."""
    return bool(found.compared.ranks or found.compared.gpus or found.compared.versions)


def moved(baseline: str, kind: Kind, changes: list[Change]) -> Finding:
    """The finding of all changes of one kind."""
    cause, fix = CAUSES[kind]
    told = "; ".join(map(spelled, changes[:MOST_TOLD]))
    rest = len(changes) - MOST_TOLD
    more = f"; and {rest} more change{'s' * (rest > 1)}" if rest > 0 else ""
    return Finding(
        message=f"{cause} since {baseline}: {told}{more}",
        fix=fix,
        cause=cause,
        subjects=tuple(dict.fromkeys(subject(change) for change in changes)),
        evidence=tuple(
            fact
            for change in changes
            for fact in (
                Evidence(source=baseline, fact=f"{subject(change)}: {change.before}"),
                Evidence(source="now", fact=f"{subject(change)}: {change.after}"),
            )
        ),
    )


def subject(change: Change) -> str:
    """What a change is about."""
    return change.about if change.kind in ("rank", "node") else f"{change.about} on {first(change.nodes, 4)}"


def spelled(change: Change) -> str:
    """One change in words."""
    if change.kind == "rank":
        on = f" on {first(change.nodes, 2)}" if change.nodes[0] not in change.after else ""
        verb = "was" if change.count == 1 else "were"
        return f"{change.about} {verb} on {change.before}, now {change.after}{on}"
    if change.kind == "node":
        return f"{change.about} is {change.after}"
    return f"{change.about} on {first(change.nodes, 4)} was {change.before}, now {change.after}"


def restarted(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, if it came back after a fault: by what the user says, or by what the evidence shows."""
    if placement.inventory.admission.expect.recovered or restart_shown(placement):
        return the(placement)
    return NotApplicable("no restart is shown, and none was asked about (--after-recovery)")


def restart_shown(placement: Placement) -> bool:
    """A log shows two starts, or a launcher counts them."""
    if placement.seen.restarts or facts_of(placement, "restart"):
        return True
    # Nodes of one kind have the same variables.
    machines = [alike[0].machine for alike in with_strays(placement)]
    raws = {raw for machine in machines if machine is not None for raw in machine.environments}
    counts = [msgspec.json.decode(raw, type=dict[str, str]).get(COUNT, "0") for raw in raws]
    return any(count not in ("", "0") for count in counts)


@rule("OBS007", "the job works again after recovery", over=restarted, severity="error")
def works_again(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """One version on all stages, communicators that were built anew, and work that was completed."""
    ask.rest_on(placement.placed.basis)
    yield from one_version(ask, placement)
    waiting = sorted(set(range(placement.world)) - connected(placement))
    if waiting and placement.world > 1:
        aborted = any(fact.kind == "abort" for facts in placement.facts_by_node.values() for fact in facts)
        ask.gap(
            "that a rank has its communicators again",
            [f"ranks {fold(waiting)}"],
            LOG,
            because="OBS006" if aborted else None,
        )
    yield from work_completed(ask, placement)


def one_version(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """The engine's version on every node that carries ranks, by stage."""
    by_version: dict[str, list[Node]] = {}
    silent = []
    places = placement.ranks_on or range(placement.expected)
    for node in [placement.nodes[place] for place in places]:
        software = None if node.machine is None else node.machine.software
        if software is None or None in (software.engine, software.engine_version):
            silent.append(node.name)
        else:
            by_version.setdefault(f"{software.engine} {software.engine_version}", []).append(node)
    if silent:
        supply = (
            "the start-up log of every node since the restart, given as NODE=FILE, or topocheck probe there"
        )
        ask.gap("the engine's version since the restart", silent, supply, part="software")
    if len(by_version) > 1:
        parts = [f"{version} runs on {stages(placement, nodes)}" for version, nodes in by_version.items()]
        yield Finding(
            message=f"after the restart {first(parts, 4)}: stages of two versions send what the other does "
            "not expect, and hang or answer wrongly",
            fix="start all stages from one image; let no traffic in before",
            cause="stages run several versions",
            subjects=tuple(node.name for nodes in by_version.values() for node in nodes),
            evidence=tuple(
                Evidence(source=nodes[0].read_in(), fact=f"{version}: {first(map(str, nodes))}")
                for version, nodes in by_version.items()
            ),
        )


def stages(placement: Placement, nodes: Iterable[Node]) -> str:
    """Stages that some nodes carry, with the nodes."""
    nodes, layout = list(nodes), placement.layout
    found = {
        layout.coordinate(rank, "pipeline")
        for node in nodes
        for rank in placement.ranks_on.get(node.index, ())
    }
    names = first(map(str, nodes), 3)
    if not found or layout.size("pipeline") == 1:
        return names
    return f"stage{'s' * (len(found) > 1)} {fold(found)} ({names})"


def is_after(placement: Placement, at: At | None) -> bool:
    """A line is of after the restart: behind it in its log, or anywhere if all evidence is of afterwards."""
    if at is not None and at.source in placement.seen.restarts:
        return not placement.seen.is_past(at)
    return placement.inventory.admission.expect.recovered


def connected(placement: Placement) -> set[int]:
    """Ranks that have since the restart a communicator of the world, or one of each of their groups."""
    layout, whole = placement.layout, set[int]()
    kinds = [kind for kind in layout.kinds() if kind in INNER]
    needed = Counter(layout.size(kind) for kind in kinds)
    own: dict[int, Counter[int]] = {}
    for comm in placement.seen.communicators.values():
        if not comm.size or comm.size < 2 or comm.id.startswith(DUPLICATE):
            continue
        ranks = global_members(placement, comm)
        for member in comm.everyone():
            rank = ranks.get(member.rank)
            if rank is None or member.phase != "complete" or not is_after(placement, member.at):
                continue
            if comm.size == placement.world:
                whole.add(rank)
            own.setdefault(rank, Counter())[comm.size] += 1
    if needed:
        whole |= {
            rank for rank, sizes in own.items() if all(sizes[size] >= count for size, count in needed.items())
        }
    return whole


def work_completed(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """A request that was answered, or a training step, since the restart; else requests that failed."""
    done = since(placement, facts_of(placement, "request-done", "step-done"))
    failed = since(placement, facts_of(placement, "request-failed"))
    if done:
        return
    if not failed:
        ask.gap(
            "a request that was completed since the restart",
            ["job"],
            'the server\'s log with a line such as "POST /v1/completions HTTP/1.1" 200 OK (send one request '
            "without streaming), or a training step; --after-recovery says that all is of afterwards",
        )
        return
    yield Finding(
        message=f"since the restart the server answers {failed[-1].name} with {failed[-1].value} and has "
        "completed no request: a stage does not take part, and nothing completes without it",
        fix="keep traffic away, and look for the stage that is missing or waits (OBS006, PP001, the engine's "
        "log)",
        cause="requests fail",
        subjects=tuple(dict.fromkeys(f"requests to {fact.name}" for fact in failed)),
        evidence=tuple(read_at(fact.at, f"{fact.name} answered {fact.value}") for fact in failed),
    )


def since(placement: Placement, facts: Iterable[JobFact]) -> list[JobFact]:
    """Statements of after the restart."""
    return [fact for fact in facts if is_after(placement, fact.at)]


RULES = (nothing_moved, works_again)
