"""What topocheck knows of the command line of one engine. Each engine is a module with one `FLAGS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from topocheck.commands.flags import Table
from topocheck.commands.launch import Launch, Starter, Stated

__all__ = ["EngineFlags", "Settings", "config_of", "nothing_to_adapt", "nothing_to_fill"]


@dataclass(slots=True)
class Settings:
    """What the command, its variables and its configuration files state, while it is put together."""

    stated: dict[str, Stated]
    """By what is stated: an axis, `nodes`, `node_rank`, `layers`, `order`, `model`, an address, an option."""
    rest: list[str]
    """Words that belong to no flag."""
    starters: Sequence[Starter]
    """Launchers in front."""
    notes: list[str] = field(default_factory=list)
    """What the user ought to know."""

    def is_on(self, name: str) -> bool:
        """A switch is set and not switched off."""
        value = self.stated.get(name)
        return value is not None and value.text.lower() not in {"false", "0", "no", "off", "none"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """The command line of one engine."""

    engine: str
    """As a plan names it."""
    table: Table
    """Its flags."""
    arguments: Callable[[Sequence[str], Sequence[Starter]], Sequence[str] | None]
    """(program and arguments, launchers in front) -> arguments; None if this starts another program."""
    adapt: Callable[[Settings], None]
    """Puts what this engine's settings mean into the words of a plan."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Key of a configuration file, inner keys after a dot, `-` as `_` -> what it states."""
    config_wins: bool = False
    """A configuration file goes before the flags."""
    reads_config: bool = True
    """topocheck can read the configuration files that its flags name."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Axis -> what the engine does if the command does not set it, in words."""
    splitting: Mapping[str, str] = field(default_factory=dict)
    """Setting that changes the split of layers -> its word under `layers:` of a plan."""
    ranks_from_launcher: bool = False
    """The launcher's processes are its ranks; otherwise it starts its own."""
    one_node: str = ""
    """Why the job has one node where the command names none; empty if that is not certain."""
    fill: Callable[[Launch, dict[str, int], list[str]], None]
    """Adds sizes that follow from the number of processes, and says so. Raises UsageError."""


def nothing_to_adapt(settings: Settings) -> None:
    """For engines whose settings already are in the words of a plan."""


def nothing_to_fill(launch: Launch, sizes: dict[str, int], said: list[str]) -> None:
    """For engines whose command has all sizes."""


def config_of(table: Table, *more: tuple[str, str]) -> dict[str, str]:
    """Keys of files that name flags without their dashes, as vLLM and SGLang have them."""
    flags = {**table.values, **table.switches}
    keys = {
        flag.removeprefix("--").replace("-", "_"): name
        for name, spellings in flags.items()
        for flag in spellings.split()
        if flag.startswith("--")
    }
    return {**keys, **dict(more)}
