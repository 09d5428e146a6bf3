"""The machine-readable report inside the page: written by the HTML format, found again in a file.

It stands in `<script type="application/json" id="report">`, which no browser runs. Its digest is that of the
document which `topocheck verify --json` writes, so that one can be held against the other; of a big job the
page holds a report without most identities (`topocheck.render.lean`), which has its own. A small document
stands there as it is, `<`, `>` and `&` as JSON escapes, so that nothing in it can end the element; a large
one in columns, deflated, in base64, as one JSON string. The last line of a page is the digest of all before.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from typing import Literal

import msgspec

from topocheck.render import json_report
from topocheck.render.columns import in_columns, in_rows
from topocheck.report import Report

__all__ = ["Embedded", "NotWholeError", "digest_of", "embed", "find", "seal", "seal_of", "unpack"]

Coding = Literal["json", "columns"]

MOST_PLAIN = 256 << 10
"""Bytes of a document that is not packed."""
MOST_UNPACKED = 512 << 20
"""Bytes that a packed document may come to: fifty times the report of 100,000 ranks."""
LEVEL = 6
"""Of deflate; higher ones make the columns larger."""
OPENING = re.compile(
    r'<script type="application/json" id="report" data-coding="(json|columns)"'
    r' data-digest="(sha256:[0-9a-f]{64})">'
)
ANY_OPENING = re.compile(r"""<script\b[^>]*\bid\s*=\s*["']?report\b""", re.IGNORECASE)
CLOSING = "</script>"
ESCAPES = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}
PLAIN = {escape: character for character, escape in ESCAPES.items()}
ESCAPE = re.compile(r"\\(?:u003c|u003e|u0026|.)", re.DOTALL)
SEAL = "<!-- sha256:{} of all bytes before this line -->\n"
SEALED = re.compile(r"<!-- (sha256:[0-9a-f]{64}) of all bytes before this line -->\n\Z")


class NotWholeError(ValueError):
    """A page that holds no report, more than one, or a damaged one; the message says which."""


class Embedded(msgspec.Struct, frozen=True):
    """The block of a page."""

    coding: Coding
    digest: str
    """`sha256:` and the hex digest of the document."""
    text: str
    """What stands between the tags."""


def digest_of(text: str | bytes) -> str:
    """`sha256:` and the hex digest of the text as UTF-8."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def embed(report: Report, compact: bytes) -> Embedded:
    """The block of a report, given with its compact JSON (`json_report.encoded`)."""
    document = json_report.written(compact)
    digest = digest_of(document)
    if len(document) <= MOST_PLAIN:
        text = document.decode()
        return Embedded("json", digest, re.sub("[<>&]", lambda found: ESCAPES[found[0]], text))
    packed = zlib.compress(msgspec.json.encode(in_columns(report)), LEVEL)
    return Embedded("columns", digest, f'"{base64.b64encode(packed).decode()}"')


def find(page: str) -> Embedded:
    """The block of a page. Raises NotWholeError if there is none, more than one, or half of one."""
    openings = list(ANY_OPENING.finditer(page))
    if not openings:
        raise NotWholeError("holds no report of topocheck")
    if len(openings) > 1:
        raise NotWholeError(f"holds {len(openings)} reports, and a page has one")
    opening = OPENING.match(page, openings[0].start())
    if opening is None:
        raise NotWholeError("holds a report whose opening tag was changed")
    end = page.find(CLOSING, opening.end())
    if end < 0:
        raise NotWholeError("is cut off inside the report that it holds")
    coding: Coding = "json" if opening[1] == "json" else "columns"
    return Embedded(coding, opening[2], page[opening.end() : end])


def unpack(block: Embedded) -> str:
    """The document of a block, as `topocheck verify --json` writes it. Raises NotWholeError.

    Whether it has the digest of the block is for the caller to ask.
    """
    if block.coding == "json":
        return ESCAPE.sub(lambda found: PLAIN.get(found[0], found[0]), block.text)
    try:
        if block.text[:1] != '"' or block.text[-1:] != '"' or len(block.text) < 2:
            raise NotWholeError("holds a packed report that is not one JSON string")
        packed = zlib.decompressobj()
        data = packed.decompress(base64.b64decode(block.text[1:-1], validate=True), MOST_UNPACKED)
        if not packed.eof or packed.unused_data:
            raise NotWholeError("holds a packed report that is cut off, or larger than any")
        return json_report.written(msgspec.json.encode(in_rows(msgspec.json.decode(data)))).decode()
    except (binascii.Error, zlib.error, msgspec.MsgspecError, RecursionError, ValueError) as error:
        if isinstance(error, NotWholeError):
            raise
        raise NotWholeError(f"holds a packed report that cannot be unpacked ({error})") from None


def seal(page: str) -> str:
    """The page with the digest of all of it as its last line."""
    return page + SEAL.format(digest_of(page).removeprefix("sha256:"))


def seal_of(page: str) -> tuple[str, str] | None:
    """The digest in the last line of a page, and that of what stands before it; None without one."""
    found = SEALED.search(page, max(0, len(page) - 200))
    return None if found is None else (found[1], digest_of(page[: found.start()]))
