"""Whether a node can use RDMA where the ranks run, as the evidence shows it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from topocheck.hca import is_up
from topocheck.needed import filter_kind, named_hcas
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rule import Evidence, NotApplicable, Situations, read_at
from topocheck.settings import Setting, settings_of
from topocheck.snapshot import LogFact, NicShape, Verbs, VerbsDevice

__all__ = ["Rdma", "equipped", "ports", "rdma_kind", "rdma_of", "spared", "spell", "that_may_use"]

BROKEN = {
    "no-verbs": "libibverbs cannot be opened",
    "device-open-failed": "an RDMA device could not be opened",
    "no-rdma-device": "NCCL found no RDMA device",
    "verbs-call-failed": "a verbs call was refused",
    "ofi-no-provider": "the network plugin found no provider",
}
"""Statements of a log that say why RDMA is not used, nearest to the root first."""

FIXES = {
    "no-verbs": "install libibverbs (rdma-core) in the image where the ranks run",
    "no-rdma-device": "mount /dev/infiniband into the container and check that the ports are active",
    "device-open-failed": "give the container /dev/infiniband and CAP_IPC_LOCK; check its permissions",
    "verbs-call-failed": "raise the locked-memory limit to unlimited where the ranks run (ulimit -l)",
    "ofi-no-provider": "install the fabric's provider and expose its devices to the container",
    "switched off": "unset the variable",
    "no active port": "bring the port up: cable, switch port and subnet manager",
}
"""What to change, by the short name of the cause."""

SOCKET = "Socket"
SWITCHES = ("NCCL_IB_DISABLE", "NCCL_NET")
"""Variables by which a user may ask for sockets."""
WITHOUT_VERBS = frozenset({"slingshot", "soft"})
"""Kinds of device that a job opens by other means, or not at all."""


@dataclass(frozen=True, slots=True)
class Rdma:
    """What is known of RDMA on a node."""

    works: bool
    """A device was opened by the job, or an active port is there; False if it is proven unusable."""
    cause: str
    """Short name of what proves it."""
    reason: str
    """In words."""
    evidence: tuple[Evidence, ...]
    """What was read."""
    opened: bool = False
    """The job itself opened a device, or a probe in its place did: more than a port that is up."""
    met: bool = False
    """The job itself met a failure, or a probe in its place: more than a port that is down or a variable."""

    @property
    def fix(self) -> str:
        """What to change about RDMA that does not work."""
        return FIXES.get(
            self.cause, "find out why NCCL chose sockets: NCCL_DEBUG=INFO, the lines after NET/IB"
        )


def rdma_of(placement: Placement, node: Node) -> Rdma | None:
    """RDMA of a node; None if nothing shows it. Logs of the job go before probes, those before listings."""
    kept = placement.keep("rdma", lambda _: dict[int, Rdma | None]())
    if node.index not in kept:
        facts = placement.facts_by_node.get(node.index, [])
        wishes = sockets_wished(placement, node)
        met = broken(facts, wished=bool(wishes)) if facts else None
        said = met or switched_off(wishes, facts) or opened(facts)
        kept[node.index] = said or (None if serving(facts) else lacking(placement, node)) or ports(node)
    return kept[node.index]


def serving(facts: list[LogFact]) -> bool:
    """All processes that say so chose a network that is no socket."""
    networks = {fact.value for fact in facts if fact.kind == "network"}
    return bool(networks) and SOCKET not in networks


def rdma_kind(placement: Placement, node: Node) -> Hashable:
    """Nodes of one kind have the same answer: hardware, variables, means of RDMA, and no log of their own."""
    machine = node.machine
    if machine is None:
        return node.index
    return filter_kind(placement, node), tuple(map(id, machine.verbs))


def broken(facts: list[LogFact], *, wished: bool) -> Rdma | None:
    """The log says that RDMA failed; sockets that were `wished` for are no failure.

    Where NCCL went on with another network than sockets, what it did not find is no fault: a plugin
    may serve where its own code finds nothing, and the other way round.
    """
    for kind, reason in BROKEN.items():
        found = [fact for fact in facts if fact.kind == kind]
        if found and not (serving(facts) and kind != "verbs-call-failed"):
            about = f" ({found[0].value})" if found[0].value else ""
            lines = [*found[:2], *[fact for fact in facts if fact.kind == "network"][:1]]
            return Rdma(False, kind, reason + about, tuple(spell(fact) for fact in lines), met=True)
    sockets = [fact for fact in facts if fact.kind == "network" and fact.value == SOCKET]
    if sockets and not wished:
        shown = tuple(spell(fact) for fact in sockets[:2])
        return Rdma(False, "socket network", "NCCL chose sockets", shown, met=True)
    return None


def sockets_wished(placement: Placement, node: Node) -> list[Setting]:
    """Settings by which the user asked for sockets on a node."""
    found = [setting for name in SWITCHES for setting in settings_of(placement, node, name)]
    return [setting for setting in found if disables(setting.name, setting.value)]


def disables(name: str, value: str) -> bool:
    """The variable makes NCCL use sockets."""
    return (name == "NCCL_IB_DISABLE" and value.strip() == "1") or (
        name == "NCCL_NET" and value.strip().lower() == "socket"
    )


def switched_off(wishes: list[Setting], facts: list[LogFact]) -> Rdma | None:
    """The user switched RDMA off, and no plugin serves in its place."""
    if serving(facts) or not wishes:
        return None
    shown = tuple(setting.evidence for setting in wishes[:2])
    return Rdma(False, "switched off", f"{wishes[0]} is set", shown)


def opened(facts: list[LogFact]) -> Rdma | None:
    """The job opened RDMA devices."""
    devices = [fact for fact in facts if fact.kind == "hca"]
    if not devices:
        return None
    names = ", ".join(dict.fromkeys(fact.value for fact in devices))
    return Rdma(True, "opened", f"the job opened {names}", (spell(devices[0]),), opened=True)


def own_verbs(node: Node) -> list[Verbs]:
    """Means of RDMA as the job's own processes have them, where a device that needs them may be up."""
    machine, shape = node.machine, node.shape
    if machine is None or shape is None or not any(map(needs_verbs, shape.hardware.nics)):
        return []
    return [
        verbs
        for verbs in machine.verbs
        if verbs.scope in ("task", "container") or (verbs.scope == "host" and machine.has_claims)
    ]


def needs_verbs(nic: NicShape) -> bool:
    """A device that a job would open by libibverbs: one that is down it leaves alone."""
    return nic.kind not in WITHOUT_VERBS and (
        not nic.ports or any(is_up(port) is not False for port in nic.ports)
    )


def lacking(placement: Placement, node: Node) -> Rdma | None:
    """What the job's own processes lack to open RDMA, as a probe in their place found it."""
    for verbs in own_verbs(node):
        found = lack(verbs, {hca.name for hca in named_hcas(placement, node)})
        if found is not None:
            cause, reason = found
            sources = node.machine.sources if node.machine else ()
            fact = Evidence(source=first(sources, 2) or "RDMA probe", fact=f"{reason} (scope {verbs.scope})")
            return Rdma(False, cause, reason, (fact,), met=True)
    return None


def lack(verbs: Verbs, named: set[str]) -> tuple[str, str] | None:
    """Cause and reason why one view cannot open RDMA; None if it can, or that is not shown."""
    if verbs.library is False:
        return "no-verbs", "libibverbs.so.1 cannot be loaded"
    if verbs.devices == ():
        return "no-rdma-device", "there are RDMA devices, and no device node of any in /dev/infiniband"
    refused = [device for device in verbs.devices or () if device.openable is False]
    wanted = [device for device in refused if device.nic in named]
    if wanted or (refused and len(refused) == len(verbs.devices or ())):
        return "device-open-failed", f"{refusals(wanted or refused)} cannot be opened"
    return None


def refusals(devices: list[VerbsDevice]) -> str:
    """Device nodes with the system's words: `uverbs3 of mlx5_3 (Operation not permitted)`."""
    words = {device.reason for device in devices if device.reason}
    names = [device.name + (f" of {device.nic}" if device.nic else "") for device in devices]
    return first(names, 4) + (f" ({first(sorted(words), 2)})" if words else "")


def equipped(node: Node) -> bool:
    """A probe in the place of the job's processes opened a device, and what is needed for it is there."""
    return any(
        verbs.library is not False and any(device.openable for device in verbs.devices or ())
        for verbs in own_verbs(node)
    )


def ports(node: Node) -> Rdma | None:
    """Ports as a probe or a listing shows them. A whole list without an active port disproves."""
    machine, shape = node.machine, node.shape
    if machine is None or shape is None:
        return None
    source = machine.sources[0] if machine.sources else "RDMA probe"
    active = shape.active_nics
    if active:
        fact = Evidence(source=source, fact=f"active ports: {', '.join(active)}")
        return Rdma(True, "active port", f"{active[0]} is active", (fact,), opened=equipped(node))
    if shape.ports_known and machine.coverage.nics == "all":
        states = ", ".join(f"{nic.name} {port.state}" for nic in shape.hardware.nics for port in nic.ports)
        fact = Evidence(source=source, fact=states)
        return Rdma(False, "no active port", "no RDMA port is active", (fact,))
    return None


def spell(fact: LogFact) -> Evidence:
    """A statement of a log as evidence."""
    return read_at(fact.at, f"{fact.kind}: {fact.value}" if fact.value else fact.kind, "log")


def that_may_use(placement: Placement, found: dict[Hashable, list[Node]]) -> Situations[Node] | NotApplicable:
    """Situations of nodes less those that proven use no RDMA: by wish, or because they have no device."""
    reasons = {key: spared(placement, alike[0]) for key, alike in found.items()}
    left = {key: alike for key, alike in found.items() if not reasons[key]}
    return left or NotApplicable(first(sorted(set(reasons.values())), 2) or "no node carries ranks")


def spared(placement: Placement, node: Node) -> str:
    """Why a node proven uses no RDMA; empty if it may."""
    rdma, machine = rdma_of(placement, node), node.machine
    if rdma is not None and rdma.cause == "switched off":
        return rdma.reason
    whole = machine is not None and machine.shape is not None and machine.coverage.nics == "all"
    return "no node has an RDMA device" if whole and not (node.shape and node.shape.hardware.nics) else ""


def told(known: Mapping[Node, Rdma]) -> str:
    """Why RDMA does not work, each reason once with its nodes: `no RDMA port is active on node-a, node-b`."""
    nodes: dict[str, list[str]] = {}
    for node, rdma in known.items():
        nodes.setdefault(rdma.reason, []).append(str(node))
    return first((f"{reason} on {first(names, 4)}" for reason, names in nodes.items()), 3)
