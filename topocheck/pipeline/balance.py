"""How evenly stages share a model, and the partition that shares it best, as the engine's own override.

What a stage carries is counted on its fullest rank: bytes held, bytes read with each token, parameters, or
time, where stages were measured. The best partition is exact (`topocheck.pipeline.partition`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from math import lcm
from typing import Literal, get_args

from topocheck.engines import Engine
from topocheck.engines.layout import LayerSplit
from topocheck.errors import InternalError, LayoutError, UsageError
from topocheck.pipeline.override import Override, override_of
from topocheck.pipeline.partition import Load, Room, best_counts
from topocheck.pipeline.weights import Division, ModelWeights, Weights, rank_weights, stage_weights

__all__ = ["MEASURES", "Balance", "Cut", "Job", "Measure", "Memory", "Stage", "balance", "imbalance"]

Measure = Literal["bytes", "read", "parameters", "time"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of the GPUs, in bytes."""

    gpu: int
    reserve: int
    """What weights must leave: KV cache, activations, buffers."""

    @property
    def most(self) -> int:
        """Bytes of weights that a rank may hold."""
        return self.gpu - self.reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model on an engine's stages."""

    model: ModelWeights
    engine: Engine
    version: str | None
    stages: int
    division: Division
    options: Mapping[str, object] = field(default_factory=dict)
    """Options of the engine's layer split."""
    split: LayerSplit | None = None
    """Layers of each stage as they are; None where the engine refuses them."""
    refusal: str = ""
    """Why it refuses them."""
    mtp: bool = False
    """Layers for multi-token prediction count, on the last stage."""
    memory: Memory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one stage carries."""

    ranges: Ranges
    """Layers from 0, end exclusive; several with virtual stages."""
    ends: tuple[str, ...]
    """What it holds beside layers: embedding, norm, head, other."""
    weights: Weights
    """Of the whole stage, with its ends."""
    rank_parameters: int
    """Of its fullest rank."""
    rank_bytes: int
    load: Fraction
    """In the measure: bytes or parameters of the fullest rank, or ns."""

    @property
    def layers(self) -> int:
        """Number of its layers."""
        return sum(end - start for start, end in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One partition of the layers."""

    rule: str
    """Engine's rule or override that gives it."""
    stages: tuple[Stage, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Layers of each stage."""
        return tuple(stage.layers for stage in self.stages)

    @property
    def heaviest(self) -> int:
        """The stage that carries most, the first of several."""
        return max(range(len(self.stages)), key=lambda stage: self.stages[stage].load)

    @property
    def most(self) -> Fraction:
        """What the heaviest stage carries."""
        return self.stages[self.heaviest].load

    @property
    def imbalance(self) -> Fraction:
        """Part of all stages' load that the lighter ones lack of the heaviest: 1 - mean / most."""
        return imbalance([stage.load for stage in self.stages])

    def too_full(self, memory: Memory | None) -> tuple[int, ...]:
        """Stages whose fullest rank holds more weights than it may."""
        if memory is None:
            return ()
        return tuple(n for n, stage in enumerate(self.stages) if stage.rank_bytes > memory.most)


def imbalance(loads: Sequence[Fraction | int]) -> Fraction:
    """1 - mean / most; 0 where nothing is carried."""
    most = max(loads)
    return 1 - Fraction(sum(loads)) / (most * len(loads)) if most else Fraction(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The partition as it is and the best one."""

    job: Job
    measure: Measure
    current: Cut | None
    """None where the engine refuses it."""
    best: Cut | None
    """The best that fits; None where none fits, and with virtual stages. Equal loads keep the current cut."""
    override: Override | None
    """What gives `best`; None where the current partition is as good."""
    refused: Cut | None = None
    """The partition that would balance better than `best` and whose stages do not fit."""

    @property
    def fits(self) -> bool | None:
        """Whether some partition fits; None where no memory is given."""
        if self.job.memory is None:
            return None
        cuts = [cut for cut in (self.best, self.current) if cut is not None]
        return any(not cut.too_full(self.job.memory) for cut in cuts)


def balance(job: Job, measure: Measure, times_ns: Sequence[Fraction] | None = None) -> Balance:
    """The partition as it is and the best one. `times_ns` are those of the current stages, for `time`.

    Raises UsageError for times that are not one a stage, for a partition with a negative count, and where
    measured times belong to a partition that is not known; LayoutError for sizes that do not divide.
    """
    pieces = _Pieces(job)
    loads = pieces.loads(measure, times_ns)
    current = None if job.split is None else pieces.cut(_held(job.split, job.stages), job.split.rule, loads)
    if job.stages > len(job.model.layers):
        raise UsageError(
            f"{len(job.model.layers)} layers on {job.stages} stages leave a stage empty: use fewer stages"
        )
    if job.split is not None and job.split.chunks:
        return Balance(job=job, measure=measure, current=current, best=None, override=None)
    room = None if job.memory is None else Room(pieces.loads("bytes", None).load, job.memory.most)
    free = pieces.proposal(best_counts(loads.load, job.stages), loads)
    best = free if room is None else pieces.proposal(best_counts(loads.load, job.stages, room), loads)
    kept = (
        current is not None
        and not current.too_full(job.memory)
        and 0 not in current.counts
        and (best is None or current.most <= best.most)
    )
    cut = current if kept else best
    refused = (
        free
        if free is not None and free.too_full(job.memory) and (cut is None or free.most < cut.most)
        else None
    )
    override = None if kept or best is None else _proven(job, best.counts)
    return Balance(job=job, measure=measure, current=current, best=cut, override=override, refused=refused)


def _held(split: LayerSplit, stages: int) -> tuple[Ranges, ...]:
    held = tuple(split.held(stage) for stage in range(stages))
    for stage, ranges in enumerate(held):
        if any(end < start for start, end in ranges):
            raise UsageError(f"stage {stage} has a negative number of layers by {split.rule}")
    return held


def _proven(job: Job, counts: tuple[int, ...]) -> Override:
    """The override of these counts, which the engine's own rule reads as these counts."""
    override = override_of(job.engine.name, counts, mtp=len(job.model.mtp) if job.mtp else 0)
    text = override.value if job.engine.name in {"vllm", "sglang", "tensorrt_llm", "megatron"} else None
    listed = ",".join(map(str, counts))
    split = job.engine.split(len(job.model.layers), job.stages, text or listed, job.version, {})
    if split.ranges != tuple(pairwise(accumulate(counts, initial=0))):
        raise InternalError(f"{override.line} does not give the layers {listed}")
    return override


@dataclass(frozen=True, slots=True)
class _Loads:
    """Loads in whole parts of a unit, and how many parts make one."""

    load: Load
    parts: int = 1


class _Pieces:
    """Layers and ends of a job's model, with what a rank holds of each."""

    def __init__(self, job: Job) -> None:
        self.job = job
        model = job.model
        ranks = {weights: rank_weights(weights, job.division) for weights in set(model.layers)}
        self.layers = [ranks[weights] for weights in model.layers]
        tail = model.norm + model.head + sum(model.mtp if job.mtp else (), Weights())
        if job.stages > 1:
            tail += model.tied_head
        self.first = rank_weights(model.embedding + model.other, job.division)
        self.last = rank_weights(tail, job.division)

    @cached_property
    def ends(self) -> tuple[int, int]:
        """Stages that hold the embedding and the head: the engine's rule, else the first and the last."""
        job = self.job
        modules = job.engine.modules(job.stages, job.split, job.model.tied, job.options) or ()
        first = next((n for n, names in enumerate(modules) if "embedding" in names), 0)
        return first, next((n for n, names in enumerate(modules) if "head" in names), job.stages - 1)

    def loads(self, measure: Measure, times_ns: Sequence[Fraction] | None) -> _Loads:
        """What each layer and each end carries."""
        if measure == "time":
            return self._timed(times_ns or ())
        if measure == "parameters":
            layers = [weights.parameters for weights in self.layers]
            return _Loads(Load(layers, self.first.parameters, self.last.parameters))
        first = 0 if measure == "read" else self.first.bytes
        return _Loads(Load([weights.bytes for weights in self.layers], first, self.last.bytes))

    def _timed(self, times_ns: Sequence[Fraction]) -> _Loads:
        """Each layer takes its part of its stage's time, the ends with it."""
        job = self.job
        if job.split is None:
            raise LayoutError(
                f"times belong to a partition that the engine takes, and it says: {job.refusal}"
            )
        held = _held(job.split, job.stages)
        if len(times_ns) != job.stages:
            raise UsageError(
                f"{len(times_ns)} stage times for {job.stages} stages: give one time for each stage"
            )
        each: dict[int, Fraction] = {}
        for stage, (ranges, time) in enumerate(zip(held, times_ns, strict=True)):
            layers = [layer for start, end in ranges for layer in range(start, end)]
            if not layers:
                raise UsageError(f"stage {stage} has no layers to divide its time among")
            each |= dict.fromkeys(layers, time / len(layers))
        parts = lcm(*(time.denominator for time in each.values()))
        return _Loads(Load([int(each[layer] * parts) for layer in sorted(each)]), parts)

    def proposal(self, counts: tuple[int, ...] | None, loads: _Loads) -> Cut | None:
        """The partition with these counts."""
        if counts is None:
            return None
        ranges = tuple((pair,) for pair in pairwise(accumulate(counts, initial=0)))
        return self.cut(ranges, ",".join(map(str, counts)), loads, ends=(0, self.job.stages - 1))

    def cut(
        self, held: Sequence[Ranges], rule: str, loads: _Loads, ends: tuple[int, int] | None = None
    ) -> Cut:
        """What each stage carries with these ranges."""
        stages = list(self._stages(held, loads, *(ends or self.ends)))
        return Cut(rule=rule, stages=tuple(stages))

    def _stages(self, held: Sequence[Ranges], loads: _Loads, first: int, last: int) -> Iterator[Stage]:
        for stage, ranges in enumerate(held):
            layers = [layer for start, end in ranges for layer in range(start, end)]
            ends = [*([self.first] * (stage == first)), *([self.last] * (stage == last))]
            held_by_rank = [*(self.layers[layer] for layer in layers), *ends]
            load = sum(loads.load.layers[layer] for layer in layers)
            load += loads.load.first * (stage == first) + loads.load.last * (stage == last)
            yield Stage(
                ranges=tuple(pair for pair in ranges if pair[0] < pair[1]),
                ends=self._ends(first=stage == first, last=stage == last),
                weights=stage_weights(
                    self.job.model, ranges, first=stage == first, last=stage == last, mtp=self.job.mtp
                ),
                rank_parameters=sum(weights.parameters for weights in held_by_rank),
                rank_bytes=sum(weights.bytes for weights in held_by_rank),
                load=Fraction(load, loads.parts),
            )

    def _ends(self, *, first: bool, last: bool) -> tuple[str, ...]:
        model = self.job.model
        names = {
            "embedding": first,
            "other": first and bool(model.other.blocks),
            "norm": last,
            "head": last,
            "mtp": last and self.job.mtp and bool(model.mtp),
        }
        return tuple(name for name, held in names.items() if held)
