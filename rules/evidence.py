"""EV: is the evidence there, whole, and of one mind."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from topocheck.ask import Ask
from topocheck.kinds import in_order, per_node, with_strays
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, each, read_at, rule, the

__all__ = ["RULES"]


def nodes_of_job(placement: Placement) -> Situations[Node] | NotApplicable:
    """Expected nodes, those that reported as one situation, and hosts that the plan does not have."""
    if placement.facts.origin.nodes_seen and all(node.machine for node in placement.nodes):
        return NotApplicable(
            "the nodes are those on which this very evidence shows ranks: no plan names others"
        )
    seen = [node for node in placement.nodes[: placement.expected] if node.machine is not None]
    absent = [node for node in placement.nodes[: placement.expected] if node.machine is None]
    extra = placement.nodes[placement.expected :]
    found: dict[Hashable, list[Node]] = {node.index: [node] for node in extra}
    return {**({"seen": seen} if seen else {}), **({"absent": absent} if absent else {}), **found}


@rule("EV001", "every expected node reported", over=nodes_of_job, severity="error", required=True)
def node_reported(ask: Ask, node: Node) -> Iterator[Finding]:
    """An absent node is unknown; a host with ranks that the plan does not have is wrong."""
    placement = ask.placement
    ask.know()
    if node.index >= placement.expected:
        names = [place.name for place in placement.nodes[: placement.expected]]
        ranks = placement.ranks_on.get(node.index, [])
        source = first(node.machine.sources, 2) if node.machine else placement.phase
        which = f"ranks {fold(ranks)} of the job" if ranks else "ranks of the job"
        yield Finding(
            message=f"{node} carries {which} and the plan does not have it "
            f"({placement.expected} nodes: {first(names)})",
            fix=f"correct `nodes:` in the plan, or start the job without {node}",
            cause="host not in the plan",
            subjects=(node.name,),
            evidence=tuple(
                read_at(placement.placed.at.get(rank), f"rank {rank} is on {node}", source)
                for rank in ranks[:1]
            )
            or (Evidence(source=source, fact=f"{node} carries ranks"),),
            ranks=tuple(ranks),
        )
    elif node.machine is None:
        absent = [place.name for place in placement.nodes[: placement.expected] if place.machine is None]
        unused = f"; hosts seen without ranks: {first(placement.unused)}" if placement.unused else ""
        ask.gap("any evidence of a node", absent, f"topocheck probe on every node{unused}")


def faults(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes of which a part could not be read; none at all where no node was seen."""
    seen = [alike for alike in with_strays(placement) if alike[0].machine is not None]
    faulty = [alike for alike in seen if alike[0].machine is not None and alike[0].machine.faults]
    probed = in_order(faulty)
    if seen and not probed:
        return NotApplicable("no probe reported a fault")
    return each(probed)


@rule("EV002", "no probe fault hides a needed fact", over=faults, severity="warning")
def fault_hides_nothing(ask: Ask, node: Node) -> Iterator[Finding]:
    """A part that could not be read matters if a rule misses that part of that node."""
    ask.know()
    missed: dict[str | None, set[str]] = {}
    for answer in ask.earlier:
        for gap in answer.gaps:
            if node.name in gap.about:
                missed.setdefault(gap.part, set()).add(answer.rule_id)
    for fault in node.machine.faults if node.machine else ():
        if fault.kind == "contradictory" or fault.part not in missed:
            continue
        yield Finding(
            message=f"{fault.part} of {node} could not be read ({fault.kind}: {fault.reason or fault.path}), "
            f"which leaves {first(sorted(missed[fault.part]))} without evidence",
            fix=f"make {fault.path} readable where the probe runs, or give the same facts by a capture",
            cause=f"{fault.part} {fault.kind}",
            subjects=(node.name,),
            evidence=(read_at(None, f"{fault.kind}: {fault.reason or fault.path}", fault.path),),
        )


def asked(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, if something is asked of its evidence."""
    if placement.inventory.admission.open:
        return NotApplicable("neither a run id nor an age is asked for (--run, --max-age)")
    return the(placement)


@rule("EV003", "the evidence belongs to this run", over=asked, severity="error", required=True)
def evidence_is_of_this_run(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Snapshots of another run, or too old, count as absent, and are named here."""
    ask.know()
    expect, stale = placement.inventory.admission.expect, placement.inventory.stale
    wanted = [f"of run {expect.run}"] if expect.run is not None else []
    wanted += [f"at most {expect.max_age_s} s old"] if expect.max_age_s is not None else []
    if stale:
        hosts = first(dict.fromkeys(seen.host for seen in stale))
        yield Finding(
            message=f"evidence of {hosts} is not {' and '.join(wanted)}: "
            f"{first(dict.fromkeys(seen.reason for seen in stale), 3)}. It was not used",
            fix="gather it again in this run; empty the store or folder that still holds an earlier run's",
            cause="evidence of another run",
            subjects=tuple(dict.fromkeys(seen.host for seen in stale)),
            evidence=tuple(
                Evidence(source=seen.source, fact=f"{seen.host}: {seen.reason}") for seen in stale
            ),
        )
    absent = [node.name for node in placement.nodes[: placement.expected] if node.machine is None]
    if absent and not stale:
        ask.gap("evidence of this run", absent, "topocheck probe on every node", because="EV001")
    if expect.run is not None:
        silent = [node.name for node in placement.nodes if node.machine and not node.machine.bears_run]
        if silent:
            ask.gap("run id of the evidence", silent, f"topocheck probe --run {expect.run} on every node")
    if expect.max_age_s is not None:
        silent = [node.name for node in placement.nodes if node.machine and not node.machine.bears_time]
        if silent:
            ask.gap("time of the evidence", silent, "topocheck probe on every node")


def seen_nodes(placement: Placement) -> Situations[Node]:
    """Nodes with evidence, those without a contradiction as one situation."""
    at_odds = per_node(placement, contradictions)
    seen = [node for node in placement.nodes if node.machine is not None]
    found: dict[Hashable, list[Node]] = {node.index: [node] for node in seen if at_odds[node.index]}
    settled = [node for node in seen if not at_odds[node.index]] if found else seen
    return {**({"settled": settled} if settled else {}), **found}


@rule("EV004", "sources do not contradict each other", over=seen_nodes, severity="error")
def sources_agree(ask: Ask, node: Node) -> Iterator[Finding]:
    """Two sources that say different things about one fact."""
    ask.know()
    machine = node.machine
    if machine is None:
        return
    if machine.conflicts:
        told = machine.conflicts[0]
        others = len(machine.conflicts) - 1
        what = "fact differs" if others == 1 else "facts differ"
        more = f" ({others} more {what})" if others else ""
        yield Finding(
            message=f"{told.about} on {node}: one source says {told.values[0]}, "
            f"another {told.values[1]}{more}",
            fix="find out which source is of this machine and this boot, and leave the other out",
            cause="sources differ",
            subjects=(node.name,),
            evidence=tuple(
                read_at(at, f"{conflict.about}: {value}")
                for conflict in machine.conflicts
                for at, value in zip(conflict.places, conflict.values, strict=True)
            ),
        )
    for fault in machine.faults:
        if fault.kind == "contradictory":
            yield Finding(
                message=f"{fault.path} contradicts itself about {node}: {fault.reason}",
                fix="capture it again",
                cause=f"{fault.part} contradictory",
                subjects=(node.name,),
                evidence=(read_at(None, fault.reason, fault.path),),
            )


def contradictions(node: Node) -> bool:
    """Something about this node is said twice and differently."""
    machine = node.machine
    return machine is not None and bool(
        machine.conflicts or any(fault.kind == "contradictory" for fault in machine.faults)
    )


RULES = (node_reported, evidence_is_of_this_run, sources_agree, fault_hides_nothing)
