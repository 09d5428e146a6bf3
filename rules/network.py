"""NET: the way between nodes is open, and the same at both ends."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from topocheck.ask import Ask
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rdma import rdma_of, spell
from topocheck.rule import Finding, NotApplicable, Severity, Situations, rule
from topocheck.subjects import within_nodes

__all__ = ["RULES", "networked_nodes"]


def networked_nodes(placement: Placement) -> Situations[Node] | NotApplicable:
    """All nodes of a job any of whose groups crosses nodes; those that say nothing as one situation."""
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    return within_nodes(placement) or placement.keep("networked nodes", find_networked)


def find_networked(placement: Placement) -> dict[Hashable, list[Node]]:
    """Nodes by what they say, those that say nothing by hardware and variables."""
    found: dict[Hashable, list[Node]] = {}
    for node in placement.nodes:
        speaks = node.index in placement.facts_by_node
        variables = node.machine.environments if node.machine else ()
        key: Hashable = node.index if speaks else (id(node.shape) if node.shape else None, variables)
        found.setdefault(key, []).append(node)
    return found


@rule("NET009", "RDMA can be opened where the ranks run", over=networked_nodes, severity="error")
def rdma_opens(ask: Ask, node: Node) -> Iterator[Finding]:
    """Device node, verbs library and calls, as the job's own processes met them."""
    ask.know()
    placement = ask.placement
    rdma = rdma_of(placement, node)
    if rdma is None or not (rdma.opened or rdma.met):
        ask.gap(
            "whether RDMA can be opened where the ranks run",
            [node.name],
            "topocheck probe in the job's container, or the NCCL_DEBUG=INFO log from its first line",
            part="nics",
        )
        return
    if rdma.works:
        return
    suspect = (
        " The locked-memory limit (ulimit -l) is the usual suspect."
        if rdma.cause == "verbs-call-failed"
        else ""
    )
    severity: Severity = "warning" if placement.plan.policy.boundary == "any" else "error"
    yield Finding(
        message=f"RDMA cannot be used on {node}: {rdma.reason}. Traffic between nodes runs over sockets or "
        f"stops.{suspect}",
        fix=rdma.fix,
        cause=rdma.cause,
        subjects=(node.name,),
        evidence=rdma.evidence,
        severity=severity,
        ranks=tuple(placement.ranks_on.get(node.index, ())),
    )


@rule("NET003", "link layers agree", over=networked_nodes, severity="warning")
def layers_agree(ask: Ask, node: Node) -> Iterator[Finding]:
    """InfiniBand and Ethernet in one list: NCCL may pair ports that cannot reach each other."""
    devices = [fact for fact in ask.placement.facts_by_node.get(node.index, []) if fact.kind == "hca"]
    layers: dict[str, list[str]] = {}
    for fact in devices:
        name, _, rest = fact.value.partition("/")
        layers.setdefault(rest.split("/")[0], []).append(name)
    layers = {layer: list(dict.fromkeys(names)) for layer, names in layers.items() if layer}
    if not layers:
        ask.gap(
            "link layer of the RDMA devices in use",
            [node.name],
            "topocheck probe on every node, or its NCCL_DEBUG=INFO log from the first line",
            part="nics",
        )
        return
    ask.know()
    if len(layers) > 1:
        parts = [f"{first(names)} {layer}" for layer, names in layers.items()]
        yield Finding(
            message=f"the list of RDMA devices of {node} mixes link layers: {first(parts)}",
            fix="choose the compute fabric's devices only, with NCCL_IB_HCA",
            cause="list mixes layers",
            subjects=(node.name,),
            evidence=tuple(spell(fact) for fact in devices[:4]),
        )


RULES = (rdma_opens, layers_agree)
