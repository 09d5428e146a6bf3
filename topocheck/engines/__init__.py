"""Engines: rank layout, layer split and placement rule of each, by version.

A package adds an engine of its own by an entry point of the group `topocheck.engines`. The name of the
entry point is the engine's name in a plan, its value an `Engine`:

    [project.entry-points."topocheck.engines"]
    ourengine = "our_package.topocheck_engine:ENGINE"

    from topocheck.engines.engine import Engine, all_sizes, as_launched, axes_of, block_slots
    from topocheck.engines.layers import contiguous, even_counts
    from topocheck.engines.layout import Layout
    from topocheck.engines.modules import language_model

    AXES = ("pipeline", "data", "tensor")               # slowest varying first

    def layout(sizes, version, order):                  # raise LayoutError for sizes that are refused
        return Layout("ourengine", version, axes_of(all_sizes("Our engine", sizes, AXES), AXES))

    def split(layers, stages, override, version, options):
        return contiguous(even_counts(layers, stages), "Our engine: the first stages take the remainder")

    ENGINE = Engine(
        name="ourengine", title="Our engine", sizes=AXES, newest="1.0",
        layout=layout, split=split, slots=block_slots, modules=language_model, gpus=as_launched,
    )

Sizes and axes have the names of `topocheck.plan.Parallel`. Fields of `Engine` that are left out say that
nothing is known, and nothing is then claimed. The package is imported when a plan names its engine, and
at no other time; a name that topocheck itself has stays topocheck's.
"""

from __future__ import annotations

import re

from topocheck.engines.accelerate import ENGINE as ACCELERATE
from topocheck.engines.deepspeed import ENGINE as DEEPSPEED
from topocheck.engines.engine import Engine
from topocheck.engines.megatron import ENGINE as MEGATRON
from topocheck.engines.plugins import offered, third_party
from topocheck.engines.sglang import ENGINE as SGLANG
from topocheck.engines.tensorrt_llm import ENGINE as TENSORRT_LLM
from topocheck.engines.torch import ENGINE as TORCH
from topocheck.engines.torchtitan import ENGINE as TORCHTITAN
from topocheck.engines.vllm import ENGINE as VLLM
from topocheck.errors import LayoutError
from topocheck.spelling import ENGINE_NAMES, suggest

__all__ = ["ENGINES", "Engine", "Engines", "find"]


class Engines(dict[str, Engine]):
    """Engines by the name that a plan gives: topocheck's own; looked up, those of other packages too."""

    def __missing__(self, name: str) -> Engine:
        """The engine of another package. Raises KeyError, LayoutError for one that cannot be loaded."""
        engine = third_party(name)
        if engine is None:
            raise KeyError(name)
        return engine


ENGINES = Engines(
    {
        engine.name: engine
        for engine in (VLLM, SGLANG, TENSORRT_LLM, MEGATRON, DEEPSPEED, TORCH, TORCHTITAN, ACCELERATE)
    }
)
"""topocheck's own engines, and by name those of other packages."""


def find(name: str) -> Engine:
    """The engine of that name, in any case and common spelling: `vLLM`, `trtllm`, `megatron-lm`.

    Raises LayoutError, with what was probably meant, for a name that is none.
    """
    plain = _plain(name)
    if plain == "nemo":
        raise LayoutError("NeMo trains on Megatron-Core's groups: name the engine 'megatron'")
    names = {_plain(other): known for other, known in ENGINE_NAMES.items()}
    names |= {_plain(known): known for known in ENGINES}
    if plain in names:
        return ENGINES[names[plain]]
    if (other := third_party(name)) is not None:
        return other
    meant = suggest(name, (*ENGINES, *offered()), ENGINE_NAMES)
    hint = f"did you mean {meant!r}?" if meant else f"known are {', '.join(ENGINES)}"
    raise LayoutError(f"unknown engine {name[:100]!r}: {hint}")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
