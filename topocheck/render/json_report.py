"""The report as JSON: canonical, indented, the same bytes for the same report.

Keys and their meaning are those of `topocheck.report`; `topocheck schema report` prints them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from topocheck.report import Report

__all__ = ["FORMAT", "encoded", "render", "written"]

FORMAT = "json"
NOT_ASCII = re.compile("[^\x00-\x7e]+")


def render(report: Report) -> str:
    """The whole report, keys in the order of the types, ending in a newline."""
    return written(encoded(report)[1]).decode()


def written(compact: bytes) -> bytes:
    """Compact JSON as it is written to a file, in UTF-8."""
    text = msgspec.json.format(compact, indent=2)
    if not text.isascii() or b"\x7f" in text:  # asked first: the search takes longer than all the rest
        text = NOT_ASCII.sub(_shown, text.decode()).encode()
    return text + b"\n"


def encoded(report: Report) -> tuple[Report, bytes]:
    """The report as JSON can carry it, and as compact JSON.

    A file name that is not UTF-8 reaches Python with lone surrogates, which JSON cannot carry.
    """
    try:
        return report, msgspec.json.encode(report)
    except UnicodeEncodeError:
        report = msgspec.convert(_encodable(msgspec.to_builtins(report)), Report)
        return report, msgspec.json.encode(report)


def _shown(match: re.Match[str]) -> str:
    """Text as it is; what would steer a terminal or turn a line around as its escape."""
    return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1]


def _encodable(value: Any) -> Any:
    """The same value with lone surrogates as the replacement character."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value
