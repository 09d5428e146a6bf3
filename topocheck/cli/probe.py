"""`topocheck probe`: what this node shows now, as one snapshot."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import click
import msgspec

from topocheck.cli.streams import show
from topocheck.errors import UsageError
from topocheck.gather.seal import sealed
from topocheck.plugins import PROBES as OFFERED
from topocheck.plugins import names as names_of
from topocheck.probes.node.probe import PROBES, Request, read_node
from topocheck.probes.node.roots import Roots

__all__ = ["probe"]

KEY = "TOPOCHECK_REDACT_KEY"
"""Variable with the key of the pseudonyms; the same on all nodes of a job."""


class ProbeName(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """Name of a probe, topocheck's own or another package's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name; what is installed is looked up only for one that is not topocheck's."""
        if value in PROBES:
            return value
        return click.Choice(sorted({*PROBES, *names_of(OFFERED)})).convert(value, param, ctx)


NAMES = ProbeName(sorted(PROBES))


@click.command()
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long it may take, hanging drivers included.",
)
@click.option("--root", type=Path, default=Path("/"), metavar="PATH", help="Read the machine mounted there.")
@click.option("--only", type=NAMES, multiple=True, metavar="NAME", help="Ask these probes only.")
@click.option("--skip", type=NAMES, multiple=True, metavar="NAME", help="Do not ask these probes.")
@click.option("--run", metavar="ID", help="Id of the launch that this belongs to.")
@click.option("--redact", is_flag=True, help="Pseudonyms for hosts, addresses, UUIDs, serials.")
@click.option("--pid", type=click.IntRange(min=1), multiple=True, help="Claims of a running worker.")
@click.option("--processes", is_flag=True, help="Claims of all running workers that are found.")
@click.option("--model", metavar="FOLDER", help="Digests of a model's files: config, names and sizes.")
@click.option("-o", "--output", metavar="FILE", default="-", help="File for the snapshot  [default: stdout]")
def probe(  # noqa: PLR0917 - one parameter an option
    timeout: float,
    root: Path,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    run: str | None,
    redact: bool,
    pid: tuple[int, ...],
    processes: bool,
    model: str | None,
    output: str,
) -> None:
    """Print one JSON snapshot of the node that it runs on, in one line.

    It runs in a container or on the host, with or without GPUs, and exits 0:
    what cannot be read is named in `faults`. Probes: identity, gpus, pci, nics,
    network, verbs, files, software, limits, clock, environment, ranks.
    """
    if not root.is_dir():
        raise UsageError(f"--root {root}: no such folder")
    request = Request(
        roots=Roots.at(root),
        timeout_s=timeout,
        names=frozenset(only or PROBES) & frozenset(PROBES) - frozenset(skip),
        run=run,
        pids=pid,
        workers=processes,
        model=model,
        plugins=frozenset(only or names_of(OFFERED)) - frozenset(skip),
    )
    if not request.names | request.plugins:
        raise UsageError("--only and --skip leave no probe to ask")
    gc.disable()  # it ends soon, and what it imports is no garbage: collecting costs a twentieth of it all
    try:
        snapshot = read_node(request)
    finally:
        gc.enable()
    if redact:
        from topocheck.probes.node.pseudonyms import redacted  # noqa: PLC0415 - only where asked

        snapshot = redacted(snapshot, os.environ.get(KEY, "topocheck").encode())
    text = sealed(msgspec.json.encode(snapshot), snapshot.token or "").decode() + "\n"
    if output == "-":
        show(text, exact=True)
    else:
        from topocheck.cli.output import write_file  # noqa: PLC0415 - it knows reports too

        write_file(Path(output), text)
