"""ENV: what NCCL is told is the same for all ranks, means something, and is not hidden in a file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from topocheck.ask import Ask
from topocheck.gidtable import parse_index
from topocheck.interfaces import chosen
from topocheck.kinds import by_kind, kinds
from topocheck.majority import Split, split_nodes
from topocheck.ncclvalues import (
    LEVEL_NAMES,
    NUMBERS,
    ONE_ONLY,
    WORDS,
    effective,
    is_number,
    level_of,
    meant,
    number_of,
    unset_value,
)
from topocheck.needed import hca_settings, needed, ports_left
from topocheck.placement import Node, Placement
from topocheck.ranges import first
from topocheck.remedy import Remedy, Variable
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, read_at, rule, the
from topocheck.settings import (
    Setting,
    configured,
    has_without,
    is_listed,
    names_set,
    setting_kind,
    settings_of,
)
from topocheck.snapshot import LogFact, NcclFile

__all__ = ["RULES"]

PROBE = "topocheck probe in the job's own processes"
JOB_WIDE = (*LEVEL_NAMES, *NUMBERS, *WORDS)
"""Variables that change the path and must be alike on all ranks."""
HCA, INTERFACE, GID = "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX"
TOPOLOGY, GRAPH = "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE"
SWITCH = re.compile(r"NCCL_(?!FASTRAK|GPUDIRECT)\w+_(?:DISABLE|ENABLE)")
"""Variables that are numbers by their names; plugins that read words have names of their own."""
VENDORS = ("/var/run/nvidia-topologyd/", "/opt/microsoft/", "aws-ofi-nccl", "/opt/oci")
"""Where vendors put the topology of their machines, which NCCL needs there."""

PROBED = "topocheck probe"
"""Source of snapshots whose probe looked for the files."""

Values = frozenset[str]
Select = Callable[[Placement, Node], Values | None]


def compared(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where ranks on several nodes, or on one that lists them apart, may be told two things."""
    machine = placement.nodes[0].machine if placement.nodes else None
    alone = placement.expected == 1 and (machine is None or len(set(machine.listed)) < 2)
    return NotApplicable("the job has one node") if alone else the(placement)


@rule("ENV001", "variables that change the path agree", over=compared, severity="error")
def variables_agree(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Job-wide ones by what they come to; those that each node may have its own way, by what they select."""
    ask.know()
    nodes = placement.nodes[: placement.expected]
    names = {name for alike in kinds(placement) for name in names_set(placement, alike[0])}
    for name in JOB_WIDE:
        if name in names:
            found = split_nodes(placement, partial(comes_to, placement, name=name))
            if found.odd or any(len(value) > 1 for value, _ in found.groups):
                why = "NCCL then builds other paths on some ranks, and hangs or slows"
                yield replace(differing(name, found, why), remedies=as_most(placement, name, found))
    for name, select in SELECTS:
        if name in names:
            yield from selections(ask, placement, name, select)
    silent = [node.name for node in nodes if not is_listed(node)]
    if silent:
        ask.gap("NCCL's variables as the ranks have them", silent, PROBE, part="environment")


def comes_to(placement: Placement, node: Node, name: str) -> Values | None:
    """What a variable comes to on a node; None where nothing shows whether it is set."""
    settings = settings_of(placement, node, name)
    if settings:
        values = {effective(name, setting.value) for setting in settings}
        if has_without(placement, node, name):
            values |= {effective(name, value) for value in configured(node, name) or (None,)}
        return frozenset(values)
    return frozenset({effective(name, None)}) if is_listed(node) else None


def spelled(value: Values) -> str:
    """Values of one node."""
    return " and ".join(part[:100] for part in sorted(value)) or "nothing"


def differing(name: str, found: Split[Values], why: str) -> Finding:
    """The finding of one variable."""
    torn = tuple(node for value, nodes in found.groups if len(value) > 1 for node in nodes)
    told = found.told(name, spelled) if found.odd else f"{name} differs between ranks of one node"
    return Finding(
        message=f"{told}: {why}",
        fix=f"give all ranks the same {name}: one job script, the launcher's --export or -x, no nccl.conf of "
        "one node's own",
        cause=name,
        subjects=tuple(node.name for node in found.odd or torn),
        evidence=found.evidence(name, spelled),
    )


def as_most(placement: Placement, name: str, found: Split[Values]) -> tuple[Remedy, ...]:
    """The value of most nodes for all; () where there is no majority, or its ranks differ themselves."""
    if not found.usual or len(found.groups[0][0]) > 1:
        return ()
    values = settings_of(placement, found.groups[0][1][0], name)
    return (Variable(name=name, value=values[0].value if values else unset_value(name)),)


def selections(ask: Ask, placement: Placement, name: str, select: Select) -> Iterator[Finding]:
    """One variable that nodes may have their own way: different words must select alike."""
    words = split_nodes(placement, partial(comes_to, placement, name=name))
    if not words.odd:
        return

    def selected(node: Node) -> Values | None:
        return select(placement, node) if comes_to(placement, node, name) is not None else None

    found = split_nodes(placement, selected)
    if found.silent:
        need = f"what {name} selects on each node"
        ask.gap(need, [node.name for node in found.silent], "topocheck probe on every node", part="nics")
    if found.odd:
        yield differing(f"what {name} selects", found, "ranks of a pair then use ends that do not fit")


def devices_taken(placement: Placement, node: Node) -> Values | None:
    """Number and link layer of the ports that NCCL_IB_HCA leaves."""
    if node.shape is None or node.machine is None or node.machine.coverage.nics != "all":
        return None
    settings = hca_settings(placement, node)
    layers = Counter(
        port.layer or "RDMA" for nic in node.shape.hardware.nics for port in ports_left(nic, settings)
    )
    return frozenset(f"{count} {layer} port{'s' * (count > 1)}" for layer, count in layers.items())


def interfaces_taken(placement: Placement, node: Node) -> Values | None:
    """Kinds of network that NCCL_SOCKET_IFNAME leads to."""
    values = [setting.value for setting in settings_of(placement, node, INTERFACE)]
    found: set[str] = set()
    for state, _ in node.machine.states if node.machine else ():
        names, addresses = [netdev.name for netdev in state.netdevs], state.addresses
        for value in values or (None,):
            choice = chosen(names, addresses, value)
            found |= {state.netdevs[place].layer or "some" for place in choice.addressed}
    return frozenset(f"{layer} interfaces" for layer in found) or None


def gids_taken(placement: Placement, node: Node) -> Values | None:
    """Kinds of GID at the index that NCCL_IB_GID_INDEX names, on the devices that the job needs.

    None also where NCCL chooses the entry itself, or a table may hold more than is listed.
    """
    indexes = {parse_index(setting.value) for setting in settings_of(placement, node, GID)}
    wanted = needed(placement, node)
    if not indexes or None in indexes or wanted is None or node.machine is None:
        return None
    nics = {hca.nic for hca in wanted.devices}
    ports = [port for state, _ in node.machine.states for port in state.ports if port.nic in nics]
    if not ports or any(port.gids is None for port in ports):
        return None
    found = set()
    for port in ports:
        at_index = [gid for gid in port.gids or () if gid.place in indexes]
        found |= {
            f"{gid.type or 'some'} GIDs{' of a link-local address' * gid.link_local}" for gid in at_index
        }
        if not at_index:
            if port.cut:
                return None
            found.add("no GID")
    return frozenset(found)


SELECTS: tuple[tuple[str, Select], ...] = (
    (HCA, devices_taken),
    (INTERFACE, interfaces_taken),
    (GID, gids_taken),
)
"""Variables that each node may have its own way, and what they select."""


def by_settings(placement: Placement) -> Situations[Node]:
    """Nodes by their variables."""
    return by_kind(placement, partial(setting_kind, placement))


@rule("ENV002", "NCCL understands every value", over=by_settings, severity="warning")
def values_mean_something(ask: Ask, node: Node) -> Iterator[Finding]:
    """Words and numbers that NCCL reads as something else, or passes over, without a word."""
    ask.know()
    placement = ask.placement
    for name in sorted(names_set(placement, node)):
        for setting in settings_of(placement, node, name):
            words = misread(name, setting.value)
            if words:
                yield ignored(node, setting, words)
    for fact in placement.facts_by_node.get(node.index, ()):
        if fact.kind == "env-invalid":
            name, _, value = fact.value.partition("=")
            setting = Setting(name, value, read_at(fact.at, fact.value, "log"))
            yield ignored(node, setting, "is no number: NCCL uses its default")
    if not is_listed(node):
        ask.gap("NCCL's variables as the ranks have them", [node.name], PROBE, part="environment")


def misread(name: str, value: str) -> str:
    """How NCCL misreads a value, in words; empty if it does not."""
    if name in LEVEL_NAMES and level_of(value) is None and value:
        word = value.strip(" \"'").upper()
        meant = f", {word} is meant" if level_of(word) and word != value else ""
        return f"is no path type{meant}: NCCL passes over it and uses its default"
    if not value or not (name in NUMBERS or SWITCH.fullmatch(name)):
        return ""
    number = number_of(value)
    if not is_number(value):
        effect = " and switches nothing" if number == 0 and name.endswith("_DISABLE") else ""
        effect = effect or (" and switches it off" if number == 0 and name.endswith("_ENABLE") else "")
        return f"is read as the number {number}{effect}"
    return "does nothing: only 1 counts" if name in ONE_ONLY and number not in (0, 1) else ""


def ignored(node: Node, setting: Setting, words: str) -> Finding:
    """The finding of one value."""
    value = meant(setting.name, setting.value)
    return Finding(
        message=f"{setting} on {node} {words}, so that what was meant is not in force there",
        fix=f"write {setting.name} as NCCL reads it: numbers as 0 or 1, path types as LOC, NVL, PIX, PXB, "
        "PHB or SYS in capitals, without quotes",
        cause=str(setting),
        subjects=(node.name,),
        evidence=(setting.evidence,),
        remedies=() if value is None else (Variable(name=setting.name, value=value),),
    )


def by_files(placement: Placement) -> Situations[Node]:
    """Nodes by the files that NCCL reads there, by what names them, and by whether a probe looked."""
    found: dict[Hashable, list[Node]] = {}
    for number, members in enumerate(kinds(placement)):
        for node in members:
            found.setdefault((number, is_probed(node)), []).append(node)
    return found


def is_probed(node: Node) -> bool:
    """A probe looked for files on it; its sources are no part of a kind."""
    return node.machine is not None and PROBED in node.machine.sources


@rule("ENV003", "no file overrides the environment", over=by_files, severity="warning")
def no_file_overrides(ask: Ask, node: Node) -> Iterator[Finding]:
    """An nccl.conf that sets paths, a topology or graph file: all invisible to `env`."""
    ask.know()
    refused = list(refusals(ask.placement, node))
    yield from refused
    named = {name: settings_of(ask.placement, node, name) for name in (TOPOLOGY, GRAPH)}
    files = node.machine.files if node.machine else ()
    yield from absent_files(node, files)
    if not refused:
        yield from replacements(node, files, named)
    for file in files:
        yield from hidden_settings(ask.placement, node, file)
    if not (files or is_probed(node)) or any(
        fault.part == "files" for fault in (node.machine.faults if node.machine else ())
    ):
        need = "files that NCCL reads (nccl.conf, topology and graph file)"
        ask.gap(need, [node.name], PROBE, part="files")


def refusals(placement: Placement, node: Node) -> Iterator[Finding]:
    """A file that NCCL could not use: it names what the machine does not have."""
    facts = placement.facts_by_node.get(node.index, ())
    told = [f for f in facts if f.kind == "topo-device-missing"]
    told = told or [f for f in facts if f.kind in ("abort", "warn") and "XML Import" in f.value]
    if not told:
        return
    found = [s for name in (GRAPH, TOPOLOGY) for s in settings_of(placement, node, name)]
    what = str(found[0]) if found else "a topology or graph file"
    yield replaced(
        node,
        f"NCCL refuses {what} on {node}: {words_of(told[0])}. Initialisation ends there",
        evidence=(
            *(read_at(f.at, f"{f.kind}: {f.value}", "log") for f in told),
            *(s.evidence for s in found),
        ),
        cause="file refused",
        severity="error",
    )


def words_of(fact: LogFact) -> str:
    """Why a file was refused."""
    missing = fact.kind == "topo-device-missing"
    return f"it names {fact.value}, which the machine does not have" if missing else fact.value[:200]


def replaced(
    node: Node,
    message: str,
    *,
    evidence: Sequence[Evidence],
    cause: str,
    fix: str = "unset the variable or remove the file, unless it was made for exactly this machine type",
    severity: Severity | None = None,
) -> Finding:
    """A finding about a file on one node."""
    return Finding(
        message=message,
        fix=fix,
        cause=cause,
        subjects=(node.name,),
        evidence=tuple(evidence),
        severity=severity,
    )


def absent_files(node: Node, files: Sequence[NcclFile]) -> Iterator[Finding]:
    """Files that a variable names and that are not there."""
    for file in files:
        if not file.exists:
            yield replaced(
                node,
                f"a variable names the {file.kind} file {file.path}, which is not there on {node}: NCCL goes "
                "on without it, or stops",
                evidence=(Evidence(source=str(node), fact=f"{file.path} is missing"),),
                cause=f"{file.kind} file missing",
            )


def replacements(
    node: Node, files: Sequence[NcclFile], named: dict[str, tuple[Setting, ...]]
) -> Iterator[Finding]:
    """Topology and graph files in force, but for those that the vendor of a virtual machine gives."""
    virtual = node.machine is not None and node.machine.software.hypervisor is not None
    found: dict[tuple[str, str], Evidence] = {}
    for name, kind in ((TOPOLOGY, "topology"), (GRAPH, "graph")):
        for setting in named[name]:
            found[kind, setting.value] = setting.evidence
    for file in files:
        if file.kind != "settings" and file.exists:
            found.setdefault(
                (file.kind, file.path), Evidence(source=file.path, fact=f"a {file.kind} file is there")
            )
    for (kind, path), evidence in found.items():
        if any(vendor in path for vendor in VENDORS) or (kind == "topology" and virtual):
            continue
        yield replaced(
            node,
            f"the {kind} file {path[:200]} replaces what NCCL finds out itself on {node}: if it is of "
            "another machine or older than this one, GPUs and NICs are paired wrongly",
            evidence=(evidence,),
            cause=f"{kind} file",
        )


def hidden_settings(placement: Placement, node: Node, file: NcclFile) -> Iterator[Finding]:
    """Variables of an nccl.conf that change the path and that the environment does not set."""
    own = {name for name in file.settings if name in (*JOB_WIDE, HCA, INTERFACE, GID)}
    told = [
        setting
        for name in sorted(own)
        for setting in settings_of(placement, node, name)
        if setting.evidence.source == file.path
    ]
    if told:
        yield replaced(
            node,
            f"{file.path} on {node} sets {first(map(str, told))}, which no listing of the environment shows",
            fix="set it in the job's environment, where it can be seen, or remove it from the file if nobody "
            "knows why it is there",
            evidence=[setting.evidence for setting in told],
            cause=f"settings in {file.path}",
        )


RULES = (variables_agree, values_mean_something, no_file_overrides)
"""What differs, then what means nothing, then what is hidden."""
