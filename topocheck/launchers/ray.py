"""Ray: actors have no rank in their environment; the engine gives ranks by the order of bundles or nodes.

Facts from vLLM (v1/executor/ray_utils.py get_bundles_sorted_by_node; v1/executor/ray_executor.py of 0.19)
and SGLang (srt/ray/engine.py), and from actors of Ray 2.60.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from topocheck.launchers.launcher import Claim, Environment, Launcher
from topocheck.launchers.variables import Variables

__all__ = ["LAUNCHER", "actor_name", "bundle_order", "engine_node_order", "worker_order"]

NOSET = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"


def claim(env: Environment) -> Claim | None:
    """A worker of a raylet: that it is one, how many there are here where that is told, and its devices."""
    if "RAY_RAYLET_PID" not in env and "RAY_LOCAL_WORLD_SIZE" not in env:
        return None
    read = Variables(env)
    if env.get(NOSET, "") not in ("", "0"):
        read.note("devices", f"{NOSET} is set: Ray leaves CUDA_VISIBLE_DEVICES as the raylet has it", NOSET)
    else:
        read.note("devices", "Ray narrows CUDA_VISIBLE_DEVICES to the devices of this actor")
    return read.claim("ray", local_size=read.number("RAY_LOCAL_WORLD_SIZE"))


def bundle_order(nodes: Sequence[str], driver: str) -> list[int]:
    """Bundle by rank in vLLM's RayExecutorV2: the driver's node first, other nodes by id as hex text.

    `nodes[b]` is the Ray node id of bundle b. VLLM_RAY_BUNDLE_INDICES, where set, is the order instead.
    """
    return sorted(range(len(nodes)), key=lambda bundle: (nodes[bundle] != driver, nodes[bundle]))


def worker_order(addresses: Sequence[str], driver: str) -> list[int]:
    """Worker by rank in vLLM's older Ray executor: the driver's address, then nodes with fewer workers.

    Equal counts go by address as text: 10.0.0.10 comes before 10.0.0.2.
    """
    count = Counter(addresses)
    return sorted(
        range(len(addresses)),
        key=lambda worker: (addresses[worker] != driver, count[addresses[worker]], addresses[worker]),
    )


def engine_node_order(nodes: Sequence[str], engine: str) -> list[int]:
    """Bundle by node rank in SGLang's own placement group, one bundle a node: the engine's node first."""
    return sorted(range(len(nodes)), key=lambda bundle: nodes[bundle] != engine)


def actor_name(sizes: Mapping[str, int], rank: int) -> str:
    """End of the name of vLLM's Ray actor of a rank: `_TP1_PP0`, axes of size 1 left out (build_actor_name).

    It counts the context axis as the slowest, which it is not in the layout: the name tells the rank and not
    the rank's coordinates. `sizes` has `tensor`, `pipeline` and `context`.
    """
    name, step = "", 1
    for tag, axis in (("TP", "tensor"), ("PP", "pipeline"), ("PCP", "context")):
        size = sizes.get(axis, 1)
        name += f"_{tag}{rank // step % size}" if size > 1 else ""
        step *= size
    return name


LAUNCHER = Launcher(
    name="ray",
    title="Ray",
    variables=(
        "RAY_RAYLET_PID",
        "RAY_JOB_ID",
        "RAY_LOCAL_WORLD_SIZE",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES",
    ),
    claim=claim,
)
