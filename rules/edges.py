"""OBS: the two ends of an edge, each as its own process logged it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from topocheck.ask import NVLINK, Ask
from topocheck.edgeends import Ends, ends_of
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rule import Finding, rule
from topocheck.settings import settings_of
from topocheck.subjects import between_nodes
from topocheck.traffic import Flow

__all__ = ["RULES"]

LOG = "the NCCL_DEBUG=INFO log of every node, from its first line to its last"
READ = "NCCL_NET_GDR_READ"
"""0 keeps senders from GPUDirect; unset, NCCL lets it be where GPUs have no NVLink (graph/paths.cc)."""


@rule("OBS004", "the two ends of an edge tell the same story", over=between_nodes, severity="warning")
def ends_agree(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Network and GPUDirect of the sender beside those of the receiver."""
    ask.rest_on("observed")
    edges = ends_of(placement)
    whole = [edge for edge in edges if edge.both]
    apart = [edge for edge in whole if differ(edge)]
    if apart:
        yield other_networks(apart)
    deaf = [edge for edge in whole if edge.sent_alone and not differ(edge)]
    if deaf:
        yield one_end(deaf, [edge.receives[0] for edge in deaf], "received without")
    mute = [edge for edge in whole if edge.received_alone and not differ(edge) and strange(ask, edge)]
    if mute:
        yield one_end(mute, [edge.sends[0] for edge in mute], "sent without")
    if vague := [edge for edge in whole if edge.vague]:
        names = [f"edge {edge}" for edge in vague]
        ask.gap("network and GPUDirect of each end of an edge", names, LOG)
    missing = unseen(placement, edges)
    if missing:
        ask.gap("the other end of an edge between the nodes", missing, LOG)


def differ(edge: Ends) -> bool:
    """Its ends name different networks."""
    sent, received = edge.networks
    return None not in sent | received and not sent & received


def unseen(placement: Placement, edges: Iterable[Ends]) -> list[str]:
    """Nodes whose end of an edge was not seen; all where no edge was."""
    found: dict[str, None] = {}
    for edge in edges:
        if not edge.both:
            known = (edge.sends or edge.receives)[0]
            far = known.dst_node if edge.sends else known.src_node
            found[f"edge {edge}" if far is None else far.name] = None
    if not found and not edges:
        found = dict.fromkeys(node.name for node in placement.nodes[: placement.expected])
    return list(found)


def strange(ask: Ask, edge: Ends) -> bool:
    """A sender without GPUDirect is strange on a board with NVLink, unless the user wanted it so."""
    node = edge.sends[0].near
    if any(setting.value.strip() == "0" for setting in settings_of(ask.placement, node, READ)):
        return False
    linked = has_links(node)
    if linked is None:
        ask.gap(
            "whether the sender's GPUs have NVLink, without which NCCL sends through host memory",
            [node.name],
            NVLINK,
            part="links",
        )
    return bool(linked)


def has_links(node: Node) -> bool | None:
    """Some GPU of a node has an active NVLink; None if not known."""
    shape = node.shape
    if shape is None or not shape.gpus:
        return None
    counts = [shape.nvlinks(gpu) for gpu in range(shape.gpus)]
    pairs = [shape.link(0, gpu) for gpu in range(1, shape.gpus)]
    if any(counts) or any(link is not None and link.nvlink for link in pairs):
        return True
    return False if None not in counts or (pairs and None not in pairs) else None


def other_networks(edges: Sequence[Ends]) -> Finding:
    """The finding of ends that name different networks."""
    edge = edges[0]
    sent, received = edge.sends[0], edge.receives[0]
    return Finding(
        message=f"edge {edge} is sent over {sent.how} by {sent.near} and received over {received.how} by "
        f"{received.near}{more(edges)}: the two ends did not choose one network",
        fix="compare NCCL_NET, NCCL_IB_DISABLE, the network plugin and its lines in the logs of both nodes",
        cause="ends on different networks",
        subjects=tuple(f"edge {one}" for one in edges),
        evidence=tuple(flow.evidence() for one in edges for flow in (one.sends[0], one.receives[0])),
        ranks=ranks_of(sent),
        mark="edge",
    )


def one_end(edges: Sequence[Ends], lacking: Sequence[Flow], how: str) -> Finding:
    """The finding of edges of which one end alone uses GPUDirect RDMA."""
    other = "sent" if how.startswith("received") else "received"
    nodes = first(dict.fromkeys(str(flow.near) for flow in lacking), 4)
    return Finding(
        message=f"edge {edges[0]} is {other} with GPUDirect RDMA and {how} on {nodes}{more(edges)}: it is "
        "staged through host memory there",
        fix=f"compare {nodes} with the other nodes: nvidia_peermem or dma-buf, how far the NIC is from the "
        "GPU, NCCL_NET_GDR_LEVEL",
        cause=f"GPUDirect at one end, {how}",
        subjects=tuple(f"edge {edge}" for edge in edges),
        evidence=tuple(flow.evidence() for edge in edges for flow in (edge.sends[0], edge.receives[0])),
        ranks=ranks_of(lacking[0]),
        mark="edge",
    )


def more(edges: Sequence[Ends]) -> str:
    """How many further edges there are."""
    rest = len(edges) - 1
    return f", as {rest} more edge{'s' * (rest > 1)}" if rest else ""


def ranks_of(flow: Flow) -> tuple[int, ...]:
    """Global ranks of the ends, as far as known."""
    return tuple(rank for rank in (flow.src, flow.dst) if rank is not None)


RULES = (ends_agree,)
