"""How two GPUs reach each other: peer access, and the class of the way between them.

The class is what `nvidia-smi topo -m` prints, made as it makes it: the number of NVLinks where some
join the two, else the nearest common ancestor in the PCI tree. NVML knows no NICs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from topocheck.probes.node.nvml_calls import Driver, Gpu
from topocheck.snapshot import GpuShape, LinkMatrix, PeerAccess

__all__ = ["joining_links", "read_matrix", "read_peers"]

READ, NVLINK = 0, 2
"""nvmlGpuP2PCapsIndex_t. In nvidia-ml-py NVML_P2P_CAPS_INDEX_READ is the tuple (0,) by a stray comma."""

STATUSES = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DISABLED", 5: "NS", 6: "U"}
"""nvmlGpuP2PStatus_t in nvidia-smi's letters."""

ANCESTORS = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""nvmlGpuTopologyLevel_t in nvidia-smi's words; 0 is two GPUs on one board, for which it has none."""


def read_peers(driver: Driver, gpus: Sequence[Gpu], models: Sequence[str | None]) -> tuple[PeerAccess, ...]:
    """Peer access between all pairs (nvmlDeviceGetP2PStatus).

    The driver answers about a pair. The other direction is asked only where it may differ: between two
    models, or after a refusal.
    """
    peers: dict[tuple[int, int], PeerAccess] = {}
    for a, b in combinations(range(len(gpus)), 2):
        status = read_status(driver, gpus[a], gpus[b], READ)
        if status is None:
            continue
        alike = status == "OK" and models[a] == models[b]
        back = status if alike else read_status(driver, gpus[b], gpus[a], READ)
        nvlink = read_status(driver, gpus[a], gpus[b], NVLINK)
        peers[a, b] = PeerAccess(a=a, b=b, status=status, nvlink=nvlink)
        if back is not None:
            peers[b, a] = PeerAccess(a=b, b=a, status=back, nvlink=nvlink)
    return tuple(peers[pair] for pair in sorted(peers))


def read_status(driver: Driver, a: Gpu, b: Gpu, capability: int) -> str | None:
    """One P2P status; None where the driver does not say, as in a vGPU guest."""
    value = driver.ask("peers", "nvmlDeviceGetP2PStatus", a, b, capability).value
    return STATUSES.get(value)


def read_matrix(driver: Driver, gpus: Sequence[Gpu], shapes: Sequence[GpuShape]) -> LinkMatrix | None:
    """Class of each pair; a cell is None where NVLinks may join the two unseen. None without a pair."""
    if len(gpus) < 2:
        return None
    cells: list[list[str | None]] = [
        ["X" if a == b else None for b in range(len(gpus))] for a in range(len(gpus))
    ]
    for a, b in combinations(range(len(gpus)), 2):
        joined = joining_links(shapes, a, b)
        if joined == 0:
            level = driver.ask("links", "nvmlDeviceGetTopologyCommonAncestor", gpus[a], gpus[b]).value
            cells[a][b] = cells[b][a] = ANCESTORS.get(level)
        elif joined is not None:
            cells[a][b] = cells[b][a] = f"NV{joined}"
    return LinkMatrix(gpus=tuple(tuple(row) for row in cells))


def joining_links(shapes: Sequence[GpuShape], a: int, b: int) -> int | None:
    """NVLinks that are up between two GPUs, by themselves or through switches; None if not known."""
    direct = max(
        sum(1 for link in shapes[near].links or () if link.active and link.peer == far)
        for near, far in ((a, b), (b, a))
    )
    if direct:
        return direct
    through = [links_to_switches(shapes[gpu]) for gpu in (a, b)]
    if all(through):
        return min(through)
    return 0 if far_ends_known(shapes[a]) and far_ends_known(shapes[b]) else None


def links_to_switches(shape: GpuShape) -> int:
    """Links that are up and lead to a switch, by themselves or hidden on a board of which that is known."""
    far = {"switch", None} if shape.nvswitch else {"switch"}
    return sum(1 for link in shape.links or () if link.active and link.remote in far)


def far_ends_known(shape: GpuShape) -> bool:
    """Every link is known by state and far end."""
    return shape.links is not None and all(
        link.active is not None and (not link.active or link.remote or shape.nvswitch) for link in shape.links
    )
