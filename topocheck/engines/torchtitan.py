"""torchtitan.

Facts from torchtitan/distributed/parallel_dims.py and pipeline_parallel.py at commit b5bcd76.
"""

from __future__ import annotations

from collections.abc import Mapping

from topocheck.engines.engine import (
    Engine,
    Option,
    Sizes,
    all_sizes,
    as_launched,
    axes_of,
    block_slots,
    no_order,
)
from topocheck.engines.layers import (
    as_declared,
    check_split,
    chunked,
    contiguous,
    declared_counts,
    even_counts,
    number,
)
from topocheck.engines.layout import LayerSplit, Layout, Lines
from topocheck.engines.modules import Modules, at_the_ends
from topocheck.errors import LayoutError

__all__ = ["ENGINE"]

TITLE = "torchtitan"
ORDER = ("pipeline", "data_replicate", "data_shard", "context", "tensor")
SIZES = (*ORDER, "expert")
FIRST = "first_stage_less_layers"
LAST = "last_stage_less_layers"
PER_STAGE = "layers_per_stage"
VIRTUAL = "virtual_stages_per_rank"
STYLE = "style"
OPTIONS = (
    Option(FIRST, "number"),
    Option(LAST, "number"),
    Option(PER_STAGE, "number"),
    Option(VIRTUAL, "number", "virtual_stages"),
    Option(STYLE, "text"),
)
NAMES = tuple(option.name for option in OPTIONS)


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """Mesh pp, dp_replicate, dp_shard, cp, tp. Experts see pp, dp_replicate, efsdp, ep, with ep fastest.

    An expert group therefore overlaps tp first, then cp, then dp_shard. `data` is both data axes together,
    `data_shard_context` what FSDP shards over.
    """
    no_order(TITLE, order)
    size = all_sizes(TITLE, sizes, SIZES)
    axes = axes_of(size, ORDER)
    extra = {}
    if size["data_replicate"] * size["data_shard"] > 1:
        extra["data"] = Lines(axes, ("data_replicate", "data_shard"))
    if size["data_shard"] > 1 and size["context"] > 1:
        extra["data_shard_context"] = Lines(axes, ("data_shard", "context"))
    if size["expert"] > 1:
        extra |= _sparse(size)
    return Layout("torchtitan", version, axes, extra)


def _sparse(size: Sizes) -> dict[str, Lines]:
    inner, expert = size["data_shard"] * size["context"] * size["tensor"], size["expert"]
    if inner % expert:
        raise LayoutError(f"torchtitan: dp_shard x cp x tp = {inner} is not divisible by ep {expert}")
    outer = size["pipeline"] * size["data_replicate"]
    axes = (("outer", outer), ("expert_data", inner // expert), ("expert", expert))
    return {kind: Lines(axes, (kind,)) for kind in ("expert", "expert_data")}


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """generate_llm_fqn_per_model_part: embedding and head count as layers of the first and last stage.

    Options, by the names of the settings without `pipeline_parallel_`: first_stage_less_layers and
    last_stage_less_layers (1 each by default), layers_per_stage (integer, gives the number of virtual
    stages), and by the schedule virtual_stages_per_rank (1 for single-stage schedules, else 2) and style
    (`loop`, or `v` for ZBV and DualPipeV). `override` is a count for each virtual stage
    (module_fqns_per_model_part).
    """
    check_split(TITLE, layers, stages, options, NAMES)
    ahead, after = (_weight(options, key) for key in (FIRST, LAST))
    virtual = stages * _chunks(layers + ahead + after, stages, options)
    if override is not None:
        counts = declared_counts("layers", override, layers, virtual)
        rule = as_declared("layers", counts)
    else:
        counts = _weighted(layers, virtual, ahead, after)
        rule = f"torchtitan: {ahead} layers less on the first stage, {after} on the last"
    if virtual == stages:
        return contiguous(counts, rule)
    return chunked(counts, stages, rule, v_shaped=_v_shaped(options, virtual // stages))


def _weight(options: Mapping[str, object], key: str) -> int:
    value = number(options, key)
    return 1 if value is None else value


def _chunks(items: int, stages: int, options: Mapping[str, object]) -> int:
    """Virtual stages a rank."""
    per_rank, per_stage = number(options, VIRTUAL, least=1), number(options, PER_STAGE, least=1)
    if per_stage is None:
        return per_rank or 1
    virtual = -(-items // per_stage)
    if virtual % stages:
        raise LayoutError(
            f"torchtitan: {virtual} virtual stages of {per_stage} layers are not divisible by {stages} stages"
        )
    if per_rank is not None and per_rank * stages != virtual:
        raise LayoutError(
            f"torchtitan: layers_per_stage {per_stage} makes {virtual // stages} virtual stages per rank, "
            f"not {per_rank}"
        )
    return virtual // stages


def _v_shaped(options: Mapping[str, object], chunks: int) -> bool:
    style = options.get(STYLE, "loop")
    if style not in {"loop", "v"}:
        raise LayoutError(f"torchtitan: style must be loop or v, not {style!r}")
    if style == "v" and chunks != 2:
        raise LayoutError(f"torchtitan: v schedules assume 2 stages per rank, got {chunks}")
    return style == "v"


def _weighted(layers: int, stages: int, ahead: int, after: int) -> list[int]:
    if stages == 1:
        return [layers]
    least = (layers + ahead + after) // stages
    if least < max(ahead, after, 1):
        raise LayoutError(
            f"torchtitan: {layers} layers on {stages} stages leave {least} a stage, too few for "
            f"{FIRST} {ahead} and {LAST} {after}"
        )
    counts = even_counts(layers + ahead + after, stages)
    counts[0] -= ahead
    counts[-1] -= after
    return counts


def modules(
    stages: int, split: LayerSplit | None, tied: bool | None, options: Mapping[str, object]
) -> Modules:
    """tok_embeddings on the first virtual stage, norm and output on the last; a v schedule folds it back."""
    return at_the_ends(stages, 0 if options.get(STYLE) == "v" else stages - 1, tied)


ENGINE = Engine(
    name="torchtitan",
    title=TITLE,
    sizes=SIZES,
    newest="b5bcd76",
    options=OPTIONS,
    layout=layout,
    split=split,
    slots=block_slots,
    modules=modules,
    gpus=as_launched,
)
