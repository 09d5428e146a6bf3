"""Plain PyTorch: a DeviceMesh of the user's own (torch.distributed.device_mesh, torch 2.13.0)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from topocheck.engines.engine import Engine, Sizes, all_sizes, as_launched, axes_of, block_slots
from topocheck.engines.layers import as_declared, check_split, contiguous, declared_counts
from topocheck.engines.layout import LayerSplit, Layout
from topocheck.errors import LayoutError, UnknownLayoutError

__all__ = ["ENGINE"]

TITLE = "PyTorch DeviceMesh"
SIZES = ("pipeline", "data", "data_replicate", "data_shard", "context", "sequence", "tensor")
SHORT = {
    "pp": "pipeline",
    "dp": "data",
    "dp_replicate": "data_replicate",
    "dp_shard": "data_shard",
    "cp": "context",
    "sp": "sequence",
    "tp": "tensor",
}


def layout(sizes: Sizes, version: str | None, order: str | None) -> Layout:
    """A row-major mesh; `order` is mesh_dim_names, slowest first: `pp,dp,tp` or `pipeline,data,tensor`.

    A mesh has the order in which its script names the dimensions, so that with several dimensions it
    cannot be known without `order`: UnknownLayoutError.
    """
    size = all_sizes(TITLE, sizes, SIZES)
    wide = [name for name in SIZES if size[name] > 1]
    names = wide if order is None else _names(order)
    if order is None and len(wide) > 1:
        raise UnknownLayoutError(
            "A DeviceMesh has the order of its mesh_dim_names: give order, slowest first, such as "
            + ",".join(next(short for short, name in SHORT.items() if name == axis) for axis in wide)
        )
    missing = [name for name in wide if name not in names]
    if missing:
        raise LayoutError(f"{TITLE}: order {str(order)[:80]!r} does not have {', '.join(missing)}")
    return Layout("torch", version, axes_of(size, names))


def _names(order: str) -> list[str]:
    names = [SHORT.get(name, name) for name in re.split(r"[\s,]+", order.strip().lower())]
    unknown = [name for name in names if name not in SIZES]
    if unknown or len(set(names)) != len(names):
        raise LayoutError(f"{TITLE}: order {order[:80]!r} must be of {', '.join(SHORT)}, each once at most")
    return names


def split(
    layers: int, stages: int, override: str | None, version: str | None, options: Mapping[str, object]
) -> LayerSplit:
    """torch.distributed.pipelining has no rule: `override` is a count for each stage. No options."""
    check_split(TITLE, layers, stages, options)
    if override is not None:
        counts = declared_counts("layers", override, layers, stages)
        return contiguous(counts, as_declared("layers", counts))
    if stages > 1:
        raise UnknownLayoutError("torch.distributed.pipelining splits as the script says: give layers")
    return contiguous([layers], "one stage")


ENGINE = Engine(
    name="torch",
    title=TITLE,
    sizes=SIZES,
    newest="2.13.0",
    orders=True,
    layout=layout,
    split=split,
    slots=block_slots,
    gpus=as_launched,
)
