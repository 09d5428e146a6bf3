"""Which profiles are in force over a job, why, and what each of them decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from topocheck.kinds import in_order, kinds
from topocheck.models import nvlinks_by_design
from topocheck.placement import Node, Placement
from topocheck.profiles import InForce, profiles_of, spelled_numbers
from topocheck.report import ProfileReport

__all__ = ["profile_reports"]

MOST_NAMED = 16
"""Nodes named of each profile; the others are counted."""


def profile_reports(placements: Iterable[Placement]) -> list[ProfileReport]:
    """Profiles in force over a job of one world or several, with what each decides."""
    found: dict[InForce, tuple[Placement, Node, dict[str, None]]] = {}
    for placement in placements:
        for one, nodes in nodes_of(placement).items():
            names = found.setdefault(one, (placement, nodes[0], {}))[2]
            names.update(dict.fromkeys([node.name for node in nodes]))
    return [
        ProfileReport(
            name=one.profile.name,
            title=one.profile.title,
            chosen=one.chosen,
            why=one.why,
            decides=list(decisions(one, placement, node)),
            nodes=list(names)[:MOST_NAMED],
            count=len(names),
        )
        for one, (placement, node, names) in found.items()
    ]


def nodes_of(placement: Placement) -> dict[InForce, list[Node]]:
    """Expected nodes by profile, in the plan's order."""
    found: dict[InForce, list[list[Node]]] = {}
    for alike in kinds(placement):
        for one in profiles_of(placement, alike[0]):
            found.setdefault(one, []).append(alike)
    return {one: in_order(parts) for one, parts in found.items()}


def decisions(one: InForce, placement: Placement, node: Node) -> Iterator[str]:
    """What a profile decides, each with the rule that asks it; what the policy says itself is left out.

    `node` is one of its nodes.
    """
    profile, policy = one.profile, placement.plan.policy
    if profile.gpus and policy.expect_gpus is None:
        yield f"{spelled_numbers(profile.gpus)} on a node (VER007)"
    links = {nvlinks_by_design(model or profile.model) for model in node.models} - {None}
    if profile.nvlink and links and policy.expect_nvlinks is None:
        numbers = "/".join(map(str, sorted(filter(None, links))))
        yield f"{numbers} NVLinks a GPU, by design of its model (NV001)"
    if profile.tensor_domain and policy.tensor_domain is None and policy.profile != "auto":
        yield f"tensor_domain {profile.tensor_domain} (TP001)"
    if not profile.nvlink:
        yield "no NVLink between GPUs (NV001 and TP002 do not apply)"
    if profile.hides_tree and not policy.expect_rails:
        yield "all InfiniBand and EFA devices are the job's unless NCCL_IB_HCA says otherwise (NET001)"
    if profile.hides_tree and one.chosen == "plan":
        yield "which NIC is near is not asked (PP004 and PP005 do not apply)"
    elif profile.hides_tree:
        yield "which NIC is near only the vendor's topology file tells (PP004, PP005)"
