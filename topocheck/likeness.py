"""What rules see of a machine: machines of one look are one kind.

A cluster of 12,500 nodes has some dozens of looks. What a running job showed of a node, a foreign process on
its GPUs, or two sources that contradict each other make a machine a kind of its own.
"""

from __future__ import annotations

from typing import Any

from topocheck.condition import NodeState
from topocheck.machine import Machine

__all__ = ["LARGE_SKEW_S", "OWN", "SKEW_S", "USUAL_LIMITS", "look"]

SKEW_S, LARGE_SKEW_S = 1.0, 30.0
"""From where on times of two hosts mislead readers of logs, where policy does not say, and where rendezvous
and certificates fail."""
USUAL_LIMITS = (SKEW_S, LARGE_SKEW_S)
OWN = ("own",)
"""The look of a machine that is a kind of its own."""


def look(machine: Machine, limits: tuple[float, ...] = USUAL_LIMITS) -> tuple[Any, ...]:
    """What rules see of a machine; of equal parts one object is kept over all machines.

    `limits` are errors of its clock, in seconds, which rules tell apart.
    """
    if is_own(machine):
        return OWN
    return (
        None if machine.shape is None else id(machine.shape.alike),
        id(machine.software),
        id(machine.coverage),
        id(machine.numbering),
        id(machine.fabric),
        tuple(map(id, machine.environments)),
        tuple(map(id, machine.listed)),
        tuple(map(id, machine.limits_alike)),
        len({limits.container for limits in machine.limits}),
        tuple(map(id, machine.verbs)),
        tuple(map(id, machine.model)),
        tuple([state_key(state, ties, limits) for state, ties in machine.states]),
        tuple([(file.path, file.kind, file.exists, *file.settings.items()) for file in machine.files]),
        machine.plugins,
        machine.faults,
        machine.counted,
        machine.sliced,
        machine.named_models,
        machine.untied,
        machine.has_claims,
        len(machine.gpus),
    )


def is_own(machine: Machine) -> bool:
    """It shows something that no other machine does."""
    return bool(
        machine.observed
        or machine.conflicts
        or machine.two_uuids
        or machine.twins
        or any(state.busy or state.strayed for state, _ in machine.states)
    )


def state_key(state: NodeState, ties: list[int] | None, limits: tuple[float, ...]) -> tuple[Any, ...]:
    """What rules see of one view of a machine's state; of a clock's error, which limits it exceeds."""
    error = None if state.clock is None else state.clock.error_seconds
    return (
        id(state.idle),
        state.matched,
        id(state.ports),
        id(state.netdevs),
        None if state.clock is None else state.clock.synchronised,
        None if error is None else tuple([error > limit for limit in limits]),
        None if ties is None else tuple(ties),
    )
