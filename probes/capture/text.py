"""Bytes of a captured file as lines of clean text.

Captures come from terminals, pipes, mail and web pages: with a byte order mark or in UTF-16, with
colours, with escapes that lost their ESC on the way, with the blanks of a web page. All of that is
taken away here, once, so that no parser meets it. Tabs stay: tables need them.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from topocheck.errors import CaptureError
from topocheck.probes.capture.reading import Text

__all__ = ["is_elision", "parse_text", "read_text", "stated"]

BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)

ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # OSC and other strings: window titles, links
    r"|\x1b[ -/]+[0-~]"  # character sets
    r"|\x1b[0-Z\\^-~]"  # two-character escapes
)

LOST_ESCAPE = re.compile(
    r"^([ \t]*)(?:\[[0-9]{0,3}(?:;[0-9]{1,3})*m ?)+|\[[0-9]{0,3}m(?=[ \t]*$)", re.MULTILINE
)
"""A colour whose ESC was eaten: `[0m ` before a line, `[0m` at its end."""

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]+")
"""Control characters but tab and newline, and invisible ones that reorder or join text."""

BLANK = re.compile("[\u00a0\u2002-\u200a\u202f\u3000]")
"""Blanks of web pages and word processors."""

ABSENT = frozenset(
    {"", "n/a", "not supported", "unknown error", "not available", "unknown", "insufficient permissions"}
)

DOTS = r"(?:\.{2,}|…)"
ELISION = re.compile(
    rf"\s*[\[(<]?\s*(?:{DOTS}|{DOTS}?\s*(?:truncated|snip|snipped|omitted)\b.*)\s*[\])>]?\s*", re.IGNORECASE
)


def read_text(path: Path, source: str | None = None) -> Text:
    """Read a captured file; `source` is how the user named it. Raises CaptureError."""
    name = str(path) if source is None else source
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CaptureError(f"cannot be read ({reason})", path=name) from error
    return parse_text(data, name)


def parse_text(data: bytes, source: str) -> Text:
    """Decode a capture and strip what a terminal put there. Raises CaptureError for binary data.

    Bytes that are not UTF-8 become U+FFFD. Lines end at a newline only, as editors and grep count
    them; a carriage return inside a line (a progress bar) becomes a blank.
    """
    encoding = next((name for bom, name in BOMS if data.startswith(bom)), "utf-8")
    text = data.decode(encoding, errors="replace")
    place = text.find("\0")
    if place >= 0:
        raise CaptureError(
            "is not text: a NUL byte is in it",
            path=source,
            line=text.count("\n", 0, place) + 1,
            fix="give the text that the tool printed, in UTF-8",
        )
    return Text(source, tuple(clean(text).removesuffix("\n").split("\n")) if text else ())


def clean(text: str) -> str:
    """The text without escapes, control characters and foreign blanks."""
    if "\r" in text:
        text = re.sub(r"\r+\n", "\n", text)
        text = text.replace("\r", " " if "\n" in text else "\n")
    if "\x1b" in text:
        text = ESCAPE.sub("", text)
    if re.search(r"\[[0-9;]*m", text):
        text = LOST_ESCAPE.sub(r"\1", text)
    if not text.isascii():
        text = BLANK.sub(" ", text)
    return CONTROL.sub("", text)


def stated(value: str) -> str | None:
    """A value as a tool printed it; None where it says that it has none: `N/A`, `[Not Supported]`."""
    value = value.strip()
    bare = value.strip("[]").strip().lower()
    absent = bare in ABSENT or bare.startswith("requested functionality has been deprecated")
    return None if absent or bare in {"err!", "gpu is lost"} else value


def is_elision(line: str) -> bool:
    """The line only says that something was left out: `....`, `[truncated]`."""
    return len(line) < 80 and ELISION.fullmatch(line) is not None
