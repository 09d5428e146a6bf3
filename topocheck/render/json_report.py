"""The report as JSON: canonical, indented, the same bytes for the same report.

Keys and their meaning are those of `topocheck.report`; `topocheck schema report` prints them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from topocheck.report import Report

__all__ = ["FORMAT", "render"]

FORMAT = "json"
NOT_ASCII = re.compile("[^\x00-\x7e]+")


def render(report: Report) -> str:
    """The whole report, keys in the order of the types, ending in a newline."""
    try:
        encoded = msgspec.json.encode(report)
    except UnicodeEncodeError:
        # A file name that is not UTF-8 reaches Python with lone surrogates, which JSON cannot carry.
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(report)))
    return NOT_ASCII.sub(_shown, msgspec.json.format(encoded, indent=2).decode()) + "\n"


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
