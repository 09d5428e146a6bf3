"""Very many gates on one folder: `python gate_crowd.py FOLDER NODES TIMEOUT_S KIND`, of which it prints JSON.

A few processes share the gates among them and let each look when its time has come, as `pass_gate` does: a
thread for each would spend the machine on waiting for the others. KIND says what is wrong with the job:
`healthy`, `broken` (the ranks of a node are another's), `away` (the last node), `dead` (the last node is away
and the first gates publish and are heard of no more), `bare` (a node does not show its ranks).
"""

from __future__ import annotations

import heapq
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
from gate_node import name_of, one, view, waiting

from topocheck.gate import Watch
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.seal import sealed
from topocheck.gather.store import Entry, Refused

__all__ = ["DEAD"]

PROCESSES = 4
DEAD = 5
"""Gates that are dead, of the kind `dead`."""
START_S = 1.0
"""Gates start within so long."""


End = dict[str, object]
"""What became of one gate."""


class Counted(FolderStore):
    """The store of one gate, its operations counted."""

    def __init__(self, folder: Path, run: str) -> None:
        super().__init__(folder, run)
        self.asked: Counter[str] = Counter()

    def publish(self, name: str, data: bytes) -> None:
        """Counted."""
        self.asked["publish"] += 1
        super().publish(name, data)

    def names(self) -> Sequence[str]:
        """Counted."""
        self.asked["names"] += 1
        return super().names()

    def entry(self, name: str) -> Entry | Refused | None:
        """Counted."""
        self.asked["entry"] += 1
        return super().entry(name)

    def verdict(self) -> bytes | None:
        """Counted."""
        self.asked["verdict"] += 1
        return super().verdict()

    def remarked(self) -> bytes | None:
        """Counted."""
        self.asked["remarked"] += 1
        return super().remarked()

    def remark(self, data: bytes) -> None:
        """Counted."""
        self.asked["remark"] += 1
        super().remark(data)


def document(node: int, nodes: int, kind: str) -> bytes:
    """What one node shows."""
    shown, odd = view("r1", node, nodes), nodes // 2
    if node == odd and kind == "broken":
        shown = msgspec.structs.replace(shown, ranks=view("r1", 0, nodes).ranks)
    if node == odd and kind == "bare":
        untold = msgspec.structs.replace(shown.coverage, ranks="part")
        shown = msgspec.structs.replace(shown, ranks=(), coverage=untold)
    return sealed(msgspec.json.encode(shown), shown.token or "")


def crowd(folder: Path, own: Sequence[int], nodes: int, timeout_s: float, kind: str) -> list[End]:
    """These gates, from their start to their end."""
    watches: dict[int, Watch] = {}
    stores: dict[int, Counted] = {}
    ends: list[End] = []
    begin, asked_of_all = time.monotonic(), waiting("r1", 0, nodes, timeout_s)
    due = [(begin + START_S * place / len(own), node) for place, node in enumerate(own)]
    heapq.heapify(due)
    while due:
        at, node = heapq.heappop(due)
        time.sleep(max(0.0, at - time.monotonic()))
        if node not in watches:
            stores[node] = Counted(folder, "r1")
            watches[node] = Watch(stores[node], replace(asked_of_all, name=name_of(node)))
            watches[node].begin(document(node, nodes, kind))
            if kind == "dead" and node < DEAD:
                continue
        found = watches[node].look()
        if found is None:
            heapq.heappush(due, (time.monotonic() + watches[node].poll_s, node))
            continue
        asked = stores.pop(node).asked
        said = {"code": found.exit_code, "by": found.by, "sentence": found.report.sentence}
        ends.append({"node": node, **said, "asked": asked})
        del watches[node]._entries  # noqa: SLF001 - a gate of its own would have ended
    return ends


def main() -> None:
    """All gates, shared among a few processes."""
    folder, nodes, timeout_s, kind = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    (folder / "warm").mkdir()
    one(folder / "warm", "r1", 0, 1, 5)
    store = folder / "store"
    store.mkdir()
    there = range(nodes - (kind in ("away", "dead")))
    children = []
    for share in range(PROCESSES):
        pid = os.fork()
        if pid:
            children.append(pid)
            continue
        try:
            found = crowd(store, there[share::PROCESSES], nodes, timeout_s, kind)
            (folder / f"{share}.json").write_text(json.dumps(found))
            os._exit(0)
        finally:
            os._exit(1)
    if sum(os.waitpid(pid, 0)[1] for pid in children):
        sys.exit("a process of gates broke")
    ends = [end for share in range(PROCESSES) for end in json.loads((folder / f"{share}.json").read_text())]
    sys.stdout.write(json.dumps({"ends": ends, "cpu": sum(os.times()[:4])}))


if __name__ == "__main__":
    main()
