"""`topocheck schema`: the JSON Schema of a document."""

from __future__ import annotations

import click

from topocheck.cli.streams import show
from topocheck.schema import KINDS, Kind, text

__all__ = ["schema"]


@click.command()
@click.argument("kind", type=click.Choice(KINDS))
def schema(kind: Kind) -> None:
    """Print the JSON Schema of a plan file, a snapshot or a report."""
    show(text(kind), exact=True)
