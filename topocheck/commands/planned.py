"""A plan out of a launch command, and where each of its values comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from topocheck.commands.command import FLAGS
from topocheck.commands.launch import Launch, Stated
from topocheck.engines import ENGINES
from topocheck.errors import PlanError, UsageError
from topocheck.modelconfig import read_config
from topocheck.plan import Layers, Model, NodeRange, Parallel, Plan

__all__ = ["origins", "to_plan", "world_of"]

RANGE = re.compile(r"([0-9]{1,7}):([0-9]{1,7})")
MOST_SHOWN = 12
"""Flags that are listed one by one."""
RAY = ("vllm", "sglang")
"""Engines that Ray can place."""
LOOSE = ("vllm",)
"""Engines whose executor decides over nodes if the command names none."""


def to_plan(launch: Launch, *, nodes: int | Sequence[str] | None = None, folder: Path | None = None) -> Plan:
    """The plan that a launch command declares.

    `nodes` stands for what the command leaves open. A model folder with a config.json is read where
    `folder` is given. Raises UsageError in words for what is missing, unresolved or refused.
    """
    plan, _ = _read(launch, nodes, folder)
    return plan


def origins(
    launch: Launch, *, nodes: int | Sequence[str] | None = None, folder: Path | None = None
) -> list[str]:
    """What came from where, one sentence each, in a fixed order: assumptions of the plan."""
    plan, said = _read(launch, nodes, folder)
    found = [f"engine {plan.engine}: the command starts {launch.program}"]
    found += [f"{axis} {value.text}: {value.origin}" for axis, value in launch.sizes.items()]
    found += said
    defaults = FLAGS[plan.engine].defaults
    given = {*launch.sizes, *(line.split()[0] for line in said)}
    found += [f"{axis} {why}" for axis, why in defaults.items() if axis not in given]
    found += [*_named(launch), *_model_flags(launch, plan), *launch.notes]
    return found


def world_of(launch: Launch) -> int | None:
    """Ranks that the launcher starts, for engines that take its processes as ranks; None if not said."""
    flags = FLAGS.get(launch.engine or "")
    return launch.processes if flags is not None and flags.ranks_from_launcher else None


def _named(launch: Launch) -> Iterator[str]:
    for name in ("layers", "order", "model"):
        value = getattr(launch, name)
        if value is not None:
            yield f"{name} {value.text}: {value.origin}"
    unknown = [flag for starter in launch.starters for flag in starter.unknown]
    unknown += launch.unknown
    for flag in unknown[:MOST_SHOWN]:
        yield f"not used, and its meaning not guessed: {flag}"
    more = len(unknown) - MOST_SHOWN
    if more > 0:
        yield f"not used: {more} further flag{'s' * (more > 1)}"


def _model_flags(launch: Launch, plan: Plan) -> Iterator[str]:
    if launch.engine == "megatron" and plan.model is not None and plan.model.tied is not None:
        untied = launch.options.get("untied")
        default = "tied true, Megatron's default without --untie-embeddings-and-output-weights"
        yield default if untied is None else f"tied {str(plan.model.tied).lower()}: {untied.origin}"
    for name, word in FLAGS[launch.engine or ""].splitting.items():
        if name in launch.options:
            yield f"layers.{word} {launch.options[name].text}: {launch.options[name].origin}"


def _read(launch: Launch, nodes: int | Sequence[str] | None, folder: Path | None) -> tuple[Plan, list[str]]:
    if launch.engine is None:
        raise UsageError(_no_engine(launch))
    if launch.unread:
        raise UsageError(
            f"the command takes settings from {', '.join(launch.unread)}, which topocheck does not read: the "
            "sizes may stand there; write a plan file"
        )
    said: list[str] = []
    sizes = {axis: _number(axis, value) for axis, value in launch.sizes.items()}
    FLAGS[launch.engine].fill(launch, sizes, said)
    counted = _nodes(launch, nodes, sizes, said)
    plan = Plan(
        engine=launch.engine,
        launcher=_launcher(launch, said),
        parallel=Parallel(**sizes),
        nodes=counted,
        order=None if launch.order is None else launch.order.text,
        layers=_layers(launch),
        model=_model(launch, folder),
    )
    return plan, said


def _launcher(launch: Launch, said: list[str]) -> Literal["ray"] | None:
    """Ray, where the command gives it the ranks."""
    backend, own = launch.options.get("distributed-executor-backend"), launch.options.get("use-ray")
    told = backend if backend is not None and backend.text == "ray" else own
    if told is None or launch.engine not in RAY:
        return None
    said.append(f"launcher ray: {told.origin}")
    if launch.environment.get("VLLM_RAY_BUNDLE_INDICES"):
        said.append("VLLM_RAY_BUNDLE_INDICES gives Ray's bundles their ranks: the nodes follow it")
    return "ray"


def _no_engine(launch: Launch) -> str:
    starters = " ".join(starter.name for starter in launch.starters)
    known = ", ".join(engine.title for name, engine in ENGINES.items() if name in FLAGS)
    if not launch.program:
        return f"{starters} starts no program in this command: give the whole command"
    return (
        f"{starters or 'the command'} starts {launch.program[:80]!r}, whose sizes the command does not show "
        f"in a form that topocheck knows ({known}): write a plan file"
    )


def _number(name: str, value: Stated) -> int:
    """A size. Raises UsageError for what is no number yet."""
    number = value.number
    if number:
        return number
    if value.unresolved:
        raise UsageError(
            f"{value.origin} {value.text}: only the shell that runs it knows the value of {name}: write the "
            "number, or let the shell replace it (no quotes)"
        )
    raise UsageError(f"{value.origin} {value.text}: {name} must be a number from 1")


def _nodes(
    launch: Launch, given: int | Sequence[str] | None, sizes: dict[str, int], said: list[str]
) -> int | tuple[str, ...] | NodeRange:
    """Nodes of the plan, by what is most certain."""
    if given is not None:
        said.append(
            f"nodes {given if isinstance(given, int) else ', '.join(given)}: as given beside the command"
        )
        return given if isinstance(given, int) else tuple(given)
    stated = launch.nodes
    engine = FLAGS[launch.engine or ""]
    if stated is None or (not stated.given and not launch.starters):
        return _open_nodes(launch, engine.one_node, sizes, said)
    span = RANGE.fullmatch(stated.text)
    if span:
        said.append(f"nodes {stated.text}: {stated.origin}")
        return NodeRange(min=int(span[1]), max=int(span[2]))
    number = _number("nodes", stated)
    said.append(f"nodes {number}: {stated.origin}")
    names = tuple(dict.fromkeys(host.host for host in launch.hosts))
    return names if len(names) == number and launch.hosts else number


def _open_nodes(launch: Launch, why: str, sizes: dict[str, int], said: list[str]) -> int:
    """One node, if that is certain. Raises UsageError if it is not."""
    backend = launch.options.get("distributed-executor-backend")
    if launch.engine in LOOSE:
        if backend is not None and backend.text in {"mp", "uni"}:
            why = f"{backend.origin} {backend.text} stays on one node without --nnodes"
        elif all(size == 1 for size in sizes.values()):
            why = "the job has one rank"
    if why and not launch.starters:
        said.append(f"nodes 1: {why}")
        return 1
    ray = backend is not None and backend.text == "ray"
    through, order = (" under Ray", ", this one first") if ray else ("", " in node-rank order")
    raise UsageError(
        f"the command does not say on how many nodes {ENGINES[launch.engine or ''].title} runs{through}: "
        f"give --nodes N, or names{order}: --nodes a,b"
    )


def _layers(launch: Launch) -> Layers | None:
    """The engine's override, or with further options of its layer split a mapping of them.

    Raises UsageError for an option that is no number yet.
    """
    splitting = FLAGS[launch.engine or ""].splitting
    given = {word: launch.options[name] for name, word in splitting.items() if name in launch.options}
    if not given:
        return None if launch.layers is None else launch.layers.text
    kinds = {option.word or option.name: option.kind for option in ENGINES[launch.engine or ""].options}
    options: dict[str, int | bool | str | tuple[float, ...]] = {}
    for word, value in given.items():
        if kinds[word] == "number":
            options[word] = 0 if value.text == "0" else _number(word, value)
        else:
            options[word] = value.text != "false" if kinds[word] == "flag" else value.text
    return options if launch.layers is None else {"layout": launch.layers.text, **options}


def _model(launch: Launch, folder: Path | None) -> Model | None:
    """Sizes of the model from the flags, else from the config.json of a local folder."""
    fields = set(Model.__struct_fields__)
    sizes = {name: value.number for name, value in launch.model_sizes.items() if name in fields}
    if known := {name: number for name, number in sizes.items() if number}:
        untied = launch.options.get("untied")
        tied = None if launch.engine != "megatron" else untied is None or untied.text == "false"
        return Model(**known, tied=tied)
    if folder is None or launch.model is None or launch.model.unresolved:
        return None
    try:
        config = folder / launch.model.text / "config.json"
        if not config.is_file():
            return None
        return read_config(config)
    except (OSError, ValueError):  # a name that is no path here
        return None
    except PlanError:  # some other program's config.json: the plan does not depend on it
        return None
