"""What this node shows at its gate: the probe's snapshot, once nothing is coming up any more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from topocheck.cli.streams import say
from topocheck.gate import entry_name
from topocheck.launchers.resolve import resolve

__all__ = ["WHO", "look_again", "shown", "unsettled"]

UNSETTLED = {"INIT", "ARMED", "Polling", "In Progress"}
"""States of ports and fabrics on their way up."""
RETRY_S = 2.0
WHO = "topocheck gate"
"""How its lines on standard error begin."""


def shown(run: str, retries: int, env: Mapping[str, str], asked: str) -> tuple[bytes, str]:
    """Snapshot of this node with what its gate is asked, sealed, and the name of its entry."""
    # Imported here: what reads a machine is needed once, and not by whoever only asks for help.
    from topocheck.gather.seal import sealed  # noqa: PLC0415
    from topocheck.plugins import PROBES, names  # noqa: PLC0415
    from topocheck.probes.node.probe import Request, read_node  # noqa: PLC0415
    from topocheck.probes.node.roots import Roots  # noqa: PLC0415

    request = Request(roots=Roots.real(), run=run, plugins=names(PROBES))
    snapshot = read_node(request)
    for _ in range(retries):
        if not unsettled(snapshot):
            break
        look_again(unsettled(snapshot))
        snapshot = read_node(request)
    host, chosen = snapshot.identity.host, resolve(env).chosen
    task = 0 if chosen is None or chosen.local_rank is None else chosen.local_rank
    tasks = 1 if chosen is None or chosen.local_size is None else chosen.local_size
    name = entry_name(host.name or "", host.boot_id or "", task, tasks)
    snapshot = msgspec.structs.replace(snapshot, asked=asked)
    return sealed(msgspec.json.encode(snapshot), snapshot.token or ""), name


def look_again(coming: str) -> None:
    """Say what is coming up, and give it a while."""
    say(f"{WHO}: {coming}: looking again in {RETRY_S:.0f} s")
    time.sleep(RETRY_S)


def unsettled(snapshot: Any) -> str:
    """What of the node is still coming up, in words; empty if nothing is."""
    for nic in snapshot.hardware.nics:
        for port in nic.ports:
            if port.state in UNSETTLED or port.physical in UNSETTLED:
                return f"port of {nic.name} is {port.state or port.physical}"
    states = [fabric.state for fabric in snapshot.fabric if fabric.state in UNSETTLED]
    return f"the NVLink fabric is {states[0]}" if states else ""
