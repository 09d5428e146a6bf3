"""The link that each stage boundary really uses: NVLink or PCIe inside a node, the near NICs between nodes.

What the evidence leaves open widens the bounds of a link; what it does not show at all is a gap.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from topocheck.ask import Ask, Device
from topocheck.domain import domains_between, in_one_domain
from topocheck.hardware import Shape
from topocheck.hcafilter import parse_hca_filter
from topocheck.kinds import kind_numbers
from topocheck.pipeline.boundary import Link, nvlink, pcie, pcie_bytes_per_s, rdma, shared
from topocheck.pipeline.bounds import Bounds
from topocheck.placement import Node, Placement
from topocheck.ranges import first, fold
from topocheck.rdma import rdma_of
from topocheck.rule import Evidence, situations
from topocheck.stagepairs import StagePair, stage_pairs
from topocheck.subjects import Gpus
from topocheck.traffic import flows

__all__ = ["Crossing", "StageLink", "find_crossings", "stage_link"]

PROBE = "topocheck probe on every node"
CLOSE = ("PIX", "PXB")
REACH = ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_IB_GDR_LEVEL", "NCCL_DMABUF_ENABLE")
"""Variables that change where NCCL uses GPUDirect."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """All pairs of neighbouring stages' ranks that go from one node to one node."""

    a: Node | None
    """Node of the lower stage; None, as `b`, where nothing shows the nodes of the ranks."""
    b: Node | None
    ranks: tuple[int, ...]
    """Ranks of the lower stage."""
    stride: int
    """Distance to the rank of the next stage."""

    def __str__(self) -> str:
        if self.a is None or self.b is None:
            return f"boundaries of ranks {fold(self.ranks)}"
        pair = f"rank {self.ranks[0]} -> {self.ranks[0] + self.stride}"
        return f"inside {self.a} ({pair})" if self.a is self.b else f"{self.a} - {self.b} ({pair})"


@dataclass(frozen=True, slots=True)
class StageLink:
    """A link and the facts that it was made from."""

    link: Link
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class _End:
    """What one end of a boundary gets of its node's NICs."""

    rate_gbps: Bounds
    name: str
    pcie: Bounds | None
    near: bool
    """It is known which NIC is near the GPU."""
    close: bool
    """That NIC hangs on the GPU's PCIe switch (PIX, PXB), as far as NCCL uses GPUDirect by default."""
    evidence: Evidence


def find_crossings(placement: Placement) -> dict[Hashable, Sequence[Crossing]]:
    """Stage boundaries by situation: the GPUs at both ends, and kind and load of their nodes."""
    nodes, pairs, stride = placement.nodes, stage_pairs(placement), placement.layout.strides["pipeline"]

    def crossing(number: int) -> Crossing:
        pair = pairs[number]
        return Crossing(nodes[pair.a], nodes[pair.b], tuple(pair.ranks), stride)

    found = situations(looks_of(placement, pairs), crossing, range(len(pairs)), [pair.a for pair in pairs])
    if placement.unplaced:
        found["unplaced"] = [Crossing(None, None, tuple(placement.unplaced), stride)]
    return found


def looks_of(placement: Placement, pairs: Sequence[StagePair]) -> Iterator[Hashable]:
    """What the link of each pair of nodes hangs on."""
    kinds, between = kind_numbers(placement), domains_between(placement)
    senders, receivers = placement.keep("loads of boundaries", far_gpus)
    for a, b, _, lower, upper in pairs:
        if a == b:
            yield kinds[a], lower, upper
        else:
            yield kinds[a], kinds[b], lower, upper, senders[a], receivers[b], between(a, b)


def ends_of(placement: Placement, a: int, b: int) -> tuple[tuple[int, Hashable], tuple[int, Hashable]]:
    """Both nodes with the GPUs that send to, or receive from, other nodes at the same time."""
    senders, receivers = placement.keep("loads of boundaries", far_gpus)
    return (a, senders.get(a, ())), (b, receivers.get(b, ()))


Far = dict[int, Gpus]


def far_gpus(placement: Placement) -> tuple[Far, Far]:
    """GPUs of each node whose next stage, and whose previous one, is on another node."""
    senders: Far = {}
    receivers: Far = {}
    for a, b, _, lower, upper in stage_pairs(placement):
        if a != b:
            senders[a] = senders[a] + lower if a in senders else lower
            receivers[b] = receivers[b] + upper if b in receivers else upper
    return senders, receivers


def stage_link(ask: Ask, crossing: Crossing) -> StageLink | None:
    """The slowest link of a boundary; None where the evidence does not show it, with the gap noted."""
    a, b = crossing.a, crossing.b
    if a is None or b is None:
        ask.rank_gap(crossing.ranks)
        return None
    if a is b:
        return inside(ask, crossing)
    if in_one_domain(ask.placement, (a, b)):
        return over_domain(ask, crossing)
    return between(ask, crossing, a, b)


def inside(ask: Ask, crossing: Crossing) -> StageLink | None:
    """NVLink or PCIe between two GPUs of one node: the slowest pair's."""
    ranks = crossing.ranks
    devices = ask.devices([*ranks, *(rank + crossing.stride for rank in ranks)])
    found: list[StageLink] = []
    for rank in ranks:
        a, b = devices.get(rank), devices.get(rank + crossing.stride)
        link = ask.link(a, b) if a and b else None
        if a is None or b is None or link is None or a.node.shape is None:
            return None
        shape = a.node.shape
        if link.nvlink:
            way = nvlink(link.count, nvlink_version(shape, a.ordinal))
        else:
            peers = {shape.peer(a.ordinal, b.ordinal), shape.peer(b.ordinal, a.ordinal)}
            peer = None if None in peers else peers == {"OK"}
            way = pcie(slower([lanes(shape, a.ordinal), lanes(shape, b.ordinal)]), peer=peer)
        found.append(StageLink(way, (read(a.node, f"GPU{a.index} - GPU{b.index}: {link}, {way.name}"),)))
    return min(found, key=lambda one: one.link.bytes_per_s.low)


def over_domain(ask: Ask, crossing: Crossing) -> StageLink | None:
    """NVLink between hosts: all links of a GPU lead to the switches. The GPU with the slowest ones counts."""
    devices = ask.devices([end for rank in crossing.ranks for end in (rank, rank + crossing.stride)])
    if len(devices) < 2 * len(crossing.ranks):
        return None
    found: list[StageLink] = []
    for device in devices.values():
        node, shape = device.node, device.node.shape
        count = shape.nvlinks(device.ordinal) if shape and device.ordinal < shape.gpus else None
        if not count or shape is None:
            ask.gap(
                "active NVLinks of each GPU",
                [node.name],
                "nvidia-smi nvlink -s, given as NODE=FILE",
                part="links",
            )
            return None
        way = nvlink(count, nvlink_version(shape, device.ordinal))
        fact = f"GPU{device.index}: {count} NVLinks in one NVLink domain"
        found.append(StageLink(way, (read(node, fact),)))
    return min(found, key=lambda one: one.link.bytes_per_s.low)


def between(ask: Ask, crossing: Crossing, a: Node, b: Node) -> StageLink | None:
    """RDMA: what both ends have of their NICs, and whether the NICs read the GPUs' memory."""
    placement, ends = ask.placement, []
    loads = ends_of(placement, a.index, b.index)
    for node, (_, load), shift in zip((a, b), loads, (0, crossing.stride), strict=True):
        if not usable(ask, node):
            continue
        devices = ask.devices([rank + shift for rank in crossing.ranks])
        if len(devices) == len(crossing.ranks):
            ends.append(end_of(ask, node, list(devices.values()), load))
    known = [end for end in ends if end is not None]
    if len(known) < 2:
        return None
    direct = gpudirect(placement, (a, b), close=all(end.close for end in known))
    slow = min(known, key=lambda end: end.rate_gbps.low)
    rate = Bounds(slow.rate_gbps.low, min(end.rate_gbps.high for end in known))
    way = rdma(rate, slow.name, direct=direct, pcie_rate=slower([end.pcie for end in known]))
    if not all(end.near for end in known):
        more = "Which NIC is near each GPU is not known: all active ones are taken as shared by all senders."
        way = replace(way, assumptions=(*way.assumptions, more))
    return StageLink(way, tuple(end.evidence for end in known))


def usable(ask: Ask, node: Node) -> bool:
    """RDMA works on the node; else the gap."""
    known = rdma_of(ask.placement, node)
    if known is None:
        ask.gap("working RDMA", [node.name], f"{PROBE}, or its NCCL_DEBUG=INFO log", part="nics")
        return False
    if not known.works:
        need = f"the rate of sockets, which this boundary falls back to ({known.reason})"
        ask.gap(need, [node.name], known.fix, because="PP003", part="nics")
    return known.works


def end_of(ask: Ask, node: Node, devices: Sequence[Device], load: Hashable) -> _End | None:
    """What the least favoured GPU of a boundary gets of its node's NICs; None with the gap."""
    shape = node.shape
    rates = rates_of(ask.placement, node) if shape is not None else {}
    if shape is None or not rates:
        ask.gap(
            "rate of each active port", [node.name], f"{PROBE}, or ibstat, given as NODE=FILE", part="nics"
        )
        return None
    senders = load if isinstance(load, tuple) else ()
    by_gpu = {gpu: near_nics(shape, ordinal_of(ask, node, gpu), rates) for gpu in senders}
    users: dict[str, int] = {}
    for names in by_gpu.values():
        for name in names or rates:
            users[name] = users.get(name, 0) + 1
    parts = []
    for device in devices:
        names = near_nics(shape, device.ordinal, rates)
        parts.append((shared({name: rates[name] for name in names or rates}, users), names, device))
    rate, names, device = min(parts, key=lambda part: part[0].low)
    used = names or tuple(rates)
    how = f" (near GPU{device.index})" if names else ""
    most = max(users.get(name, 1) for name in used)
    by = f", shared by {most} senders" if most > 1 else ""
    spelled = f"{first(used, 4)} at {rates[used[0]]:g} Gb/s{by}"
    nearest = shape.nearest_nics(device.ordinal)
    return _End(
        rate_gbps=rate,
        name=spelled,
        pcie=lanes(shape, device.ordinal),
        near=bool(names),
        close=bool(names) and nearest is not None and nearest[0] in CLOSE,
        evidence=read(node, f"{node}: {spelled}{how}"),
    )


def ordinal_of(ask: Ask, node: Node, gpu: int | None) -> int | None:
    """Ordinal of a GPU as the phase's column names it."""
    if gpu is None or ask.placement.phase != "predicted":
        return gpu
    return None if node.machine is None else node.machine.at_index(gpu)


def near_nics(shape: Shape, ordinal: int | None, rates: dict[str, float]) -> tuple[str, ...]:
    """Nearest NICs of a GPU among those in use; () where nearness is not known or none of them is in use."""
    near = shape.nearest_nics(ordinal) if ordinal is not None and ordinal < shape.gpus else None
    return () if near is None else tuple(nic.name for nic in near[1] if nic.name in rates)


def rates_of(placement: Placement, node: Node) -> dict[str, float]:
    """Gbit/s of the active ports of each NIC in use: opened by the job, or selected by NCCL_IB_HCA."""
    shape = node.shape
    if shape is None:
        return {}
    rates: dict[str, float] = {}
    for nic in shape.hardware.nics:
        ports = [port.rate_gbps for port in nic.ports if port.state == "ACTIVE" and port.rate_gbps]
        if nic.name in shape.active_nics and ports:
            rates[nic.name] = sum(ports)
    facts = placement.facts_by_node.get(node.index, [])
    opened = {fact.value.partition(":")[0] for fact in facts if fact.kind == "hca"}
    wish = "" if opened else variables_of(node).get("NCCL_IB_HCA", "")
    wanted = opened or {name for name in rates if selected(name, wish)}
    return {name: rate for name, rate in rates.items() if name in wanted}


def variables_of(node: Node) -> dict[str, str]:
    """Variables of the node's ranks."""
    found: dict[str, str] = {}
    for raw in node.machine.environments if node.machine else ():
        found.update(msgspec.json.decode(raw, type=dict[str, str]))
    return found


def selected(name: str, wish: str) -> bool:
    """NCCL_IB_HCA selects the first port of this device, or the second: cards have no more."""
    value = parse_hca_filter(wish)
    return value.selects(name, 1) or value.selects(name, 2)


def gpudirect(placement: Placement, nodes: tuple[Node, Node], *, close: bool) -> bool | None:
    """NICs read GPU memory at both ends: as edges of the running job show, else by drivers and distance.

    Edges that one node logged say that its own NICs do, and nothing of the other end.
    Without a driver for it they do not. With one at both ends they do where the NIC is `close` and no
    variable moves NCCL's limit.
    """
    logged = {node.index: set[bool | None]() for node in nodes}
    for flow in flows(placement):
        if flow.edge.via == "NET" and flow.between_nodes and flow.near.index in logged:
            logged[flow.near.index].add(flow.edge.gdr)
    if any(False in seen for seen in logged.values()):
        return False
    if all(seen == {True} for seen in logged.values()):
        return True
    views = [node.machine.verbs if node.machine else () for node in nodes]
    if any(verbs.peer_memory == "" and verbs.dma_buf is False for seen in views for verbs in seen):
        return False
    able = all(any(verbs.peer_memory or verbs.dma_buf for verbs in seen) for seen in views)
    moved = any(name in variables_of(node) for node in nodes for name in REACH)
    return True if able and close and not moved else None


def nvlink_version(shape: Shape, ordinal: int) -> int | None:
    """Generation of a GPU's NVLinks; None where they differ or are not shown."""
    links = shape.hardware.gpus[ordinal].links or ()
    versions = {link.version for link in links if link.active}
    return versions.pop() if len(versions) == 1 else None


def lanes(shape: Shape, ordinal: int) -> Bounds | None:
    """Rate of the PCIe link of a GPU by its board and the port above; None without a PCI tree."""
    place = shape.hardware.gpus[ordinal].pci if ordinal < shape.gpus else None
    nodes = {node.id: node for node in shape.hardware.pci}
    device = nodes.get(place or "")
    above = nodes.get(device.parent or "") if device else None
    ends = [end for end in (device, above) if end is not None and end.max_width and end.max_speed_gts]
    if not ends:
        return None
    speed = min(end.max_speed_gts or 0 for end in ends)
    return pcie_bytes_per_s(speed, min(end.max_width or 0 for end in ends))


def slower(ends: Sequence[Bounds | None]) -> Bounds | None:
    """The rate of the slower end; None where one is not known."""
    known = [end for end in ends if end is not None]
    return min(known, key=lambda end: end.low) if len(known) == len(ends) else None


def read(node: Node, fact: str) -> Evidence:
    """A fact of a node's hardware."""
    sources = node.machine.sources if node.machine else ()
    return Evidence(source=first(sources, 2) or "hardware", fact=fact)
