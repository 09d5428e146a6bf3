"""Machines for the test double of NVML: described in nvml/*.txt, compiled, and asked.

The double (nvml/nvml_double.c) has NVIDIA's ABI; what asks it is the probe as it runs in the field, in
a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from real import require

from topocheck.probes.node.nvml import GpuReading

__all__ = ["FOLDER", "PROBE", "Machine", "Ran", "ask", "chosen", "command", "machine", "parse"]

FOLDER = Path(__file__).parent / "nvml"
PROBE = (sys.executable, "-m", "topocheck.probes.node.nvml")
SYSTEM = -1
MOST_INNER = 64
FLAGS = "-std=gnu11 -O1 -Wall -Wextra -Werror -shared -fPIC -fvisibility=hidden"
BUILT = tempfile.TemporaryDirectory(prefix="nvml-double-")


@dataclass(frozen=True)
class Machine:
    """One machine: the lines of its description, by the rules at the top of nvml_double.c."""

    text: str

    def __add__(self, lines: str) -> Machine:
        """The same machine with further facts; a later line wins."""
        return Machine(f"{self.text}\n{lines}\n")

    @cached_property
    def facts(self) -> dict[tuple[int, str], str]:
        """Every fact by GPU and key; keys of links, pairs and slices as in `link.3.state`."""
        found: dict[tuple[int, str], str] = {}
        for line in self.text.splitlines():
            kind, *words = line.partition("#")[0].split() or [""]
            if kind == "system":
                found[SYSTEM, words[0]] = " ".join(words[1:])
            gpus = range(int(found.get((SYSTEM, "gpus"), "0")))
            if kind == "gpu":
                found |= {(gpu, words[1]): " ".join(words[2:]) for gpu in gpus if chosen(words[0], gpu)}
            if kind in {"link", "slice", "pair", "way"}:
                outer, inner, key = words[:3]
                ways = [(outer, inner), (inner, outer)] if kind == "pair" else [(outer, inner)]
                group = "pair" if kind == "way" else kind
                found |= {
                    (gpu, f"{group}.{number}.{key}"): " ".join(words[3:])
                    for near, far in ways
                    for gpu in gpus
                    for number in (gpus if group == "pair" else range(MOST_INNER))
                    if chosen(near, gpu) and chosen(far, number)
                }
        return found

    def system(self, key: str) -> str | None:
        """A fact of no GPU."""
        return self.facts.get((SYSTEM, key))

    @property
    def gpus(self) -> range:
        """Its GPUs."""
        return range(int(self.system("gpus") or 0))

    @property
    def missing(self) -> tuple[str, ...]:
        """Functions that its driver lacks."""
        lines = [line.split() for line in self.text.splitlines()]
        return tuple(sorted(words[1] for words in lines if words[:1] == ["missing"]))


@dataclass(frozen=True)
class Ran:
    """One run of the probe."""

    code: int
    readings: tuple[GpuReading, ...]
    """Everything that it published, in order."""
    announced: tuple[str, ...]
    """Calls that it announced."""
    made: tuple[str, ...]
    """Calls that arrived at the double: name and GPU, -1 for none."""
    err: str
    """All of stderr."""

    @property
    def reading(self) -> GpuReading:
        """The last word."""
        return self.readings[-1]


def chosen(numbers: str, number: int) -> bool:
    """Whether a list like `0-3,7` or `*` has a number."""
    if numbers == "*":
        return True
    pairs = [part.partition("-") for part in numbers.split(",") if part[:1].isdigit()]
    return any(int(low) <= number <= int(high or low) for low, _, high in pairs)


def machine(name: str) -> Machine:
    """A described machine."""
    return Machine((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


@cache
def library(missing: tuple[str, ...] = ()) -> Path:
    """The double, compiled without some functions. Skips the test where it cannot be compiled."""
    require("gcc")
    folder = Path(tempfile.mkdtemp(dir=BUILT.name))
    versions = folder / "versions"
    local = "".join(f" {name};" for name in missing)
    versions.write_text(f"{{ global: nvml*; local:{local} *; }};\n", encoding="ascii")
    built = folder / "libnvidia-ml.so.1"
    subprocess.run(
        [
            *("gcc", *FLAGS.split(), f"-Wl,-soname,{built.name},--version-script={versions}"),
            *("-isystem", str(headers()), "-o", str(built), str(FOLDER / "nvml_double.c")),
        ],
        check=True,
    )
    return built


def headers() -> Path:
    """Folder of NVIDIA's nvml.h, from the package nvidia-nvml-dev."""
    spec = find_spec("nvidia")
    places = list(spec.submodule_search_locations or ()) if spec else []
    found = [header for place in places for header in Path(place).glob("*/include/nvml.h")]
    if not found and os.environ.get("TOPOCHECK_REQUIRE_REAL") == "1":
        pytest.fail("nvidia-nvml-dev is not installed here, and TOPOCHECK_REQUIRE_REAL=1 asks for it")
    if not found:
        pytest.skip("nvidia-nvml-dev is not installed here")
    return found[-1].parent


def command(described: Machine, *options: str) -> tuple[list[str], dict[str, str], Path]:
    """How to run the probe on a machine: command, environment, and the file that will list the calls."""
    folder = Path(tempfile.mkdtemp(dir=BUILT.name))
    (folder / "machine.txt").write_text(described.text, encoding="utf-8")
    calls = folder / "calls.txt"
    calls.touch()
    return (
        [*PROBE, "--library", str(library(described.missing)), *options],
        os.environ | {"NVML_MACHINE": str(folder / "machine.txt"), "NVML_CALLS": str(calls)},
        calls,
    )


@cache
def ask(described: Machine, *options: str) -> Ran:
    """Run the probe on a machine to its end."""
    arguments, environment, calls = command(described, *options)
    done = subprocess.run(arguments, env=environment, capture_output=True, check=False, text=True)
    return Ran(
        code=done.returncode,
        readings=parse(done.stdout),
        announced=tuple(
            line.removeprefix("call ") for line in done.stderr.splitlines() if line.startswith("call ")
        ),
        made=tuple(calls.read_text(encoding="ascii").splitlines()),
        err=done.stderr,
    )


def parse(stdout: str) -> tuple[GpuReading, ...]:
    """Readings in what the probe wrote; a last line that was cut is none."""
    lines = stdout.splitlines(keepends=True)
    return tuple(msgspec.json.decode(line, type=GpuReading) for line in lines if line.endswith("\n"))
