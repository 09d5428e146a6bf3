"""What crosses from stage to stage, and how long it takes: bytes, links, seconds.

Bytes are arithmetic: rows x hidden size x bytes an element x tensors. Times are bounds: the lower one is the
nominal rate with nothing in the way, the upper one a rate that links reach in practice, with start-up.
Nothing here was measured; what each number rests on is said beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from topocheck.pipeline.bounds import Bounds, exactly

__all__ = [
    "ELEMENT_BYTES",
    "FORMS",
    "NVLINK_VERSIONS",
    "SCHEMA",
    "BoundaryReport",
    "Form",
    "Link",
    "Payload",
    "PayloadReport",
    "TransferReport",
    "assumptions",
    "describe",
    "form_of",
    "nvlink",
    "pcie",
    "pcie_bytes_per_s",
    "rdma",
    "shared",
    "transfer_seconds",
]

SCHEMA = "topocheck.boundary/1"

ELEMENT_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "int8": 1,
}
"""Bytes of one element by type."""

NOTHING = exactly(0)
REACHED = 0.8
"""Part of its nominal rate that a link with large messages reaches at least, where nothing else uses it."""
RDMA_START = Bounds(3e-6, 50e-6)
LOCAL_START = Bounds(2e-6, 20e-6)
STAGED_START = Bounds(10e-6, 100e-6)
"""Seconds before the first byte: kernel launch, rendezvous, first packet."""
PCIE_UNKNOWN = Bounds(12e9, 63e9)
"""Bytes a second each way of sixteen lanes: PCIe 3.0 as reached in practice, PCIe 5.0 by its name."""

NVLINK_BYTES_PER_S = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 5: 25e9, 6: 25e9, 7: 50e9}
"""Bytes a second each way of one NVLink by nvmlDeviceGetNvLinkVersion (1 is NVLink 1.0, 2 is 2.0, 3 is 2.2,
4 is 3.0, 5 is 3.1, 6 is 4.0, 7 is 5.0)."""
NVLINK_VERSIONS = {1: 1, 2: 2, 3: 4, 4: 6, 5: 7}
"""Generation of NVLink as people call it -> nvmlDeviceGetNvLinkVersion."""
NVLINK_UNKNOWN = Bounds(20e9, 50e9)

PCIE_GTS = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130}
"""GT/s of a lane -> bits of data in each bit: 8b/10b up to PCIe 2.0, then 128b/130b."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What an engine hands from stage to stage."""

    tensors: int
    """Tensors of one row for each token."""
    split: Literal["none", "tensor"]
    """Each rank of a tensor group sends all rows (none) or its part of the tensor (tensor)."""
    source: str
    """Where the engine does it."""


FORMS = {
    "vllm": Form(
        tensors=2,
        split="tensor",
        source="vLLM GroupCoordinator.send_tensor_dict: hidden states and residual, a slice from each rank, "
        "gathered by the receiving tensor group; models without a residual send one tensor",
    ),
    "sglang": Form(
        tensors=2,
        split="tensor",
        source="SGLang GroupCoordinator.send_tensor_dict: hidden states and residual, a slice from each "
        "rank, gathered by the receiving tensor group; models without a residual send one tensor",
    ),
    "tensorrt_llm": Form(
        tensors=2,
        split="none",
        source="TensorRT-LLM forward_before_send: hidden states and residual, whole, from each rank",
    ),
    "megatron": Form(
        tensors=1,
        split="none",
        source="Megatron-Core P2P communication: hidden states, whole, from each rank; with sequence "
        "parallelism the rank's rows (boundary_split: tensor)",
    ),
}
"""By engine. The others hand on what the script's stages return."""
PLAIN = Form(tensors=1, split="none", source="one tensor of hidden states, whole, from each rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What one microbatch hands from stage to stage."""

    rows: int
    """Tokens of the microbatch."""
    hidden: int
    """Hidden size."""
    element_bytes: int = 2
    """Bytes of one element."""
    tensors: int = 1
    """Tensors of this size: hidden states, residual."""
    parts: int = 1
    """Ranks of a tensor group among which the tensor is split; 1 where each sends all of it."""

    @property
    def bytes(self) -> int:
        """Bytes of all tensors, once."""
        return self.rows * self.hidden * self.element_bytes * self.tensors

    @property
    def rank_bytes(self) -> int:
        """Bytes that one rank sends to its neighbour."""
        return -(-self.bytes // self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A way from one GPU to another."""

    name: str
    """In words: `mlx5_0 at 400 Gb/s`."""
    bytes_per_s: Bounds
    """Rate that one sender gets, start-up apart."""
    start_seconds: Bounds
    """Time before the first byte."""
    copies: Bounds = NOTHING
    """Seconds a byte that copies through host memory add, where they do not overlap with the network."""
    assumptions: tuple[str, ...] = ()
    """What the rate rests on, a sentence each."""


def form_of(engine: str) -> Form:
    """What an engine hands on."""
    return FORMS.get(engine, PLAIN)


def starts(start: Bounds) -> str:
    """The start-up time that a link is taken to have."""
    low, high = start.low * 1e6, start.high * 1e6
    return f"Start-up (launch, rendezvous, first packet) takes {low:g} to {high:g} us of it."


def transfer_seconds(payload_bytes: int, link: Link) -> Bounds:
    """Time of one message of so many bytes, alone on the link: start-up and bytes by rate."""
    rate, start, copies = link.bytes_per_s, link.start_seconds, link.copies
    return Bounds(
        start.low + payload_bytes / rate.high + payload_bytes * copies.low,
        start.high + payload_bytes / rate.low + payload_bytes * copies.high,
    )


def rdma(rate_gbps: Bounds, name: str, *, direct: bool | None, pcie_rate: Bounds | None = None) -> Link:
    """A network device that one sender has so much of, in Gbit/s.

    With GPUDirect the NIC reads the GPU's memory. Without, data is staged: at each end it is copied between
    GPU and host memory, which at best overlaps with the network and at worst comes before and after it.
    `direct` None is not known: either may be.
    """
    lane = pcie_rate or PCIE_UNKNOWN
    rate = Bounds(rate_gbps.low * REACHED * 1e9 / 8, rate_gbps.high * 1e9 / 8)
    start, copies = RDMA_START, NOTHING
    if direct is False:
        rate = Bounds(min(rate.low, lane.low), min(rate.high, lane.high))
    if direct is not True:
        start = Bounds((STAGED_START if direct is False else RDMA_START).low, STAGED_START.high)
        copies = Bounds(0, 2 / lane.low)
    how = {
        True: "The NIC reads the GPU's memory (GPUDirect).",
        False: "Data is staged through host memory at both ends: at best the copies overlap with the "
        "network, at worst they come on top.",
        None: "Whether GPUDirect is used is not known: the lower bound has it, the upper one is staged "
        "through host memory at both ends.",
    }[direct]
    return Link(
        name=name,
        bytes_per_s=rate,
        start_seconds=start,
        copies=copies,
        assumptions=(f"The network reaches {REACHED:.0%} to 100% of its nominal rate.", how, starts(start)),
    )


def nvlink(links: int, version: int | None) -> Link:
    """So many bonded NVLinks of one generation, as nvmlDeviceGetNvLinkVersion counts them."""
    known = NVLINK_BYTES_PER_S.get(version or 0)
    each = exactly(known) if known else NVLINK_UNKNOWN
    spelled = f"{each.low / 1e9:g}" if each.exact else f"{each.low / 1e9:g} to {each.high / 1e9:g}"
    return Link(
        name=f"NVLink, {links} x {spelled} GB/s",
        bytes_per_s=Bounds(links * each.low * REACHED, links * each.high),
        start_seconds=LOCAL_START,
        assumptions=(
            f"NVLink reaches {REACHED:.0%} to 100% of {links} x {spelled} GB/s each way.",
            starts(LOCAL_START),
        ),
    )


def pcie_bytes_per_s(gts: float | None, lanes: int | None) -> Bounds | None:
    """Rate each way of a PCIe link; None for a speed that is not known."""
    data = PCIE_GTS.get(gts or 0)
    if data is None or gts is None or not lanes:
        return None
    nominal = gts * 1e9 * data * lanes / 8
    return Bounds(nominal * REACHED, nominal)


def pcie(rate: Bounds | None, *, peer: bool | None) -> Link:
    """PCIe from GPU to GPU. Without peer access data is staged through shared memory: two copies."""
    lane = rate or PCIE_UNKNOWN
    staged = {True: 1.0, False: 0.5, None: 0.5}[peer]
    how = {
        True: "peer to peer",
        False: "staged through shared memory",
        None: "peer to peer, or staged through shared memory: which is not known",
    }[peer]
    spelled = f"{lane.low / 1e9:.3g} to {lane.high / 1e9:.3g} GB/s each way"
    start = Bounds(LOCAL_START.low, STAGED_START.high)
    return Link(
        name=f"PCIe, {how}",
        bytes_per_s=Bounds(lane.low * staged, lane.high),
        start_seconds=start,
        assumptions=(
            f"PCIe gives {spelled}{'' if rate else ', for its speed is not known'}: {how}.",
            starts(start),
        ),
    )


def shared(rates_gbps: dict[str, float], users: dict[str, int]) -> Bounds:
    """Gbit/s that one sender gets of its devices, each shared evenly with its other users.

    At least its part of the best of them, at most its parts of all together. `users` counts the senders of
    each device, this one included.
    """
    parts = [rate / max(1, users.get(name, 1)) for name, rate in rates_gbps.items()]
    return Bounds(max(parts), sum(parts))


def assumptions(form: Form | None) -> Iterator[str]:
    """What boundary times rest on, a sentence each."""
    if form is not None:
        yield f"What is sent: {form.source}."
    yield (
        "One message at a time on the link, both ends ready: waiting for the neighbour, other traffic and "
        "the gather inside the receiving tensor group come on top."
    )
    yield (
        "Bounds are arithmetic, not a measurement: nccl-tests sendrecv_perf between the two GPUs measures "
        "the rate."
    )
    yield "Small decode batches are ruled by start-up and not by bytes; large prefill ones may be by bytes."


class TransferReport(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one payload on one link as JSON."""

    link: str
    """The link in words."""
    bytes_per_s: tuple[float, float]
    """Rate that one sender gets: reached in practice, nominal."""
    time_ms: tuple[float, float]
    """Time of what one rank sends: at least, at most, in milliseconds."""


class PayloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one microbatch hands from stage to stage as JSON."""

    phase: str
    """`prefill` or `decode`."""
    rows: int
    """Tokens of the microbatch."""
    hidden: int
    """Hidden size."""
    element_bytes: int
    """Bytes of one element."""
    tensors: int
    """Tensors of this size: hidden states, residual."""
    parts: int
    """Ranks of a tensor group among which the tensors are split."""
    bytes: int
    """All tensors, once: rows x hidden x element_bytes x tensors."""
    rank_bytes: int
    """What one rank sends."""
    transfers: list[TransferReport]
    """By link; empty where none was given."""


class BoundaryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What crosses a stage boundary as JSON."""

    schema: str
    """`topocheck.boundary/` and the major version."""
    payloads: list[PayloadReport]
    """One microbatch of prefill, of decode, or of both."""
    sources: dict[str, str]
    """Where each size comes from."""
    assumptions: list[str]
    """What bytes and times rest on, start-up times of the links included."""


def describe(phase: str, payload: Payload, links: list[Link]) -> PayloadReport:
    """A payload and its times as a document."""
    return PayloadReport(
        phase=phase,
        rows=payload.rows,
        hidden=payload.hidden,
        element_bytes=payload.element_bytes,
        tensors=payload.tensors,
        parts=payload.parts,
        bytes=payload.bytes,
        rank_bytes=payload.rank_bytes,
        transfers=[
            TransferReport(
                link=link.name,
                bytes_per_s=(link.bytes_per_s.low, link.bytes_per_s.high),
                time_ms=(time.low * 1e3, time.high * 1e3),
            )
            for link in links
            for time in (transfer_seconds(payload.rank_bytes, link),)
        ],
    )
