"""`topocheck plan`: what a plan declares, written out rank by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import click

from topocheck.cli.launched import Launched, TakesCommand, in_order
from topocheck.cli.streams import say, show
from topocheck.declared import Declared, Order, declare_all, document
from topocheck.errors import UsageError

__all__ = ["plan"]

MOST_RANKS = 64
"""Ranks in the table unless --all is given."""


@click.command(cls=TakesCommand)
@click.option("--json", "form", flag_value="json", help="As JSON, with all ranks: topocheck schema declared.")
@click.option("--hostfile", "form", flag_value="hostfile", help="As a hostfile: HOST slots=N.")
@click.option(
    "--rankfile",
    "form",
    flag_value="rankfile",
    help="As an Open MPI rankfile: rank N=HOST slot=M, where M counts processor slots.",
)
@click.option(
    "--node-ranks", "form", flag_value="node-ranks", help="What the command on each node takes, master first."
)
@click.option("--srun", "form", flag_value="srun", help="Options of srun that give this order.")
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
    """Write out what PLAN declares: rank, coordinates, stage, node, local rank, GPU; groups.

    Places are those of the engine's formula, or of the launcher in a launch COMMAND after --, which
    declares a plan too: what it leaves open is named. Nothing is read but the plan; PLAN may be - for
    standard input.
    """
    (declared, started, said), order = given(path, context.obj, nodes)
    worlds = declare_all(declared, world or started, order, said)
    if form is None:
        show(listed(paragraphs(worlds, None if whole else MOST_RANKS)))
    elif form == "json":
        import msgspec  # noqa: PLC0415 - the other forms do without

        text = msgspec.json.format(msgspec.json.encode(document(worlds)), indent=2).decode()
        show(text + "\n", exact=True)
    else:
        show(reverse(form, worlds))


def given(
    path: str | None, command: tuple[str, ...] | None, nodes: str | None
) -> tuple[Launched, Order | None]:
    """The plan that the user gives, as a file or as a launch command. Raises UsageError."""
    if command is not None and path is None:
        return in_order(command, nodes)
    if command is not None:
        raise UsageError("give either a plan file or -- and a launch command, not both")
    if path is None:
        raise UsageError("give a plan file, or -- and a launch command: topocheck plan -- vllm serve ...")
    if nodes is not None:
        raise UsageError("--nodes is for a launch command: in a plan file, write `nodes:`")
    from topocheck.planfile import read_plan  # noqa: PLC0415 - a command needs no YAML

    return (read_plan(path), None, []), None


def listed(lines: Iterable[str]) -> str:
    """Lines as one text."""
    return "".join(f"{line}\n" for line in lines)


def paragraphs(worlds: Sequence[Declared], most: int | None) -> Iterator[str]:
    """The table of each world, an empty line between them."""
    from topocheck.cli.ranktable import words  # noqa: PLC0415 - only where people read

    for place, one in enumerate(worlds):
        if place:
            yield ""
        yield from words(one, most)


def reverse(form: str, worlds: Sequence[Declared]) -> str:
    """What a launcher takes to give this order. Raises UsageError for several worlds."""
    from topocheck import launchfile  # noqa: PLC0415 - only where it is asked for

    if len(worlds) > 1:
        names = ", ".join(one.name for one in worlds)
        raise UsageError(
            f"a launcher starts one world, and the plan has several ({names}): --{form} takes one"
        )
    (one,) = worlds
    if one.plan.launcher == "ray":
        raise UsageError("Ray places the ranks of this plan: it reads no hostfile, rankfile or node rank")
    if form == "srun":
        options = launchfile.srun_options(one)
        if "--distribution=arbitrary" not in options and "--nodelist" in options:
            say("Slurm has the order of nodes of its own configuration, which is taken to be by name")
        return options + "\n"
    forms: dict[str, Callable[[Declared], Iterator[str]]] = {
        "hostfile": launchfile.hostfile,
        "rankfile": launchfile.rankfile,
        "node-ranks": launchfile.node_ranks,
    }
    return listed(forms[form](one))
