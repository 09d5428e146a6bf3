"""Probes of other packages, asked each in a process of its own.

An entry point of the group `topocheck.probes` stands for a function of the form that topocheck's own readers
have: `read(roots) -> (facts, faults)`, where facts are what JSON can hold. Whatever becomes of it, the
snapshot of the node is there: one that breaks, hangs or takes its process with it is a fault in it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from topocheck.plugins import PROBES, Offer, offers
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ProbeFault

if TYPE_CHECKING:
    from topocheck.probes.node.child import Child

__all__ = ["CHILD", "Told", "ask_plugin", "fault_of", "part_of", "sort_offers"]

CHILD = "topocheck.probes.node.plugin_child"
"""Module that runs one probe in a process of its own."""
MOST_BYTES = 1 << 20
"""Bytes that one probe may add to the snapshot of a node: there are thousands of nodes."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class Told(msgspec.Struct, frozen=True):
    """What the process of a probe writes."""

    facts: Any = None
    faults: tuple[ProbeFault, ...] = ()


def part_of(name: str) -> str:
    """What of a snapshot a probe of another package fills, as faults and gaps name it."""
    return f"plugins.{name}"


def fault_of(offer: Offer, reason: str, kind: Literal["broken", "timeout"] = "broken") -> ProbeFault:
    """A probe that gave nothing, and why."""
    return ProbeFault(part=part_of(offer.name), kind=kind, path=str(offer), reason=reason)


def sort_offers(own: Collection[str]) -> tuple[dict[str, Offer], tuple[ProbeFault, ...]]:
    """Probes of other packages by name, and those whose names cannot stand beside others as faults.

    `own` are the names of topocheck's own probes.
    """
    found: dict[str, Offer] = {}
    refused = []
    for offer in offers(PROBES):
        if offer.name in own:
            refused.append(
                fault_of(offer, "topocheck has a probe of that name: the package must take another")
            )
        elif not NAME.fullmatch(offer.name):
            refused.append(fault_of(offer, "the name must be of letters, digits, _, - and ., 64 at most"))
        elif offer.name in found:
            refused.append(
                fault_of(offer, f"package {found[offer.name].package} offers a probe of that name")
            )
        else:
            found[offer.name] = offer
    return found, tuple(refused)


def ask_plugin(
    offer: Offer, roots: Roots, deadline: float, seconds: float
) -> tuple[Any, tuple[ProbeFault, ...]]:
    """What one probe says until `deadline` (time.monotonic()), `seconds` from the start; None for nothing."""
    from topocheck.probes.node.child import run_child  # noqa: PLC0415 - only where there is a plugin

    command = [sys.executable, "-m", CHILD, "--root", str(roots.root.absolute()), *offer]
    # It imports what this process would: the package was found on its path.
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)  # noqa: PTH109 - as the path has it
    try:
        child = run_child(command, deadline, os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"})
    except OSError as error:
        return None, (fault_of(offer, f"{sys.executable or 'python'}: {error.strerror or error}"),)
    return judge(offer, child, seconds)


def judge(offer: Offer, child: Child, seconds: float) -> tuple[Any, tuple[ProbeFault, ...]]:
    """What the process of a probe wrote, or why that is nothing."""
    if child.code is None:
        words = f"did not return within {seconds:g} s; its process {child.ending}"
        return None, (fault_of(offer, words, "timeout"),)
    if child.code != 0:
        return None, (fault_of(offer, f"its process {child.ending}{last_words(child.err)}"),)
    if len(child.out) > MOST_BYTES:
        return None, (fault_of(offer, f"gave more than {MOST_BYTES >> 20} MiB"),)
    try:
        told = msgspec.json.decode(child.out, type=Told)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, (fault_of(offer, f"gave what cannot be read ({error})"),)
    return told.facts, told.faults


def last_words(said: bytes) -> str:
    """The last line that is no blank, to follow what became of a process."""
    lines: Sequence[str] = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""
