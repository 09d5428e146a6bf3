"""Commands that only start another one: nohup, timeout, numactl, env, sh -c, kubectl exec ..."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from topocheck.commands.flags import Table, take
from topocheck.commands.launch import Starter

__all__ = ["Peeled", "peel_python", "peel_wrapper", "tool"]


@dataclass(frozen=True, slots=True)
class Peeled:
    """What is left of a command without its first program."""

    words: Sequence[str] = ()
    """The command that it starts."""
    text: str | None = None
    """Shell text that it starts, in place of words."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that it sets for it."""
    starter: Starter | None = None
    """What it says about processes and nodes, if it is a launcher."""


WRAPPERS: dict[str, Table] = {
    name: Table(values={}, ignored=valued, switches={"": switches}, glued=True)
    for name, valued, switches in (
        ("nohup", "", ""),
        ("setsid", "", "-c -f -w --ctty --fork --wait"),
        ("time", "-f --format -o --output", "-a -v -p"),
        ("timeout", "-k --kill-after -s --signal", "--foreground --preserve-status -v --verbose"),
        ("nice", "-n --adjustment", ""),
        ("ionice", "-c --class -n --classdata", "-t"),
        ("stdbuf", "-i -o -e --input --output --error", ""),
        ("taskset", "", "-a -c --cpu-list --all-tasks"),
        ("sudo", "-u --user -g --group -C -h", "-E -H -n -S -i --preserve-env"),
        (
            "numactl",
            "-N -m -C -i -p -l --cpunodebind --membind --physcpubind --interleave --preferred",
            "--localalloc --all -a",
        ),
        ("singularity", "-B --bind -H --home --env --pwd -W", "--nv -c -C -e --cleanenv --contain"),
        ("apptainer", "-B --bind -H --home --env --pwd -W", "--nv -c -C -e --cleanenv --contain"),
        ("uv", "--with --python -p --extra --group --project", "--no-sync --frozen --active"),
        ("trtllm-llmapi-launch", "", ""),
        ("ray", "--address --working-dir --runtime-env --runtime-env-json --submission-id --job-id", ""),
    )
}
"""Programs whose own flags say nothing about placement."""

OPERANDS = {"timeout": 1, "taskset": 1, "singularity": 2, "apptainer": 2, "uv": 1, "ray": 2}
"""Words of its own that a wrapper takes before the command: a duration, `exec IMAGE`, `job submit`."""

SUBCOMMANDS = {"singularity": ("exec", "run"), "apptainer": ("exec", "run"), "uv": ("run",), "ray": ("job",)}

SHELLS = re.compile(r"(?:ba|da|k|z)?sh")
SHELL_COMMAND = re.compile(r"-[a-z]*c[a-z]*")
PYTHON = re.compile(r"python(?:[0-9](?:\.[0-9]+)?)?")
PYTHON_TAKES_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def tool(word: str) -> str:
    """Name of a program without its folder."""
    return word.rpartition("/")[2]


def peel_wrapper(words: Sequence[str]) -> Peeled | None:
    """The command inside a wrapper; None if the first word is none."""
    name = tool(words[0])
    if SHELLS.fullmatch(name):
        return _shell(words)
    if name == "env":
        return _env(words)
    if name in {"kubectl", "oc"}:
        return _after_dashes(words) if "exec" in words else None
    if name not in WRAPPERS:
        return None
    table = WRAPPERS[name]
    subcommands = SUBCOMMANDS.get(name)
    if subcommands and (len(words) < 2 or words[1] not in subcommands):
        return None
    environment = _ray_environment(words) if name == "ray" else {}
    rest = list(words[1:])
    for _ in range(OPERANDS.get(name, 0)):
        rest = take(rest, table, program=True).rest[1:]
    return Peeled(take(rest, table, program=True).rest, environment=environment)


def peel_python(words: Sequence[str]) -> Sequence[str] | None:
    """`python -u -m module ARGS` as `module ARGS`, a script likewise; None if the first word is no Python."""
    if not PYTHON.fullmatch(tool(words[0])):
        return None
    place = 1
    while place < len(words) and words[place].startswith("-"):
        if words[place] == "-m":
            return words[place + 1 :]
        if words[place] in {"-c", "-"}:
            return ()
        place += 2 if words[place] in PYTHON_TAKES_VALUE else 1
    return words[place:]


def _shell(words: Sequence[str]) -> Peeled | None:
    """`sh -c TEXT`; a script that a shell runs is a program of its own."""
    for place, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            return Peeled(words[place:])
        if SHELL_COMMAND.fullmatch(word):
            return Peeled(text=words[place + 1] if place + 1 < len(words) else "")
    return None


def _env(words: Sequence[str]) -> Peeled:
    rest = take(words[1:], Table(values={}, ignored="-u --unset -C --chdir"), program=True).rest
    environment = {}
    while rest and (match := ASSIGNMENT.fullmatch(rest[0])):
        environment[match[1]] = match[2]
        rest = rest[1:]
    return Peeled(rest, environment=environment)


def _after_dashes(words: Sequence[str]) -> Peeled | None:
    return Peeled(words[words.index("--") + 1 :]) if "--" in words else None


def _ray_environment(words: Sequence[str]) -> dict[str, str]:
    """Variables of `ray job submit --runtime-env-json '{"env_vars": {...}}'`."""
    for place, word in enumerate(words):
        flag, _, value = word.partition("=")
        if flag == "--runtime-env-json":
            try:
                given = json.loads(value or " ".join(words[place + 1 : place + 2]))
            except (ValueError, RecursionError):
                return {}
            variables = given.get("env_vars") if isinstance(given, dict) else None
            return {str(k): str(v) for k, v in variables.items()} if isinstance(variables, dict) else {}
    return {}
