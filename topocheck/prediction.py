"""Where the engine's formula puts the ranks, and what of the evidence it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topocheck.column import Column, blank
from topocheck.engines.engine import Engine
from topocheck.engines.layout import Layout
from topocheck.formula import slots_of
from topocheck.inventory import Machine
from topocheck.snapshot import JobFact

__all__ = ["placing_facts", "predict", "predict_visible"]


def predict(
    engine: Engine, layout: Layout, nodes: int, options: Mapping[str, object] | None = None
) -> tuple[Column, str]:
    """Where the engine's formula puts each rank, world / nodes ranks on each node, and why it does not.

    `options` are what the engine's own command line says of GPUs, or what its processes see.
    """
    slots, refusal = slots_of(engine, layout, nodes, options)
    if slots is None:
        return blank("predicted", layout.world), refusal
    return Column("predicted", list(slots.nodes), list(slots.gpus)), ""


def predict_visible(
    engine: Engine, layout: Layout, order: Sequence[int | None], machines: Sequence[Machine]
) -> Column | None:
    """The prediction where ranks count the GPUs of their node; None where each node shows as many as ranks.

    A node whose list of GPUs is not whole, or empty, counts as one that has as many as ranks.
    """
    share, rest = divmod(layout.world, len(order))
    if not engine.counts_visible or rest:
        return None
    counts = [share if index is None else gpus_of(machines[index]) or share for index in order]
    if counts == [share] * len(order):
        return None
    return predict(engine, layout, len(order), {"visible_gpus": counts})[0]


def gpus_of(machine: Machine) -> int:
    """GPUs of a node whose list is whole, else 0."""
    return len(machine.gpus) if machine.coverage.gpus == "all" else 0


def placing_facts(engine: Engine, job: Sequence[JobFact]) -> dict[str, JobFact]:
    """What the engine's command line says of GPUs, by keyword; servers that differ say nothing."""
    found: dict[str, dict[str, JobFact]] = {}
    for fact in job:
        name = fact.name.lstrip("-").replace("-", "_")
        if (
            fact.kind == "option"
            and name in engine.placing
            and fact.value.isdecimal()
            and len(fact.value) < 6
        ):
            found.setdefault(name, {})[fact.value] = fact
    return {name: next(iter(facts.values())) for name, facts in found.items() if len(facts) == 1}
