"""A report that was kept in a file, as `verify --html` and `verify --json` write it, read again."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from topocheck.errors import InputError
from topocheck.inputfile import name_of, read_bytes
from topocheck.render.embedded import Embedded, NotWholeError, find, unpack
from topocheck.report import SCHEMA, Report

__all__ = ["Kept", "parse_kept", "read_kept"]

MOST_BYTES = 1 << 30
"""The JSON report of 100,000 ranks is a tenth of it."""
MOST_PAGE = 64 << 20
"""The page of 100,000 ranks is a tenth of it."""
HEAD = 4096
MEND = "write one with topocheck verify --html FILE, or --json FILE"


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept report."""

    name: str
    """File as the user gave it."""
    text: str
    """The whole file; bytes that are not UTF-8 as lone surrogates."""
    document: str
    """The report as JSON: the file itself, or what the page holds."""
    report: Report
    embedded: Embedded | None
    """The block of a page; None for a file that is the JSON report itself."""


def read_kept(path: str) -> Kept:
    """The report in the file `path`; `-` is standard input. Raises InputError for what is none."""
    return parse_kept(read_bytes(path, MOST_BYTES, "is larger than any report of topocheck"), name_of(path))


def parse_kept(data: bytes, name: str) -> Kept:
    """The same of the bytes of a file. Raises InputError."""
    head = data[:HEAD].lstrip(b"\xef\xbb\xbf \t\r\n")
    is_json = head.startswith(b"{")
    if not is_json and len(data) > MOST_PAGE:
        raise InputError(
            f"is larger than {MOST_PAGE >> 20} MiB and no page of topocheck", path=name, fix=MEND
        )
    text = data.decode("utf-8", "surrogateescape")
    if is_json:
        return Kept(name, text, text, decode(data, name), None)
    try:
        block = find(text)
        document = unpack(block)
    except NotWholeError as error:
        raise InputError(str(error), path=name, fix=MEND) from None
    return Kept(name, text, document, decode(document.encode("utf-8", "surrogateescape"), name), block)


class Versioned(msgspec.Struct, frozen=True):
    """What every report says of itself, whatever its version."""

    schema: str


def decode(document: bytes, name: str) -> Report:
    """The report of a document. Raises InputError."""
    try:
        schema = msgspec.json.decode(document, type=Versioned).schema
        if schema != SCHEMA:
            raise InputError(f"is of schema {schema[:60]!r}, and {SCHEMA} is known", path=name, fix=MEND)
        return msgspec.json.decode(document, type=Report)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is no report of topocheck ({error})", path=name, fix=MEND) from None
