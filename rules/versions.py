"""VER: nodes of one job are alike: versions, model, arguments, machines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from topocheck.ask import Ask
from topocheck.engines.version import release
from topocheck.errors import LayoutError
from topocheck.inventory import Machine
from topocheck.kinds import by_kind, kinds
from topocheck.majority import Split, split
from topocheck.placement import Node, Placement
from topocheck.profiles import right_numbers, spelled_numbers
from topocheck.ranges import first
from topocheck.remedy import Exclude, Remedy
from topocheck.rule import Evidence, Finding, NotApplicable, Severity, Situations, read_at, rule, the
from topocheck.snapshot import JobFact, ModelFiles, Software
from topocheck.speaker import speaker

__all__ = ["RULES"]

PROBE = "topocheck probe on every node"
Build = tuple[str | None, str | None, str | None]
"""GPUs, their NVLinks and how they are joined, in words; None is not known."""
UNKNOWN: Build = (None, None, None)
PER_NODE = frozenset({"node-rank", "node_rank", "host", "port", "master-addr", "headless", "nnodes"})
"""Arguments that differ from node to node by right."""
MORE_THAN_A_NODE = NotApplicable("the job has one node")


def whole_job(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where it has nodes to compare."""
    return MORE_THAN_A_NODE if placement.expected == 1 else the(placement)


def compared(
    ask: Ask,
    what: str,
    found: Split[str],
    supply: str,
    fix: str,
    *,
    part: str = "software",
    remedies: tuple[Remedy, ...] = (),
) -> Iterator[Finding]:
    """A finding where nodes differ, a gap for those that are silent."""
    ask.know()
    if found.silent:
        ask.gap(what, [node.name for node in found.silent], supply, part=part)
    if found.odd:
        yield Finding(
            message=f"{found.told(what)}",
            fix=fix,
            cause=f"{what} differs",
            subjects=tuple(node.name for node in found.odd),
            evidence=found.evidence(what),
            remedies=remedies,
        )


@rule("VER001", "one driver on all nodes", over=whole_job, severity="warning")
def one_driver(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """The kernel driver of the GPUs."""
    found = split(placement, lambda machine: machine.software.driver)
    fix = "install one driver on all nodes, and reboot or reload it where the odd one is"
    yield from compared(ask, "the GPU driver", found, f"nvidia-smi, given as NODE=FILE, or {PROBE}", fix)


@rule("VER002", "one NCCL on all nodes", over=whole_job, severity="error")
def one_nccl(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """The communication library, by the log of the job where there is one."""
    found = split(placement, lambda machine: machine.nccl)
    fix = "use one image, or one nvidia-nccl package, on all nodes: ranks of two versions hang or abort"
    supply = f"the NCCL_DEBUG=VERSION line of every node, or {PROBE} in the job's own environment"
    yield from compared(ask, "NCCL", found, supply, fix)


def engine_of(machine: Machine) -> str | None:
    """Engine and version."""
    software = machine.software
    if software.engine is None or software.engine_version is None:
        return None
    return f"{software.engine} {software.engine_version}"


@rule("VER003", "one engine on all nodes", over=whole_job, severity="error")
def one_engine(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Engine and version, among the nodes and against the plan."""
    found = split(placement, engine_of)
    fix = "run one image on all nodes: versions lay out ranks and messages in different ways"
    supply = f"the start-up log of every node, or {PROBE} in the job's own environment"
    yield from compared(ask, "the engine", found, supply, fix)
    yield from other_than_planned(ask, placement, found)


def other_than_planned(ask: Ask, placement: Placement, found: Split[str]) -> Iterator[Finding]:
    """Nodes agree on another release than the plan's, by whose rules ranks were laid out."""
    planned = placement.plan.engine_version
    if planned is None or len(found.groups) != 1:
        return
    ((value, nodes),) = found.groups
    name, _, version = value.partition(" ")
    if name != placement.plan.engine or same_release(planned, version):
        return
    yield Finding(
        message=f"the plan says {placement.facts.engine.title} {planned} and {first(map(str, nodes))} "
        f"{'have' if len(nodes) > 1 else 'has'} {version}: this layout is that of {planned}",
        fix=f"write engine_version: {version!r} into the plan, or install {planned}",
        cause="other version than planned",
        subjects=tuple(map(str, nodes)),
        evidence=(Evidence(source="plan", fact=f"engine_version {planned}"), *found.evidence("engine")),
        severity="warning",
    )


def same_release(a: str, b: str) -> bool:
    """The numbers that both give are equal: 0.19 and 0.19.1 may be one."""
    try:
        return all(x == y for x, y in zip(release(a), release(b), strict=False))
    except LayoutError:
        return a == b


def versions(placement: Placement) -> Situations[Node] | NotApplicable:
    """Nodes by their versions; without NVIDIA's GPUs there is no CUDA."""
    models = {model for members in kinds(placement) for model in members[0].models}
    if models and all(model is not None and model.startswith(("AMD", "Instinct")) for model in models):
        return NotApplicable("the GPUs are AMD's")
    return by_kind(placement, lambda node: id(node.machine.software) if node.machine else None)


@rule("VER004", "CUDA fits the driver and the GPUs", over=versions, severity="warning")
def cuda_fits(ask: Ask, node: Node) -> Iterator[Finding]:
    """CUDA of the job's libraries is no newer than what the driver runs, and was built for the GPUs."""
    yield from unsupported(ask, node)
    software = node.machine.software if node.machine else Software()
    ask.know()
    if software.cuda is None or software.cuda_runtime is None:
        missing = "CUDA of the driver" if software.cuda is None else "CUDA of the job's libraries"
        ask.gap(missing, [node.name], f"{PROBE} in the job's own environment", part="software")
        return
    driver, runtime = numbers(software.cuda), numbers(software.cuda_runtime)
    if not driver or not runtime:
        odd = software.cuda_runtime if driver else software.cuda
        ask.gap(f"a version of CUDA ({odd[:40]!r} is none)", [node.name], PROBE, part="software")
        return
    if runtime[:1] > driver[:1]:
        yield newer_cuda(node, software, "its programs do not start")
    elif runtime > driver:
        yield newer_cuda(node, software, "what is compiled when it is loaded (PTX) does not start", "info")


def numbers(version: str) -> tuple[int, ...]:
    """`12.8` -> (12, 8)."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def newer_cuda(node: Node, software: Software, effect: str, severity: Severity | None = None) -> Finding:
    """The finding about libraries newer than the driver."""
    return Finding(
        message=f"the job's libraries are of CUDA {software.cuda_runtime} and the driver of {node} runs CUDA "
        f"{software.cuda}: {effect} unless the compatibility package is installed",
        fix=f"update the driver, use an image of CUDA {software.cuda} or older, or install cuda-compat",
        cause="libraries newer than the driver",
        subjects=(node.name,),
        evidence=(
            Evidence(source=node.read_in(), fact=f"CUDA of the driver {software.cuda}"),
            Evidence(source=node.read_in(), fact=f"CUDA of the libraries {software.cuda_runtime}"),
        ),
        severity=severity,
    )


def unsupported(ask: Ask, node: Node) -> Iterator[Finding]:
    """Models that the job's PyTorch was not built for; a log says it once, of whatever node."""
    facts = [f for f in ask.placement.inventory.job if f.kind == "unsupported-gpu"]
    if facts and node.index == 0:
        named = first(dict.fromkeys(f"{fact.name} ({fact.value})" for fact in facts))
        yield Finding(
            message=f"PyTorch was not built for {named}: its kernels do not run there",
            fix="install a PyTorch that was built for this GPU (a newer CUDA build)",
            cause="GPU not supported by PyTorch",
            subjects=tuple(dict.fromkeys(fact.name for fact in facts)),
            evidence=tuple(read_at(fact.at, f"{fact.name}: {fact.value}") for fact in facts),
        )


def model_of(machine: Machine) -> str | None:
    """The model's files in words; None if nobody looked."""
    found = [spelled(files) for files in machine.model]
    return None if not found else " and ".join(dict.fromkeys(found))


def spelled(files: ModelFiles) -> str:
    """Digests short enough to read."""
    config = (files.config_digest or "no config.json").removeprefix("sha256:")[:12]
    weights = (files.weights_digest or "no weights").removeprefix("sha256:")[:12]
    count = "" if files.weights_files is None else f", {files.weights_files} weight files"
    return f"config {config}, weights {weights}{count}"


@rule("VER005", "one model on all nodes", over=whole_job, severity="error")
def one_model(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """config.json by its content, weights by names and sizes."""
    found = split(placement, model_of)
    fix = "fetch one revision of the model to all nodes, and let it finish: a part of a download looks alike"
    supply = "topocheck probe --model FOLDER on every node"
    yield from compared(ask, "the model", found, supply, fix, part="model")


def arguments(placement: Placement) -> dict[str, dict[str, list[JobFact]]]:
    """Arguments of the plan's engine by name and value."""
    found: dict[str, dict[str, list[JobFact]]] = {}
    for fact in placement.inventory.job:
        if fact.kind == "requested-size" and fact.engine == placement.plan.engine and fact.at:
            found.setdefault(fact.name, {}).setdefault(fact.value, []).append(fact)
    return found


def voices(placement: Placement, values: dict[str, list[JobFact]]) -> dict[str, dict[str, None]]:
    """Values of one argument by who said them."""
    found: dict[str, dict[str, None]] = {}
    for value, facts in values.items():
        for fact in facts:
            who = speaker(placement, fact)
            if who is not None:
                found.setdefault(who, {})[value] = None
    return found


def unheard(placement: Placement, said: set[str]) -> list[str]:
    """Nodes whose arguments nobody tells; a host that is none of the plan's names may be one without any."""
    silent = [node for node in placement.nodes[: placement.expected] if node.name not in said]
    files = {fact.at.source for fact in placement.inventory.job if fact.at}
    hosts = said - files - {node.name for node in placement.nodes}
    nameless = not isinstance(placement.plan.nodes, tuple) and all(node.machine is None for node in silent)
    return [] if nameless and len(hosts) >= len(silent) else [node.name for node in silent]


@rule("VER006", "one set of engine arguments", over=whole_job, severity="error")
def one_set_of_arguments(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Sizes that each node's own command or log asks for."""
    stated = {name: values for name, values in arguments(placement).items() if name not in PER_NODE}
    spoken = {name: voices(placement, values) for name, values in stated.items()}
    ask.know()
    silent = unheard(placement, set().union(*spoken.values(), set()))
    if silent:
        supply = "the start-up log of every node, given as NODE=FILE where it names no host"
        ask.gap("engine arguments of every node", silent, supply, part="job")
    for name, said in spoken.items():
        if any(a.isdisjoint(b) for a, b in combinations(set(map(frozenset, said.values())), 2)):
            yield asked_apart(name, said, stated[name])
        elif torn := sorted(who for who, values in said.items() if len(values) > 1):
            ask.gap(
                f"which of several values of {name} is in force", torn, "the newest log alone", part="job"
            )


def asked_apart(name: str, said: dict[str, dict[str, None]], values: dict[str, list[JobFact]]) -> Finding:
    """The finding of one argument."""
    by_value = {value: sorted(who for who, own in said.items() if value in own) for value in values}
    listed = ", ".join(f"{value} by {first(names)}" for value, names in by_value.items() if names)
    return Finding(
        message=f"{name} is asked for with different values: {listed}. The nodes build different "
        "groups and wait for each other",
        fix=f"start all nodes with one value of {name}",
        cause=f"argument {name} differs",
        subjects=tuple(sorted(said)),
        evidence=tuple(read_at(facts[0].at, f"{name} {value}") for value, facts in values.items()),
    )


def build_of(machine: Machine) -> Build:
    """What the machine is; nothing unless its list of GPUs is whole."""
    whole = machine.coverage.gpus == "all" and machine.shape is not None
    return machine.shape.build if machine.shape is not None and whole else UNKNOWN


def shown(placement: Placement) -> tuple[int, ...]:
    """Parts of the build to compare: the GPUs, and what any node shows of their links."""
    builds = {build_of(nodes[0].machine) for nodes in kinds(placement) if nodes[0].machine is not None}
    return (0, *(part for part in (1, 2) if any(build[part] is not None for build in builds)))


def counted_job(placement: Placement) -> Situations[Placement] | NotApplicable:
    """The job, where nodes can be compared with each other, or with what is right for each."""
    stated = placement.plan.policy.expect_gpus is not None
    return the(placement) if stated or miscounted(placement) else whole_job(placement)


def miscounted(placement: Placement) -> list[Finding]:
    """Findings of nodes that show another number of GPUs than policy or profile says."""
    return placement.keep("numbers of GPUs", find_miscounted)


def find_miscounted(placement: Placement) -> list[Finding]:
    """Hold the number of each kind of node against what is right for it."""
    found = []
    for alike in kinds(placement):
        machine = alike[0].machine
        right, why = right_numbers(placement, alike[0])
        if machine is None or machine.coverage.gpus != "all" or not right or len(machine.gpus) in right:
            continue
        names = tuple(node.name for node in alike)
        fact = f"{len(machine.gpus)} GPU{'s' * (len(machine.gpus) != 1)}"
        found.append(
            Finding(
                message=f"{first(names)} {'shows' if len(names) == 1 else 'show'} {fact}, and {why} says "
                f"{spelled_numbers(right)}: one may have fallen off the bus",
                fix="look for the missing GPU (lspci -d 10de:, Xid 79 in the kernel log) and repair the "
                "node; if the number is meant, say policy.expect_gpus",
                cause="number of GPUs",
                subjects=names,
                evidence=(Evidence(source=alike[0].read_in(), fact=f"{fact} listed"),),
                remedies=(Exclude(nodes=names),),
            )
        )
    return found


@rule("VER007", "no odd node out", over=counted_job, severity="warning")
def no_odd_node(ask: Ask, placement: Placement) -> Iterator[Finding]:
    """Number and models of GPUs, their NVLinks, and how they are joined; then their right number."""
    parts = shown(placement)

    def whole(machine: Machine) -> str | None:
        build = [build_of(machine)[part] for part in parts]
        return None if None in build else "".join(map(str, build))

    found = split(placement, whole)
    fix = "take the odd node out of the job, or repair it; if it is meant so, waive this for it"
    odd = tuple(node.name for node in found.odd) if found.usual else ()
    remedies = (Exclude(nodes=odd),) if odd else ()
    yield from compared(ask, "hardware", found, PROBE, fix, part="gpus", remedies=remedies)
    for finding in miscounted(placement):
        if not set(odd).issuperset(finding.subjects):
            yield finding


RULES = (
    no_odd_node,
    one_driver,
    one_nccl,
    one_engine,
    cuda_fits,
    one_model,
    one_set_of_arguments,
)
