"""One gate of a made job as a process of its own: `python gate_node.py STORE RUN NODE NODES TIMEOUT [PAUSE]`.

Node N of the healthy demo job, or of one whose first node lacks a rank (PAUSE `broken`). Exits as the gate.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
from build import claims, snap

from topocheck.answer import Declared
from topocheck.checklist import Gate
from topocheck.gate import Decision, Waiting, entry_name, pass_gate
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.seal import sealed
from topocheck.planfile import parse_plan
from topocheck.snapshot import FullSnapshot

__all__ = ["name_of", "one", "plan_of", "view", "waiting"]


def plan_of(nodes: int) -> str:
    """TP 4 x PP, a stage a node."""
    sizes = f"parallel: {{tensor: 4, pipeline: {nodes}}}"
    return f"engine: vllm\n{sizes}\nnodes: {nodes}\npolicy: {{boundary: any}}\n"


def view(run: str, node: int, nodes: int, *, broken: bool = False) -> FullSnapshot:
    """What one node shows; a broken job has the ranks of node 0 twice."""
    first = 0 if broken else 4 * node
    made = snap(f"node-{node}", range(first, first + 4), size=4 * nodes)
    ranks = claims(range(first, first + 4), size=4 * nodes, node_rank=node)
    gpus = tuple(
        msgspec.structs.replace(gpu, uuid=f"GPU-00000000-0000-0000-{node:04}-{place:012}")
        for place, gpu in enumerate(made.identity.gpus)
    )
    identity = msgspec.structs.replace(made.identity, gpus=gpus)
    return msgspec.structs.replace(
        made, run=run, ranks=ranks, identity=identity, taken_at="2026-03-01T00:00:00Z", token="t" * 16
    )


def name_of(node: int) -> str:
    """Name of its entry."""
    return entry_name(f"node-{node}", f"boot-of-node-{node}")


def waiting(run: str, node: int, nodes: int, timeout_s: float) -> Waiting:
    """How its gate waits."""
    return Waiting(
        run=run,
        name=name_of(node),
        expected=nodes,
        declared=Declared(parse_plan(plan_of(nodes), "plan.yaml")),
        gate=Gate(),
        timeout_s=timeout_s,
    )


def one(store: Path, run: str, node: int, nodes: int, timeout_s: float, *, broken: bool = False) -> Decision:
    """Pass the gate as this node."""
    shown = view(run, node, nodes, broken=broken)
    document = sealed(msgspec.json.encode(shown), shown.token or "")
    return pass_gate(FolderStore(store, run), document, waiting(run, node, nodes, timeout_s))


def main() -> None:
    """Run one gate."""
    store, run, node, nodes, timeout, *more = sys.argv[1:]
    broken = "broken" in more
    for pause in (word for word in more if word != "broken"):
        time.sleep(float(pause))
    found = one(Path(store), run, int(node), int(nodes), float(timeout), broken=broken)
    sys.stdout.write(f"{found.by} {found.exit_code}\n")
    sys.stdout.flush()
    sys.exit(found.exit_code)


if __name__ == "__main__":
    main()
