"""`topocheck gate`: on each node probe, publish, wait for all, verify; the same answer everywhere."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click
import msgspec

from topocheck.answer import Declared
from topocheck.checklist import Gate
from topocheck.cli.output import rendered, terminal_width, write_file
from topocheck.cli.streams import say
from topocheck.errors import UsageError
from topocheck.gate import Decision, Waiting, entry_name, pass_gate
from topocheck.gather.alone import Alone
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.store import Store
from topocheck.launchers.resolve import resolve
from topocheck.launchers.runid import checked_id, run_of
from topocheck.plan import NodeRange, Plan
from topocheck.planfile import read_plan

__all__ = ["Asked", "gate", "gate_options", "passed"]

TERMINATION_LOG = Path("/dev/termination-log")
MOST_TERMINATION = 4096
"""Bytes that the kubelet keeps of a container's last words."""
UNSETTLED = {"INIT", "ARMED", "Polling", "In Progress"}
"""States of ports and fabrics on their way up."""
RETRY_S = 2.0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one gate."""

    plan: Plan
    store: str | None
    """URL of the store; None for a job of one node."""
    run_id: str | None
    expect: int | None
    timeout_s: float
    retries: int
    keep_days: float


def gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of `gate` and `run`."""
    options = [
        click.option("--plan", "plan_path", metavar="PLAN", help="Plan file."),
        click.option(
            "--store", metavar="URL", help="Where gates meet: a folder that all nodes share, file:/shared/x."
        ),
        click.option("--run-id", metavar="ID", help="Id of this launch  [default: the launcher's]"),
        click.option("--expect", type=click.IntRange(1, 1_000_000), help="Nodes  [default: plan, launcher]"),
        click.option(
            "--timeout",
            type=click.FloatRange(min=1, max=86_400),
            default=300.0,
            show_default=True,
            metavar="SECONDS",
            help="How long to wait for the other nodes.",
        ),
        click.option(
            "--retry-failed",
            type=click.IntRange(0, 100),
            default=0,
            metavar="N",
            help="Probe again up to N times while a port or the fabric is coming up.",
        ),
        click.option(
            "--keep-days",
            type=click.FloatRange(min=0.01),
            default=7.0,
            show_default=True,
            help="Runs that nothing was written to for so long are removed from the store.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@gate_options
@click.option("--json", "json_path", metavar="PATH", help="Write the report as JSON.")
@click.option("--html", "html_path", metavar="PATH", help="Write the report as one HTML file.")
def gate(*, json_path: str | None, html_path: str | None, **options: Any) -> int:
    """Verify a job on all of its nodes before it starts: start this once on each node.

    Each gate probes its node, publishes what it shows and waits for the others; one verifies, and all give
    the same verdict and exit code: 0 open, 1 shut, 3 undecided (a node did not report in time).
    """
    decision, name = passed(asked_for(options), os.environ)
    tell(decision, name)
    for kind, path in (("json", json_path), ("html", html_path)):
        if path is not None:
            write_file(Path(path), rendered(decision.report, kind))
    return decision.exit_code


def asked_for(options: Mapping[str, Any], plan: Plan | None = None) -> Asked:
    """The options of `gate_options` as one value. Raises UsageError for what is missing."""
    if plan is None and options["plan_path"] is None:
        raise UsageError("give --plan FILE: what is to be verified")
    asked = Asked(
        plan=read_plan(options["plan_path"]) if plan is None else plan,
        store=options["store"],
        run_id=options["run_id"],
        expect=options["expect"],
        timeout_s=options["timeout"],
        retries=options["retry_failed"],
        keep_days=options["keep_days"],
    )
    if asked.store is None and expected(asked, os.environ) > 1:
        raise UsageError("give --store with a folder that all nodes share: --store file:/shared/gates")
    return asked


def passed(asked: Asked, env: Mapping[str, str]) -> tuple[Decision, str]:
    """Pass the gate: the verdict of the run, and the name of this gate's entry."""
    run = run_id(asked.run_id, env)
    store = Alone() if asked.store is None else store_of(asked.store, run)
    snapshot, name = shown(run, asked.retries, env)
    waiting = Waiting(
        run=run,
        name=name,
        expected=expected(asked, env),
        declared=Declared(asked.plan),
        gate=Gate("error", asked.plan.policy.min_basis or "predicted"),
        names=names_of(asked.plan, env),
        timeout_s=asked.timeout_s,
        tell=lambda line: say(f"topocheck gate: {line}"),
        store_name=asked.store or "this node",
    )
    with ended_by_sigterm():
        decision = pass_gate(store, snapshot, waiting)
        if decision.by == name:
            store.clean(asked.keep_days)
    return decision, name


def run_id(given: str | None, env: Mapping[str, str]) -> str:
    """Id of this run: as given, else the launcher's; a worker of a group asks which leader it has."""
    if given is None and env.get("TOPOCHECK_GROUP_KEY"):
        from topocheck.gather.leader_pod import leader_uid  # noqa: PLC0415 - only in a LeaderWorkerSet

        leader = leader_uid(env)
        env = dict(env) if leader is None else {**env, "TOPOCHECK_LEADER_UID": leader}
    return checked_id(given, env)[0]


def store_of(url: str, run: str) -> Store:
    """The store of a URL. Raises UsageError for one that is not known."""
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"--store {url}: a folder is written file:/shared/gates or file:///shared/gates")
        return FolderStore(Path(unquote(parts.path)), run)
    raise UsageError(f"--store {url}: expected file:/FOLDER")


def shown(run: str, retries: int, env: Mapping[str, str]) -> tuple[bytes, str]:
    """Snapshot of this node, sealed, and the name of its entry."""
    # Imported here: what reads a machine is needed once, and not by whoever only asks for help.
    from topocheck.gather.seal import sealed  # noqa: PLC0415
    from topocheck.plugins import PROBES, names  # noqa: PLC0415
    from topocheck.probes.node.probe import Request, read_node  # noqa: PLC0415
    from topocheck.probes.node.roots import Roots  # noqa: PLC0415

    request = Request(roots=Roots.real(), run=run, plugins=names(PROBES))
    snapshot = read_node(request)
    for _ in range(retries):
        if not unsettled(snapshot):
            break
        say(f"topocheck gate: {unsettled(snapshot)}: looking again in {RETRY_S:.0f} s")
        _pause(RETRY_S)
        snapshot = read_node(request)
    host, chosen = snapshot.identity.host, resolve(env).chosen
    task = 0 if chosen is None or chosen.local_rank is None else chosen.local_rank
    tasks = 1 if chosen is None or chosen.local_size is None else chosen.local_size
    name = entry_name(host.name or "", host.boot_id or "", task, tasks)
    return sealed(msgspec.json.encode(snapshot), snapshot.token or ""), name


def _pause(seconds: float) -> None:
    import time  # noqa: PLC0415 - only where something is coming up

    time.sleep(seconds)


def unsettled(snapshot: Any) -> str:
    """What of the node is still coming up, in words; empty if nothing is."""
    for nic in snapshot.hardware.nics:
        for port in nic.ports:
            if port.state in UNSETTLED or port.physical in UNSETTLED:
                return f"port of {nic.name} is {port.state or port.physical}"
    states = [fabric.state for fabric in snapshot.fabric if fabric.state in UNSETTLED]
    return f"the NVLink fabric is {states[0]}" if states else ""


def expected(asked: Asked, env: Mapping[str, str]) -> int:
    """Number of nodes: as asked, else the plan's, else the launcher's. Raises UsageError if none says it."""
    if asked.expect is not None:
        return asked.expect
    nodes = asked.plan.nodes
    if isinstance(nodes, int):
        return nodes
    if not isinstance(nodes, NodeRange):
        return len(nodes)
    told = run_of(env).nodes
    if told is None or not nodes.min <= told <= nodes.max:
        raise UsageError(
            f"the plan allows {nodes.min} to {nodes.max} nodes: say with --expect how many take part"
        )
    return told


def names_of(plan: Plan, env: Mapping[str, str]) -> Sequence[str]:
    """Names of the nodes, by the plan or by Slurm's list."""
    if isinstance(plan.nodes, tuple):
        return plan.nodes
    listed = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST")
    if not listed:
        return ()
    from topocheck.hostlist import expand  # noqa: PLC0415 - only under Slurm

    with contextlib.suppress(ValueError):
        return expand(listed)
    return ()


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the wait as an exit, so that what was written aside is removed."""

    def stop(_number: int, _frame: object) -> None:
        raise SystemExit(143)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tell(decision: Decision, name: str) -> None:
    """The whole report where it was made, one sentence elsewhere; last words where a container keeps them."""
    from topocheck.render import terminal  # noqa: PLC0415 - only now that there is a report

    report = decision.report
    text = terminal.render(report, width=terminal_width(), colour=False, verbose=False)
    if decision.by == name:
        sys.stdout.write(text)
        sys.stdout.flush()
    word = {0: "OPEN", 1: "SHUT"}.get(decision.exit_code, "UNDECIDED")
    by = "" if decision.by == name else f" (verified by {decision.by.rpartition('-')[0]})"
    say(f"topocheck gate: {word}: {report.sentence}{by}")
    with contextlib.suppress(OSError):
        if TERMINATION_LOG.exists():
            TERMINATION_LOG.write_bytes(f"gate {word}: {text}".encode()[:MOST_TERMINATION])
