"""Megatron-Core, and what is built on it.

Facts from megatron/core/parallel_state.py (RankGenerator, initialize_model_parallel) of core 0.20.0.
The layer split is `topocheck.engines.megatron_layers`.
"""

from __future__ import annotations

from topocheck.engines.engine import Engine, Sizes, all_sizes, as_launched, block_slots
from topocheck.engines.layout import Axes, Layout, Lines
from topocheck.engines.megatron_layers import OPTIONS, modules, split
from topocheck.errors import LayoutError

__all__ = ["ENGINE"]

TITLE = "Megatron-Core"
SIZES = ("tensor", "context", "expert", "expert_tensor", "data", "pipeline")
DEFAULT_ORDER = "tp-cp-ep-dp-pp"
DENSE = {"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline"}
EXPERT = {"tp": "expert_tensor", "ep": "expert", "dp": "expert_data", "pp": "pipeline"}


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """Two generators read one order string whose leftmost token varies fastest.

    Dense ranks have tp, cp, dp, pp; expert ranks have tp (the expert tensor size), ep, dp, pp, where dp
    follows from the world size. `--use-tp-pp-dp-mapping` is the order tp-cp-ep-pp-dp.
    """
    size = all_sizes(TITLE, sizes, SIZES)
    size["expert_tensor"] = sizes.get("expert_tensor", size["tensor"])
    size["expert_data"] = _expert_data(size)
    text = order or DEFAULT_ORDER
    tokens = _tokens(text, size)
    dense = tuple((DENSE[token], size[DENSE[token]]) for token in reversed(tokens) if token in DENSE)
    expert = tuple((EXPERT[token], size[EXPERT[token]]) for token in reversed(tokens) if token in EXPERT)
    _check_pipelines(text, size, dense, expert)
    extra = _combined(dense)
    if size["expert"] > 1 or size["expert_tensor"] != size["tensor"]:
        extra |= {kind: Lines(expert, (kind,)) for kind in ("expert_tensor", "expert", "expert_data")}
        if size["expert"] > 1 and size["expert_tensor"] > 1:
            extra["tensor_expert"] = Lines(expert, ("expert_tensor", "expert"))
    return Layout("megatron", version, dense, extra)


def _expert_data(size: Sizes) -> int:
    world = size["tensor"] * size["context"] * size["data"] * size["pipeline"]
    model = size["expert_tensor"] * size["expert"] * size["pipeline"]
    if world % model:
        raise LayoutError(
            f"Megatron-Core: world_size ({world}) is not divisible by "
            f"expert_tensor_model_pipeline_parallel size ({model})"
        )
    return world // model


def _tokens(order: str, size: Sizes) -> list[str]:
    """Tokens fastest first; those that are left out come last, which only a size of 1 may."""
    names = DENSE | {"ep": "expert"}
    tokens = order.lower().split("-")
    if set(tokens) - set(names) or len(set(tokens)) != len(tokens):
        raise LayoutError(
            f"Megatron-Core: order {order[:80]!r} must be of {'-'.join(names)}, each once at most"
        )
    for token, name in names.items():
        if token not in tokens:
            if size[name] > 1:
                raise LayoutError(
                    f"Megatron-Core: the size of ({token}) is ({size[name]}), "
                    f"but the order ({order}) does not have it"
                )
            tokens.append(token)
    return tokens


def _check_pipelines(order: str, size: Sizes, dense: Axes, expert: Axes) -> None:
    """The two hard assertions of initialize_model_parallel."""
    if not order.lower().endswith("pp") and size["pipeline"] > 1 and size["expert_data"] != size["data"]:
        raise LayoutError(
            "Megatron-Core: when not using pp-last rank ordering, the data parallel size of the attention "
            f"and moe layers must be the same; with order {order} they are {size['data']} and "
            f"{size['expert_data']}"
        )
    ours, theirs = Lines(dense, ("pipeline",)), Lines(expert, ("pipeline",))
    if (ours.members, ours.firsts) != (theirs.members, theirs.firsts):
        raise LayoutError(
            "Megatron-Core: pipeline parallel groups are expected to be the same for Non-Expert and Expert "
            f"part; with order {order} they are not"
        )


def _combined(dense: Axes) -> dict[str, Lines]:
    """Groups over two axes that Megatron builds besides, where both have more than one rank."""
    wide = {name for name, size in dense if size > 1}
    pairs = (("data", "context"), ("tensor", "context"), ("tensor", "pipeline"))
    extra = {"_".join(pair): Lines(dense, pair) for pair in pairs if wide.issuperset(pair)}
    if "pipeline" in wide:
        extra["embedding"] = Lines(dense, ("pipeline",), ends=True)
    return extra


ENGINE = Engine(
    name="megatron",
    title=TITLE,
    sizes=SIZES,
    newest="0.20.0",
    orders=True,
    options=OPTIONS,
    layout=layout,
    split=split,
    slots=block_slots,
    modules=modules,
    gpus=as_launched,
)
