"""What kind of GPU this is: everything that equal GPUs have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from topocheck.probes.node.nvml_calls import Driver, Gpu
from topocheck.probes.node.nvml_links import Links
from topocheck.snapshot import GpuShape

__all__ = ["parse_affinity", "read_shape"]

CPU_WORDS, NODE_WORDS = 64, 16
"""64-bit words that NVML may fill: 4096 CPUs, 1024 NUMA nodes."""

NODE_SCOPE = 0
"""NVML_AFFINITY_SCOPE_NODE."""


def read_shape(
    driver: Driver, gpu: Gpu, memory_bytes: int | None, links: Links, *, mig: bool | None
) -> GpuShape:
    """One GPU without its identity."""
    ask = driver.ask
    capability = ask("gpus", "nvmlDeviceGetCudaComputeCapability", gpu).value
    cpus = ask("gpus", "nvmlDeviceGetCpuAffinity", gpu, CPU_WORDS).value
    nodes = ask("gpus", "nvmlDeviceGetMemoryAffinity", gpu, NODE_WORDS, NODE_SCOPE).value
    near = parse_affinity(nodes or ())
    return GpuShape(
        model=ask("gpus", "nvmlDeviceGetName", gpu).value,
        memory_bytes=memory_bytes,
        sm=None if capability is None else capability[0] * 10 + capability[1],
        numa=near[0] if len(near) == 1 else None,
        links=links.links,
        nvswitch=links.switched,
        mig=mig,
        cpu_affinity=listed(parse_affinity(cpus or ())),
        memory_affinity=listed(near),
        own_numa=ask("gpus", "nvmlDeviceGetNumaNodeId", gpu).value,
    )


def parse_affinity(words: Iterable[int]) -> list[int]:
    """Numbers of the bits that are set in 64-bit words; [] if all are, which virtual machines answer."""
    masks = list(words)
    if all(mask == 2**64 - 1 for mask in masks):
        return []
    return [64 * place + bit for place, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1]


def listed(numbers: list[int]) -> str | None:
    """The kernel's list notation, `0-31,64`; None for no number."""
    return ",".join(ranges(numbers)) or None


def ranges(numbers: list[int]) -> Iterator[str]:
    """Runs of ascending numbers."""
    start = 0
    for place, number in enumerate(numbers):
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            yield str(number) if start == place else f"{numbers[start]}-{number}"
            start = place + 1
