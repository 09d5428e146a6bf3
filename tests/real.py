"""Real components that some tests need: a browser, an engine, a launcher."""

from __future__ import annotations

import importlib.util
import os
import shutil

import pytest

__all__ = ["require"]


def require(component: str) -> str:
    """Path of a program or a Python module; skips the test where it is missing.

    With TOPOCHECK_REQUIRE_REAL=1 a missing component is a failure: continuous integration says so
    where everything ought to be installed.
    """
    found = shutil.which(component) or _module(component)
    if found:
        return found
    reason = f"{component} is not installed here"
    if os.environ.get("TOPOCHECK_REQUIRE_REAL") == "1":
        pytest.fail(f"{reason}, and TOPOCHECK_REQUIRE_REAL=1 asks for it")
    pytest.skip(reason)


def _module(name: str) -> str:
    """Where a module would be loaded from; empty if there is none."""
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    return "" if spec is None else spec.origin or name
