"""Which GPUs these are: everything of a GPU that no other GPU has.

The order is NVML's index, which is the order of PCI addresses in practice but promised by nobody;
the UUID is what identifies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from pathlib import Path

from topocheck.probes.capture.bus import parse_bus
from topocheck.probes.node.nvml_calls import Answer, Code, Driver, Gpu
from topocheck.snapshot import GpuId, MigDevice, Platform, Scope

__all__ = ["Found", "find_gpus", "parse_platform", "read_id", "read_scope"]

PLATFORM_SIZE = 44
"""Bytes of nvmlPlatformInfo_t, version 1 and 2."""

PLATFORM_VERSIONS = (2, 1)
"""Newest first; version 1 says rack where version 2 says chassis."""
