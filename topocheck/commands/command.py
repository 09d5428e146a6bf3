"""A launch command taken apart: what it sets, the launchers in front, the engine and its flags.

Files that a command names are read only where a folder is given: a command found in captured text must
not make topocheck open files of this machine.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from topocheck.commands.accelerate_flags import FLAGS as ACCELERATE
from topocheck.commands.accelerate_flags import peel_accelerate
from topocheck.commands.deepspeed_flags import FLAGS as DEEPSPEED
from topocheck.commands.deepspeed_flags import peel_deepspeed
from topocheck.commands.documents import read_document
from topocheck.commands.engine_flags import EngineFlags, Settings
from topocheck.commands.flags import from_variables, take
from topocheck.commands.launch import Launch, Starter, Stated
from topocheck.commands.megatron_flags import FLAGS as MEGATRON
from topocheck.commands.mpi_flags import peel_mpi
from topocheck.commands.sglang_flags import FLAGS as SGLANG
from topocheck.commands.shell import Command, commands, constants, expand
from topocheck.commands.slurm_flags import peel_slurm
from topocheck.commands.torchrun_flags import peel_torchrun
from topocheck.commands.torchtitan_flags import FLAGS as TORCHTITAN
from topocheck.commands.trtllm_flags import FLAGS as TENSORRT_LLM
from topocheck.commands.vllm_flags import FLAGS as VLLM
from topocheck.commands.wrappers import Peeled, peel_python, peel_wrapper
from topocheck.errors import UsageError
from topocheck.launchers.allowed import allowed
from topocheck.plan import Parallel

__all__ = ["FLAGS", "Found", "parse_command", "parse_script", "parse_words"]

FLAGS: dict[str, EngineFlags] = {
    flags.engine: flags for flags in (VLLM, SGLANG, TENSORRT_LLM, MEGATRON, TORCHTITAN, DEEPSPEED, ACCELERATE)
}
"""Engines by name, in the order in which a command is compared with them."""

AXES = frozenset(Parallel.__struct_fields__)
RENDEZVOUS = ("master", "dist-init", "dp-master")
FIELDS = {
    "nodes": "own_nodes",
    "node_rank": "own_node_rank",
    "layers": "layers",
    "order": "order",
    "model": "model",
}
CONFIG_FILES = (".yaml", ".yml", ".json")
MOST_LAYERS = 20
"""Launchers and wrappers around each other beyond this are no command that anybody wrote."""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A launch command inside a text."""

    line: int
    """Line where it starts, from 1."""
    launch: Launch


@dataclass(slots=True)
class _Apart:
    """A command while it is taken apart."""

    words: Sequence[str]
    environment: dict[str, str]
    folder: Path | None
    starters: list[Starter] = field(default_factory=list)
    text: str | None = None


def parse_command(
    command: str | Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Launch:
    """The launch in a command line, given as text or as words.

    `environment` holds the variables of the shell that will run it. Raises UsageError if nothing in it is
    a launch, InputError for a file that it names and that cannot be read.
    """
    known = dict(environment or {})
    if isinstance(command, str) or len(command) == 1:
        found = list(parse_script(command if isinstance(command, str) else command[0], folder, known))
        launches = [one.launch for one in found]
    else:
        launches = list(_launches(command, known, folder))
    launch = next((one for one in launches if one.engine), launches[0] if launches else None)
    if launch is None:
        shown = command if isinstance(command, str) else shlex.join(command)
        raise UsageError(
            f"nothing that topocheck knows is launched by {shown[:80]!r}: it knows vllm serve, sglang, "
            "trtllm-serve, torchrun, deepspeed, accelerate launch, srun, mpirun, and the flags of Megatron "
            "and torchtitan"
        )
    return launch


def parse_script(
    text: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Found]:
    """All launches in shell text, with the variables that it sets and exports before them."""
    known = dict(environment or {})
    for command in commands(expand(text, {**known, **constants(text)})):
        if not command.words:
            known |= command.environment
        else:
            yield from _found(command, known, folder)


def _found(command: Command, known: Mapping[str, str], folder: Path | None) -> Iterator[Found]:
    for launch in _launches(command.words, {**known, **command.environment}, folder):
        yield Found(command.line, launch)


def parse_words(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[Launch]:
    """Launches of one command given as words, as a manifest has it. Files are not read."""
    return _launches(words, dict(environment), None)


def _launches(words: Sequence[str], environment: dict[str, str], folder: Path | None) -> Iterator[Launch]:
    """The launch in one simple command; several where a shell inside it starts several."""
    apart = _Apart(words, dict(environment), folder)
    for _ in range(MOST_LAYERS):
        if not _peel(apart):
            break
    if apart.text is not None:
        inner = parse_script(apart.text, folder, apart.environment)
        found = [replace(one.launch, starters=(*apart.starters, *one.launch.starters)) for one in inner]
        yield from found
        if found or not apart.starters:
            return
    launch = _launch(apart)
    if launch.engine or launch.starters:
        yield launch


def _peel(apart: _Apart) -> bool:
    """Take the outermost program off; False if the innermost is reached."""
    while apart.words and (match := ASSIGNMENT.fullmatch(apart.words[0])):
        apart.environment[match[1]] = match[2]
        apart.words = apart.words[1:]
    if not apart.words or apart.text is not None:
        return False
    script = peel_python(apart.words)
    if script is not None:
        apart.words = script
        return bool(script)
    peeled = _peel_launcher(apart) or peel_wrapper(apart.words)
    if peeled is None:
        return False
    apart.environment |= peeled.environment
    apart.words, apart.text = peeled.words, peeled.text
    if peeled.starter is not None:
        apart.starters.append(peeled.starter)
    return True


def _peel_launcher(apart: _Apart) -> Peeled | None:
    words, folder = apart.words, apart.folder
    return (
        peel_torchrun(words, apart.environment)
        or peel_deepspeed(words, folder)
        or peel_accelerate(words, folder)
        or peel_slurm(words)
        or peel_mpi(words, folder)
    )


def _launch(apart: _Apart) -> Launch:
    words = list(apart.words)
    starters = tuple(apart.starters)
    environment = {name: value for name, value in apart.environment.items() if allowed(name)}
    launch = Launch(
        engine=None,
        program=" ".join(words[:1]),
        starters=starters,
        environment=environment,
        unread=tuple(one.options["unread"].text for one in starters if "unread" in one.options),
    )
    for flags in FLAGS.values() if words else ():
        arguments = flags.arguments(words, starters)
        if arguments is not None:
            count = len(words) - len(arguments)
            named = replace(launch, engine=flags.engine, program=" ".join(words[: max(count, 1)]))
            return _with_flags(named, flags, arguments, apart)
    return launch


def _with_flags(launch: Launch, flags: EngineFlags, arguments: Sequence[str], apart: _Apart) -> Launch:
    taken = take(arguments, flags.table)
    variables = dict(from_variables(flags.table, apart.environment))
    config = taken.stated.pop("config", None) or variables.pop("config", None)
    stated, unread = _configured(flags, config, apart.folder)
    stated = (
        {**variables, **taken.stated, **stated}
        if flags.config_wins
        else {**variables, **stated, **taken.stated}
    )
    settings = Settings(stated, taken.rest, launch.starters)
    flags.adapt(settings)
    stated = settings.stated
    fields = {field: stated[name] for name, field in FIELDS.items() if name in stated}
    used = {*AXES, *RENDEZVOUS, *FIELDS}
    return replace(
        launch,
        sizes={name: value for name, value in stated.items() if name in AXES},
        own_rendezvous={name: stated[name] for name in RENDEZVOUS if name in stated},
        model_sizes={name[6:]: value for name, value in stated.items() if name.startswith("model.")},
        options={k: v for k, v in stated.items() if k not in used and not k.startswith("model.")},
        unknown=tuple(taken.unknown),
        unread=(*launch.unread, *unread),
        notes=tuple(settings.notes),
        **fields,  # type: ignore[arg-type]  # the values are all Stated
    )


def _configured(
    flags: EngineFlags, config: Stated | None, folder: Path | None
) -> tuple[dict[str, Stated], tuple[str, ...]]:
    """(what the configuration file states, files that were not read)."""
    if config is None:
        return {}, ()
    readable = flags.reads_config and config.text.endswith(CONFIG_FILES) and not config.unresolved
    if folder is None or not readable:
        return {}, (config.text,)
    found: dict[str, Stated] = {}
    for name, value in read_document(config.text, folder).leaves():
        what = flags.config.get(name.replace("-", "_"))
        if what and value.text:
            found[what] = Stated(value.text, f"{config.text}:{value.line}")
    return found, ()
