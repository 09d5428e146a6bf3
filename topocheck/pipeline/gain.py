"""The gain that the arithmetic of bubbles predicts between two runs, and what a measured gain says beside it.

With equal work on the same GPUs throughput is in proportion to occupancy: m / (m + p - 1) for p equal stages
and m microbatches. From m1 to m2 microbatches that is (m1 + p - 1) / m1 : (m2 + p - 1) / m2. What all-reduces
inside TP and transfers between stages cost is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from topocheck.pipeline.bubble import Bubble, measure
from topocheck.pipeline.schedule import MOST_MICROBATCHES, MOST_STAGES, Pipeline
from topocheck.pipeline.sweep import percent
from topocheck.record import NOT_MEASURED, Record, StagePart

__all__ = ["Prediction", "judged", "layer_counts", "predict"]

NEAR = 0.2
"""A gain within a fifth of the predicted one is said to be as predicted: one run each has noise."""
LITTLE = 0.005
"""A gain below this is none."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Throughput after as a multiple of that before; None with the reason in `words`."""

    ratio: Fraction | None
    words: str
    """What it rests on."""


def layer_counts(record: Record) -> tuple[int, ...] | None:
    """Number of layers of each stage; None where one is not known."""
    if isinstance(record.stages, str):
        return None
    counts = tuple(_layers(stage) for stage in record.stages)
    return None if None in counts else tuple(count or 0 for count in counts)


def _layers(stage: StagePart) -> int | None:
    """Layers in `0..15` or `0..3, 8..11`; None for other words."""
    total = 0
    for part in stage.layers.split(", ") if stage.layers != "none" else ():
        first, _, last = part.partition("..")
        if len(part) > 20 or not (first.isdecimal() and (last or first).isdecimal()):
            return None
        total += int(last or first) - int(first) + 1
    return total


def predict(before: Record, after: Record, names: tuple[str, str]) -> Prediction:
    """What the bubble alone makes of the change. Where sizes stay, a stage takes the time of its layers."""
    sizes = [_sizes(record) for record in (before, after)]
    for size, name in zip(sizes, names, strict=True):
        if isinstance(size, str):
            return Prediction(None, f"no prediction: {size} in {name}")
    recut = sizes[0] == sizes[1]
    bubbles = [
        _bubble(record, size, by_layers=recut)
        for record, size in zip((before, after), sizes, strict=True)
        if not isinstance(size, str)
    ]
    first, second = bubbles
    words = f"idle by the arithmetic of bubbles: {_idle(first)} before, {_idle(second)} after"
    return Prediction(second.occupancy / first.occupancy, words)


def _sizes(record: Record) -> tuple[int, int] | str:
    """Stages and microbatches, or what of them is not known."""
    stages, count = record.parallelism.pipeline, record.parallelism.microbatches
    if isinstance(stages, str):
        return f"the number of stages is {NOT_MEASURED}"
    if stages == 1:
        return 1, 1  # one stage never waits for another
    if isinstance(count, str):
        return f"the number of microbatches is {NOT_MEASURED}"
    if not (1 <= stages <= MOST_STAGES and 1 <= count <= MOST_MICROBATCHES):
        return f"{stages} stages and {count} microbatches are out of reach"
    return stages, count


def _bubble(record: Record, sizes: tuple[int, int], *, by_layers: bool) -> Bubble:
    """The bubble of a record."""
    layers, (stages, count) = layer_counts(record), sizes
    forward = (Fraction(1),) * stages
    if by_layers and layers is not None and len(layers) == stages and 0 not in layers:
        forward = tuple(map(Fraction, layers))
    return measure(Pipeline(forward=forward, microbatches=count))


def _idle(bubble: Bubble) -> str:
    pipeline = bubble.pipeline
    if pipeline.stages == 1:
        return "none with 1 stage"
    return f"{percent(bubble.idle)} with {pipeline.stages} stages and {pipeline.microbatches} microbatches"


def judged(measured: float, predicted: float, *, recut: bool) -> str:
    """What both gains say together. `recut`: the sizes of the axes changed, not the microbatches alone."""
    besides = (
        "what TP's all-reduces and the transfers between stages cost is not in the prediction"
        if recut
        else "look at the balance of the stages, then at the boundary (topocheck waits)"
    )
    if abs(predicted - 1) <= LITTLE:
        return (
            "nothing to gain, and nothing gained"
            if abs(measured - 1) <= LITTLE
            else f"this is not fill and drain; {besides}"
        )
    share = (measured - 1) / (predicted - 1)
    if abs(share - 1) <= NEAR:
        return "fill and drain explain it"
    if predicted > 1 and share > 1:
        return "more came: something besides fill and drain changed as well"
    if predicted > 1:
        return f"less came: fill and drain are not the whole of it; {besides}"
    better = "better" if share < 1 else "worse"
    return f"it went {better} than fill and drain alone would have it; {besides}"
