"""One gate of a made job over ConfigMaps: `python gate_pod.py ACCOUNT PORT NODE NODES TIMEOUT [broken]`.

The nodes are those of `gate_node`; the account is a folder as the kubelet lays it into a pod.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from gate_node import view, waiting

from topocheck.errors import TopocheckError
from topocheck.gate import Decision, pass_gate
from topocheck.gather.configmap_store import ConfigMapStore
from topocheck.gather.seal import sealed

__all__ = ["env_of", "one", "soon"]


def env_of(port: str) -> dict[str, str]:
    """What the kubelet tells of the API server."""
    return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT_HTTPS": port}


def soon(seconds: float) -> None:
    """A pause that is no longer than a test needs."""
    time.sleep(min(seconds, 0.02))


def one(
    account: Path,
    port: str,
    node: int,
    nodes: int,
    *,
    timeout_s: float,
    broken: bool = False,
    patience_s: float = 20.0,
    pause: Callable[[float], None] = time.sleep,
    run: str = "r1",
) -> Decision:
    """Pass the gate as this node."""
    shown = view(run, node, nodes, broken=broken)
    document = sealed(msgspec.json.encode(shown), shown.token or "")
    store = ConfigMapStore(None, run, env_of(port), account=account, patience_s=patience_s, pause=pause)
    try:
        return pass_gate(store, document, waiting(run, node, nodes, timeout_s))
    finally:
        store.close()


def main() -> None:
    """Run one gate."""
    account, port, node, nodes, timeout, *more = sys.argv[1:]
    try:
        found = one(
            Path(account), port, int(node), int(nodes), timeout_s=float(timeout), broken="broken" in more
        )
    except TopocheckError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    sys.stdout.write(f"{found.by} {found.exit_code}\n")
    sys.stdout.flush()
    sys.exit(found.exit_code)


if __name__ == "__main__":
    main()
