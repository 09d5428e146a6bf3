"""`topocheck diff`: what moved between two looks at a job."""

from __future__ import annotations

import gc
import textwrap
from collections.abc import Iterator

import click

from topocheck.cli.bubble import pretty
from topocheck.cli.streams import say, show
from topocheck.diff import compare
from topocheck.difference import Change, Difference
from topocheck.errors import UsageError
from topocheck.gather.earlier import read_whereabouts
from topocheck.gather.files import split_label
from topocheck.ranges import first
from topocheck.render.text import printable

__all__ = ["diff"]

WIDTH = 80
MOST_SHOWN = 24
"""Changes shown; --json has them all."""
TITLES = {
    "node": "nodes",
    "rank": "ranks",
    "gpu": "GPUs",
    "link": "links",
    "nic": "NICs",
    "version": "versions",
}
"""What the changes of each kind are headed by."""
VERDICTS = {0: "SAME", 1: "MOVED", 3: "UNKNOWN"}


@click.command()
@click.argument("baseline")
@click.argument("current")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def diff(baseline: str, current: str, as_json: bool) -> int:
    """Say what moved from BASELINE to CURRENT: ranks, nodes, GPUs, links, NICs, versions.

    Each is a report of `verify --json`, or evidence as verify takes it: snapshots, a stream of them, captured
    text, a folder, NODE=FILE. Only what both show is compared. Nothing is printed where nothing moved.

    Exit code 0 nothing moved, 1 something moved, 2 unreadable input, 3 not known: the baseline shows
    something that CURRENT does not show.

    To have a move as a finding beside all others, give the baseline to `verify --since`. `verify --baseline`
    is something else: it asks which findings are new.
    """
    if baseline == current == "-" or {split_label(one)[1] for one in (baseline, current)} == {"-"}:
        raise UsageError("standard input can be read once: give one of the two as a file")
    gc.disable()  # evidence is frozen and has no cycles: collecting it again and again only costs
    try:
        found = compare(read_whereabouts(baseline), read_whereabouts(current))
    finally:
        gc.enable()
    if as_json:
        show(pretty(found), exact=True)
    else:
        show("".join(f"{line}\n" for line in words(found)))
    say(f"{VERDICTS[found.exit_code]}: {found.sentence}")
    return found.exit_code


def words(found: Difference) -> Iterator[str]:
    """What moved, at most 80 columns; nothing where nothing moved and all is shown."""
    shown = 0
    for kind, title in TITLES.items():
        changes = [change for change in found.changes if change.kind == kind]
        if changes and shown < MOST_SHOWN:
            yield title
        for change in changes[: MOST_SHOWN - shown]:
            yield from wrapped(line_of(change))
        shown += len(changes)
    if shown > MOST_SHOWN:
        yield f"... and {shown - MOST_SHOWN} more; --json has them all"
    for lack in found.lacks:
        more = f" and {lack.count - len(lack.about[:4])} more" if lack.count > 4 else ""
        yield from wrapped(f"not shown now: {lack.what} of {', '.join(lack.about[:4])}{more}", indent=0)
    for note in found.notes if found.changes or found.lacks else ():
        yield from wrapped(f"note: {note}", indent=0)


def line_of(change: Change) -> str:
    """One change: `ranks 0..7  node-a -> node-c`."""
    where = "" if change.kind in ("rank", "node") else f"{nodes_of(change)}: "
    if change.kind == "rank" and change.nodes and change.nodes[0] not in change.after:
        where = f"{nodes_of(change)}: "
    return f"{where}{change.about}  {change.before} -> {change.after}"


def nodes_of(change: Change) -> str:
    """Nodes of a change, the first ones; a version counts the nodes that it is about."""
    rest = change.count - len(change.nodes) if change.kind == "version" else 0
    names = first(change.nodes, 4)
    return names if rest <= 0 else f"{', '.join(change.nodes[:4])} and {change.count - 4} more"


def wrapped(line: str, indent: int = 2) -> list[str]:
    """One entry, wrapped; names are never broken at hyphens."""
    return textwrap.wrap(
        printable(line),
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 4),
        break_on_hyphens=False,
    )
