"""All families of made jobs, each a module with CASES and FAILURES by rule."""

from __future__ import annotations

import made_capacity
import made_devices
import made_direct
import made_edges
import made_evidence
import made_experts
import made_fabric
import made_hops
import made_limits
import made_occupancy
import made_path
import made_ports
import made_rails
import made_recovery
import made_selection
import made_settings
import made_versions

__all__ = ["FAMILIES"]

FAMILIES = (
    made_capacity,
    made_devices,
    made_direct,
    made_edges,
    made_evidence,
    made_experts,
    made_fabric,
    made_hops,
    made_limits,
    made_occupancy,
    made_path,
    made_ports,
    made_rails,
    made_recovery,
    made_selection,
    made_settings,
    made_versions,
)
"""Whoever adds a module of made jobs names it here."""
