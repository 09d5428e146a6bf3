"""Rounds of a small job whose gates are killed at random: `python gate_rounds.py FOLDER SEED ROUNDS`.

Gates are forked from this process, which has imported everything, and several rounds run side by side, since
most of a round is waiting. Exits 1 at the first round that breaks a promise, and says which one and how; else
prints what became of all rounds as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from gate_node import one, view, waiting

from topocheck.decision import Decision, Remark
from topocheck.errors import TopocheckError
from topocheck.gate import pass_gate
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.seal import sealed
from topocheck.gather.store import Entry
from topocheck.gather.stream import decode_snapshot

TIMEOUT_S = 3.0
MARGIN_S = 2.0
"""What turns and a busy machine may take before a deadline for a gate to be held to a verdict."""
HANG_S = TIMEOUT_S + 30
AT_ONCE = 16
"""Rounds side by side."""
BROKE = 99
"""Exit code of a gate with an error that nobody foresaw."""
FINAL = ("verdict.json.gz", "remark.json.gz", "entries")


class Slow(FolderStore):
    """A store whose writes take their time between writing aside and being there."""

    def __init__(self, folder: Path, run: str, chance: random.Random) -> None:
        super().__init__(folder, run)
        self._chance = chance

    @contextlib.contextmanager
    def _aside(self, folder: Path, data: bytes) -> Iterator[Path]:
        with super()._aside(folder, data) as aside:
            time.sleep(self._chance.uniform(0, 0.03))
            yield aside
            time.sleep(self._chance.uniform(0, 0.03))


@dataclass(slots=True)
class Kill:
    """One SIGKILL: at its time, or as soon as somebody writes the verdict or an entry."""

    what: str
    """`any`, `first`, `deadline`, `publishing` or `entering`."""
    node: int
    at_s: float


@dataclass(slots=True)
class Round:
    """One job, its gates and what is to happen to them."""

    number: int
    store: Path
    nodes: int
    started: int
    """Of which gates are started: the others stay away."""
    broken: bool
    kills: list[Kill]
    results: int
    """Where gates write what they found."""
    begun: float = 0.0
    alive: dict[int, int] = field(default_factory=dict)
    """Node by process id."""
    codes: dict[int, int] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)

    @property
    def run(self) -> Path:
        """The folder of the run."""
        return self.store / "r1"


def planned(folder: Path, seed: int, number: int) -> tuple[Round, random.Random]:
    """A round, by its number."""
    chance = random.Random(f"{seed}:{number}")  # noqa: S311 - the same rounds each time
    nodes = chance.randint(3, 5)
    started = nodes - (chance.random() < 0.3)
    kills = []
    for node in chance.sample(range(started), chance.randint(1, started - 1)):
        what = chance.choice(("any", "any", "first", "deadline", "publishing", "publishing", "entering"))
        what = "deadline" if what == "any" and started < nodes else what
        late = what == "deadline"
        at_s = chance.uniform(TIMEOUT_S - 0.3, TIMEOUT_S + 1) if late else chance.uniform(0, 0.7)
        kills.append(Kill(what, 0 if what == "first" else node, at_s))
    store = folder / f"round-{number}"
    store.mkdir()
    results = os.open(folder / f"results-{number}", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    return Round(number, store, nodes, started, chance.random() < 0.3, kills, results), chance


def begin(job: Round, chance: random.Random) -> None:
    """Fork the gates of a round."""
    job.begun = time.monotonic()
    for node in range(job.started):
        delay, own = chance.uniform(0, 0.25), chance.random()
        pid = os.fork()
        if not pid:
            code = BROKE
            try:
                code = gate(job, node, delay, random.Random(own))  # noqa: S311 - as above
            except TopocheckError as error:
                code = error.exit_code
                sys.stderr.write(f"round {job.number}, node {node}: {error}\n")
            except BaseException:  # noqa: BLE001 - a fork must never go on as its parent
                traceback.print_exc()
            finally:
                os._exit(code)
        job.alive[pid] = node


def gate(job: Round, node: int, delay: float, chance: random.Random) -> int:
    """One gate; leaves what it found."""
    time.sleep(delay)
    shown = view("r1", node, job.nodes, broken=job.broken)
    document = sealed(msgspec.json.encode(shown), shown.token or "")
    asked = waiting("r1", node, job.nodes, TIMEOUT_S)
    start = time.time()
    found = pass_gate(Slow(job.store, "r1", chance), document, asked)
    digest = hashlib.sha256(msgspec.json.encode(found)).hexdigest()
    line = json.dumps({"node": node, "code": found.exit_code, "digest": digest, "start": start})
    os.write(job.results, f"{line}\n".encode())
    return found.exit_code


def writers(folder: Path) -> list[int]:
    """Processes that are writing something aside there."""
    with contextlib.suppress(FileNotFoundError):
        names = [path.name for path in folder.iterdir()]
        return [int(name[1:].partition("-")[0]) for name in names if name.startswith(".")]
    return []


def tend(job: Round) -> None:
    """Kill whose time has come, and collect who has ended."""
    now = time.monotonic() - job.begun
    for kill in list(job.kills):
        watched = {"publishing": job.run, "entering": job.run / "entries"}.get(kill.what)
        if watched is None:
            victims = [pid for pid, node in job.alive.items() if node == kill.node and now >= kill.at_s]
        else:
            victims = [pid for pid in writers(watched) if pid in job.alive]
        if victims and len(job.alive) + len(job.codes) - len(job.killed) > 1:  # somebody has to survive
            job.kills.remove(kill)
            os.kill(victims[0], signal.SIGKILL)
            job.killed.append(kill.what)
    for pid in list(job.alive):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            job.codes[job.alive.pop(pid)] = os.waitstatus_to_exitcode(status)
    if now > HANG_S:
        for pid in job.alive:
            os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"gates of nodes {sorted(job.alive.values())} hang after {now:.0f} s")


def judge(job: Round) -> str:
    """Hold a finished round against what is promised; gives what became of it."""
    survivors = {node: code for node, code in job.codes.items() if code != -signal.SIGKILL}
    right = 1 if job.broken else 0
    assert set(survivors.values()) <= {right, 3}, f"exit codes {survivors}"
    left = [json.loads(line) for line in Path(f"/proc/self/fd/{job.results}").read_text().splitlines()]
    verdicts = {found["digest"] for found in left if found["code"] != 3}
    assert len(verdicts) <= 1, f"{len(verdicts)} different verdicts"
    entries, complete_at = whole(job, verdicts)
    for found in left:
        decided = found["node"] not in survivors or found["code"] != 3
        in_time = complete_at + MARGIN_S < found["start"] + TIMEOUT_S
        assert decided or entries < job.nodes or not in_time, f"node {found['node']} is undecided over all"
        assert job.broken or entries == job.nodes or found["code"] == 3, "a pass without all nodes"
    return "decided" if verdicts else "undecided"


def whole(job: Round, verdicts: set[str]) -> tuple[int, float]:
    """Every file is whole, or aside; gives the number of entries and when the last one was there."""
    store = FolderStore(job.store, "r1")
    for path in job.run.iterdir():
        assert path.name in FINAL or path.name.startswith("."), f"left over: {path}"
    for name in store.names():
        entry = store.entry(name)
        assert isinstance(entry, Entry), f"torn: {entry}"
        decode_snapshot(entry.data, name, None)
    verdict, remark = store.verdict(), store.remarked()
    if verdict is not None:
        msgspec.json.decode(verdict, type=Decision)
    in_force = set() if verdict is None else {hashlib.sha256(verdict).hexdigest()}
    assert verdicts <= in_force, "a gate had another verdict than the store"
    if (job.run / "remark.json.gz").exists():
        assert remark is not None, "the remark is torn"
        assert msgspec.json.decode(remark, type=Remark).exit_code == 3
    times = [path.stat().st_mtime for path in (job.run / "entries").glob("*.json.gz")]
    return len(times), max(times, default=0.0)


def held(job: Round, seed: int) -> list[str]:
    """What became of a round that is over; nothing of one that goes on. Raises AssertionError in words."""
    try:
        tend(job)
        if job.alive:
            return []
        became = [judge(job), *(f"killed {what}" for what in job.killed)]
    except AssertionError as error:
        what = f"{job.started} of {job.nodes} nodes, killed {job.killed}, codes {job.codes}"
        raise AssertionError(f"seed {seed}, round {job.number}: {error} ({what})") from None
    os.close(job.results)
    return became


def rounds(folder: Path, seed: int, count: int) -> Counter[str]:
    """All rounds, some of them at a time. Raises AssertionError with the first that breaks a promise."""
    became: Counter[str] = Counter()
    waiting_rounds, running = iter(range(count)), list[Round]()
    for _ in range(count * 100_000):
        while len(running) < AT_ONCE and (number := next(waiting_rounds, None)) is not None:
            job, chance = planned(folder, seed, number)
            begin(job, chance)
            running.append(job)
        if not running:
            return became
        for job in list(running):
            became.update(held(job, seed))
            if not job.alive:
                running.remove(job)
        time.sleep(0.003)
    raise AssertionError("no end")


def main() -> None:
    """Run the rounds."""
    folder, seed, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    warm = folder / "warm"
    warm.mkdir()
    assert one(warm, "r1", 0, 1, 5).exit_code == 0
    assert one(warm, "r2", 0, 2, 0).exit_code == 3
    gc.collect()
    gc.freeze()
    try:
        became = rounds(folder, seed, count)
    except AssertionError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps({"cpu": round(sum(os.times()[:4]), 1), **became}) + "\n")


if __name__ == "__main__":
    main()
