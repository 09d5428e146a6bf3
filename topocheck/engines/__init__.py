"""Engines: rank layout, layer split and placement rule of each, by version."""

from __future__ import annotations

from topocheck.engines.engine import Engine
from topocheck.engines.vllm import ENGINE as VLLM

__all__ = ["ENGINES", "Engine"]

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (VLLM,)}
