"""One look at a job to compare another with: a report of `verify --json`, or evidence as verify takes it."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from topocheck.claims import united
from topocheck.errors import InputError, UsageError
from topocheck.evident import evident
from topocheck.gather.files import Argument, arguments, gather, opened, reason, shown
from topocheck.gather.stream import damage
from topocheck.inventory import Inventory
from topocheck.placement import place
from topocheck.report import SCHEMA, PlacementReport, WorldReport
from topocheck.whereabouts import Whereabouts, add_claims, add_observed, reported_whereabouts, whereabouts_of

__all__ = ["read_whereabouts"]

HEAD = 4096
MARK = b'"topocheck.report/'


class Recorded(msgspec.Struct, frozen=True):
    """What of a report says where everything is."""

    schema: str
    placement: PlacementReport | None = None
    worlds: list[WorldReport] = []


def read_whereabouts(name: str) -> Whereabouts:
    """Where everything stood by one file or folder. Raises UsageError for what cannot be read."""
    files = arguments([name])
    if len(files) == 1 and is_report(files[0]):
        return of_report(files[0])
    return of_evidence(name, files)


def is_report(file: Argument) -> bool:
    """The first bytes are those of a report. What is read ahead of standard input stays there."""
    if file.name == "-":
        return looks_like_report(cast("io.BufferedReader", sys.stdin.buffer).peek(HEAD))
    try:
        with opened(file.name) as raw:
            return looks_like_report(raw.read(HEAD))
    except OSError as error:
        raise InputError(f"cannot be read: {reason(error)}", path=shown(file.name)) from None


def looks_like_report(head: bytes) -> bool:
    """A JSON object that names the schema of reports first."""
    return head.lstrip().startswith(b"{") and MARK in head[:HEAD]


def of_report(file: Argument) -> Whereabouts:
    """What an earlier `verify --json` wrote. Raises InputError."""
    name = shown(file.name)
    again = "write it with `topocheck verify --json`"
    try:
        with opened(file.name) as raw:
            recorded = msgspec.json.decode(raw.read(), type=Recorded)
    except damage() as error:
        raise InputError(f"cannot be read: {reason(error)}", path=name) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is no report of topocheck: {error}", path=name, fix=again) from None
    if recorded.schema != SCHEMA:
        raise InputError(f"is of schema {recorded.schema[:60]}, and {SCHEMA} is known", path=name, fix=again)
    worlds = list(placements(recorded))
    if not worlds:
        raise InputError("does not say where the ranks lie", path=name, fix=again)
    return reported_whereabouts(name, worlds)


def placements(recorded: Recorded) -> Iterator[tuple[str, PlacementReport]]:
    """Placement of each world by its name."""
    if recorded.placement is not None:
        yield "", recorded.placement
    for world in recorded.worlds:
        if world.placement is not None:
            yield world.name, world.placement


def of_evidence(name: str, files: Sequence[Argument]) -> Whereabouts:
    """What snapshots and captures show, by the sizes that they show themselves."""
    inventory = Inventory()
    gather(list(files), inventory, digests=False)
    claims = dict(inventory.claims)
    try:
        plan, origin = evident(inventory, None)
        inventory.claims = united(inventory.claims)
        placement = place(plan, inventory, origin)
        return whereabouts_of(name, inventory.machines, [placement])
    except UsageError:  # it shows no sizes, or several worlds: what processes claim and logs show is left
        inventory.claims = claims
    inventory.arrange()
    found = whereabouts_of(name, inventory.machines, [])
    add_claims(found, inventory.claims, inventory.machines)
    add_observed(found, inventory)
    return found
