"""What a launch command asks for, as frozen data.

A value is kept as it is written: `$LWS_GROUP_SIZE` is not a number, and is never made one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from topocheck.launchers.hostfile import HostSlots

__all__ = ["Launch", "Starter", "Stated"]

NUMBER = re.compile(r"[0-9]{1,9}")
VARIABLE = re.compile(r"\$[A-Za-z_({]|`")


@dataclass(frozen=True, slots=True)
class Stated:
    """One value and what stated it."""

    text: str
    """The value as it is written."""
    origin: str
    """The flag, variable, or file and line: `--tp`, `PET_NNODES`, `serve.yaml:4`."""
    given: bool = True
    """False for a default of the launcher, which the command does not spell out."""

    @property
    def number(self) -> int | None:
        """The value as a number from 0; None for everything else."""
        return int(self.text) if NUMBER.fullmatch(self.text) else None

    @property
    def unresolved(self) -> bool:
        """A variable or a command of the shell stands in it, which only the shell replaces."""
        return VARIABLE.search(self.text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """One launcher in front of the program: srun, mpirun, torchrun ..."""

    name: str
    """As people call it, without its folder."""
    nodes: Stated | None = None
    """Number of nodes, or `MIN:MAX` for elastic jobs."""
    processes: Stated | None = None
    """Processes in all."""
    processes_per_node: Stated | None = None
    gpus_per_node: Stated | None = None
    gpus_per_task: Stated | None = None
    node_rank: Stated | None = None
    rendezvous: Mapping[str, Stated] = field(default_factory=dict)
    """Address by subsystem: `master`."""
    hosts: tuple[HostSlots, ...] = ()
    """Hosts in the launcher's order."""
    selected: Mapping[str, str] = field(default_factory=dict)
    """GPU indexes selected on a host, as DeepSpeed's --include writes them: `0,2`."""
    options: Mapping[str, Stated] = field(default_factory=dict)
    """Further flags that placement may hang on, by their long name: distribution, map-by ..."""
    unknown: tuple[str, ...] = ()
    """Flags that topocheck does not know, with their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch command, taken apart."""

    engine: str | None
    """Engine as a plan names it; None if the program is none that topocheck knows."""
    program: str
    """What is started: `vllm serve`, `train.py`; empty if a launcher starts nothing."""
    sizes: Mapping[str, Stated] = field(default_factory=dict)
    """Sizes that are asked for, by axis as in `parallel:`."""
    own_nodes: Stated | None = None
    """Nodes that the engine itself is told of."""
    own_node_rank: Stated | None = None
    """Node rank that the engine itself is told of."""
    own_rendezvous: Mapping[str, Stated] = field(default_factory=dict)
    """Addresses by subsystem that the engine itself is told of: dist-init, master, dp-master."""
    layers: Stated | None = None
    """Layers of each stage, in the engine's own notation."""
    order: Stated | None = None
    """Order of the axes, in the engine's own notation."""
    model: Stated | None = None
    """Path or name of the model."""
    model_sizes: Mapping[str, Stated] = field(default_factory=dict)
    """Sizes of the model that the command itself gives, by the keys of `model:`."""
    options: Mapping[str, Stated] = field(default_factory=dict)
    """Further settings that placement may hang on, by their long name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the command sets for its program."""
    unknown: tuple[str, ...] = ()
    """Flags of the program that topocheck does not know, with their values."""
    unread: tuple[str, ...] = ()
    """Configuration files that it names and that were not read: they may hold more."""
    starters: tuple[Starter, ...] = ()
    """Launchers in front of it, the outermost first."""
    notes: tuple[str, ...] = ()
    """What the user ought to know about this reading."""

    @property
    def nodes(self) -> Stated | None:
        """Number of nodes: the engine's own, else that of the innermost launcher that has one."""
        return self.own_nodes or _innermost(self.starters, "nodes")

    @property
    def node_rank(self) -> Stated | None:
        """Rank of the node that the command is for."""
        return self.own_node_rank or _innermost(self.starters, "node_rank")

    @property
    def processes_per_node(self) -> Stated | None:
        """Processes that the innermost launcher starts on each node."""
        return _innermost(self.starters, "processes_per_node")

    @property
    def hosts(self) -> tuple[HostSlots, ...]:
        """Hosts that the innermost launcher with a list names."""
        return next((starter.hosts for starter in reversed(self.starters) if starter.hosts), ())

    @property
    def rendezvous(self) -> Mapping[str, Stated]:
        """Addresses by subsystem, of the launchers and of the engine."""
        found: dict[str, Stated] = {}
        for starter in self.starters:
            found |= starter.rendezvous
        return {**found, **self.own_rendezvous}

    @property
    def processes(self) -> int | None:
        """Processes of the program in all, as the innermost launcher starts them; None if not said."""
        starter = next(
            (one for one in reversed(self.starters) if one.processes or one.processes_per_node), None
        )
        if starter is None:
            return None
        if starter.processes is not None:
            return starter.processes.number
        nodes = starter.nodes or self.nodes
        each = starter.processes_per_node
        if each is None or each.number is None or nodes is None or nodes.number is None:
            return None
        return each.number * nodes.number


def _innermost(starters: tuple[Starter, ...], name: str) -> Stated | None:
    """What the innermost launcher states; a default counts only where no launcher states anything."""
    found = [value for starter in reversed(starters) if (value := getattr(starter, name)) is not None]
    return next((value for value in found if value.given), found[0] if found else None)
