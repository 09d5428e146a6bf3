"""Peer access over PCIe between GeForce boards, which NVIDIA's driver has refused since the RTX 20 series.

A patched kernel module grants it. NCCL copes; an engine's own all-reduce was seen to give wrong numbers over
it, without a word (A/B measured by a user of two RTX 3090 on one host bridge).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from topocheck.ask import Device
from topocheck.ranges import first, fold
from topocheck.rule import Evidence, Finding
from topocheck.subjects import TensorGroup

__all__ = ["patched_access"]

GEFORCE = re.compile(r"GeForce RTX [2-9]0[5-9]0")


def patched_access(group: TensorGroup, pairs: Sequence[tuple[Device, Device]]) -> Finding | None:
    """The finding about pairs of a group that have peer access; None if the driver's makers mean them to."""
    odd = [(a, b) for a, b in pairs if is_geforce(a) and is_geforce(b) and not by_nvlink(a, b)]
    if not odd:
        return None
    words = [f"GPUs {a.index}-{b.index} of {a.node}" for a, b in odd]
    node = odd[0][0].node
    source = node.read_in("peer access")
    return Finding(
        message=f"TP group {group.index} (ranks {fold(group.ranks)}) has peer access over PCIe between "
        f"GeForce boards ({first(words, 4)}): only a patched driver grants it, and all-reduces of an "
        "engine's own may give wrong numbers over it",
        fix="switch the engine's own all-reduce off (vLLM: --disable-custom-all-reduce), or check its "
        "results against NCCL's before you trust them",
        cause="unofficial peer access",
        subjects=(str(group),),
        evidence=tuple(Evidence(source=source, fact=f"{pair}: OK") for pair in words[:12]),
        severity="warning",
        ranks=tuple(group.ranks),
    )


def is_geforce(device: Device) -> bool:
    """A GeForce board whose driver grants no peer access over PCIe."""
    shape = device.node.shape
    model = shape.hardware.gpus[device.ordinal].model if shape and device.ordinal < shape.gpus else None
    return model is not None and GEFORCE.search(model) is not None


def by_nvlink(a: Device, b: Device) -> bool:
    """NVLink joins the two, or nothing shows that it does not."""
    link = a.node.shape.link(a.ordinal, b.ordinal) if a.node.shape else None
    return link is None or link.nvlink
