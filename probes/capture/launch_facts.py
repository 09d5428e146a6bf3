"""What a launch command states, in the vocabulary of statements about the whole job."""

from __future__ import annotations

from collections.abc import Sequence

from topocheck.commands import Launch, Starter, Stated
from topocheck.launchers.hostfile import HostSlots, merged
from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line

__all__ = ["state_hosts", "state_launch", "state_starter", "state_value"]

AGENTS = frozenset({"torchrun", "deepspeed", "accelerate"})
"""Launchers that run once on a node and start its processes; the others start tasks."""

COUNTS = {
    "nodes": "nodes",
    "processes": "processes",
    "processes_per_node": "processes-per-node",
    "gpus_per_node": "gpus-per-node",
    "gpus_per_task": "gpus-per-task",
}
"""Field of a launcher -> kind of statement."""


def state_launch(evidence: JobEvidence, line: Line, launch: Launch, role: str | None = None) -> None:
    """All statements of one launch. With `role`, it stands in the template that all pods of a role share."""
    evidence.engine = launch.engine
    if launch.engine is not None:
        evidence.fact(line, "engine", launch.engine)
    for starter in launch.starters:
        state_starter(evidence, line, starter)
    if launch.starters:
        evidence.fact(line, "launcher", " ".join(starter.name for starter in launch.starters), launch.program)
    for axis, size in launch.sizes.items():
        state_value(evidence, line, "requested-size", axis, size)
    state_value(evidence, line, "nodes", "", launch.own_nodes)
    state_value(evidence, line, "layers", "", launch.layers)
    state_value(evidence, line, "order", "", launch.order)
    for name, size in launch.model_sizes.items():
        state_value(evidence, line, "model-size", name, size)
    for file in launch.unread:
        evidence.fact(line, "unread", file)
    state_node_rank(evidence, line, launch.node_rank, role)
    for subsystem, address in launch.rendezvous.items():
        state_value(evidence, line, "rendezvous", subsystem, address)
    options = {**launch.environment, **{name: value.text for name, value in launch.options.items()}}
    for name, text in options.items():
        evidence.fact(line, "option", text, name)


def state_starter(evidence: JobEvidence, line: Line, starter: Starter) -> None:
    """What one launcher is told of nodes, processes and GPUs."""
    level = "agent" if starter.name in AGENTS else "launcher"
    for field, kind in COUNTS.items():
        state_value(evidence, line, kind, level, getattr(starter, field))
    state_hosts(evidence, line, starter.hosts)
    for host, indexes in starter.selected.items():
        evidence.fact(line, "include", indexes, host)
    for name, value in starter.options.items():
        if "." not in name:
            evidence.fact(line, "option", value.text, name)


def state_hosts(evidence: JobEvidence, line: Line, hosts: Sequence[HostSlots]) -> None:
    """Hosts in the launcher's order, and the slots of those that have a number."""
    for host in merged(hosts):
        if host.slots is not None:
            evidence.fact(line, "host-slots", host.slots, host.host)
    order = dict.fromkeys(host.host for host in hosts)
    if order:
        evidence.fact(line, "node-order", " ".join(order))


def state_value(evidence: JobEvidence, line: Line, kind: str, name: str, value: Stated | None) -> None:
    """A value that the command spells out; one that hangs on a variable says only that."""
    if value is None or not value.given:
        return
    if value.unresolved:
        evidence.fact(line, "unresolved", value.text, value.origin)
    elif value.number is not None or kind in {"layers", "order", "rendezvous"}:
        evidence.fact(line, kind, value.text, name)


def state_node_rank(evidence: JobEvidence, line: Line, rank: Stated | None, role: str | None) -> None:
    """Node rank of the command; in a template the constant that each pod of the role takes."""
    if role is not None and rank is not None and rank.number is not None:
        evidence.fact(line, "node-rank", f"constant {rank.text}", role)
    else:
        state_value(evidence, line, "node-rank", "", rank)
