"""What a gate was asked, in one line that is compared between nodes: one verdict answers one question."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from topocheck import __version__
from topocheck.answer import Declared
from topocheck.checklist import Gate
from topocheck.policy import Site

__all__ = ["difference", "question"]

LETTERS = 12
"""Hexadecimal digits of a digest that are shown."""


def question(declared: Declared, gate: Gate, nodes: int) -> str:
    """`topocheck 0.1, nodes 4, plan 9f86d081884c, policy none, baseline none`.

    By contents, not by the names of files: they may lie elsewhere on each node. The least basis of a gate
    follows from plan and policy.
    """
    baseline = declared.baseline
    parts = {
        "topocheck": __version__,
        "nodes": str(nodes),
        "plan": digest(declared.plan, declared.world, declared.nodes, gate.fail_on),
        "policy": "none" if declared.site is None else digest(*of_site(declared.site)),
        "baseline": "none" if baseline is None else baseline.digest.rpartition(":")[2][:LETTERS],
    }
    return ", ".join(f"{name} {value}" for name, value in parts.items())


def of_site(site: Site) -> Sequence[Any]:
    """What a policy file says."""
    return site.policy, sorted(site.given), site.waivers


def digest(*values: Any) -> str:
    """Of declared data; equal values have equal ones."""
    data = msgspec.json.encode(values, order="deterministic")
    return hashlib.sha256(data).hexdigest()[:LETTERS]


def difference(one: str, other: str) -> str:
    """`plan and policy`: in what two questions differ; of what none of them names, `version of topocheck`."""
    mine, theirs = parts(one), parts(other)
    names = [name for name in mine if mine[name] != theirs.get(name)] or ["topocheck"]
    words = ["version of topocheck" if name == "topocheck" else name for name in names]
    words = ["number of nodes" if word == "nodes" else word for word in words]
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def parts(asked: str) -> dict[str, str]:
    """The parts of a question by name; what is none has no parts."""
    return {
        name: value for part in asked[:400].split(", ") for name, _, value in (part.partition(" "),) if value
    }
