"""The files and options of one run, read into what a record is made of."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import msgspec

from topocheck.claims import claimed_size, united
from topocheck.errors import InputError, UsageError
from topocheck.gather.files import arguments, gather, split_label
from topocheck.inputfile import read_bytes
from topocheck.inventory import Inventory
from topocheck.ledger import STATED
from topocheck.origin import NOTHING_TAKEN, Origin
from topocheck.pipeline.bench import parse_bench
from topocheck.pipeline.clientlog import parse_client_log
from topocheck.pipeline.duration import parse_duration
from topocheck.pipeline.followed import follow
from topocheck.pipeline.memorylog import parse_start_up
from topocheck.pipeline.microbatches import parse_in_force
from topocheck.pipeline.trace_files import read_traces
from topocheck.pipeline.utilization import parse_utilization
from topocheck.pipeline.waits_report import SCHEMA as WAITS
from topocheck.pipeline.waits_report import WaitsReport
from topocheck.placement import Placement, place
from topocheck.plan import Plan
from topocheck.planfile import derive, read_plan
from topocheck.record import InputPart, Limits
from topocheck.recorded import Given
from topocheck.spelling import suggest

__all__ = ["RunFiles", "read_run"]

MOST_BYTES = 512 << 20
"""Lists by request hold every generated text."""
MOST_TEXT = 200


@dataclass(slots=True, kw_only=True)
class RunFiles:
    """What the user named; None and () are not given."""

    plan: str | None
    evidence: tuple[str, ...]
    bench: str | None
    bench_run: int | None
    bench_log: str | None
    bench_limits: str | None
    from_log: tuple[str, ...]
    utilization: tuple[str, ...]
    waits: str | None
    trace: tuple[str, ...]
    unit: str | None
    stated: tuple[str, ...]
    inputs: list[InputPart] = field(default_factory=list)
    """Files that were read."""

    def check(self) -> None:
        """Raise UsageError if nothing is given, or standard input twice."""
        named = [self.plan, self.bench, self.bench_log, self.waits]
        named += [*self.from_log, *self.utilization, *self.trace, *self.evidence]
        files = [name for name in named if name is not None]
        if not files:
            raise UsageError(
                "there is nothing to record: give --plan PLAN, --bench FILE or evidence of the run"
            )
        if sum(name == "-" or split_label(name)[1] == "-" for name in files) > 1:
            raise UsageError("- is given twice: standard input can be read once")
        if self.bench is None and (self.bench_run or self.bench_limits):
            raise UsageError("--bench-run and --bench-limits are about a result: give --bench FILE")
        if self.unit is not None and not self.trace:
            raise UsageError("--unit is about a trace: give --trace FILE")

    def text(self, path: str, kind: str) -> str:
        """Text of one file, noted among the inputs. Raises InputError."""
        data = read_bytes(path, MOST_BYTES, f"is larger than {MOST_BYTES >> 20} MiB")
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.inputs.append(InputPart(name=path, kind=kind, digest=digest))
        return data.decode("utf-8-sig", "replace")


def read_run(files: RunFiles) -> Given:
    """Everything that the files hold. Raises UsageError, InputError for what cannot be read."""
    files.check()
    inventory = Inventory()
    seen = gather(arguments(list(files.evidence)), inventory)
    files.inputs += [InputPart(name=one.name, kind=one.kind, digest=one.digest) for one in seen]
    bench, client = files.bench, files.bench_log
    logs = [(name, files.text(name, "start-up log")) for name in files.from_log]
    placement, notes = read_placement(files, inventory)
    return Given(
        inventory=inventory,
        placement=placement,
        plan=files.plan or "evidence",
        notes=notes,
        bench=None
        if bench is None
        else (bench, parse_bench(files.text(bench, "benchmark"), bench, files.bench_run)),
        client=None
        if client is None
        else (client, parse_client_log(files.text(client, "client log"), client)),
        logs=[(name, parse_in_force(text, name), parse_start_up(text)) for name, text in logs],
        waits=None if files.waits is None else (files.waits, read_waits(files, files.waits)),
        unit=None
        if not files.trace
        else (", ".join(files.trace), follow(read_traces(files.trace), files.unit)),
        limits=None if files.bench_limits is None else read_limits(files.bench_limits),
        utilization=[
            (name, found)
            for name in files.utilization
            for found in parse_utilization(files.text(name, "utilisation"), name)
        ],
        stated=dict(map(read_stated, files.stated)),
        inputs=files.inputs,
    )


def read_placement(files: RunFiles, inventory: Inventory) -> tuple[Placement | None, list[str]]:
    """The placement of the plan, or of the sizes that the evidence shows, and a note where there is none.

    Evidence that shows no plan gives no placement, and a note says why. Raises PlanError for a bad plan,
    UsageError for one of several worlds.
    """
    if files.plan is not None:
        plan, origin = derive(read_plan(files.plan), claimed_size(inventory.claims)), NOTHING_TAKEN
    elif files.evidence:
        try:
            plan, origin = shown_plan(inventory)
        except UsageError as error:
            return None, [f"no placement: {error}"]
    else:
        return None, []
    if plan.worlds != 1:
        raise UsageError(
            f"{files.plan}: a record is of one world: give a plan of the world that was measured"
        )
    inventory.claims = united(inventory.claims)
    return place(plan, inventory, origin), []


def shown_plan(inventory: Inventory) -> tuple[Plan, Origin]:
    """The plan that the evidence itself shows. Raises UsageError where it shows none."""
    # Imported only where it is needed: what reads launch commands takes longer than a small job.
    from topocheck.evident import evident  # noqa: PLC0415

    return evident(inventory)


def read_waits(files: RunFiles, path: str) -> WaitsReport:
    """The answer of `topocheck waits --json`. Raises InputError."""
    try:
        found = msgspec.json.decode(files.text(path, "waits"), type=WaitsReport)
    except (msgspec.MsgspecError, RecursionError) as error:
        problem = f"is no answer of topocheck waits ({error})"
        raise InputError(problem, path=path, fix="write it with topocheck waits --json") from None
    if found.schema != WAITS:
        raise InputError(f"has the schema {found.schema[:40]!r}", path=path, fix=f"expected {WAITS}")
    return found


def read_limits(words: str) -> Limits:
    """`ttft=500ms,tpot=50ms`; a number alone is ms. Raises UsageError unless both are there, once."""
    found: dict[str, float] = {}
    for word in words.split(",", 3):
        name, sign, time = word.strip().partition("=")
        if name not in {"ttft", "tpot"} or not sign or name in found:
            break
        found[name] = float(parse_duration(time)) / 1e6
    else:
        if len(found) == 2:
            return Limits(ttft_ms=found["ttft"], tpot_ms=found["tpot"])
    raise UsageError(f"--bench-limits {words[:60]}: expected both limits, for instance ttft=500ms,tpot=50ms")


def read_stated(words: str) -> tuple[str, int | str]:
    """`workload.seed=7`. Raises UsageError for a field that files show, and for a value of another kind."""
    path, sign, value = words.partition("=")
    kind = STATED.get(path.strip())
    if not sign or kind is None:
        meant = suggest(path, STATED)
        fix = f"did you mean {meant}?" if meant else f"what can be stated is {', '.join(STATED)}"
        raise UsageError(f"--set {words[:60]}: expected FIELD=VALUE: {fix}")
    value = value.strip()
    if kind is int:
        if not (value.isdecimal() and value.isascii() and len(value) < 18):
            raise UsageError(f"--set {words[:60]}: expected a whole number")
        return path.strip(), int(value)
    if not value or not value.isprintable() or len(value) > MOST_TEXT:
        raise UsageError(f"--set {words[:60]!a}: expected a short text")
    return path.strip(), value
