"""What the waits of a pipeline are evidence of, what to do about it, and what that costs.

The order is that of the field: first what the bubble explains; if much more is idle than that, the balance of
the stages, then the boundaries. The three kinds of waiting do not exclude each other, so that several may be
named. More requests or microbatches are never the answer to a slow link or a slow stage: waiting would become
queueing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from topocheck.pipeline.depth import DepthReading
from topocheck.pipeline.waits_report import BoundaryWaits, BubbleCheck, StageWaits, Status, WaitFinding

__all__ = ["Measured", "findings", "sentence", "status"]

NAMED = 0.10
"""Part of all stages' time from which on waiting is named."""
BUBBLE = 0.20
"""The same for fill and drain, which every pipeline has."""
UNKNOWN = 0.25
"""Part that is unknown from which on nothing named is no sign of health."""
INPUT = ("arrival", "nothing recorded")
"""Evidence of a first stage without input; the rest of `work` is fill, drain, and too few units at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that findings rest on."""

    stages: list[StageWaits]
    boundaries: list[BoundaryWaits]
    bubble: BubbleCheck | None
    depth: DepthReading | None
    everything_recorded: bool

    @property
    def whole(self) -> int:
        """Time of all stages together, in ns."""
        return sum(stage.window_ns for stage in self.stages) or 1

    def part(self, of: Sequence[float]) -> float:
        """Part of all stages' time, out of the part of each."""
        pairs = zip(self.stages, of, strict=True)
        return sum(stage.window_ns * part for stage, part in pairs) / self.whole

    @property
    def starved(self) -> float:
        """Part in which stages waited for input of the first stage."""
        return self.part([sum(stage.by_evidence.get(why, 0.0) for why in INPUT) for stage in self.stages])

    @property
    def unfilled(self) -> float:
        """Part in which the pipeline filled, drained, or had no other unit to work on."""
        return self.part([stage.work for stage in self.stages]) - self.starved

    @property
    def unknown(self) -> float:
        """Part that is unknown."""
        return self.part([stage.unknown for stage in self.stages])


def findings(measured: Measured) -> list[WaitFinding]:
    """What is named, the largest part first."""
    found = [*_neighbours(measured), *_links(measured)]
    work = _work(measured, alone=not found)
    if work is not None:
        found.append(work)
    found.sort(key=lambda finding: -(finding.share or 0.0))
    if measured.depth is not None and measured.depth.verdict == "depth":
        found.append(_deep(measured.depth))
    return found


def _neighbours(measured: Measured) -> Iterator[WaitFinding]:
    """Stages that others wait for because they compute longer."""
    names = sorted({name for stage in measured.stages for name in stage.by_stage}, key=int)
    for name in names:
        share = measured.part([stage.by_stage.get(name, 0.0) for stage in measured.stages])
        if share < NAMED:
            continue
        slow = measured.stages[int(name)]
        others = [stage for stage in measured.stages if stage.stage != slow.stage]
        quick = min(others, key=lambda stage: (stage.unit_ns, stage.stage))
        yield WaitFinding(
            kind="neighbour",
            where=f"stage {name}",
            share=share,
            sentence=f"stage {name} is uneven: it computes longer on a unit than the stages that wait for it",
            evidence=[
                f"median on a unit: {_each(measured.stages)}",
                f"part of each stage's time spent waiting for it: {_parts(others, name)}",
                f"no input makes results come faster than every {ms(slow.unit_ns)}",
            ],
            action=(
                f"move layers from stage {name} to others, the quickest being stage {quick.stage} (topocheck "
                "balance --from-trace), by the times of the load that counts: prefill and decode may differ"
            ),
            cost="by hand and bound by divisibility; the receiver's weights, KV cache and buffers must fit",
            no_cure="more concurrency: it turns waiting into queueing",
        )


def _links(measured: Measured) -> Iterator[WaitFinding]:
    """Boundaries whose transfers stages wait for."""
    for boundary in measured.boundaries:
        if boundary.waited < NAMED:
            continue
        pair = f"{boundary.source}>{boundary.target}"
        yield WaitFinding(
            kind="boundary",
            where=f"stage {boundary.source} -> {boundary.target}",
            share=boundary.waited,
            sentence=f"the link from stage {boundary.source} to stage {boundary.target} is slow",
            evidence=[
                _transfer_words(boundary, measured),
                f"part of each stage's time spent waiting for it: {_of_boundary(measured.stages, pair)}",
            ],
            action=(
                "a faster or nearer link: look at the path it really takes (NIC, rail, RDMA or sockets, "
                "GPUDirect, host staging; topocheck verify, rules PP003 to PP006), and at the bytes that "
                "cross it (topocheck boundary)"
            ),
            cost="another placement or network; TP must stay inside its domain",
            no_cure="more concurrency, more microbatches, or moving layers: the link stays as slow",
        )


def _transfer_words(boundary: BoundaryWaits, measured: Measured) -> str:
    """How long a transfer takes, beside computing."""
    receiver = measured.stages[boundary.target]
    if boundary.transfer_ns is None:
        return "how long a transfer takes is not known: times of both ends are missing"
    bound = " at most" if boundary.bound else ""
    return (
        f"a transfer takes{bound} {ms(boundary.transfer_ns)} once both ends are ready (median of "
        f"{boundary.transfers}); stage {boundary.target} computes {ms(receiver.unit_ns)} on a unit"
    )


def _work(measured: Measured, *, alone: bool) -> WaitFinding | None:
    """No work ready: no input, or a pipeline that is not filled."""
    starved, unfilled = measured.starved, measured.unfilled
    if not measured.stages or (starved < NAMED and (unfilled < BUBBLE or not alone)):
        return None
    evidence = []
    if starved >= NAMED:
        evidence.append(_input_words(measured))
    if unfilled >= NAMED:
        evidence.append(
            f"for {percent(unfilled)} of the stages' time the pipeline filled, drained, or had no other unit"
        )
    if measured.bubble is not None:
        evidence.append(bubble_words(measured.bubble))
    hungry = starved >= NAMED
    return WaitFinding(
        kind="work",
        where="stage 0" if hungry else "all stages",
        share=starved + unfilled if alone else starved,
        sentence=(
            "no work is ready: the first stage waits for input"
            if hungry
            else "no work is ready: too few units are in flight to fill the stages"
        ),
        evidence=evidence,
        action=(
            "look at what feeds the first stage (arrival of requests, scheduler, data loader, tokeniser)"
            if hungry
            else "more microbatches or more ready requests; in training also an interleaved schedule"
        ),
        cost=(
            "none if requests are simply few; else what it takes to deliver them sooner"
            if hungry
            else "memory for what is in flight, scheduling, possibly later first tokens"
        ),
        no_cure="moving layers between stages",
    )


def _input_words(measured: Measured) -> str:
    """How it is known that the first stage had no input."""
    first = measured.stages[0]
    missing = sum(first.by_evidence.get(why, 0.0) for why in INPUT)
    parts = [f"for {percent(missing)} of its time stage 0 had no input"]
    if first.by_evidence.get("arrival"):
        parts.append("the input came later, by its ready times")
    if first.by_evidence.get("nothing recorded"):
        parts.append(
            "nothing at all was recorded then, neither input nor computing nor transfer (time outside torch "
            "would look the same)"
        )
    return ": ".join([parts[0], "; ".join(parts[1:])]) if len(parts) > 1 else parts[0]


def _deep(depth: DepthReading) -> WaitFinding:
    first, last = depth.points[0], depth.points[-1]
    return WaitFinding(
        kind="depth",
        where=f"{last.stages} stages",
        share=None,
        sentence="the pipeline is deep: each stage delays the first token, the time per token stays",
        evidence=[
            f"time to first token: {_course(depth, 'ttft_ms')}",
            f"time per token: {_course(depth, 'tpot_ms')}",
            f"one stage more adds {depth.ttft_ms_per_stage:.4g} ms to the first token",
        ],
        action=f"fewer stages than {last.stages}; data parallel replicas in place of some of the stages",
        cost=f"memory: each stage holds more layers (most with {first.stages}), each replica a whole model",
        no_cure="more microbatches or requests in flight: one forward pass still crosses every stage",
    )


def status(measured: Measured, found: Sequence[WaitFinding]) -> Status:
    """What dominates."""
    if not found:
        return "unknown" if measured.unknown >= UNKNOWN else "nothing named"
    first = found[0]
    if first.kind == "work":
        return "work" if first.where == "stage 0" else "bubble"
    return "imbalance" if first.kind == "neighbour" else first.kind


def sentence(measured: Measured, found: Sequence[WaitFinding]) -> str:
    """The result in one sentence."""
    if found:
        words = [
            finding.sentence + (f" ({percent(finding.share)} of the stages' time)" if finding.share else "")
            for finding in found
        ]
        return "; ".join(words)
    if not measured.stages:
        return "the first token does not come later with each stage while the time per token stays"
    if measured.unknown >= UNKNOWN:
        return f"not decided: {percent(measured.unknown)} of the stages' time is unknown"
    return "nothing to name: the stages compute, or wait no more than such a pipeline must"


def bubble_words(bubble: BubbleCheck) -> str:
    """The comparison that comes first."""
    rounds = f" in {bubble.rounds} rounds" if bubble.rounds > 1 else ""
    words = "the bubble explains it" if bubble.verdict == "agree" else "much more than the bubble"
    return (
        f"bubble of {bubble.stages} equal stages and {bubble.units} units{rounds}: "
        f"{percent(bubble.estimated_idle)} idle; measured {percent(bubble.measured_idle)}: {words}"
    )


def percent(part: float) -> str:
    """`43.2 %`."""
    return f"{100 * part:.1f} %"


def ms(time_ns: float) -> str:
    """`26.7 ms`, in the unit that it fills."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if time_ns >= factor:
            return f"{time_ns / factor:.4g} {unit}"
    return f"{time_ns:.4g} ns"


MOST_SHOWN = 8


def _listed(words: Sequence[str]) -> str:
    shown = ", ".join(words[:MOST_SHOWN])
    return shown + (f" and {len(words) - MOST_SHOWN} more" if len(words) > MOST_SHOWN else "")


def _each(stages: Sequence[StageWaits]) -> str:
    ordered = sorted(stages, key=lambda stage: (-stage.unit_ns, stage.stage))
    return _listed([f"stage {stage.stage} {ms(stage.unit_ns)}" for stage in ordered])


def _parts(stages: Sequence[StageWaits], name: str) -> str:
    return _listed([f"stage {stage.stage} {percent(stage.by_stage.get(name, 0.0))}" for stage in stages])


def _of_boundary(stages: Sequence[StageWaits], pair: str) -> str:
    return _listed([f"stage {stage.stage} {percent(stage.by_boundary.get(pair, 0.0))}" for stage in stages])


def _course(depth: DepthReading, name: str) -> str:
    return _listed([f"{getattr(point, name):.4g} ms with {point.stages}" for point in depth.points])
