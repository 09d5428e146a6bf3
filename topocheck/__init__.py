"""topocheck: proves where the ranks of a distributed LLM job lie and which path their traffic takes."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
