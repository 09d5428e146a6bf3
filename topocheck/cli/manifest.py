"""`topocheck manifest`: a manifest or script with a gate, or a gate put into a manifest that is there."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import click

from topocheck import __version__
from topocheck.cli.launched import TakesCommand
from topocheck.cli.recipes import RECIPES, Recipe, recipe
from topocheck.cli.streams import say, show
from topocheck.commands.documents import read_file
from topocheck.errors import UsageError
from topocheck.formula import ranks_of_sizes
from topocheck.kubernetes.patched import patched
from topocheck.kubernetes.wanted import KINDS, Kind, Wanted, checked
from topocheck.kubernetes.written import manifest
from topocheck.plan import NodeRange, Plan
from topocheck.planfile import parse_plan, text_of

__all__ = ["manifest_command"]

EXAMPLE = "engine: vllm\nparallel: {{tensor: 8, pipeline: {nodes}}}\nnodes: {nodes}\n"


@click.command("manifest", cls=TakesCommand)
@click.option(
    "--for", "kind", type=click.Choice((*KINDS, *RECIPES)), help="What is printed; --patch sees it."
)
@click.option("--patch", "patch_path", metavar="FILE", help="Add the gate to this manifest, and print it.")
@click.option("--plan", "plan_path", metavar="PLAN", help="Plan file  [default: an example, to be edited]")
@click.option("--name", metavar="NAME", help="Name of what is made  [default: the manifest's, else job]")
@click.option("--image", default=f"topocheck:{__version__}", show_default=True, help="Image with topocheck.")
@click.option(
    "--main-image", default="registry.example/engine:1", show_default=True, help="Image of the job."
)
@click.option("--gpus", type=click.IntRange(0, 1024), help="GPUs a pod  [default: ranks / nodes of the plan]")
@click.option("--gpu-resource", default="nvidia.com/gpu", show_default=True, help="What stands for a GPU.")
@click.option("--claim", default="topocheck-gates", show_default=True, help="Claim in which gates meet.")
@click.option(
    "--store",
    metavar="URL",
    help="Where gates meet: in Kubernetes k8s:, ConfigMaps; under Slurm a folder  [default: "
    "file:/shared/gates]",
)
@click.option("--tasks-per-node", type=click.IntRange(1, 1024), help="Slurm's tasks on a node  [default: 1]")
@click.option("--topology", metavar="LABEL", help="Nodes of a group have one value of this label.")
@click.option("--timeout", type=click.IntRange(1, 86_400), default=300, show_default=True, metavar="SECONDS")
@click.argument("nothing", nargs=-1, metavar="[-- COMMAND...]")
@click.pass_context
def manifest_command(context: click.Context, /, *, nothing: tuple[str, ...], **options: Any) -> None:
    r"""Print what puts a gate in front of a job.

    \b
    pod, indexed-job, jobset, leaderworkerset
        a Kubernetes manifest in which an init container is the gate
    sbatch
        a batch script: gates in a step of their own, then the job's step
    task-prolog
        a TaskProlog of Slurm: a gate in front of each task
    nvsentinel
        Helm values that make topocheck a check of NVSentinel's preflight

    An init container is unprivileged (the restricted pod standard), gets its names and uids from the downward
    API, and its exit codes are what a podFailurePolicy asks for: 0 open, 1 shut, 2 bad plan, 3 undecided.
    """
    command: tuple[str, ...] | None = context.obj
    if nothing:
        raise UsageError(
            "give the command of the job after --: topocheck manifest --for pod -- vllm serve ..."
        )
    if options["patch_path"] is not None:
        show(put_into(options, command), exact=True)
        return
    chosen: Kind | Recipe | None = options["kind"]
    if chosen is None:
        known = ", ".join((*KINDS, *RECIPES))
        raise UsageError(f"give --for with what is to be printed ({known}), or --patch FILE")
    if chosen in RECIPES:
        shape = partial(wanted_of, options, (), "job", alone=False)
        show(recipe(chosen, context, shape), exact=True)
        return
    check_store(options["store"])
    kind = cast("Kind", chosen)
    wanted = checked(wanted_of(options, command or (), "job", alone=kind == "pod"))
    if kind == "pod" and not wanted.alone:
        raise UsageError(
            f"the plan has {wanted.nodes} nodes and a Pod is one: choose another kind with --for"
        )
    show(manifest(kind, wanted), exact=True)


def put_into(options: dict[str, Any], command: tuple[str, ...] | None) -> str:
    """The manifest of --patch with a gate."""
    if command is not None or options["plan_path"] is None:
        raise UsageError("--patch takes the command that is in the manifest, and the plan of --plan FILE")
    check_store(options["store"])
    path = options["patch_path"]
    found = patched(read_file(path, Path()), path, wanted_of(options, (), "", alone=False))
    if options["kind"] not in (None, found.kind):
        raise UsageError(f"{path}: is of kind {found.kind}, not {options['kind']}")
    for note in found.notes:
        say(f"topocheck manifest: {note}")
    return found.text


def wanted_of(options: dict[str, Any], command: tuple[str, ...], name: str, *, alone: bool) -> Wanted:
    """The options as one value."""
    source, text = "example", EXAMPLE.format(nodes=1 if alone else 2)
    if options["plan_path"] is not None:
        source, text = text_of(options["plan_path"])
    plan = parse_plan(text, source)
    nodes = nodes_of(plan)
    gpus = options["gpus"]
    return Wanted(
        name=options["name"] or name,
        image=options["image"],
        main_image=options["main_image"],
        command=command,
        plan=text.replace("\r\n", "\n"),
        nodes=nodes,
        gpus=gpus_of(plan, nodes) if gpus is None else gpus,
        resource=options["gpu_resource"],
        claim=options["claim"],
        configmaps=options["store"] == "k8s:",
        topology=options["topology"],
        timeout_s=options["timeout"],
    )


def check_store(store: str | None) -> None:
    """Raises UsageError for a store that no manifest of Kubernetes writes."""
    if store not in (None, "k8s:"):
        raise UsageError(
            f"--store {store}: expected k8s: (ConfigMaps of the job's own namespace, which go with the job); "
            "without it gates meet in the volume of --claim"
        )


def nodes_of(plan: Plan) -> int:
    """Pods of the job. Raises UsageError for a number that is open."""
    if isinstance(plan.nodes, NodeRange):
        raise UsageError(f"the plan has {plan.nodes.min} to {plan.nodes.max} nodes: write the number of pods")
    return plan.nodes if isinstance(plan.nodes, int) else len(plan.nodes)


def gpus_of(plan: Plan, nodes: int) -> int:
    """GPUs that each pod needs. Raises UsageError where the plan leaves it open."""
    ranks = ranks_of_sizes(plan)
    if plan.worlds != 1 or ranks % nodes:
        raise UsageError("the plan does not say how many GPUs a pod has: give --gpus N")
    return ranks // nodes
