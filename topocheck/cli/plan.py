"""`topocheck plan`: what a plan declares, written out rank by rank."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click
import msgspec

from topocheck.cli.launched import Launched, launched, split_command
from topocheck.cli.streams import show
from topocheck.declared import Declaration, DeclaredRank, declare, describe, hostfile, rankfile
from topocheck.engines import ENGINES
from topocheck.errors import UsageError
from topocheck.planfile import read_plan

__all__ = ["plan"]

MOST_RANKS = 64
"""Ranks in the table unless --all is given."""
WIDTH = 80


class PlanCommand(click.Command):
    """Takes the words after `--` as a launch command: click would read them as options and a path."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the command aside."""
        before, ctx.obj = split_command(args)
        return super().parse_args(ctx, before)


@click.command(cls=PlanCommand)
@click.option("--json", "form", flag_value="json", help="As JSON, with all ranks.")
@click.option("--hostfile", "form", flag_value="hostfile", help="As a hostfile: HOST slots=N.")
@click.option(
    "--rankfile",
    "form",
    flag_value="rankfile",
    help="As an Open MPI rankfile: rank N=HOST slot=M, where M counts processor slots.",
)
@click.option("--all", "whole", is_flag=True, help=f"All ranks, not the first {MOST_RANKS}.")
@click.option(
    "--world",
    type=click.IntRange(1, 10_000_000),
    metavar="RANKS",
    help="Ranks that the launcher starts: fixes the data size that the plan leaves out.",
)
@click.option("--nodes", metavar="N|NAMES", help="Nodes of a launch COMMAND that does not say on how many.")
@click.argument("path", metavar="[PLAN | -- COMMAND...]", required=False)
@click.pass_context
def plan(  # noqa: PLR0917 - one parameter an option
    context: click.Context,
    form: str | None,
    whole: bool,
    world: int | None,
    nodes: str | None,
    path: str | None,
) -> None:
    """Write out what PLAN declares: rank, stage, node, GPU and layers.

    Places are those of the engine's formula: nothing is read but the plan. PLAN may be - for
    standard input. A launch COMMAND after -- declares a plan too; what it leaves open is named.
    """
    declared, started, said = given(path, context.obj, nodes)
    placement, assumed = declare(declared, world or started)
    assumed = [*said, *assumed]
    if form == "hostfile":
        show(listed(hostfile(placement)))
    elif form == "rankfile":
        show(listed(rankfile(placement)))
    elif form == "json":
        document = msgspec.json.encode(describe(placement, assumed))
        show(msgspec.json.format(document, indent=2).decode() + "\n", exact=True)
    else:
        show(listed(words(describe(placement, assumed, None if whole else MOST_RANKS))))


def given(path: str | None, command: tuple[str, ...] | None, nodes: str | None) -> Launched:
    """The plan that the user gives, as a file or as a launch command. Raises UsageError."""
    if command is not None and path is None:
        return launched(command, nodes)
    if command is not None:
        raise UsageError("give either a plan file or -- and a launch command, not both")
    if path is None:
        raise UsageError("give a plan file, or -- and a launch command: topocheck plan -- vllm serve ...")
    if nodes is not None:
        raise UsageError("--nodes is for a launch command: in a plan file, write `nodes:`")
    return read_plan(path), None, []


def listed(lines: Iterable[str]) -> str:
    """Lines as one text."""
    return "".join(f"{line}\n" for line in lines)


def words(declared: Declaration) -> Iterator[str]:
    """The plan for people: sizes, what was assumed, the table."""
    version = f" {declared.engine_version}" if declared.engine_version else ""
    nodes = len(declared.nodes)
    yield (
        f"{ENGINES[declared.engine].title}{version}: {declared.world} rank{'s' * (declared.world > 1)} on "
        f"{nodes} node{'s' * (nodes > 1)}"
    )
    yield from labelled("sizes", spell(declared.sizes))
    if declared.groups:
        yield from labelled("groups", ", ".join(f"{kind} {size}" for kind, size in declared.groups.items()))
    if declared.layer_rule is not None:
        yield from labelled("layers", declared.layer_rule)
    for assumption in declared.assumptions:
        yield from labelled("assumed", assumption)
    if declared.unplaced is not None:
        yield from labelled("unknown", f"which node a rank is on: {declared.unplaced}")
    yield ""
    yield from table(declared)
    left = declared.world - len(declared.ranks)
    if left:
        yield f"... and {left} more ranks; --all shows them"


def labelled(label: str, text: str) -> list[str]:
    """A line with its label; what does not fit goes on under it."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"  {label:9}", subsequent_indent=" " * 11, break_on_hyphens=False
    )


def spell(sizes: dict[str, int]) -> str:
    """`tensor 4 x pipeline 2`, fastest first; sizes of one are left out."""
    return " x ".join(f"{name} {size}" for name, size in reversed(sizes.items()) if size > 1) or "one rank"


def table(declared: Declaration) -> Iterator[str]:
    """One line a rank; columns of one value only are left out, but for the stage."""
    axes = [name for name, size in reversed(declared.sizes.items()) if size > 1 and name != "pipeline"]
    head = ["rank", "stage", *axes, "node", "GPU"]
    rows = [row(rank, axes) for rank in declared.ranks]
    if declared.layer_rule is not None:
        head.append("layers")
        rows = [[*cells, layers(rank)] for cells, rank in zip(rows, declared.ranks, strict=True)]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for cells in [head, *rows]:
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def row(rank: DeclaredRank, axes: Sequence[str]) -> list[str]:
    """Cells of one rank; a dash is not known."""
    places = [str(rank.coordinates[axis]) for axis in axes]
    gpu = "-" if rank.gpu is None else str(rank.gpu)
    return [str(rank.rank), str(rank.stage), *places, rank.node or "-", gpu]


def layers(rank: DeclaredRank) -> str:
    """Layers of one rank, both ends included: `0..15`, `0..3, 8..11`."""
    ranges = [(first, end) for first, end in rank.layers or () if end > first]
    return ", ".join(f"{first}..{end - 1}" for first, end in ranges) or "none"
