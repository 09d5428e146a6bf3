"""Slurm's `topology.conf` and `scontrol show topology`: switches of topology/tree, blocks of topology/block.

    SwitchName=spine Switches=leaf[0-1]             BlockName=rack1 Nodes=n[01-18]
    SwitchName=leaf0 Nodes=n[1-8]                   BlockSizes=18,36

`scontrol` adds Level, and lists the nodes of upper switches too (man topology.conf, Slurm 22.05 to 25.11).
Blocks have no switches: the blocks of one aggregated block are near each other, all blocks are one network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from topocheck.probes.capture.reading import Reading, Text
from topocheck.probes.capture.switches import Switches, hosts

__all__ = ["KIND", "Block", "aggregated", "join_blocks", "parse"]

KIND = "slurm topology"

START = re.compile(r"\s*(?:SwitchName|BlockName|BlockSizes|AggregatedBlock)=", re.IGNORECASE)
FIELD = re.compile(r"(\w{1,40})=(\S*)")
NOTHING = frozenset({"", "(null)", "NONE"})

Block = tuple[int, str, Sequence[str]]
"""Line, name and nodes of a block."""


def parse(text: Text) -> list[Reading]:
    """Read switches and blocks; [] if there are none. Raises CaptureError for names that cannot be read."""
    entries = list(parameters(text))
    tree = Switches(KIND, text.source, "slurm")
    blocks = Switches(KIND, text.source, "slurm-blocks")
    bases: list[Block] = []
    groups: list[tuple[int, Sequence[str]]] = []
    sizes: Sequence[int] = ()
    for line, entry in entries:
        nodes = names(entry, "nodes", text, line)
        if "switchname" in entry:
            children = names(entry, "switches", text, line)
            tree.join(line, entry["switchname"], children)
            if not children:  # scontrol lists the nodes of all leaves at their upper switches too
                tree.hold(line, entry["switchname"], nodes)
        elif "blockname" in entry:
            bases.append((line, entry["blockname"], nodes))
        elif "aggregatedblock" in entry:
            groups.append((line, names(entry, "aggregatedblock", text, line)))
        elif "blocksizes" in entry:
            sizes = [
                int(size) for size in entry["blocksizes"].split(",") if size.isdecimal() and len(size) < 8
            ]
    join_blocks(blocks, bases, groups or aggregated(bases, sizes))
    return [*tree.readings(), *blocks.readings()]


def parameters(text: Text) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Line and parameters of each entry; comments go, and a backslash at its end goes on in the next line."""
    kept, first = "", 0
    for number, line in enumerate(text.lines, 1):
        if not kept and not START.match(line):
            continue
        first = first if kept else number
        kept += line.partition("#")[0].rstrip()
        if kept.endswith("\\"):
            kept = kept[:-1]
            continue
        yield first, {name.lower(): value for name, value in FIELD.findall(kept)}
        kept = ""
    if kept:
        yield first, {name.lower(): value for name, value in FIELD.findall(kept)}


def names(entry: Mapping[str, str], key: str, text: Text, line: int) -> Sequence[str]:
    """The names that a parameter lists."""
    value = entry.get(key, "")
    return () if value in NOTHING else hosts(value, text.source, line)


def aggregated(bases: Sequence[Block], sizes: Sequence[int]) -> list[tuple[int, Sequence[str]]]:
    """Blocks that larger sizes put together, in the order in which they are defined: smaller groups first."""
    found: list[tuple[int, Sequence[str]]] = []
    for size in sorted(sizes)[1:]:
        count = size // min(sizes) if min(sizes) else 0
        for start in range(0, len(bases), count) if count > 1 else ():
            part = bases[start : start + count]
            found.append((part[0][0], [name for _, name, _ in part]))
    return found


def join_blocks(
    switches: Switches, bases: Sequence[Block], groups: Sequence[tuple[int, Sequence[str]]]
) -> None:
    """State blocks as a tree: blocks below the groups that hold them, and all below one root."""
    top = {name: name for _, name, _ in bases}
    for line, name, nodes in bases:
        switches.hold(line, name, nodes)
    for line, members in sorted(groups, key=lambda group: len(group[1])):
        below = dict.fromkeys(top[name] for name in members if name in top)
        if len(below) > 1:
            group = f"{members[0]}..{members[-1]}"
            switches.join(line, group, below)
            top.update({name: group for name in top if top[name] in below})
    roots = dict.fromkeys(top.values())
    if len(roots) > 1:
        switches.join(bases[0][0], "all-blocks", roots)
