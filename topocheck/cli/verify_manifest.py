"""`topocheck verify-manifest`: what manifests show to be wrong before anything is created."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from topocheck.cli.bubble import pretty
from topocheck.cli.streams import say, show
from topocheck.commands.documents import read_file
from topocheck.kubernetes.check import report
from topocheck.manifestreport import ManifestReport
from topocheck.render.text import printable

__all__ = ["verify_manifest"]

WIDTH = 80


@click.command("verify-manifest")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def verify_manifest(as_json: bool, files: tuple[str, ...]) -> int:
    """Say what Kubernetes manifests show to be wrong, with file and line and what to write instead.

    Tensor and pipeline sizes of the engine's command against the GPUs of each pod and the number of pods;
    node ranks; what keeps pods together; shared memory, RDMA devices and IPC_LOCK. Nothing is created and
    nobody is asked.

    Exit code 0 nothing is wrong (warnings count as nothing), 1 an error was found, 2 unreadable input.
    """
    found = report([(name, read_file(name, Path())) for name in files])
    if as_json:
        show(pretty(found), exact=True)
    else:
        show("".join(f"{line}\n" for line in words(found)))
    say(closing(found))
    return found.exit_code


def words(found: ManifestReport) -> Iterator[str]:
    """Findings with their fix, then what was not checked."""
    for one in found.findings:
        yield from wrapped(f"{one.file}:{one.line}: {one.severity} {one.rule}: {one.message}", 4)
        yield from wrapped(f"    fix: {one.fix}", 9)
    for note in found.notes:
        yield from wrapped(f"note: {note}", 6)


def closing(found: ManifestReport) -> str:
    """The last line."""
    errors = sum(one.severity == "error" for one in found.findings)
    rest = len(found.findings) - errors
    jobs = f"{len(found.jobs)} job{'s' * (len(found.jobs) != 1)}"
    counts = f"{errors} error{'s' * (errors != 1)}, {rest} warning{'s' * (rest != 1)} in {jobs}"
    verdict = "FAIL" if errors else "PASS"
    return f"{verdict}: {counts}: a manifest shows what is asked for, not what will be given"


def wrapped(line: str, indent: int) -> list[str]:
    """One entry in 80 columns; paths are never broken at hyphens."""
    return textwrap.wrap(
        printable(line),
        WIDTH,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
        drop_whitespace=True,
    )
