"""`topocheck import`: text that other tools wrote, as snapshots."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from topocheck.cli.output import write_file
from topocheck.cli.streams import say, show
from topocheck.errors import InputError, UsageError
from topocheck.gather.files import HEAD, MOST_CAPTURE, Argument, arguments, opened, reason, spell, under_label
from topocheck.gather.stream import is_snapshot, open_stream
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.recognise import read_capture
from topocheck.ranges import first
from topocheck.snapshot import FullSnapshot

__all__ = ["import_captures"]

MOST_NOTES = 20
"""Notes told of one reading; verify reports all of them."""


@click.command("import")
@click.option("-o", "--output", metavar="FILE", default="-", help="File for the snapshots  [default: stdout]")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def import_captures(output: str, files: tuple[str, ...]) -> None:
    """Turn captured text into snapshots, one JSON document a line.

    A FILE is recognised by what is in it. It may be a folder, - for standard input, or
    LABEL=FILE, where LABEL is the host that the text is of. What was recognised, taken and
    left out is said on standard error.
    """
    documents: list[bytes] = []
    for file in arguments(list(files)):
        digest, data = read_bytes(file.name)
        for reading in under_label(read_capture(data, file.name), file.label):
            snapshots = [digested(snapshot, digest) for snapshot in reading.snapshots]
            documents += map(msgspec.json.encode, snapshots)
            for line in told(file, reading, snapshots):
                say(line)
    if not documents:
        raise UsageError("nothing was taken from these files: there is no snapshot to write")
    text = b"\n".join(documents).decode() + "\n"
    if output == "-":
        show(text, exact=True)
    else:
        write_file(Path(output), text)


def read_bytes(name: str) -> tuple[str, bytes]:
    """Digest of a file, and its bytes unpacked. Raises InputError."""
    try:
        with opened(name) as raw:
            packed = raw.read(MOST_CAPTURE + 1) or b""
        stream = open_stream(io.BufferedReader(io.BytesIO(packed)), packed[:HEAD], name)
        data = stream.read(MOST_CAPTURE + 1)
    except (OSError, EOFError) as error:
        raise InputError(f"cannot be read: {reason(error)}", path=name) from None
    if max(len(packed), len(data)) > MOST_CAPTURE:
        raise InputError(
            f"is larger than {MOST_CAPTURE >> 20} MiB",
            path=name,
            fix="keep the lines that matter: grep -E 'NCCL|Init|Channel' FILE",
        )
    if is_snapshot(data[:HEAD]):
        raise InputError("holds snapshots already", path=name, fix="give it to topocheck verify as it is")
    return f"sha256:{hashlib.sha256(packed).hexdigest()}", data


def digested(snapshot: FullSnapshot, digest: str) -> FullSnapshot:
    """The snapshot, its sources with the digest of the file."""
    sources = tuple(msgspec.structs.replace(source, digest=digest) for source in snapshot.sources)
    return msgspec.structs.replace(snapshot, sources=sources)


def told(file: Argument, reading: Reading, snapshots: Sequence[FullSnapshot]) -> Iterator[str]:
    """What was recognised and taken, and what was not."""
    named = (host.name or next(iter(host.aliases), None) for host in (s.identity.host for s in snapshots))
    hosts = list(dict.fromkeys(name for name in named if name))
    yield (
        f"{file.name}: {reading.kind}; {reading.facts} facts from {len(reading.lines)} lines; "
        + (f"hosts {first(hosts)}" if hosts else f"names no host: NODE={file.name} says which node it is of")
    )
    for note in reading.notes[:MOST_NOTES]:
        yield f"  {spell(note.line, note.kind, note.text)}"
    more = len(reading.notes) - MOST_NOTES
    if more > 0:
        yield f"  and {more} more note{'s' * (more > 1)}"
