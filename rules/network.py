"""NET: the way between nodes can be opened, and both ends of it speak one link layer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from topocheck.ask import Ask
from topocheck.domain import in_one_domain
from topocheck.hca import is_up
from topocheck.kinds import by_kind
from topocheck.needed import need_kind, needed
from topocheck.netplugin import Lack, lack_of, need_of
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rdma import equipped, rdma_kind, rdma_of, spell
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, rule
from topocheck.subjects import Boundary, crossings, within_nodes

__all__ = ["RULES", "networked_nodes"]

PROBE = "topocheck probe on every node, or its NCCL_DEBUG=INFO log from the first line"
BY_PLUGIN = ("ofi-no-provider", "no-rdma-device", "socket network")
"""Causes behind which a plugin may be missing."""
LAYERS = {"InfiniBand": "IB", "Ethernet": "RoCE"}
"""Link layers as NCCL calls them, by the kernel's words."""


def networked_nodes(placement: Placement) -> Situations[Node] | NotApplicable:
    """All nodes of a job any of whose groups crosses nodes; those that say nothing as one situation."""
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    return within_nodes(placement) or placement.keep("networked nodes", find_networked)


def find_networked(placement: Placement) -> dict[Hashable, list[Node]]:
    """Nodes by what they say, those that say nothing by hardware, variables and means of RDMA."""
    return by_kind(placement, lambda node: rdma_kind(placement, node) if node.machine else None, others=True)


@rule("NET009", "RDMA can be opened where the ranks run", over=networked_nodes, severity="error")
def rdma_opens(ask: Ask, node: Node) -> Iterator[Finding]:
    """Device node, verbs library and calls, as the job's own processes met them or a probe in their place."""
    ask.know()
    placement = ask.placement
    rdma = rdma_of(placement, node)
    if rdma is None or not (rdma.opened or rdma.met):
        if (rdma is not None and rdma.cause == "switched off") or not equipped(node):
            ask.gap(
                "whether RDMA can be opened where the ranks run",
                [node.name],
                "topocheck probe in the job's container, or the NCCL_DEBUG=INFO log from its first line",
                part="verbs",
            )
        return
    if rdma.works:
        return
    need = need_of(placement, node) if rdma.cause in BY_PLUGIN else None
    if need is not None and isinstance(lack_of(placement, node, need), Lack):
        ask.gap("RDMA by the network plugin", [node.name], "the plugin first", because="NET011")
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


@dataclass(frozen=True, slots=True)
class Layers:
    """Link layers of the RDMA devices that one node uses."""

    names: dict[str, tuple[str, ...]]
    """Devices by layer, in NCCL's word: IB or RoCE."""
    evidence: tuple[Evidence, ...]

    def __str__(self) -> str:
        return first(f"{first(names)} {layer}" for layer, names in self.names.items())


def layers_of(placement: Placement, node: Node) -> Layers | None:
    """Layers of what the job opened on a node, else of the ports that it needs; None if not known."""
    kept = placement.keep("link layers", lambda _: dict[Hashable, Layers | None]())
    kind = need_kind(placement, node)
    if kind not in kept:
        kept[kind] = opened_layers(placement, node) or shown_layers(placement, node)
    return kept[kind]


def opened_layers(placement: Placement, node: Node) -> Layers | None:
    """Layers by NCCL's own list of devices."""
    devices = [fact for fact in placement.facts_by_node.get(node.index, ()) if fact.kind == "hca"]
    pairs = [fact.value.partition("/")[::2] for fact in devices]
    found = sorted_by_layer((name, rest.split("/")[0]) for name, rest in pairs)
    return Layers(found, tuple(spell(fact) for fact in devices[:4])) if found else None


def shown_layers(placement: Placement, node: Node) -> Layers | None:
    """Layers of the ports that the job needs, whichever they are if all that are up have one layer."""
    machine, shape, need = node.machine, node.shape, needed(placement, node)
    if machine is None or shape is None:
        return None
    if need is not None and need.whole:
        ports = [(hca.name, port) for hca in need.devices for port in (hca.live or hca.ports)]
    else:
        ports = [(nic.name, port) for nic in shape.hardware.nics for port in nic.ports if is_up(port)]
    if None in {port.layer for _, port in ports}:
        return None
    found = sorted_by_layer((f"{name}:{port.port}", LAYERS.get(port.layer or "", "")) for name, port in ports)
    if not (need and need.whole) and (len(found) > 1 or machine.coverage.nics != "all"):
        return None
    shown = (Evidence(source=first(machine.sources, 2) or "RDMA probe", fact=str(Layers(found, ()))),)
    return Layers(found, (*shown, *(need.evidence if need else ()))) if found else None


def sorted_by_layer(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Names by layer, each once."""
    found: dict[str, dict[str, None]] = {}
    for name, layer in pairs:
        if layer:
            found.setdefault(layer, {})[name] = None
    return {layer: tuple(names) for layer, names in found.items()}


def sites(placement: Placement) -> Situations[Node | Boundary] | NotApplicable:
    """Nodes by the devices they use, then the pairs of nodes that groups join and no layer does."""
    nodes = networked_nodes(placement)
    return nodes if isinstance(nodes, NotApplicable) else placement.keep("sites", find_sites)


def find_sites(placement: Placement) -> dict[Hashable, list[Node | Boundary]]:
    """Sort nodes into situations. Pairs with an unknown end are the nodes' own gap."""
    nodes = by_kind(
        placement,
        lambda node: need_kind(placement, node) if layers_of(placement, node) else None,
        others=True,
    )
    found: dict[Hashable, list[Node | Boundary]] = {key: list(alike) for key, alike in nodes.items()}
    known: dict[int, frozenset[str]] = {}
    for alike in nodes.values():
        layers = layers_of(placement, alike[0])
        if layers is not None:
            known.update(dict.fromkeys([node.index for node in alike], frozenset(layers.names)))
    if frozenset.intersection(*known.values()) if known else True:
        return found
    pairs = crossings(placement)
    for key, (pair, *_) in pairs.items() if not isinstance(pairs, NotApplicable) else ():
        ends = [known.get(node.index) for node in (pair.a, pair.b) if node is not None]
        if len(ends) == 2 and ends[0] and ends[1] and not ends[0] & ends[1]:
            found["pair", key] = [pair]
    return found


@rule("NET003", "link layers agree", over=sites, severity="warning")
def layers_agree(ask: Ask, site: Node | Boundary) -> Iterator[Finding]:
    """InfiniBand and Ethernet in one list may be paired; at two ends they cannot reach each other."""
    if isinstance(site, Boundary):
        yield from ends_agree(ask, site)
        return
    layers = layers_of(ask.placement, site)
    if layers is None:
        ask.gap("link layer of the RDMA devices in use", [site.name], PROBE, part="nics")
        return
    ask.know()
    if len(layers.names) > 1:
        yield Finding(
            message=f"the list of RDMA devices of {site} mixes link layers: {layers}",
            fix="choose the compute fabric's devices only, with NCCL_IB_HCA",
            cause="list mixes layers",
            subjects=(site.name,),
            evidence=layers.evidence,
        )


def ends_agree(ask: Ask, pair: Boundary) -> Iterator[Finding]:
    """Two nodes that a group joins have a link layer in common."""
    ask.know()
    a, b = pair.a, pair.b
    ends = [layers_of(ask.placement, node) for node in (a, b) if node is not None]
    if a is None or b is None or None in ends or in_one_domain(ask.placement, (a, b)):
        return
    here, there = [end for end in ends if end is not None]
    if not set(here.names) & set(there.names):
        yield Finding(
            message=f"{a} has {here} and {b} has {there}: devices of different link layers cannot reach "
            f"each other, and {pair} stops or falls back to sockets",
            fix="use nodes of one fabric, or select the same fabric's devices on each node with NCCL_IB_HCA",
            cause="ends differ",
            subjects=(str(pair),),
            evidence=(*here.evidence, *there.evidence),
            severity="error",
            ranks=pair.ranks,
            mark="edge",
        )


RULES = (rdma_opens, layers_agree)
