"""Arithmetic that layer splits share: counts to ranges, overrides that give a count for each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from topocheck.engines.layout import LayerSplit
from topocheck.errors import LayoutError

__all__ = ["as_declared", "check_split", "chunked", "contiguous", "declared_counts", "even_counts", "number"]

Range = tuple[int, int]


def _ranges(counts: Sequence[int]) -> tuple[Range, ...]:
    return tuple(pairwise(accumulate(counts, initial=0)))


def contiguous(counts: Sequence[int], rule: str) -> LayerSplit:
    """Each stage holds one range of layers."""
    return LayerSplit(_ranges(counts), rule=rule)


def as_declared(name: str, counts: Sequence[int]) -> str:
    """Rule of a split that was declared: `VLLM_PP_LAYER_PARTITION=15,16,16,14`."""
    return f"{name}={','.join(map(str, counts))}"


def chunked(counts: Sequence[int], stages: int, rule: str, *, v_shaped: bool = False) -> LayerSplit:
    """Virtual stages with these counts, dealt over the stages; one range a stage if there are none more.

    Looped, virtual stage k is chunk k // stages of stage k % stages (Megatron's interleaving). V-shaped,
    stage s holds the virtual stages s and 2 * stages - 1 - s (ZBV, DualPipeV).
    """
    ranges = _ranges(counts)
    if len(counts) == stages:
        return LayerSplit(ranges, rule=rule)
    held = [ranges[stage::stages] for stage in range(stages)]
    if v_shaped:
        held = [(ranges[stage], ranges[2 * stages - 1 - stage]) for stage in range(stages)]
    return LayerSplit(ranges, chunks=tuple(held), rule=rule)


def even_counts(layers: int, stages: int) -> list[int]:
    """One layer more for each of the first `layers % stages` stages (torch.tensor_split)."""
    base, rest = divmod(layers, stages)
    return [base + (stage < rest) for stage in range(stages)]


def declared_counts(name: str, override: str, layers: int, stages: int) -> list[int]:
    """Read `15,16,16,14`: one count for each stage, as engines read it (blanks are allowed).

    Raises LayoutError, with both numbers, if the entries are no integers, not one a stage, or do not sum
    to the model's layers. Negative counts pass: the engines let them pass.
    """
    try:
        counts = [int(part) for part in override.split(",")]
    except ValueError:
        raise LayoutError(f"{name} must be integers separated by commas, not {override[:80]!r}") from None
    if len(counts) != stages:
        raise LayoutError(f"{name} has {len(counts)} entries, the pipeline has {stages} stages")
    if sum(counts) != layers:
        raise LayoutError(f"{name} sums to {sum(counts)}, the model has {layers} layers")
    return counts


def check_split(
    title: str, layers: int, stages: int, options: Mapping[str, object], keys: Sequence[str] = ()
) -> None:
    """Raise LayoutError for no layers, no stages or an option that the engine's split does not take."""
    if layers < 1 or stages < 1:
        raise LayoutError(f"{title}: {layers} layers on {stages} stages are no pipeline")
    for key in options:
        if key not in keys:
            known = ", ".join(keys) or "none"
            raise LayoutError(f"{title}: the layer split has no option {key!r}; it takes {known}")


def number(options: Mapping[str, object], key: str, least: int = 0) -> int | None:
    """An option that is an integer, None where it is not given."""
    value = options.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise LayoutError(f"{key} must be an integer of {least} or more, not {value!r}")
    return value
