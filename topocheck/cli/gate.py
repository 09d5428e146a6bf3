"""`topocheck gate`: on each node probe, publish, wait for all, verify; the same answer everywhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import click
import msgspec

from topocheck.answer import Declared
from topocheck.baseline import Baseline, read_baseline
from topocheck.checklist import Gate
from topocheck.cli.output import rendered, terminal_width, write_file
from topocheck.cli.progress import Progress
from topocheck.cli.shown import WHO, look_again, shown, unsettled
from topocheck.cli.sigterm import ended_by_sigterm
from topocheck.cli.streams import say
from topocheck.errors import TopocheckError, UsageError
from topocheck.gate import Decision, Waiting, pass_gate
from topocheck.gather.alone import Alone
from topocheck.gather.entryname import is_only_task
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.store import Store
from topocheck.launchers.runid import checked_id, run_of
from topocheck.plan import NodeRange, Plan
from topocheck.planfile import read_plan
from topocheck.policy import Site, merged, read_site
from topocheck.question import question

__all__ = ["Asked", "gate", "gate_options", "passed"]

NODES = click.IntRange(1, 1_000_000)
TERMINATION_LOG = Path("/dev/termination-log")
MOST_TERMINATION = 4096
"""Bytes that the kubelet keeps of a container's last words."""
GIVE_STORE = "give --store with a folder that all nodes share: --store file:/shared/gates (Kubernetes: k8s:)"
PREFLIGHT = {3: 2}
"""NVSentinel's checks end with 0 passed, 1 failed, 2 configuration error: undecided accuses no node."""


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
    ray: str | None = None
    """Address of the Ray cluster whose nodes are asked; None where gates meet in a store."""
    site: Site | None = None
    """A policy file."""
    baseline: Baseline | None = None

    @property
    def declared(self) -> Declared:
        """What is declared beside the evidence."""
        return Declared(self.plan, site=self.site, baseline=self.baseline)

    @property
    def gate(self) -> Gate:
        """What shuts it."""
        return Gate("error", merged(self.plan.policy, self.site).min_basis or "predicted")


def gate_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of `gate` and `run`."""
    options = [
        click.option("--plan", "plan_path", metavar="PLAN", help="Plan file."),
        click.option("--policy", metavar="FILE", help="Policy and waivers; wins over the plan's."),
        click.option(
            "--baseline",
            metavar="REPORT",
            help="JSON report of an earlier run: what it found already shows and does not count.",
        ),
        click.option(
            "--store",
            metavar="URL",
            help="Where gates meet: a folder that all nodes share, file:/shared/x; or ConfigMaps of the pod's"
            " namespace, k8s:, or of another, k8s:NAMESPACE.",
        ),
        click.option("--ray", is_flag=True, help="One gate, by the engine's driver: Ray asks all its nodes."),
        click.option("--ray-address", metavar="ADDRESS", help="Ray cluster  [default: RAY_ADDRESS, auto]"),
        click.option("--run-id", metavar="ID", help="Id of this launch  [default: the launcher's]"),
        click.option("--expect", type=NODES, metavar="N", help="Nodes  [default: plan, launcher]"),
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
            metavar="DAYS",
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
@click.option("--markdown", metavar="PATH", help="Write it as Markdown.")
@click.option("--junit", metavar="PATH", help="Write it as JUnit XML.")
@click.option(
    "--exit-codes",
    type=click.Choice(["topocheck", "preflight"]),
    default="topocheck",
    show_default=True,
    help="preflight: as NVSentinel's preflight knows them, 2 for undecided.",
)
def gate(
    *,
    json_path: str | None,
    html_path: str | None,
    markdown: str | None,
    junit: str | None,
    exit_codes: str,
    **options: Any,
) -> int:
    """Verify a job on all of its nodes before it starts: start this once on each node.

    Each gate probes its node, publishes what it shows and waits for the others; one verifies, and all give
    the same verdict and exit code: 0 open, 1 shut, 3 undecided (a node did not report in time).

    With --ray start it once, where the engine will be started: Ray runs the probe on all of its nodes.
    """
    known = PREFLIGHT if exit_codes == "preflight" else {}
    try:
        decision, name = passed(asked_for(options), os.environ)
    except TopocheckError as error:
        error.exit_code = known.get(error.exit_code, error.exit_code)
        raise
    tell(decision, name)
    paths = {"json": json_path, "html": html_path, "markdown": markdown, "junit": junit}
    for kind, path in paths.items():
        if path is not None:
            write_file(Path(path), rendered(decision.report, kind))
    return known.get(decision.exit_code, decision.exit_code)


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
        ray=ray_of(options),
        site=None if options["policy"] is None else read_site(options["policy"]),
        baseline=None if options["baseline"] is None else read_baseline(options["baseline"]),
    )
    if asked.ray is not None:
        return asked
    if asked.store is None and expected(asked, os.environ) > 1:
        raise UsageError(GIVE_STORE)
    return asked


def ray_of(options: Mapping[str, Any]) -> str | None:
    """Address of the Ray cluster to ask; None if none is. Raises UsageError for a store beside it."""
    if not options["ray"] and options["ray_address"] is None:
        return None
    if options["store"] is not None:
        raise UsageError("--ray and --store: Ray brings the evidence of all nodes, leave --store out")
    from topocheck.gather.ray_cluster import ray_address  # noqa: PLC0415 - only under Ray

    return ray_address(options["ray_address"], os.environ)


def passed_by_ray(asked: Asked, address: str) -> tuple[Decision, str]:
    """The verdict over what Ray's nodes show now, and the name of this gate."""
    from topocheck.cli import ray_gate  # noqa: PLC0415 - only under Ray
    from topocheck.gather.ray_cluster import gather_ray  # noqa: PLC0415

    run = ray_gate.new_run() if asked.run_id is None else checked_id(asked.run_id, os.environ)[0]
    plan = ray_gate.under_ray(asked.plan)
    with ended_by_sigterm(WHO):
        view = gather_ray(address, run, asked.timeout_s)
        for _ in range(asked.retries):
            coming = next(filter(None, map(unsettled, ray_gate.full_snapshots(view))), "")
            if not coming:
                break
            look_again(coming)
            view = gather_ray(address, run, asked.timeout_s)
    job = ray_gate.job_of(view, plan, asked.expect, asked.timeout_s)
    for label, reason in sorted(job.others.items()):
        say(f"topocheck gate: {label}: {reason}")
    return ray_gate.verdict(view, job, plan, run, address, terms=asked.declared, gate=asked.gate)


def passed(asked: Asked, env: Mapping[str, str]) -> tuple[Decision, str]:
    """Pass the gate: the verdict of the run, and the name of this gate's entry."""
    if asked.ray is not None:
        return passed_by_ray(asked, asked.ray)
    env = ganged(asked, with_leader(env)) if asked.run_id is None else env
    run, nodes = checked_id(asked.run_id, env)[0], expected(asked, env)
    with ended_by_sigterm(WHO):
        store = Alone() if asked.store is None else store_of(asked.store, run, env)
        snapshot, name = shown(run, asked.retries, env, question(asked.declared, asked.gate, nodes))
        if asked.store is None and not is_only_task(name):
            raise UsageError(f"this node has several tasks, each with a gate of its own: {GIVE_STORE}")
        with contextlib.closing(Progress(WHO)) as progress:
            waiting = Waiting(
                run=run,
                name=name,
                expected=nodes,
                declared=asked.declared,
                gate=asked.gate,
                names=names_of(asked.plan, env),
                timeout_s=asked.timeout_s,
                tell=progress.tell,
                tell_every_s=progress.every_s,
                store_name=asked.store or "this node",
            )
            decision = pass_gate(store, snapshot, waiting)
        if decision.by == name:
            tidied(store, asked.keep_days)
    return decision, name


def with_leader(env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the uid of the group's leader, which a worker asks the API server for."""
    if not env.get("TOPOCHECK_GROUP_KEY"):
        return env
    from topocheck.gather.leader_pod import leader_uid  # noqa: PLC0415 - only in a LeaderWorkerSet

    leader = leader_uid(env)
    return env if leader is None else {**env, "TOPOCHECK_LEADER_UID": leader}


def ganged(asked: Asked, env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with what NVSentinel's preflight shows of the gang, once it is whole."""
    if not env.get("GANG_CONFIG_DIR"):
        return env
    from topocheck.gather.gang_folder import with_gang  # noqa: PLC0415 - only under NVSentinel

    nodes = asked.plan.nodes
    least = nodes.min if isinstance(nodes, NodeRange) else nodes if isinstance(nodes, int) else len(nodes)
    return with_gang(env, asked.expect or least, lambda line: say(f"topocheck gate: {line}"))


def tidied(store: Store, days: float) -> None:
    """Remove what old runs left; where that fails, the verdict that all have is in force all the same."""
    try:
        store.clean(days)
    except TopocheckError as error:
        say(f"topocheck gate: what older runs left stays: {error}")


def store_of(url: str, run: str, env: Mapping[str, str]) -> Store:
    """The store of a URL. Raises UsageError for one that is not known."""
    parts = urlsplit(url)
    if parts.scheme == "k8s":
        return configmaps(url, run, env)
    if parts.scheme in ("", "file"):
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"--store {url}: a folder is written file:/shared/gates or file:///shared/gates")
        return FolderStore(Path(unquote(parts.path)), run)
    raise UsageError(f"--store {url}: expected file:/FOLDER or k8s:NAMESPACE")


def configmaps(url: str, run: str, env: Mapping[str, str]) -> Store:
    """The store of `k8s:` and `k8s:NAMESPACE`. Raises UsageError without the library that it needs."""
    try:
        from topocheck.gather.configmap_store import ConfigMapStore  # noqa: PLC0415 - an extra, and slow
    except ModuleNotFoundError:
        raise UsageError(
            f"--store {url}: lightkube is not installed: install topocheck with its extra `kubernetes`, or "
            "meet in a folder: --store file:/shared/gates"
        ) from None
    return ConfigMapStore(url.partition(":")[2] or None, run, env)


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
    if env.get("TOPOCHECK_GANG_PODS"):
        return env["TOPOCHECK_GANG_PODS"].split(",")
    listed = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_JOB_NODELIST")
    if not listed:
        return ()
    from topocheck.hostlist import expand  # noqa: PLC0415 - only under Slurm

    with contextlib.suppress(ValueError):
        return expand(listed)
    return ()


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
