"""What is right on common machines: a profile is what a policy would say of them, chosen by what they show.

A node may have two: that of its boards, and that of the virtual machine around them. The policy's own keys
go before a profile, and `policy.profile` names one for all nodes or none. What a model has by design
`topocheck.models` knows, which profiles refer to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from topocheck.hardware import Shape
from topocheck.machine import Machine
from topocheck.models import has_nvlink, in_a_rack, nvlinks_by_design
from topocheck.placement import Node, Placement
from topocheck.ranges import first

__all__ = [
    "PROFILES",
    "InForce",
    "Profile",
    "distances_from",
    "hides_distances",
    "hides_tree",
    "lone_part",
    "profiles_of",
    "reference_model",
    "right_numbers",
    "spelled_numbers",
    "tensor_domain",
    "without_links",
]

PARTS = (8, 4, 2, 1)
"""Numbers of GPUs into which a board of eight can be divided among virtual machines."""
NEAR = frozenset({"PIX", "PXB"})
"""Classes of a NIC on the PCIe switch of a GPU."""

Fits = Callable[[Machine, Shape], str]
"""What of a machine shows that it is one of a kind, in words; empty if it is none, or may be another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of machine."""

    name: str
    """As `policy.profile` has it."""
    title: str
    fits: Fits
    model: str | None = None
    """A model whose design holds where no model is shown."""
    gpus: tuple[int, ...] = ()
    """Numbers of GPUs that a healthy machine shows; any if empty."""
    tensor_domain: Literal["nvlink"] | None = None
    """Where a TP group may lie unless the policy says it."""
    nvlink: bool = True
    """GPUs may be joined by NVLink."""
    hides_tree: bool = False
    """Nothing inside the machine shows which NIC is near which GPU: all of the fabric are the job's."""


class InForce(NamedTuple):
    """A profile of a node."""

    profile: Profile
    chosen: Literal["evidence", "plan"]
    why: str
    """What shows it, in words."""


def models_of(shape: Shape) -> list[str]:
    """Models of all GPUs; empty unless each is shown."""
    known = [model for model in shape.models if model is not None]
    return sorted(known) if len(known) == len(shape.models) else []


def joined(shape: Shape) -> dict[str, int]:
    """Pairs of GPUs that are joined by NVLink, with the number of links."""
    pairs = combinations(range(shape.gpus), 2)
    links = {f"{a}-{b}": shape.link(a, b) for a, b in pairs}
    return {pair: link.count for pair, link in links.items() if link is not None and link.nvlink}


def switched(shape: Shape) -> bool:
    """The links of the GPUs lead to switches: so many to every peer are no links between GPUs."""
    if any(shape.nvswitch(gpu) for gpu in range(shape.gpus)):
        return True
    pairs, design = joined(shape), {nvlinks_by_design(model) for model in shape.models}
    return (
        shape.gpus > 2 and len(pairs) * 2 == shape.gpus * (shape.gpus - 1) and set(pairs.values()) == design
    )


def beyond_host(machine: Machine) -> bool:
    """Its NVLink fabric reports a domain of several hosts: a cluster UUID that is not zero."""
    uuids = [fabric.cluster_uuid or "" for fabric, _ in machine.fabric]
    return any(uuid.replace("-", "").strip("0") for uuid in uuids)


def board(pattern: str) -> Fits:
    """Boards of this kind that reach each other by NVSwitch."""
    wanted = re.compile(pattern)

    def fits(machine: Machine, shape: Shape) -> str:
        models = models_of(shape)
        fabric = any((fabric.state or "").lower() == "completed" for fabric, _ in machine.fabric)
        found = models and all(wanted.search(model) for model in models) and (fabric or switched(shape))
        return f"{first(models)} on NVSwitch" if found else ""

    return fits


def tray(machine: Machine, shape: Shape) -> str:
    """A tray of a rack whose NVLink domain reaches over its trays."""
    models = models_of(shape)
    found = models and all(map(in_a_rack, models)) and beyond_host(machine)
    return f"{first(models)} with an NVLink domain beyond the host" if found else ""


def quad(_: Machine, shape: Shape) -> str:
    """Four baseboard GPUs, each joined to all others without a switch."""
    models = models_of(shape)
    boards = models and all(nvlinks_by_design(m) and "V100" not in m and not in_a_rack(m) for m in models)
    found = boards and shape.gpus == 4 and not switched(shape) and len(joined(shape)) == 6
    return f"four {first(models)}, all pairs joined without NVSwitch" if found else ""


def cube_mesh(_: Machine, shape: Shape) -> str:
    """V100 baseboard GPUs of which some pairs are joined and others are not."""
    models = models_of(shape)
    boards = models and all("V100-SXM" in model for model in models)
    found = boards and not switched(shape) and joined(shape)
    return f"{first(models)} without NVSwitch" if found else ""


def superchip(name: str) -> Fits:
    """One superchip alone on its node."""
    wanted = re.compile(rf"\b{name}\b")

    def fits(machine: Machine, shape: Shape) -> str:
        models = models_of(shape)
        alone = len(machine.gpus) == 1 and machine.coverage.gpus == "all" and not beyond_host(machine)
        return f"one {models[0]}" if models and wanted.search(models[0]) and alone else ""

    return fits


def bridged(_: Machine, shape: Shape) -> str:
    """Cards that bridges join to some of the others."""
    models = models_of(shape)
    if not models or any(nvlinks_by_design(m) or has_nvlink(m) is False for m in models) or switched(shape):
        return ""
    pairs = joined(shape)
    return f"{first(models)} with bridges on {first(pairs)}" if pairs else ""


def plain(_: Machine, shape: Shape) -> str:
    """Cards that have no NVLink by design."""
    models = models_of(shape)
    found = models and all(has_nvlink(model) is False for model in models)
    return f"{first(models)}, which has no NVLink" if found else ""


def virtual(machine: Machine, shape: Shape) -> str:
    """A virtual machine with GPUs and NICs none of which are shown to be near."""
    hypervisor, nics = machine.software.hypervisor, len(shape.hardware.nics)
    if hypervisor is None or not (shape.gpus and nics):
        return ""
    links = [shape.nic_link(gpu, nic) for gpu in range(shape.gpus) for nic in range(nics)]
    hidden = not any(link is not None and link.kind in NEAR for link in links)
    return f"a virtual machine ({hypervisor}) without a NIC on the PCIe switch of a GPU" if hidden else ""


H100, H200, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB"

BOARDS: tuple[Profile, ...] = (
    Profile(
        name="nvl72",
        title="tray of an NVL72 rack",
        fits=tray,
        model="NVIDIA GB200",
        gpus=(4, 2, 1),
        tensor_domain="nvlink",
    ),
    Profile(name="hgx-a100", title="HGX A100", fits=board(r"\bA[18]00-SXM"), model=A100, gpus=(16, *PARTS)),
    Profile(
        name="hgx-h100",
        title="HGX H100, H800 or H20",
        fits=board(r"(?<![A-Z])(H100|H800|H20)\b"),
        model=H100,
        gpus=PARTS,
    ),
    Profile(name="hgx-h200", title="HGX H200", fits=board(r"(?<![A-Z])H200\b"), model=H200, gpus=PARTS),
    Profile(
        name="hgx-b200",
        title="HGX B200 or B300",
        fits=board(r"(?<![A-Z])B[23]00\b"),
        model="NVIDIA B200",
        gpus=PARTS,
    ),
    Profile(name="hgx-4", title="HGX of four GPUs without NVSwitch", fits=quad, gpus=(4,)),
    Profile(name="dgx-1v", title="DGX-1V", fits=cube_mesh, model="Tesla V100-SXM2-32GB", gpus=PARTS),
    Profile(name="gh200", title="GH200 alone on its node", fits=superchip("GH200"), gpus=(1,), nvlink=False),
    Profile(name="gb10", title="GB10 (DGX Spark)", fits=superchip("GB10"), gpus=(1,), nvlink=False),
    Profile(name="bridged", title="PCIe cards with NVLink bridges", fits=bridged),
    Profile(name="pcie", title="PCIe cards without NVLink", fits=plain, nvlink=False),
)
"""Profiles of boards; of several that fit the first counts."""
AROUND = Profile(
    name="cloud-vm",
    title="virtual machine that hides its PCI tree",
    fits=virtual,
    hides_tree=True,
)
"""The profile of the machine around the boards."""
PROFILES = {profile.name: profile for profile in (*BOARDS, AROUND)}
"""All profiles by name."""


def profiles_of(placement: Placement, node: Node) -> tuple[InForce, ...]:
    """Profiles of a node: the one that the policy names, none if it says so, else what its evidence shows."""
    named = placement.plan.policy.profile
    if named != "auto":
        return () if named == "none" else (InForce(PROFILES[named], "plan", "the policy names it"),)
    machine = node.machine
    if machine is None or machine.shape is None:
        return ()
    kept = placement.keep("profiles", lambda _: dict[Hashable, tuple[InForce, ...]]())
    # Equal parts are one object over all machines, and the profiles ask of nothing else.
    parts = (machine.shape, machine.software, machine.fabric, machine.coverage)
    key = (*map(id, parts), len(machine.gpus))
    if key not in kept:
        kept[key] = tuple(shown_by(machine, machine.shape))
    return kept[key]


def shown_by(machine: Machine, shape: Shape) -> Iterator[InForce]:
    """Profiles that the evidence of a machine shows."""
    for profile in BOARDS:
        if why := profile.fits(machine, shape):
            yield InForce(profile, "evidence", why)
            break
    if why := AROUND.fits(machine, shape):
        yield InForce(AROUND, "evidence", why)


def tensor_domain(placement: Placement, nodes: Sequence[Node]) -> Literal["node", "nvlink", "any"] | None:
    """Where a TP group on these nodes may lie: by policy, else by the profile that it names; None unsaid.

    A profile that evidence chose says what machines are, and not what a job is meant to do.
    """
    policy = placement.plan.policy
    if policy.tensor_domain is not None or not nodes or policy.profile == "auto":
        return policy.tensor_domain
    own = [[one.profile.tensor_domain for one in profiles_of(placement, node)] for node in nodes]
    return "nvlink" if all("nvlink" in domains for domains in own) else None


def right_numbers(placement: Placement, node: Node) -> tuple[tuple[int, ...], str]:
    """Numbers of GPUs that are right for a node, and what says so; () where nothing does.

    A profile speaks of whole machines: a container may see fewer.
    """
    if (wanted := placement.plan.policy.expect_gpus) is not None:
        return (wanted,), "policy.expect_gpus"
    machine = node.machine
    if machine is None or any(gpu.scope != "host" for gpu in machine.gpus):
        return (), ""
    for one in profiles_of(placement, node):
        if one.profile.gpus:
            return one.profile.gpus, f"profile {one.profile.name}"
    return (), ""


def reference_model(placement: Placement, node: Node) -> str | None:
    """A model whose design holds for GPUs of a node that show none."""
    return next((one.profile.model for one in profiles_of(placement, node) if one.profile.model), None)


def lone_part(placement: Placement, node: Node) -> bool:
    """A virtual machine that has one GPU of a board: its NVLinks are switched off, and lead nowhere."""
    machine = node.machine
    if machine is None or machine.software.hypervisor is None or len(machine.gpus) != 1:
        return False
    divided = any(1 in one.profile.gpus and one.profile.nvlink for one in profiles_of(placement, node))
    return divided and machine.coverage.gpus == "all" and not beyond_host(machine)


def without_links(placement: Placement, nodes: Iterable[Node]) -> str | None:
    """Proof that GPUs of these nodes have no NVLink to any other, by model or profile; None without one."""
    whys: set[str] = set()
    for node in nodes:
        bare = [one.profile.title for one in profiles_of(placement, node) if not one.profile.nvlink]
        models = node.models
        if all(has_nvlink(model) is False for model in models):
            whys.update(map(str, models))
        elif bare:
            whys.update(bare)
        else:
            return None
    return f"{first(sorted(whys))} has no NVLink" if whys else None


def hides_tree(placement: Placement, node: Node) -> bool:
    """Nothing inside a node shows which NIC is near which GPU, by its profile."""
    return any(one.profile.hides_tree for one in profiles_of(placement, node))


def hides_distances(placement: Placement) -> str | None:
    """The policy's word that nothing shows which NIC is near which GPU; None without it."""
    named = PROFILES.get(placement.plan.policy.profile)
    return f"policy.profile {named.name}: a {named.title}" if named is not None and named.hides_tree else None


def distances_from(placement: Placement, node: Node, otherwise: str) -> str:
    """What would show which NIC of a node is near which GPU: `otherwise`, where the node itself shows it."""
    if not hides_tree(placement, node):
        return otherwise
    files = node.machine.files if node.machine is not None else ()
    path = next((file.path for file in files if file.kind == "topology" and file.exists), None)
    what = "the vendor's topology file of this virtual machine (NCCL_TOPO_FILE)" if path is None else path
    return f"{what}, given as NODE=FILE: the machine itself hides its PCI tree"


def spelled_numbers(numbers: Sequence[int]) -> str:
    """`8, 4, 2 or 1 GPUs`."""
    *most, last = map(str, numbers)
    return f"{', '.join(most)} or {last} GPUs" if most else f"{last} GPU{'s' * (last != '1')}"
