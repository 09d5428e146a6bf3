"""Templates of text that is not HTML: each value that they print is quoted, so none becomes structure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["quoted_templates"]


def quoted_templates(quoted: Callable[[Any], Any]) -> Environment:
    """Templates whose every value passes `quoted`, which knows the language that they are written in."""
    return Environment(  # noqa: S701 - YAML and shell are made here, which escaping for HTML would damage
        loader=PackageLoader("topocheck.templates", ""),
        finalize=quoted,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
