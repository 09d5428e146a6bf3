"""Healthy jobs that careless checks accuse: replicas, pods, spares, one GPU a task, groups of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from boxes import HGX_H100, Root
from build import edge, log
from healthy import BARE_METAL, Seat, node, nodes
from msgspec.structs import replace as changed
from set_ups import ALIKE, KNOWN, NETWORK, NVLINK, ONE_NODE, SEVERAL, STAGES, TWO, SetUp, filled, vllm

from topocheck.probes.capture import vllm_log
from topocheck.probes.capture.text import parse_text
from topocheck.snapshot import CommRank, FullSnapshot, GpuId

__all__ = ["JOBS"]


def loopback() -> SetUp:
    """One node whose processes meet at 127.0.0.1."""
    evidence = filled(HGX_H100, 8, 1, TWO[:1])
    assert evidence[0].environment["MASTER_ADDR"] == "127.0.0.1"
    return SetUp(vllm(8, 1, TWO[:1]), evidence, ONE_NODE | NVLINK | {"NV002", "NV004"})


def ray_head() -> SetUp:
    """KubeRay: the head has no GPU, no NIC of the fabric and no rank."""
    head = node(replace(HGX_H100, roots=(Root(0, 0),), fabric=False, links=0), Seat("head", 9))
    return SetUp(vllm(8, 2), [*filled(HGX_H100, 8, 2), head], SEVERAL | NVLINK | STAGES)


def two_replicas() -> SetUp:
    """Two servers with TP 4 on one node, each with GPUs of its own."""
    views = [
        node(
            HGX_H100,
            Seat(
                "gpu-1",
                ranks=tuple(range(4)),
                size=4,
                gpus=tuple(range(first, first + 4)),
                first_pid=4100 + 100 * first,
                master="127.0.0.1",
                variables={"CUDA_VISIBLE_DEVICES": ",".join(str(first + n) for n in range(4))},
            ),
        )
        for first in (0, 4)
    ]
    return SetUp(vllm(4, 1, TWO[:1], worlds="2"), views, (ONE_NODE | NVLINK) - {"ID012", "OBS001"})


def dense() -> SetUp:
    """Dense data parallelism of vLLM: ranks begin at 0 in each replica, two of which share a node."""
    text = vllm(4, 1).replace("pipeline: 1", "data: 4") + "engine_version: 0.24.0\n"
    views = [
        node(
            HGX_H100,
            Seat(
                name,
                ranks=tuple(range(4)),
                size=4,
                world=f"dp{2 * number + half}",
                gpus=tuple(range(4 * half, 4 * half + 4)),
                first_pid=4100 + 100 * half,
            ),
        )
        for number, name in enumerate(TWO)
        for half in range(2)
    ]
    return SetUp(text, views, (ONE_NODE | NVLINK) - {"ID012", "OBS001"})


def seen_groups() -> SetUp:
    """A running vLLM job: one communicator for each group, with ranks of its own, and the engine's lines."""
    started = [
        log(
            name,
            [
                *members("tcp://10.20.0.11:29501", range(8 * number, 8 * number + 8), size=16, gpu=False),
                *members(f"0x70{number}", range(8), size=8),
                *[one for n in range(8) for one in members(f"0x9{n}", [number], size=2, first=n)],
            ],
            edges=[
                *[edge(n, (n + 1) % 8, "P2P/CUMEM", comm=f"0x70{number}", host=name) for n in range(8)],
                *[
                    edge(number, 1 - number, f"NET/IB/{n}/GDRDMA", comm=f"0x9{n}", host=name, pid=4100 + n)
                    for n in range(8)
                ],
            ],
            count=8,
        )
        for number, name in enumerate(TWO)
    ]
    shown = filled(HGX_H100, 8, 2)
    logs = [
        changed(view, identity=changed(view.identity, gpus=by_bus(own)))
        for view, own in zip(started, shown, strict=False)
    ]
    running = {"OBS002", "OBS003", "OBS006", "OBS008", "OBS009"}
    passing = (SEVERAL | NVLINK | STAGES | running) - {"CAP001"}
    return SetUp(vllm(8, 2), [*shown, *logs], passing)


def by_bus(view: FullSnapshot) -> tuple[GpuId, ...]:
    """GPUs of a node as a log knows them."""
    return tuple(changed(gpu, uuid=None) for gpu in view.identity.gpus)


def members(
    name: str, ranks: Sequence[int], *, size: int, first: int = 0, gpu: bool = True
) -> list[CommRank]:
    """Processes of one node in one communicator, by the GPUs from `first` on."""
    return [
        CommRank(comm=name, size=size, rank=rank, gpu=n if gpu else None, pid=4100 + n, phase="complete")
        for n, rank in enumerate(ranks, first)
    ]


def one_gpu_a_task() -> SetUp:
    """Slurm with --gpus-per-task: each task sees one GPU and calls it 0, which may cost CUDA IPC."""
    views = []
    for number, whole in enumerate(nodes(HGX_H100, *TWO)):
        for local in range(8):
            gpu = changed(whole.identity.gpus[local], nvml=0, scope="task")
            shape = changed(whole.hardware, gpus=(whole.hardware.gpus[local],), peers=())
            state = changed(whole.state, gpus=(changed(whole.state.gpus[local], gpu=0),))
            claim = changed(whole.ranks[local], gpu=0, rank=8 * number + local)
            view = changed(whole, hardware=shape, state=state, ranks=(claim,))
            views.append(changed(view, identity=changed(whole.identity, gpus=(gpu,))))
    passing = (SEVERAL | STAGES | {"TP002", "NV001"}) - {"TP007", "ID012", "OBS001"}
    return SetUp(vllm(8, 2), views, passing, warns=frozenset({"TP007"}))


def two_pods() -> SetUp:
    """Two pods on one machine, a stage in each: one boot id, two host names, GPUs numbered anew in each."""
    views = []
    for number, (whole,) in enumerate([nodes(HGX_H100, "gpu-1", each=8)] * 2):
        own = slice(4 * number, 4 * number + 4)
        gpus = tuple(
            changed(gpu, nvml=n, scope="container") for n, gpu in enumerate(whole.identity.gpus[own])
        )
        pod = changed(whole.identity.host, name=f"pod-{number}", machine_id=None)
        peers = tuple(one for one in whole.hardware.peers if max(one.a, one.b) < 4)
        shape = changed(whole.hardware, gpus=whole.hardware.gpus[own], peers=peers)
        state = changed(
            whole.state, gpus=tuple(changed(gpu, gpu=n) for n, gpu in enumerate(whole.state.gpus[own]))
        )
        view = changed(
            whole,
            identity=changed(whole.identity, gpus=gpus, host=pod),
            hardware=shape,
            state=state,
            ranks=tuple(changed(claim, gpu=n) for n, claim in enumerate(whole.ranks[own])),
            limits=changed(BARE_METAL, scope="container", container=f"{number}d" * 32),
            environment={k: v for k, v in whole.environment.items() if k != "SLURM_JOB_GPUS"},
        )
        views.append(view)
    passing = (ONE_NODE | {"TP002", "NV001"}) - {"ID012", "OBS001", "TP007"}
    return SetUp(vllm(4, 2, TWO[:1]).replace("[gpu-1]", "1"), views, passing)


def spares() -> SetUp:
    """An odd number of nodes, and hot spares without ranks."""
    text = "engine: torch\nparallel: {data: 24}\nnodes: {min: 2, max: 5}\n"
    seat: dict[str, Any] = {"engine": "torch", "software": {"engine_version": "2.9.0"}}
    working = nodes(HGX_H100, "gpu-1", "gpu-2", "gpu-3", **seat)
    idle = [node(HGX_H100, Seat(f"spare-{n}", 7 + n, **seat)) for n in range(2)]
    passing = (KNOWN | ALIKE | NETWORK) - {"ID010", "ID012", "OBS001"}
    return SetUp(text, [*working, *idle], passing)


def full_names() -> SetUp:
    """The plan has full names and the hosts know their first labels."""
    text = vllm(8, 2, [f"{name}.cluster.example.org" for name in TWO])
    return SetUp(text, filled(HGX_H100, 8, 2), SEVERAL | NVLINK | STAGES)


WARNED = """\
INFO 06-02 09:14:01 [api_server.py:1977] vLLM API server version 0.12.0
WARNING 06-02 09:14:03 [ray_utils.py:332] Tensor parallel size (16) exceeds available GPUs (8). This may \
result in Ray placement group allocation failures. Consider reducing tensor_parallel_size to 8 or less, or \
ensure your Ray cluster has 16 GPUs available.
"""
"""vLLM takes the world for TP and one node for the cluster."""


def warned() -> SetUp:
    """A launch in which vLLM warns of a TP that nobody asked for."""
    parsed = vllm_log.parse(parse_text(WARNED.encode(), "vllm.log"))
    said = [snapshot for reading in parsed for snapshot in reading.snapshots]
    assert said
    return SetUp(vllm(8, 2), [*filled(HGX_H100, 8, 2), *said], SEVERAL | NVLINK | STAGES)


JOBS: dict[str, Callable[[], SetUp]] = {
    made.__name__: made
    for made in (
        loopback,
        ray_head,
        two_replicas,
        dense,
        seen_groups,
        one_gpu_a_task,
        two_pods,
        spares,
        full_names,
        warned,
    )
}
