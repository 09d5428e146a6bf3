"""Networks in YAML: Slurm's `topology.yaml`, and the models that topograph reads.

Slurm takes `topology.yaml` before `topology.conf`; of several topologies that of the cluster's default is in
force unless a partition names another (man topology.yaml, Slurm 25.05). topograph's models are its
tests/models (commit e2b62507).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topocheck.commands.documents import Node, parse_documents
from topocheck.errors import CaptureError, InputError
from topocheck.probes.capture.reading import Reading, Text
from topocheck.probes.capture.switches import Switches, hosts
from topocheck.probes.capture.topology_conf import Block, aggregated, join_blocks

__all__ = ["KIND", "MODEL", "parse"]

KIND = "slurm topology.yaml"
MODEL = "topograph model"

TOPOLOGY = re.compile(r"\s*- topology:\s*\S.*")
SWITCHES = re.compile(r"switches:\s*")
BLOCKS = re.compile(r"blocks:\s*")


def parse(text: Text) -> list[Reading]:
    """Read one network; [] if the text is none. Raises CaptureError for YAML or names that cannot be read."""
    if any(TOPOLOGY.fullmatch(line) for line in text.lines):
        return slurm(text)
    if all(any(key.fullmatch(line) for line in text.lines) for key in (SWITCHES, BLOCKS)):
        return topograph(text)
    return []


def slurm(text: Text) -> list[Reading]:
    """The topology that is the cluster's default, else the first."""
    first = next(place for place, line in enumerate(text.lines) if TOPOLOGY.fullmatch(line))
    # A list below a key may stand as far left as the key itself, and so every line keeps its number.
    root = document("\n".join(["topologies:", *text.lines[first:]]), text.source, first)
    found = root.get("topologies")
    units = [unit for unit in (found.items if found else ()) if unit.at("topology")]
    usual = [unit for unit in units if (unit.at("cluster_default") or "").lower() == "true"]
    for unit in [*usual, *units][:1]:
        switches = Switches(KIND, text.source, "slurm" if unit.get("tree") else "slurm-blocks")
        for other in units:
            if other is not unit:
                why = f"topology {other.at('topology')}: {unit.at('topology')} is the cluster's default"
                switches.ignore(other.line, why)
        tree, blocks = unit.get("tree", "switches"), unit.get("block", "blocks")
        if tree:
            state_tree(switches, tree)
        elif blocks:
            state_blocks(switches, blocks, unit.get("block", "block_sizes"))
        return switches.readings()
    return []


def state_tree(switches: Switches, tree: Node) -> None:
    """Switches with `children` or `nodes`."""
    for entry in tree.items:
        name = entry.at("switch")
        if name:
            switches.join(entry.line, name, listed(entry, "children", switches.source))
            switches.hold(entry.line, name, listed(entry, "nodes", switches.source))


def state_blocks(switches: Switches, blocks: Node, sizes: Node | None) -> None:
    """Blocks with their nodes, put together by `block_sizes`."""
    bases: list[Block] = [
        (entry.line, name, listed(entry, "nodes", switches.source))
        for entry in blocks.items
        if (name := entry.at("block"))
    ]
    written = [size.text or "" for size in (sizes.items if sizes else ())]
    numbers = [int(size) for size in written if size.isdecimal() and len(size) < 8]
    join_blocks(switches, bases, aggregated(bases, numbers))


def topograph(text: Text) -> list[Reading]:
    """A model: `switches` by name with the switches below each, `blocks` of nodes below a switch."""
    first = next(n for n, line in enumerate(text.lines) if SWITCHES.fullmatch(line) or BLOCKS.fullmatch(line))
    root = document("\n".join(text.lines[first:]), text.source, first + 1)
    tree, blocks = root.get("switches"), root.get("blocks")
    switches = Switches(MODEL, text.source, "topograph-model")
    for name, entry in tree.fields if tree else ():
        switches.join(entry.line, name, listed(entry, "switches", text.source))
    for entry in blocks.items if blocks else ():
        leaf = entry.at("switch")
        if leaf:
            switches.hold(entry.line, leaf, listed(entry, "nodes", text.source))
    return switches.readings()


def listed(entry: Node, key: str, source: str) -> Sequence[str]:
    """Names under a key: one host list, or a list of them."""
    found = entry.get(key)
    if found is None:
        return ()
    written = [found, *found.items]
    return [name for node in written if node.text for name in hosts(node.text, source, node.line)]


def document(text: str, source: str, first: int) -> Node:
    """The first document of a text. Raises CaptureError."""
    try:
        found = parse_documents(text.partition("\n---")[0], source, first)
    except InputError as error:
        raise CaptureError(
            f"a network topology {error.problem}",
            path=source,
            line=error.line,
            fix="give the file alone, as it is",
        ) from None
    return found[0] if found else Node(first)
