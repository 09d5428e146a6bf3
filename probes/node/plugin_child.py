"""One probe of another package, run in a process of its own: what it says is one JSON document."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from topocheck.errors import PluginError
from topocheck.plugins import Offer, load, reason_of
from topocheck.probes.node.plugins import Told, fault_of
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ProbeFault

__all__ = ["main", "read"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the probe and write what came of it; what the probe itself prints goes to standard error."""
    parser = argparse.ArgumentParser(prog="python -m topocheck.probes.node.plugin_child")
    parser.add_argument("--root", type=Path, default=Path("/"), help="file tree of the machine")
    parser.add_argument("offer", nargs=len(Offer._fields), help="the entry point")
    options = parser.parse_args(arguments)
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        out.write(read(Offer(*options.offer), Roots.at(options.root)))
    return 0


def read(offer: Offer, roots: Roots) -> bytes:
    """The document of one probe. Never raises for what the probe does."""
    try:
        found = load(offer)(roots)
        if not isinstance(found, tuple) or len(found) != 2:
            return failed(offer, f"gave a {type(found).__name__} and not the pair (facts, faults)")
        facts, faults = found
        if not all(isinstance(fault, ProbeFault) for fault in faults):
            return failed(offer, "gave a fault that is no ProbeFault")
        return msgspec.json.encode(Told(facts, tuple(faults)))
    except PluginError as error:
        return failed(offer, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever breaks in it is told as its fault
        return failed(offer, reason_of(error))


def failed(offer: Offer, reason: str) -> bytes:
    """The document of a probe that gave nothing."""
    return msgspec.json.encode(Told(None, (fault_of(offer, reason),)))


if __name__ == "__main__":
    sys.exit(main())
