"""A node of a job as rules see it: its place, its name and what is known of it."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import zip_longest

from msgspec import Struct

from topocheck.hardware import Shape
from topocheck.machine import Machine
from topocheck.ranges import first

__all__ = ["Node"]


class Node(Struct, frozen=True, eq=False, gc=False):
    """One place of the plan, or a host with ranks that has none."""

    index: int
    """Position in the placement's list; below `expected` it is the place in the plan."""
    name: str
    """How findings call it."""
    machine: Machine | None
    """What is known of it; None if nothing is."""
    bound_by: str
    """How the host came to this place."""

    @property
    def shape(self) -> Shape | None:
        """Its hardware shape, if known."""
        return None if self.machine is None else self.machine.shape

    def read_in(self, otherwise: str = "evidence") -> str:
        """Where what is known of it was read: its first two sources, or another word where none is named."""
        return first(self.machine.sources, 2) if self.machine and self.machine.sources else otherwise

    @property
    def models(self) -> frozenset[str | None]:
        """Models of its GPUs; None among them where one is not shown, and alone where no GPU is."""
        shape = self.shape
        if shape is not None and shape.models and None not in shape.models:
            return shape.models
        known = [gpu.model for gpu in shape.hardware.gpus] if shape is not None else []
        named = [gpu.model for gpu in self.machine.gpus] if self.machine is not None else []
        return frozenset(a or b for a, b in zip_longest(known, named)) or frozenset({None})

    @property
    def kind(self) -> Hashable:
        """What rules can see of its GPUs: nodes of one kind answer alike. None without hardware."""
        machine = self.machine
        if machine is None or machine.shape is None:
            return None
        ties = machine.numbering, machine.untied
        return id(machine.shape.alike), ties, machine.coverage.gpus, machine.sliced, machine.named_models

    def gpu_name(self, ordinal: int | None) -> str | None:
        """Best known name of a GPU of it."""
        if ordinal is None:
            return None
        return f"GPU {ordinal}" if self.machine is None else self.machine.gpu_name(ordinal)

    def __str__(self) -> str:
        return self.name
