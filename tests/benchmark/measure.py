"""What `topocheck verify` and `plan` cost, held against decoding the same evidence and against bare Python.

    python tests/benchmark/measure.py                  all budgets, 1,250 and 12,500 nodes (minutes)
    python tests/benchmark/measure.py --ratio-only     plan, and verify / decode at 1,250 nodes, for CI

Only ratios of CPU time (user + system) of whole processes of the same run are judged, medians of
interleaved rounds, and instruction counts where valgrind is installed: seconds of another machine, or of
this one under load, say nothing. Exit code 1 if a budget is broken.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cluster import write_cluster

TOPOCHECK = "from topocheck.__main__ import main; main()"
DECODE = """
import gc, sys
gc.disable()
import msgspec
from topocheck.snapshot import FullSnapshot
decode = msgspec.json.Decoder(FullSnapshot).decode
with open(sys.argv[1], "rb", buffering=1 << 20) as stream:
    for line in stream:
        decode(line)
"""
"""The floor: every document as the published types, nothing kept."""
LOADS = """
import json, sys
with open(sys.argv[1], "rb", buffering=1 << 20) as stream:
    for line in stream:
        json.loads(line)
"""
RANKS = """
import gc, sys, time
gc.disable()
from topocheck.gather.files import arguments, gather
from topocheck.inventory import Inventory
from topocheck.placement import place
from topocheck.planfile import read_plan
from topocheck.rules import RULES
from topocheck.verify import run_rules
inventory = Inventory()
gather(arguments([sys.argv[2]]), inventory, digests=False)
chosen = [rule for rule in RULES if rule.family == "ID" or rule.id in ("TP001", "PP001", "PP008")]
start = time.process_time()
run_rules(chosen, place(read_plan(sys.argv[1]), inventory))
print(time.process_time() - start)
"""
"""CPU seconds of placing the ranks and of the rules over them alone."""
RATIO, RATIO_OF_FEW = 1.0, 1.6
"""Gates of verify / decode. The few dozen shapes of a cluster cost the same however many nodes share them:
with 1,250 nodes they weigh ten times as much as with 12,500."""
HUGE = (
    "engine: megatron\nparallel: {tensor: 8, pipeline: 8, data: 16}\nnodes: n[000-127]\nmodel: {layers: 64}\n"
)
"""A plan of 1,024 ranks."""
PLAN_RATIO = 12
KINDS: dict[str, dict[str, Any]] = {"": {}, "-faulty": {"faulty_in": 100}, "-own": {"alike": False}}
"""Clusters as they are, with one faulty node in a hundred, and with a shape of its own for each node."""
GIVEN = {0, 1, 3}
"""Exit codes of a verdict."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took."""

    cpu: float
    """CPU seconds, user and system."""
    rss: float
    """Peak resident memory in MB."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One ratio and its gate."""

    name: str
    what: str
    value: float
    gate: float

    def __str__(self) -> str:
        verdict = "ok  " if self.value <= self.gate else "OVER"
        return f"{verdict} {self.name:4} {self.value:8.2f} <= {self.gate:<6g} {self.what}"


def show(text: object) -> None:
    """A line of the result, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Bench:
    """Programs over made clusters in one folder."""

    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TOPOCHECK_") and name != "PYTHONDONTWRITEBYTECODE"
        } | {"PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}

    def cluster(self, nodes: int, kind: str = "") -> Path:
        """Folder of a cluster of so many nodes, made once. `kind` is one of KINDS."""
        place = self.folder / f"{nodes}{kind}"
        if not place.exists():
            place.mkdir()
            write_cluster(place, nodes, **KINDS[kind])
        return place

    def verify(self, nodes: int, *options: str, kind: str = "") -> list[str]:
        """The command under test."""
        place = self.cluster(nodes, kind)
        plan, stream = str(place / "plan.yaml"), str(place / "stream.jsonl")
        return [sys.executable, "-c", TOPOCHECK, "verify", "--plan", plan, *options, stream]

    def over(self, program: str, nodes: int, kind: str = "") -> list[str]:
        """A program over the stream of a cluster."""
        return [sys.executable, "-c", program, str(self.cluster(nodes, kind) / "stream.jsonl")]

    def run(self, command: list[str]) -> Cost:
        """Run to the end. Raises SystemExit if there was no verdict."""
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        process = os.posix_spawn(command[0], command, self.environment, file_actions=null)
        _, status, usage = os.wait4(process, 0)
        if os.waitstatus_to_exitcode(status) not in GIVEN:
            raise SystemExit(f"failed: {' '.join(command)}")
        return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)

    def measure(self, commands: Mapping[str, list[str]]) -> dict[str, Cost]:
        """Median of each command, all of them once in each round; a first round warms caches."""
        for command in commands.values():
            self.run(command)
        costs: dict[str, list[Cost]] = {name: [] for name in commands}
        for _ in range(self.rounds):
            for name, command in commands.items():
                costs[name].append(self.run(command))
        return {
            name: Cost(median(cost.cpu for cost in found), median(cost.rss for cost in found))
            for name, found in costs.items()
        }

    def least(self, commands: Mapping[str, list[str]]) -> dict[str, float]:
        """Least CPU seconds of each command over all rounds: what is short is disturbed upwards only."""
        for command in commands.values():
            self.run(command)
        rounds = [
            {name: self.run(command).cpu for name, command in commands.items()} for _ in range(self.rounds)
        ]
        return {name: min(found[name] for found in rounds) for name in commands}

    def instructions(self, command: Sequence[str]) -> int:
        """Instructions that a process executes: the same in each run."""
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        done = subprocess.run(
            [*valgrind, *command], env=self.environment, capture_output=True, check=False, text=True
        )
        line = next(line for line in done.stderr.splitlines() if "refs:" in line)
        return int(line.split()[-1].replace(",", ""))

    def seconds(self, program: str, *arguments: str) -> float:
        """Median of what a program says that a part of it took."""
        command = [sys.executable, "-c", program, *arguments]
        said = [
            float(subprocess.run(command, env=self.environment, capture_output=True, check=True).stdout)
            for _ in range(self.rounds)
        ]
        return median(said)


def ratio_of(bench: Bench, nodes: int) -> Budget:
    """B4 alone."""
    cost = bench.measure(
        {
            "verify 1": bench.verify(1),
            "decode 1": bench.over(DECODE, 1),
            "verify": bench.verify(nodes),
            "decode": bench.over(DECODE, nodes),
        }
    )
    verify = cost["verify"].cpu - cost["verify 1"].cpu
    decode = cost["decode"].cpu - cost["decode 1"].cpu
    show(f"{nodes:,} nodes: verify {verify:.3f} s, decode {decode:.3f} s CPU above one node")
    return Budget("B4", what_of(nodes), verify / decode, RATIO_OF_FEW)


def what_of(nodes: int) -> str:
    """What B4 compares."""
    return f"verify / decode to FullSnapshot, {nodes:,} nodes, each less one node"


def plan_budgets(bench: Bench) -> Iterator[Budget]:
    """B10: `topocheck plan` for 1,024 ranks."""
    file = bench.folder / "huge.yaml"
    file.write_text(HUGE, encoding="utf-8")
    plan = [sys.executable, "-c", TOPOCHECK, "plan"]
    least = bench.least(
        {
            "bare": [sys.executable, "-c", "pass"],
            "the table": [*plan, str(file)],
            "the whole table": [*plan, "--all", str(file)],
            "JSON": [*plan, "--json", str(file)],
        }
    )
    bare = least.pop("bare")
    for form, cpu in least.items():
        yield Budget("B10", f"plan of 1,024 ranks, {form} / python -c pass", cpu / bare, PLAN_RATIO)


def large_budgets(bench: Bench, small: int, large: int) -> Iterator[Budget]:
    """B4 and B6 to B9: growth with the number of nodes."""
    cost = bench.measure(
        {
            "verify 1": bench.verify(1),
            "decode 1": bench.over(DECODE, 1),
            "verify small": bench.verify(small),
            "decode small": bench.over(DECODE, small),
            "verify": bench.verify(large),
            "decode": bench.over(DECODE, large),
            "loads": bench.over(LOADS, large),
        }
    )
    for name, found in cost.items():
        show(f"     {name:14} {found.cpu:7.3f} s CPU {found.rss:6.0f} MB")
    verify, decode = (
        {size: cost[f"{name}{size}"].cpu - cost[f"{name} 1"].cpu for size in (" small", "")}
        for name in ("verify", "decode")
    )
    yield Budget("B4", what_of(small), verify[" small"] / decode[" small"], RATIO_OF_FEW)
    yield Budget("B4", what_of(large), verify[""] / decode[""], RATIO)
    yield Budget("B6", "whole verify / json.loads of the stream", cost["verify"].cpu / cost["loads"].cpu, 0.6)
    yield Budget("B7", f"growth from {small:,} to {large:,} nodes", verify[""] / verify[" small"], 13)
    yield Budget("B8", "memory / that of one node", cost["verify"].rss / cost["verify 1"].rss, 3)
    yield Budget("B8", f"memory of verify, {large:,} nodes, MB", cost["verify"].rss, 100)
    place = bench.cluster(large)
    ranks = bench.seconds(RANKS, str(place / "plan.yaml"), str(place / "stream.jsonl"))
    yield Budget("B9", "placing and the rules over ranks / decode", ranks / decode[""], 0.15)


def odd_budgets(bench: Bench, nodes: int) -> Iterator[Budget]:
    """B5: one node in a hundred is faulty, and every node has a shape of its own."""
    for kind, gate in (("-faulty", 1.5), ("-own", 10)):
        cost = bench.measure(
            {
                "verify 1": bench.verify(1),
                "decode 1": bench.over(DECODE, 1),
                "verify": bench.verify(nodes, kind=kind),
                "decode": bench.over(DECODE, nodes, kind),
            }
        )
        verify = cost["verify"].cpu - cost["verify 1"].cpu
        decode = cost["decode"].cpu - cost["decode 1"].cpu
        yield Budget("B5", f"{what_of(nodes)}, {kind[1:]}", verify / decode, gate)


def start_budgets(bench: Bench) -> Iterator[Budget]:
    """B2 and B3: starting, in instructions of bare Python."""
    if shutil.which("valgrind") is None:
        show("     B2, B3 left out: valgrind is not installed")
        return
    page = str(bench.folder / "report.html")
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "version": [sys.executable, "-c", TOPOCHECK, "--version"],
        "verify": bench.verify(1),
        "html": bench.verify(1, "--html", page),
    }
    for command in commands.values():
        bench.run(command)
    count = {name: bench.instructions(command) for name, command in commands.items()}
    yield Budget("B2", "topocheck --version / python -c pass", count["version"] / count["bare"], 5.5)
    yield Budget("B3", "verify of one node, text / python -c pass", count["verify"] / count["bare"], 21)
    yield Budget("B3", "verify of one node, HTML / python -c pass", count["html"] / count["bare"], 27)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description="Measure topocheck verify.")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of which the median counts")
    parser.add_argument("--nodes", type=int, nargs=2, default=(1250, 12500), metavar=("SMALL", "LARGE"))
    parser.add_argument(
        "--ratio-only", action="store_true", help="plan, and verify / decode at SMALL nodes, alone"
    )
    parser.add_argument("--folder", type=Path, help="keep the made clusters here, and take those that are")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder: Path = asked.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder, asked.rounds)
        small, large = asked.nodes
        if asked.ratio_only:
            budgets = [*plan_budgets(bench), ratio_of(bench, small)]
        else:
            budgets = [
                *start_budgets(bench),
                *plan_budgets(bench),
                *large_budgets(bench, small, large),
                *odd_budgets(bench, large),
            ]
        for budget in budgets:
            show(budget)
    return int(any(budget.value > budget.gate for budget in budgets))


if __name__ == "__main__":
    sys.exit(main())
