"""NET: GPUs and NICs reach each other directly, and the fabric by the plugin that it needs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Literal

from topocheck.ask import TOPO, Ask, Device
from topocheck.domain import all_in_one_domain
from topocheck.hardware import Shape
from topocheck.kinds import by_kind
from topocheck.models import spans_hosts
from topocheck.ncclvalues import level_of, number_of, reaches
from topocheck.needed import Needed, need_kind, needed, used_gpus
from topocheck.netplugin import Lack, lack_of, may_need, need_of
from topocheck.peerpath import PeerPath, Way, gpu_pairs, gpu_ways, nic_ways, peer_path
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rdma import rdma_kind, rdma_of, spell, that_may_use
from topocheck.rule import Evidence, Finding, NotApplicable, Situations, rule
from topocheck.settings import Setting, setting_kind, settings_of
from topocheck.snapshot import LogFact
from topocheck.subjects import within_nodes

__all__ = ["RULES"]

PROBE = "topocheck probe on every node"
# Access control is refused to every probe that is not root: these gaps name no part for EV002 to complain of.
AS_ROOT = "topocheck probe as root on every node, or lspci -vvv as root, given as NODE=FILE"
LOG = "the NCCL_DEBUG=INFO log of every node, from its first line"
LEVEL = "NCCL_NET_GDR_LEVEL"
REACH = "PXB"
"""How far GPUDirect reaches unless the variable says otherwise."""
BY_PLUGIN = frozenset({"efa", "slingshot"})
"""Kinds of device whose plugin reaches GPU memory in its own way."""
TRANSLATES = ("DMA", "DMA-FQ")
"""Types of IOMMU groups whose addresses only the IOMMU can translate."""
ON_THE_WAY: tuple[tuple[Literal["redirecting", "translating", "validating"], str, str, str], ...] = (
    (
        "redirecting",
        "access control redirects",
        "send traffic up to the root complex",
        "GPUDirect and peer access are slow there, or hang",
    ),
    (
        "translating",
        "access control but for ATS",
        "send traffic up to the root complex",
        "only what the devices translate themselves (ATS) goes directly",
    ),
    (
        "validating",
        "source validation",
        "check who sends",
        "that alone redirects nothing, and shows that ACS was not cleared",
    ),
)
"""What access control does on a way: short name, what happens and what follows, the worst first."""


def coherent(node: Node) -> bool:
    """Its GPUs are on a link of the processor: NICs reach them through the processor there, by design."""
    return any(model and (spans_hosts(model) or "GB10" in model) for model in node.models)


def networked(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes that may use RDMA, of a job any of whose groups crosses nodes."""
    if placement.expected == 1 and len(placement.nodes) == 1:
        return NotApplicable("the job has one node")
    if all_in_one_domain(placement, placement.nodes):
        return NotApplicable("all nodes lie in one NVLink domain")
    return within_nodes(placement) or that_may_use(placement, placement.keep("nodes by reach", by_reach))


def by_reach(placement: Placement) -> dict[Hashable, list[Node]]:
    """Sort nodes into situations by hardware, variables and means of RDMA."""

    def key(node: Node) -> Hashable:
        machine = node.machine
        if machine is None:
            return None
        kinds = need_kind(placement, node), rdma_kind(placement, node), setting_kind(placement, node)
        topologies = tuple(file.path for file in machine.files if file.kind == "topology" and file.exists)
        return (*kinds, topologies, machine.software.open_driver, machine.software.hypervisor, node.models)

    return by_kind(placement, key, others=True)


@rule("NET007", "GPUDirect RDMA has what it needs", over=networked, severity="warning")
def gpudirect_has_what_it_needs(ask: Ask, node: Node) -> Iterator[Finding]:
    """A way to GPU memory for the NICs, a NIC that is near enough, and no variable against it."""
    ask.know()
    placement = ask.placement
    rdma = rdma_of(placement, node)
    if rdma is not None and not rdma.works:
        because = "NET009" if rdma.met else "PP003"
        ask.gap("whether GPUDirect RDMA can be used", [node.name], "RDMA that works", because=because)
        return
    facts = placement.facts_by_node.get(node.index, [])
    refused = refusals(facts)
    if refused:
        yield disabled(node, refused)
        return
    if any(fact.kind == "gdr-enabled" for fact in facts):
        return
    need = needed(placement, node)
    kinds = {node.shape.hardware.nics[hca.nic].kind for hca in need.devices} if node.shape and need else set()
    if kinds and kinds <= BY_PLUGIN:
        ask.gap("whether the plugin of the fabric reaches GPU memory", [node.name], LOG)
        return
    levels = settings_of(placement, node, LEVEL)
    off = [setting for setting in levels if not reaches(level_of(setting.value) or REACH, "PIX")]
    if off:
        yield switched_off(node, off[0])
        return
    yield from without_module(ask, node)
    yield from too_far(ask, node, need, levels)


def refusals(facts: list[LogFact]) -> list[LogFact]:
    """Lines by which NCCL disabled it. Pairs that are far do not count for a GPU that has a near one."""
    near = {gpu_of(fact) for fact in facts if fact.kind == "gdr-enabled"}
    off = [fact for fact in facts if fact.kind == "gdr-disabled"]
    return [fact for fact in off if not fact.value.startswith("GPU") or gpu_of(fact) not in near]


def gpu_of(fact: LogFact) -> str:
    """The GPU in `GPU ca000 / HCA 0 (distance 7 > 4)` or `GPU/ca000 (rank 0) - NET/0`."""
    return " ".join(fact.value.replace("GPU/", "GPU ").split()[:2])


def disabled(node: Node, refused: list[LogFact]) -> Finding:
    """The job's own words."""
    loaded = next((verbs.peer_memory for verbs in (node.machine.verbs if node.machine else ())), None)
    far = all("distance" in fact.value for fact in refused)
    names = first(dict.fromkeys(fact.value for fact in refused), 4)
    fixes = {
        "far": "let each rank drive a GPU with a NIC on its PCIe switch, or allow the distance with "
        f"{LEVEL} where the platform carries it",
        "loaded": "the module is there: see that driver, module and RDMA stack fit each other (dmesg), and "
        "that the container sees /sys/module/nvidia_peermem",
        "other": "load nvidia_peermem (modprobe nvidia_peermem), or use the open kernel modules with dma-buf",
    }
    also = f", though {loaded} is loaded" if loaded and not far else ""
    return Finding(
        message=f"NCCL disabled GPUDirect RDMA on {node} for {names}{also}: what leaves the node is staged "
        "through host memory",
        fix=fixes["far" if far else "loaded" if loaded else "other"],
        cause="NIC too far" if far else "disabled by NCCL",
        subjects=(node.name,),
        evidence=tuple(spell(fact) for fact in refused[:6]),
    )


def switched_off(node: Node, setting: Setting) -> Finding:
    """A variable that allows no distance at all."""
    return Finding(
        message=f"{setting} on {node} switches GPUDirect RDMA off: what leaves the node is staged through "
        "host memory",
        fix=f"unset {LEVEL}, or set it to the distance between GPU and NIC (PIX, PXB)",
        cause="switched off",
        subjects=(node.name,),
        evidence=(setting.evidence,),
    )


def without_module(ask: Ask, node: Node) -> Iterator[Finding]:
    """NICs reach memory of NVIDIA's GPUs by a kernel module, or by dma-buf."""
    machine = node.machine
    if any("AMD" in (model or "") or "Instinct" in (model or "") for model in node.models):
        return
    views = machine.verbs if machine else ()
    module = next((verbs.peer_memory for verbs in views if verbs.peer_memory is not None), None)
    shares = next((verbs.dma_buf for verbs in views if verbs.dma_buf is not None), None)
    if shares is None and machine is not None and machine.software.open_driver is False:
        shares = False
    off = [s for s in settings_of(ask.placement, node, "NCCL_DMABUF_ENABLE") if number_of(s.value) != 1]
    if module or (shares and not off):
        return
    if module is None or (shares is None and not off):
        need = "whether nvidia_peermem is loaded" if module is None else "whether the driver shares dma-buf"
        ask.gap(
            need, [node.name], "lsmod, given as NODE=FILE, or topocheck probe on every node", part="verbs"
        )
        return
    why = f"{off[0]} is set" if off else "kernel and driver cannot share it as dma-buf"
    yield Finding(
        message=f"the NICs of {node} have no way to GPU memory: nvidia_peermem is not loaded and {why}. What "
        "leaves the node is staged through host memory",
        fix="load nvidia_peermem (modprobe nvidia_peermem), or use the open kernel modules and Linux 5.12 or "
        "newer, which share GPU memory as dma-buf",
        cause="no way to GPU memory",
        subjects=(node.name,),
        evidence=(
            Evidence(source=node.read_in(), fact="neither nvidia_peermem nor nv_peer_mem is loaded"),
            *(setting.evidence for setting in off),
        ),
    )


def too_far(ask: Ask, node: Node, need: Needed | None, levels: tuple[Setting, ...]) -> Iterator[Finding]:
    """The nearest NIC of each GPU in use lies within the reach of GPUDirect."""
    shape, gpus = node.shape, used_gpus(ask.placement, node)
    if by_file(ask.placement, node) or coherent(node):
        return
    names = {hca.name for hca in need.devices} if need and need.whole else None
    near = {gpu: shape.nearest_nics(gpu, names) for gpu in gpus or ()} if shape else {}
    if shape is None or not near or None in near.values():
        ask.gap("how far each GPU in use is from its NIC", [node.name], TOPO)
        return
    allowed = next((level for setting in levels if (level := level_of(setting.value))), REACH)
    far = {gpu: found[0] for gpu, found in near.items() if found and not reaches(allowed, found[0])}
    if not far:
        return
    if reaches(allowed, REACH) and not tells_distances(shape):
        ask.gap("how far each GPU is from its NIC: the table may be a virtual machine's", [node.name], TOPO)
    elif not levels and set(far.values()) == {"SYS"} and ask.placement.layout.size("pipeline") > 1:
        ask.gap("a NIC near each GPU", [node.name], TOPO, because="PP004")
    else:
        yield beyond(node, far, levels, allowed)


def by_file(placement: Placement, node: Node) -> bool:
    """A topology file tells NCCL the distances, as clouds require for their virtual machines."""
    files = node.machine.files if node.machine else ()
    named = settings_of(placement, node, "NCCL_TOPO_FILE")
    return bool(named) or any(file.kind == "topology" and file.exists for file in files)


def tells_distances(shape: Shape) -> bool:
    """The PCI tree is there, or the table has a near pair: in virtual machines all pairs look far."""
    cells = shape.hardware.matrix.nics if shape.hardware.matrix else ()
    return bool(shape.hardware.pci) or any(cell in ("PIX", "PXB") for row in cells for cell in row)


def beyond(node: Node, far: dict[int, str], levels: tuple[Setting, ...], allowed: str) -> Finding:
    """GPUs whose NIC is out of reach."""
    names = [f"GPU{Device(node, gpu).index} ({kind})" for gpu, kind in far.items()]
    limit = f"{levels[0]} allows less" if levels else "NCCL allows PXB unless told otherwise"
    return Finding(
        message=f"the nearest NIC of {first(names, 4)} of {node} is out of GPUDirect's reach: {limit}. What "
        "leaves the node is staged through host memory",
        fix=f"unset {LEVEL} or set it to PXB"
        if not reaches(allowed, REACH)
        else "use GPUs with a NIC on their PCIe switch, or allow the distance with "
        f"{LEVEL} where the platform carries it",
        cause="NIC too far",
        subjects=tuple(f"{name} of {node}" for name in names),
        evidence=(
            Evidence(source=node.read_in(), fact=f"nearest NIC: {first(names, 4)}"),
            *(setting.evidence for setting in levels[:1]),
        ),
    )


def peers(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes whose GPUs send to NICs, or to GPUs over PCIe."""
    if placement.world == 1:
        return NotApplicable("one rank")
    found = placement.keep("nodes by reach", by_reach)
    inside = within_nodes(placement) is not None or placement.expected == 1
    if inside and all(by_nvlink(placement, nodes[0]) for nodes in found.values()):
        return NotApplicable("no group crosses nodes, and NVLink joins the GPUs of each")
    return found


def by_nvlink(placement: Placement, node: Node) -> bool:
    """All GPUs in use are joined by NVLink, or there is one."""
    gpus = used_gpus(placement, node)
    return gpus is not None and not gpu_pairs(node, gpus)


@rule("NET008", "nothing redirects traffic between GPUs and NICs", over=peers, severity="error")
def peers_talk_directly(ask: Ask, node: Node) -> Iterator[Finding]:
    """Bridges and IOMMU leave traffic between devices of one PCIe switch below that switch."""
    ask.know()
    shape, gpus = node.shape, used_gpus(ask.placement, node)
    hardware = shape.hardware.gpus if shape else ()
    places = [hardware[gpu].pci if gpu < len(hardware) else None for gpu in gpus or ()]
    tree = {part.id for part in shape.hardware.pci} if shape else set()
    if shape is None or gpus is None or not places or not tree.issuperset(places):
        ask.gap(unseen(ask.placement, node), [node.name], AS_ROOT)
        return
    crosses = within_nodes(ask.placement) is None and len(ask.placement.nodes) > 1
    ways = list(gpu_ways(node, shape, gpus)) + (
        list(nic_ways(ask.placement, node, shape, gpus)) if crosses else []
    )
    need = needed(ask.placement, node)
    taken = {hca.name for hca in need.devices} if need and need.whole else None
    places = [nic.pci for nic in shape.hardware.nics if taken is None or nic.name in taken]
    if crosses and not tree.issuperset(places):
        ask.gap("the place of each NIC in the PCI tree", [node.name], PROBE, part="nics")
    paths = [(way, path) for way in ways if (path := peer_path(shape, way.a, way.b)) is not None]
    yield from controlled(node, paths)
    if any(not path.known for _, path in paths):
        ask.gap("access control (ACS) of the bridges between GPUs and NICs", [node.name], AS_ROOT)
    yield from translated(ask, node, shape, ways)


def unseen(placement: Placement, node: Node) -> str:
    """What is missing where no PCI tree is shown; `grep ACSCtl` tells of bridges without their places."""
    facts = [fact.value for fact in placement.facts_by_node.get(node.index, ()) if fact.kind == "acs"]
    on = [value for value in facts if "Redir" in value]
    if on:
        return f"whether the bridges with {first(on, 2)} lie between GPUs and NICs"
    machine = node.machine
    if machine is not None and machine.software.hypervisor:
        return f"access control (ACS) of the host below this virtual machine ({machine.software.hypervisor})"
    return "access control (ACS) and IOMMU between GPUs and NICs"


def controlled(node: Node, paths: list[tuple[Way, PeerPath]]) -> Iterator[Finding]:
    """Access control on the ways. What only checks the sender is a warning, and so is what ATS may pass."""
    for kind, cause, does, follows in ON_THE_WAY:
        found = [(way.words, getattr(path, kind)) for way, path in paths if getattr(path, kind)]
        if not found:
            continue
        bridges = {bridge.id: bridge for _, some in found for bridge in some}
        controls = first(sorted({word for bridge in bridges.values() for word in bridge.acs or ()}))
        ways = [words for words, _ in found]
        yield Finding(
            message=f"{len(bridges)} bridges of {node} {does} between {first(ways, 2)} (access control: "
            f"{controls}): {follows}",
            fix="switch ACS off in the firmware, or clear it at those bridges after each boot "
            "(setpci -s BRIDGE ECAP_ACS+0x6.w=0000)",
            cause=cause,
            subjects=tuple(f"{words} of {node}" for words in ways),
            evidence=tuple(
                Evidence(source=node.read_in(), fact=f"bridge {bridge.id}: {' '.join(bridge.acs or ())}")
                for bridge in list(bridges.values())[:4]
            ),
            severity=None if kind == "redirecting" else "warning",
        )
        return


def translated(ask: Ask, node: Node, shape: Shape, ways: list[Way]) -> Iterator[Finding]:
    """Addresses that only the IOMMU can translate lead every request up to the root complex."""
    if coherent(node):
        return
    types = {part.id: part.iommu for part in shape.hardware.pci}
    senders = dict.fromkeys(sender for way in ways for sender in way.senders)
    if any(types.get(sender) is None for sender in senders):
        ask.gap("type of the IOMMU groups of GPUs and NICs", [node.name], PROBE)
    found = [way.words for way in ways if any(types.get(sender) in TRANSLATES for sender in way.senders)]
    if found:
        kinds = sorted({types[sender] or "" for sender in senders if types.get(sender) in TRANSLATES})
        yield Finding(
            message=f"the IOMMU of {node} translates what goes between {first(found, 2)} (groups of type "
            f"{first(kinds)}): it passes through the root complex, slowly or not at all",
            fix="boot with iommu=pt (intel_iommu=on iommu=pt, amd_iommu=on iommu=pt), or without IOMMU",
            cause="IOMMU translates",
            subjects=tuple(f"{words} of {node}" for words in found),
            evidence=(Evidence(source=node.read_in(), fact=f"IOMMU groups of type {first(kinds)}"),),
        )


def plugged(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes of a job whose fabric may need a plugin."""
    found = networked(placement)
    if not isinstance(found, NotApplicable) and not any(
        need_of(placement, nodes[0]) or may_need(placement, nodes[0]) for nodes in found.values()
    ):
        return NotApplicable("no fabric of the job needs a plugin")
    return found


@rule("NET011", "the network plugin that the fabric needs is there", over=plugged, severity="error")
def plugin_is_there(ask: Ask, node: Node) -> Iterator[Finding]:
    """Where NCCL's own transport does not know the fabric, the ranks have the plugin that does."""
    ask.know()
    placement = ask.placement
    need = need_of(placement, node)
    if need is None:
        if may_need(placement, node):
            ask.gap("whether the fabric needs a network plugin", [node.name], PROBE, part="nics")
        return
    lack = lack_of(placement, node, need)
    if lack is None:
        supply = f"topocheck probe in the job's container, or {LOG}"
        ask.gap("whether the ranks have the network plugin", [node.name], supply, part="verbs")
    elif isinstance(lack, Lack):
        yield Finding(
            message=f"{node} needs a network plugin, for {need.words}, and {lack.words}: NCCL falls back to "
            "sockets or stops",
            fix=lack.fix,
            cause=lack.cause,
            subjects=(node.name,),
            evidence=(*lack.evidence, need.evidence),
            severity="warning" if placement.plan.policy.boundary == "any" else None,
            ranks=tuple(placement.ranks_on.get(node.index, ())),
        )


RULES = (gpudirect_has_what_it_needs, peers_talk_directly, plugin_is_there)
