"""A client of a running Ray cluster, in a process of its own: what it learns is one document a line.

`python -m topocheck.gather.ray_client ADDRESS RUN SECONDS`. The only module that imports ray.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import msgspec

from topocheck import __version__
from topocheck.gather.ray_cluster import LONGEST, Answer, Cluster, RayMember, Trouble

__all__ = ["main"]

PROBE_S = 30.0
"""How long a probe may take, or half of all the time where that is less: only what hangs takes it."""
LOOK_S = 1.0
"""How often it looks at the clock while nodes are silent."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Join the cluster, ask all nodes, tell; what Ray prints goes to standard error."""
    address, run, seconds = sys.argv[1:] if arguments is None else arguments
    deadline = time.monotonic() + float(seconds)
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        try:
            import ray  # noqa: PLC0415 - an extra, imported only here

            join(ray, address)
        except ImportError as error:
            tell(out, Trouble(f"ray cannot be imported ({error}): install topocheck with its extra `ray`"))
            return 0
        except Exception as error:  # noqa: BLE001 - Ray has no base of its errors; all of them mean no cluster
            tell(out, Trouble(f"no Ray cluster can be joined there: {said(error)}"))
            return 0
        cluster = described(ray, address)
        tell(out, cluster)
        for answer in answers(ray, cluster, run, deadline):
            tell(out, answer)
    return 0


def tell(out: IO[bytes], document: Cluster | Answer | Trouble) -> None:
    """Write one line."""
    out.write(msgspec.json.encode(document) + b"\n")
    out.flush()


def said(error: BaseException) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:LONGEST]


def join(ray: Any, address: str) -> None:
    """Join the cluster that runs. Raises whatever Ray raises where there is none."""
    # With an address Ray starts nothing of its own.
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")


def described(ray: Any, address: str) -> Cluster:
    """All nodes, by host name and id."""
    nodes = [
        RayMember(
            id=str(node["NodeID"]),
            address=str(node.get("NodeManagerAddress") or ""),
            host=str(node.get("NodeManagerHostname") or ""),
            alive=bool(node.get("Alive")),
            gpus=float((node.get("Resources") or {}).get("GPU", 0.0)),
            reason=" ".join(str(node.get("DeathReasonMessage") or "").split())[:LONGEST],
        )
        for node in ray.nodes()
    ]
    # Under ray:// this process is no driver: one on the head node stands for it.
    driver = None if "://" in address else ray.get_runtime_context().get_node_id()
    return Cluster(sorted(nodes, key=lambda node: (node.host, node.id)), driver)


def answers(ray: Any, cluster: Cluster, run: str, deadline: float) -> Iterator[Answer]:
    """What each living node answers, as it comes."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415 - as ray itself

    left = max(1.0, deadline - time.monotonic())
    # Without CPUs and GPUs a task starts on a node that is full, and takes nothing of what a job waits for.
    task = ray.remote(num_cpus=0, max_retries=0)(look(__version__, run, min(PROBE_S, left / 2), left))
    waiting = {}
    for member in cluster.nodes:
        if member.alive:
            pinned = NodeAffinitySchedulingStrategy(node_id=member.id, soft=False)
            waiting[task.options(scheduling_strategy=pinned, name="topocheck probe").remote()] = member.id
    while waiting and (left := deadline - time.monotonic()) > 0:
        done, _ = ray.wait(list(waiting), num_returns=1, timeout=min(LOOK_S, left))
        for one in done:
            yield answer_of(ray, one, waiting.pop(one))


def answer_of(ray: Any, task: Any, node: str) -> Answer:
    """What came of one task that ended."""
    try:
        packed, reason = ray.get(task)
    except Exception as error:  # noqa: BLE001 - the node may have died, and anything may be raised on it
        return Answer(node, reason=f"its task failed: {said(getattr(error, 'cause', None) or error)}")
    return Answer(node, packed, reason)


def look(version: str, run: str, timeout_s: float, left_s: float) -> Callable[[], tuple[bytes, str]]:
    """The task of one node. It is inside a function so that Ray sends it whole, not by its name.

    So a node without topocheck, or with another one, can say so.
    """

    def task() -> tuple[bytes, str]:
        try:
            import topocheck  # noqa: PLC0415 - the node's own

            there = topocheck.__version__
            if there != version:
                return b"", f"has topocheck {there}, and this gate is {version}"
            from topocheck.gather.ray_worker import packed_snapshot  # noqa: PLC0415 - as above
        except ImportError as error:
            return b"", f"topocheck cannot be imported there: {error}"
        return packed_snapshot(run, timeout_s, left_s)

    return task


if __name__ == "__main__":
    sys.exit(main())
