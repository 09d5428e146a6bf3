"""How warm the coolant of a node is, as ACME's controller writes it."""

from __future__ import annotations

from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ProbeFault

__all__ = ["FILE", "NAME", "read_coolant"]

NAME = "acme-coolant"
"""Name of the entry point: under it the facts stand in the snapshot."""
FILE = "/run/acme/coolant"
"""`inlet 31.5`: degrees Celsius at the inlet of the node."""


def read_coolant(roots: Roots) -> tuple[dict[str, float] | None, tuple[ProbeFault, ...]]:
    """Temperature at the inlet, and why there is none."""
    try:
        word, _, degrees = roots.place(FILE).read_text(encoding="utf-8").strip().partition(" ")
        if word == "inlet":
            return {"inlet_celsius": float(degrees)}, ()
    except OSError as error:
        kind = "absent" if isinstance(error, FileNotFoundError) else "not-permitted"
        return None, (fault(kind, error.strerror or str(error)),)
    except ValueError:
        pass
    return None, (fault("broken", "expected `inlet` and a number"),)


def fault(kind: str, reason: str) -> ProbeFault:
    """Why there is no temperature."""
    return ProbeFault(part=f"plugins.{NAME}", kind=kind, path=FILE, reason=reason)  # type: ignore[arg-type]
