"""Fabrics that NCCL reaches only through a plugin, and whether the ranks of a node have it.

NCCL's own transport knows InfiniBand and RoCE. Amazon's EFA and HPE's Slingshot are reached by aws-ofi-nccl
over libfabric; without it NCCL goes on over sockets and says so in one line of its log.
"""

from __future__ import annotations

from dataclasses import dataclass

from topocheck.hca import is_up
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.rule import Evidence, read_at
from topocheck.settings import settings_of
from topocheck.snapshot import Library, LogFact

__all__ = ["Lack", "Need", "lack_of", "may_need", "need_of"]

SOCKET, OWN = "Socket", frozenset({"ib", "socket"})
NETWORK, PLUGIN, PROVIDER = "NCCL_NET", "NCCL_NET_PLUGIN", "FI_PROVIDER"
PREFIX = ("libnccl-net", "librccl-net")
FABRICS = {"efa": "EFA", "slingshot": "Slingshot"}
"""Kinds of device that need a plugin, as people call their fabric."""
PROVIDERS = {"efa": "efa", "cxi": "slingshot"}
"""Kind of device by libfabric's provider."""


@dataclass(frozen=True, slots=True)
class Need:
    """What asks for a plugin on a node."""

    fabric: str | None
    """Kind of the fabric's devices; None where the variables alone ask for a plugin."""
    words: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Lack:
    """What of the plugin is missing on a node."""

    cause: str
    words: str
    fix: str
    evidence: tuple[Evidence, ...]


def of_kind(placement: Placement, node: Node, *kinds: str) -> list[LogFact]:
    """Statements of the node's log."""
    return [fact for fact in placement.facts_by_node.get(node.index, ()) if fact.kind in kinds]


def need_of(placement: Placement, node: Node) -> Need | None:
    """What shows that the node's fabric, or the job itself, needs a plugin; None if nothing does."""
    nics = node.shape.hardware.nics if node.shape else ()
    special = [nic for nic in nics if nic.kind in FABRICS]
    plain = [nic for nic in nics if nic.kind not in FABRICS and any(map(is_up, nic.ports))]
    if special and not plain:
        kind, names = special[0].kind or "", first((nic.name for nic in special), 4)
        source = first(node.machine.sources, 2) if node.machine else "devices"
        return Need(
            kind, f"its network is {FABRICS[kind]}", Evidence(source=source, fact=f"devices: {names}")
        )
    for fact in of_kind(placement, node, "ofi-platform"):
        return Need("efa", f"it is of Amazon's {fact.value} platform, whose network is EFA", line(fact))
    for setting in settings_of(placement, node, PROVIDER):
        kind = PROVIDERS.get(setting.value.strip().lower(), "")
        if kind:
            return Need(kind, f"{setting} asks for {FABRICS[kind]}", setting.evidence)
    for setting in settings_of(placement, node, NETWORK):
        if setting.value and setting.value.lower() not in OWN:
            return Need(None, f"{setting} asks for it", setting.evidence)
    return None


def may_need(placement: Placement, node: Node) -> bool:
    """Nothing shows yet that the node needs no plugin."""
    if of_kind(placement, node, "hca"):
        return False
    machine, shape = node.machine, node.shape
    if machine is None or shape is None or machine.coverage.nics != "all":
        return True
    return any(nic.kind is None and not any(port.layer for port in nic.ports) for nic in shape.hardware.nics)


def lack_of(placement: Placement, node: Node, need: Need) -> Lack | bool | None:
    """What is missing of the plugin; False if nothing is, None if nothing shows it."""
    logged = by_log(placement, node, need)
    if logged is not None:
        return logged
    for setting in settings_of(placement, node, PLUGIN):
        if setting.value == "none":
            return Lack("plugin switched off", f"{setting} keeps it away", "unset it", (setting.evidence,))
        if "/" in setting.value:
            return None
    return by_probe(node, need)


def by_log(placement: Placement, node: Node, need: Need) -> Lack | bool | None:
    """What the job itself met."""
    networks = {fact.value for fact in of_kind(placement, node, "network")}
    if networks and SOCKET not in networks:
        return wrong_provider(placement, node, need) or False
    failed = of_kind(placement, node, "ofi-no-provider")
    if failed:
        words = f"its libfabric plugin found no provider ({failed[0].value})"
        return Lack("no provider", words, provider_fix(need), tuple(map(line, failed[:3])))
    missing = of_kind(placement, node, "plugin-missing")
    if missing and networks:
        shown = (*missing[:2], *of_kind(placement, node, "network")[:1])
        tried = f" ({missing[0].value})" if missing[0].value else ""
        return Lack("no plugin", f"NCCL found none{tried}", plugin_fix(need), tuple(map(line, shown)))
    return None


def wrong_provider(placement: Placement, node: Node, need: Need) -> Lack | None:
    """The plugin serves, and not by the provider of the fabric."""
    used = of_kind(placement, node, "ofi-provider")
    kinds = {PROVIDERS.get(fact.value.split(";")[0].lower()) for fact in used}
    if need.fabric is None or not used or need.fabric in kinds:
        return None
    words = f"its libfabric plugin runs over the provider {used[0].value}"
    return Lack("other provider", words, provider_fix(need), tuple(map(line, used[:2])))


def by_probe(node: Node, need: Need) -> Lack | bool | None:
    """What a probe in the place of the job's processes found."""
    machine = node.machine
    views = [
        verbs
        for verbs in (machine.verbs if machine else ())
        if verbs.library is not None  # it looked for libraries
        and (
            verbs.scope in ("task", "container") or (verbs.scope == "host" and machine and machine.has_claims)
        )
    ]
    if not views:
        return None
    for verbs in views:
        found = [library for library in verbs.plugins if library.name.startswith(PREFIX)]
        if any(library.searched for library in found):
            continue
        return unloadable(node, need, found)
    return False


def unloadable(node: Node, need: Need, found: list[Library]) -> Lack:
    """No plugin lies where the loader looks."""
    source = node.read_in("libraries")
    if found:
        place = f"{found[0].folder}/{found[0].name}"
        fact = Evidence(source=source, fact=f"{place} is not on the loader's way")
        fix = f"add {found[0].folder} to LD_LIBRARY_PATH where the ranks run, or name the file in {PLUGIN}"
        return Lack(
            "plugin not found by the loader", f"{place} lies where the loader does not look", fix, (fact,)
        )
    fact = Evidence(source=source, fact="no libnccl-net*.so in the loader's folders")
    return Lack("no plugin", "no libnccl-net*.so is there", plugin_fix(need), (fact,))


def plugin_fix(need: Need) -> str:
    """How to get the plugin."""
    provider = {"efa": " and Amazon's EFA installer", "slingshot": ", built for libfabric's cxi provider"}
    which = f"aws-ofi-nccl{provider[need.fabric]}" if need.fabric else "the plugin"
    return f"install {which} in the image where the ranks run, and its folder on LD_LIBRARY_PATH"


def provider_fix(need: Need) -> str:
    """How to give it the fabric's provider."""
    devices = {"efa": "/dev/infiniband (EFA's device plugin)", "slingshot": "/dev/cxi*"}
    exposed = devices.get(need.fabric or "", "the fabric's devices")
    return f"give the container {exposed} and a libfabric with the fabric's provider (fi_info -p shows it)"


def line(fact: LogFact) -> Evidence:
    """A line of the log."""
    return read_at(fact.at, f"{fact.kind}: {fact.value}" if fact.value else fact.kind, "log")
