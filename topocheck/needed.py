"""Which RDMA devices a job needs on a node, so that no rule accuses a port that nobody uses.

Needed are the devices that NCCL_IB_HCA names, else the rails that policy declares; else those nearest to the
GPUs in use, among the ones that the variable leaves; else those that the job itself opened. A list that
leaves out (`^mlx5_bond_0`) and a prefix of many names (`mlx5`) name no device: they only bound the choice.
Ports that are down beside others that are up are no fault by themselves: cards have ports without a cable,
and storage has NICs of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from topocheck.hardware import Shape
from topocheck.hca import Hca, Near, nearest
from topocheck.hcafilter import HcaFilter, parse_hca_filter
from topocheck.placement import Node, Placement
from topocheck.profiles import hides_tree
from topocheck.rule import Evidence, read_at
from topocheck.settings import setting_kind, settings_of
from topocheck.snapshot import NicShape, Port

__all__ = [
    "HcaSetting",
    "Needed",
    "filter_kind",
    "hca_settings",
    "meant_hcas",
    "named_hcas",
    "need_kind",
    "needed",
    "ports_left",
    "used_gpus",
]

VARIABLE = "NCCL_IB_HCA"
SOFT = frozenset({"soft", "usnic"})
"""Kinds that carry no traffic of a job unless it names them."""


@dataclass(frozen=True, slots=True)
class HcaSetting:
    """A value of NCCL_IB_HCA that is in force on a node, and where it was read."""

    filter: HcaFilter
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Needed:
    """RDMA devices that a job needs on one node."""

    by: Literal["filter", "declared", "nearest", "opened"]
    """What tells so."""
    devices: tuple[Hca, ...]
    doubtful: tuple[Hca, ...] = ()
    """Down, and near a GPU in use beside one that is up: nothing shows whether the job needs it."""
    missing: tuple[str, ...] = ()
    """Entries of NCCL_IB_HCA that no shown device answers to, in its own words: `mlx5_7`, `mlx5_0:2`."""
    whole: bool = True
    """There are no others. False where a prefix stands for several devices and nearness is not known."""
    evidence: tuple[Evidence, ...] = ()
    """Where the variable was read."""


def hca_settings(placement: Placement, node: Node) -> tuple[HcaSetting, ...]:
    """Values of NCCL_IB_HCA in force on a node, each once; () where none is shown."""
    settings = settings_of(placement, node, VARIABLE)
    return tuple(HcaSetting(parse_hca_filter(setting.value), setting.evidence) for setting in settings)


def ports_left(nic: NicShape, settings: Sequence[HcaSetting]) -> tuple[Port, ...]:
    """Ports of a device that any of the values leaves, all without a value; its first if none is shown."""
    ports = nic.ports or (Port(),)
    return tuple(
        port
        for port in ports
        if not settings or any(setting.filter.selects(nic.name, port.port) for setting in settings)
    )


def used_gpus(placement: Placement, node: Node) -> tuple[int, ...] | None:
    """Ordinals of the GPUs that ranks of a node drive; None unless the phase's column knows all of them."""
    machine, ranks = node.machine, placement.ranks_on.get(node.index, ())
    if machine is None or not ranks or placement.unplaced:
        return None
    gpus = [placement.placed.gpu[rank] for rank in ranks]
    if placement.phase == "predicted":  # the formula counts as an unrestricted process does
        gpus = [None if gpu is None else machine.at_index(gpu) for gpu in gpus]
    known = [gpu for gpu in gpus if gpu is not None]
    return tuple(dict.fromkeys(known)) if len(known) == len(gpus) else None


def filter_kind(placement: Placement, node: Node) -> Hashable:
    """Nodes of one kind have the same RDMA devices to choose from: hardware, variables, no log of their own.

    None for all nodes of which nothing is known.
    """
    machine = node.machine
    if machine is None:
        return None
    return id(machine.shape and machine.shape.alike), machine.coverage.nics, setting_kind(placement, node)


def need_kind(placement: Placement, node: Node) -> Hashable:
    """Nodes of one kind need alike: the same devices to choose from, and the same GPUs in use."""
    return filter_kind(placement, node), used_gpus(placement, node)


def needed(placement: Placement, node: Node) -> Needed | None:
    """What the job needs on a node; None if nothing shows it."""
    if node.shape is None:
        return None
    kept = placement.keep("needed", lambda _: dict[Hashable, Needed | None]())
    kind = need_kind(placement, node)
    if kind not in kept:
        kept[kind] = find(placement, node, node.shape)
    return kept[kind]


def named_hcas(placement: Placement, node: Node) -> tuple[Hca, ...]:
    """Devices that NCCL_IB_HCA names one by one on a node, whatever the GPUs."""
    settings = hca_settings(placement, node) if node.shape else ()
    return tuple(choose(node.shape, settings).named.values()) if node.shape and settings else ()


def meant_hcas(placement: Placement, node: Node) -> tuple[str, ...]:
    """Names of the devices that the job should use on a node, whatever NCCL_IB_HCA says there.

    The rails of the policy, else what is nearest to the GPUs in use; () where that is not known, or not up.
    """
    shape, gpus = node.shape, used_gpus(placement, node)
    if shape is None or node.machine is None or node.machine.coverage.nics != "all":
        return ()
    everything = choose(shape, ()).open
    if rails := placement.plan.policy.expect_rails:
        return rails if all(name in everything and everything[name].up for name in rails) else ()
    near = None if gpus is None else nearest(shape, gpus, everything)
    if near is None or near.doubtful or not all(hca.up for hca in near.devices.values()):
        return ()
    return tuple(near.devices)


def find(placement: Placement, node: Node, shape: Shape) -> Needed | None:
    """Named devices, then the nearest of those that are left to choose from, then what was opened.

    Rails that the policy declares stand in for the variable where no value of it is shown.
    """
    settings = hca_settings(placement, node)
    declared = () if settings else declared_rails(placement)
    settings = settings or declared
    choice = choose(shape, settings)
    evidence = tuple(setting.evidence for setting in settings)
    sure, doubtful, whole = dict(choice.named), dict[str, Hca](), not choice.open
    gpus = used_gpus(placement, node)
    if choice.open and gpus is not None and node.machine is not None and node.machine.coverage.nics == "all":
        near = by_profile(placement, node, nearest(shape, gpus, choice.open), choice.open)
        if near is not None:
            sure, doubtful, whole = near.devices | sure, near.doubtful, True
    if not (sure or doubtful or choice.missing):
        return opened(placement, node, shape, evidence)
    left = tuple(hca for name, hca in doubtful.items() if name not in sure)
    by: Literal["filter", "declared", "nearest"] = "declared" if declared else "filter"
    by = by if choice.named or choice.missing else "nearest"
    if declared:
        sure = {name: replace(hca, why="a rail of policy.expect_rails") for name, hca in sure.items()}
    return Needed(by, tuple(sure.values()), left, choice.missing, whole, evidence)


def by_profile(placement: Placement, node: Node, near: Near | None, choice: dict[str, Hca]) -> Near | None:
    """The nearest devices; all of the fabric on a virtual machine that hides distances, by its profile."""
    if near is not None or node.shape is None or not hides_tree(placement, node):
        return near
    nics = node.shape.hardware.nics
    fabric = {
        name: replace(hca, why="of the virtual machine's fabric")
        for name, hca in choice.items()
        if is_fabric(nics[hca.nic])
    }
    if not any(hca.up for hca in fabric.values()):
        return None
    return Near(
        {name: hca for name, hca in fabric.items() if hca.up is not False},
        {name: hca for name, hca in fabric.items() if hca.up is False},
    )


def is_fabric(nic: NicShape) -> bool:
    """A device of a network that is made for jobs, as a cloud gives it beside an Ethernet for all else."""
    return nic.kind == "efa" or any(port.layer == "InfiniBand" for port in nic.ports)


def declared_rails(placement: Placement) -> tuple[HcaSetting, ...]:
    """The rails of policy.expect_rails as a value of the variable; () where none are declared."""
    if not (rails := placement.plan.policy.expect_rails):
        return ()
    text = ",".join(rails)
    return (HcaSetting(parse_hca_filter(f"={text}"), Evidence(source="policy", fact=f"expect_rails {text}")),)


@dataclass(slots=True)
class Choice:
    """What the values of NCCL_IB_HCA make of the devices of a shape."""

    named: dict[str, Hca] = field(default_factory=dict)
    """Devices that an entry stands for alone, by name, and by name and port where the entry has one."""
    open: dict[str, Hca] = field(default_factory=dict)
    """Devices that the job may choose from, by name."""
    missing: tuple[str, ...] = ()
    """Entries that no device answers to."""


def choose(shape: Shape, settings: Sequence[HcaSetting]) -> Choice:
    """Sort the devices of a shape by what the values say of them; without a value all are open."""
    choice = Choice()
    for value in [setting.filter for setting in settings] or [parse_hca_filter("")]:
        if value.exclude or not value.entries:
            choice.open |= {hca.name: hca for hca in taken(shape, value) if kind_of(shape, hca) not in SOFT}
            continue
        for entry in value.entries:
            alone = HcaFilter(value.text, exclude=False, exact=value.exact, entries=(entry,))
            met = list(taken(shape, alone))
            equal = [hca for hca in met if hca.name == entry.name] or met[: len(met) == 1]
            if equal:
                choice.named[equal[0].name if entry.port is None else str(entry)] = equal[0]
            elif met:
                choice.open |= {hca.name: hca for hca in met}
            else:
                choice.missing += (str(entry),)
    return choice


def taken(shape: Shape, value: HcaFilter) -> Iterator[Hca]:
    """Devices with the ports that a value selects; where no port is shown, any may be there."""
    for place, nic in enumerate(shape.hardware.nics):
        if not value.may_select(nic.name):
            continue
        ports = tuple(port for port in nic.ports if value.selects(nic.name, port.port))
        guessed = [] if nic.ports else [entry.port or 1 for entry in value.entries] or [1]
        if ports or any(value.selects(nic.name, number) for number in guessed):
            yield Hca(nic.name, place, ports, f"selected by {value}")


def kind_of(shape: Shape, hca: Hca) -> str | None:
    """Kind of a device."""
    return shape.hardware.nics[hca.nic].kind


def opened(placement: Placement, node: Node, shape: Shape, evidence: tuple[Evidence, ...]) -> Needed | None:
    """Devices that the job opened, as its log lists them; None without such a log, or if none is shown."""
    facts = [fact for fact in placement.facts_by_node.get(node.index, ()) if fact.kind == "hca"]
    names = {fact.value.partition("/")[0] for fact in facts}
    found = []
    for place, nic in enumerate(shape.hardware.nics):
        ports = tuple(port for port in nic.ports if f"{nic.name}:{port.port}" in names)
        if ports:
            found.append(Hca(nic.name, place, ports, "opened by the job"))
    shown = tuple(read_at(fact.at, f"hca: {fact.value}", "log") for fact in facts[:1])
    return Needed("opened", tuple(found), (), (), True, (*evidence, *shown)) if found else None
