"""Jobs for the rules of the GPUs that processes see and use."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from build import FOUR, H100, TWO, pair, running, snap
from made_capacity import Made

from topocheck.snapshot import FullSnapshot, GpuState, MigDevice, Process, State

__all__ = ["CASES", "FAILURES", "MIXED", "WARNINGS", "listing", "mixed", "on_gpus", "sliced"]

Job = tuple[str, Sequence[FullSnapshot]]

WARNINGS: frozenset[str] = frozenset()
MIXED = ("NVIDIA RTX A6000", "NVIDIA GeForce RTX 3090")
ALONE = "engine: vllm\nparallel: {tensor: 1}\nnodes: [node-a]\n"


def listing(listed: str | None) -> list[FullSnapshot]:
    """Two nodes whose ranks share this list of visible devices."""
    variables = {"NCCL_DEBUG": "INFO"} | ({} if listed is None else {"CUDA_VISIBLE_DEVICES": listed})
    return pair(environment=variables)


def everywhere(listed: str) -> list[FullSnapshot]:
    """The same list on both nodes."""
    variables = {"CUDA_VISIBLE_DEVICES": listed}
    return [msgspec.structs.replace(view, environment=variables) for view in pair()]


def mixed(order: str | None = None, *, shown: bool = True) -> list[FullSnapshot]:
    """One node with GPUs of two models."""
    variables = {"NCCL_DEBUG": "INFO"} | ({} if order is None else {"CUDA_DEVICE_ORDER": order})
    return [
        snap(
            "node-a",
            range(4),
            models=(MIXED[0], MIXED[1], MIXED[0], MIXED[1]),
            environment=variables if shown else {},
            size=4,
        )
    ]


def on_gpus(*gpus: int) -> list[FullSnapshot]:
    """Two nodes with the driver's lists of processes; those of node-a are on these GPUs."""
    made = []
    for view, first, places in zip(pair(), (0, 4), (gpus, range(4)), strict=True):
        states = tuple(
            GpuState(
                gpu=gpu,
                memory_used_bytes=1 << 30,
                processes=tuple(
                    Process(pid=9000 + first + n) for n, place in enumerate(places) if place == gpu
                ),
            )
            for gpu in range(4)
        )
        made.append(msgspec.structs.replace(view, state=State(gpus=states)))
    return made


def sliced(ranks: int = 4) -> list[FullSnapshot]:
    """One node whose GPU 2 is in MIG mode."""
    view = snap("node-a", range(ranks), size=ranks)
    parts = tuple(MigDevice(uuid=f"MIG-00000000-0000-0000-0000-{n:012}") for n in range(2))
    cut = [n == 2 or ranks == 1 for n in range(4)]
    gpus, shapes = view.identity.gpus, view.hardware.gpus
    gpus = tuple(
        msgspec.structs.replace(gpu, mig=parts if on else ()) for gpu, on in zip(gpus, cut, strict=True)
    )
    shapes = tuple(msgspec.structs.replace(gpu, mig=on) for gpu, on in zip(shapes, cut, strict=True))
    return [
        msgspec.structs.replace(
            view,
            identity=msgspec.structs.replace(view.identity, gpus=gpus),
            hardware=msgspec.structs.replace(view.hardware, gpus=shapes),
        )
    ]


CASES: dict[str, Made] = {
    "ID008": Made(
        (TWO, everywhere("0,1,2,3")),
        (TWO, [*listing("0,1,7,3")[:1], everywhere("0,1,2,3")[1]]),
        (TWO, pair(environment={})),
        None,
        "error",
        ("node-a", "CUDA_VISIBLE_DEVICES=0,1,7,3", "device 7", "0..3"),
    ),
    "ID009": Made(
        (FOUR, mixed("PCI_BUS_ID")),
        (FOUR, mixed()),
        (FOUR, mixed(shown=False)),
        (TWO, pair(model=H100)),
        "error",
        ("node-a", "A6000", "3090", "not set"),
    ),
    "ID011": Made(
        (TWO, on_gpus(0, 1, 2, 3)),
        (TWO, on_gpus(0, 1, 2, 2)),
        (TWO, pair()),
        (TWO, running()),
        "error",
        ("rank 3", "node-a", "pid 9003"),
    ),
    "ID013": Made(
        (TWO, pair()),
        (FOUR, sliced()),
        (TWO, []),
        (ALONE, sliced(1)),
        "error",
        ("rank 2", "node-a", "MIG"),
    ),
}

FAILURES: dict[str, Job] = {rule: made.broken for rule, made in CASES.items()}
