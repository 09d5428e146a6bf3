"""Files made of a report's remedies, to be pasted or given to a launcher (`topocheck verify --write-fixes`).

Only findings that count are asked, and only what can be said without a guess is written: two findings that
want different things of one variable are told and left to the reader.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topocheck.launchfile import is_host, rank_line, slots_line
from topocheck.ranges import first
from topocheck.remedy import Devices, Exclude, NodeOrder, Remedy, Variable
from topocheck.report import PlacementReport, Report, ReportedFinding, RuleReport

__all__ = ["MARK", "NAMES", "Fixes", "fixes_of"]

MARK = "# made by topocheck verify --write-fixes"
"""First line of README.txt, by which a folder of fixes is known."""
NAMES = ("README.txt", "hostfile", "rankfile", "env.sh", "exclude.txt")
"""Files that there may be."""
ORDER, VISIBLE = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"
MOST_TEXT = 400
ABOUT = {
    "hostfile": "Nodes in the order that keeps the groups together, with the ranks of each. The rules were "
    "run on this order and hold. Open MPI: mpirun --hostfile hostfile --map-by slot. DeepSpeed: deepspeed "
    "--hostfile hostfile. Slurm: srun --distribution=block where Slurm itself has the nodes in this order, "
    "else --distribution=arbitrary with the host of every rank in --nodelist. Where each node is started by "
    "itself, its line counted from 0 is its node rank (torchrun, vLLM and SGLang --node-rank), and the first "
    "is the master.",
    "rankfile": "The same order by rank. Open MPI: mpirun --map-by rankfile:file=rankfile",
    "env.sh": "Variables of the ranks. Source it on every node after the scheduler and the image have set "
    "theirs, and before the ranks start. Numbers of GPUs are nvidia-smi's. A host that calls itself "
    "otherwise than the report does gets no line of its own.",
    "exclude.txt": "Nodes to do without until they are repaired; {left} of {nodes} are left. The job needs "
    "others in their place, or smaller sizes. Slurm: sbatch --exclude=$(paste -sd, exclude.txt). The other "
    "files do not know of it.",
}
"""What each file is for and how it is used."""


@dataclass(slots=True)
class Asked:
    """One remedy and the findings that ask for it."""

    remedy: Remedy
    by: list[str] = field(default_factory=list)
    """Rule and message of each."""
    severe: bool = False
    """One of them is an error."""


Setting = tuple[str, str | None]
"""Variable and value; None is unset."""


class Fixes(NamedTuple):
    """Files, and what none could be made of."""

    files: dict[str, str]
    """Text by name, README.txt among them; empty if there is nothing to fix by files."""
    notes: list[str]


def fixes_of(report: Report) -> Fixes:
    """The files that mend what a report found, as far as files can."""
    asked, nodes = list(remedies_of(report)), nodes_of(report)
    made = {
        "hostfile": hostfile(asked),
        "rankfile": rankfile(asked),
        "env.sh": environment(asked, nodes),
        "exclude.txt": exclude(asked, nodes),
    }
    files = {name: "\n".join(lines) + "\n" for name, lines in made.items() if lines}
    notes = list(left_over(asked, files))
    if files:
        lines = readme(report, asked, files, nodes)
        told = ["", "Not written", *(f"  {note}" for note in notes)] if notes else []
        files = {"README.txt": "\n".join((*lines, *told)) + "\n", **files}
    return Fixes(files, notes)


def remedies_of(report: Report) -> Iterator[Asked]:
    """Each remedy once, with what asks for it. What a waiver or the baseline covers asks for nothing."""
    found: dict[Remedy, Asked] = {}
    for rule in report.rules:
        borne = {name for finding in rule.findings if not finding.counts for name in finding.subjects}
        for finding in rule.findings:
            for remedy in finding.remedies if finding.counts else ():
                kept = without(remedy, borne)
                if kept is not None:
                    one = found.setdefault(kept, Asked(kept))
                    one.by.append(spoken(rule, finding))
                    one.severe = one.severe or finding.severity == "error"
    yield from found.values()


def without(remedy: Remedy, borne: set[str]) -> Remedy | None:
    """A remedy without the nodes that are borne as they are; None if it is for no others."""
    if not isinstance(remedy, Exclude):
        return remedy
    nodes = tuple(name for name in remedy.nodes if name not in borne)
    return Exclude(nodes=nodes) if nodes else None


def spoken(rule: RuleReport, finding: ReportedFinding) -> str:
    """A finding in one line."""
    return one_line(f"{rule.id} {finding.message}")


def one_line(text: str) -> str:
    """Text of others as a comment can hold it."""
    plain = "".join(char if char.isprintable() else " " for char in text)
    return plain if len(plain) <= MOST_TEXT else plain[: MOST_TEXT - 3] + "..."


def nodes_of(report: Report) -> list[str]:
    """Names of all nodes of the job, as far as the report has its placement."""
    placements: list[PlacementReport | None] = [report.placement]
    placements += [world.placement for world in report.worlds or ()]
    return list(dict.fromkeys(node.name for one in placements if one is not None for node in one.nodes))


def orders(asked: Sequence[Asked]) -> Iterator[tuple[NodeOrder, Asked]]:
    """Orders of nodes whose names a file can hold."""
    for one in asked:
        if isinstance(one.remedy, NodeOrder) and all(map(is_host, one.remedy.nodes)):
            yield one.remedy, one


def hostfile(asked: Sequence[Asked]) -> list[str]:
    """Lines of the hostfile."""
    return [
        slots_line(name, ranks)
        for order, _ in list(orders(asked))[:1]
        for name, ranks in zip(order.nodes, order.ranks, strict=True)
    ]


def rankfile(asked: Sequence[Asked]) -> list[str]:
    """Lines of the rankfile."""
    seats = [
        (name, slot)
        for order, _ in list(orders(asked))[:1]
        for name, ranks in zip(order.nodes, order.ranks, strict=True)
        for slot in range(ranks)
    ]
    return [rank_line(rank, name, slot) for rank, (name, slot) in enumerate(seats)]


def exclude(asked: Sequence[Asked], nodes: Sequence[str]) -> list[str]:
    """Nodes to do without, in the job's order: those of errors alone, or none, if else no node is left."""
    accused = [one for one in asked if isinstance(one.remedy, Exclude)]
    for these in (accused, [one for one in accused if one.severe]):
        wanted = {name for one in these for name in one.remedy.nodes}
        if not wanted.issuperset(nodes):
            return in_order(wanted, nodes)
    return []


def in_order(names: Iterable[str], nodes: Sequence[str]) -> list[str]:
    """Names that a file can hold in the job's order, others after them by name."""
    places = {name: place for place, name in enumerate(nodes)}
    return sorted(filter(is_host, names), key=lambda name: (places.get(name, len(places)), name))


@dataclass(slots=True)
class Wanted:
    """Values that are wanted of the variables, by where they are."""

    everywhere: dict[str, dict[str | None, list[str]]] = field(default_factory=dict)
    """Variable -> value -> what asks for it, on all nodes."""
    on: dict[str, dict[str, dict[str | None, list[str]]]] = field(default_factory=dict)
    """The same by node."""

    def add(self, name: str, value: str | None, nodes: Iterable[str], by: Sequence[str]) -> None:
        """Note one value; for all nodes if none are named."""
        places = [self.on.setdefault(node, {}) for node in nodes] or [self.everywhere]
        for place in places:
            place.setdefault(name, {}).setdefault(value, []).extend(by)


def environment(asked: Sequence[Asked], nodes: Sequence[str]) -> list[str]:
    """Lines of env.sh: what all nodes need, then what some do."""
    wanted = wanted_by(asked, nodes)
    common = [line for name, values in wanted.everywhere.items() for line in setting(name, values)]
    blocks: dict[tuple[str, ...], list[str]] = {}
    for node in in_order(wanted.on, nodes):
        lines = [
            line
            for name, values in wanted.on[node].items()
            for line in setting(name, wanted.everywhere.get(name, {}) | values)
        ]
        blocks.setdefault(tuple(lines), []).append(node)
    if not (common or blocks):
        return []
    found = ["# Source this on every node before its ranks start: . ./env.sh", *common]
    if blocks:
        found.append('case "$(uname -n)" in')
        for block, names in blocks.items():
            found.append(f"{'|'.join(map(pattern, names))})")
            found += [f"  {line}" for line in block]
            found.append("  ;;")
        found.append("esac")
    return found


def wanted_by(asked: Sequence[Asked], nodes: Sequence[str]) -> Wanted:
    """What the remedies want of the environment; what all nodes need alike is wanted everywhere."""
    wanted = Wanted()
    for one in asked:
        remedy = one.remedy
        if isinstance(remedy, Variable):
            alike = bool(nodes) and set(remedy.nodes) >= set(nodes)
            wanted.add(remedy.name, remedy.value, () if alike else remedy.nodes, one.by)
        elif isinstance(remedy, Devices):
            alike = bool(nodes) and set(remedy.nodes) >= set(nodes)
            places = () if alike else remedy.nodes
            wanted.add(ORDER, "PCI_BUS_ID", places, one.by)
            wanted.add(VISIBLE, ",".join(map(str, remedy.gpus)), places, one.by)
    return wanted


def setting(name: str, values: dict[str | None, list[str]]) -> list[str]:
    """Lines that give a variable its value, with what asks for it."""
    comments = [f"# {said}" for said in dict.fromkeys(said for by in values.values() for said in by)]
    (value, _), *others = values.items()
    if others:
        told = first("unset" if one is None else one_line(one) for one in values)
        return [*comments, f"# {name}: different values are asked for ({told}): decide by hand"]
    if not name.isidentifier() or not name.isascii() or (value is not None and not value.isprintable()):
        return [*comments, f"# {one_line(name)}: its value cannot be written here: set it by hand"]
    return [*comments, f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"]


def pattern(node: str) -> str:
    """Pattern of a shell's `case` for the names that a host gives itself: with and without its domain."""
    short = node.partition(".")[0]
    if short == node or short.isdigit():
        return f"{node}|{node}.*"
    return f"{node}|{short}"


def readme(
    report: Report, asked: Sequence[Asked], files: dict[str, str], nodes: Sequence[str]
) -> Iterator[str]:
    """What each file is for, and which finding asked for it."""
    yield MARK
    yield f"{report.tool}, {report.at}: {one_line(report.job)}"
    yield one_line(f"{report.verdict.upper()}: {report.sentence}")
    for name, about in ABOUT.items():
        if name in files:
            left = len(nodes) - files[name].count("\n")
            told = textwrap.wrap(about.format(left=left, nodes=len(nodes)), 98, break_on_hyphens=False)
            yield from ("", name, *(f"  {line}" for line in told), "  Asked for by:")
            yield from (f"  - {said}" for said in dict.fromkeys(asking(name, asked, files[name])))


def asking(name: str, asked: Sequence[Asked], text: str) -> Iterator[str]:
    """Findings that asked for a file of this text."""
    kinds: dict[str, tuple[type[Remedy], ...]] = {
        "hostfile": (NodeOrder,),
        "rankfile": (NodeOrder,),
        "env.sh": (Variable, Devices),
        "exclude.txt": (Exclude,),
    }
    for one in asked:
        heard = not isinstance(one.remedy, Exclude) or not set(one.remedy.nodes).isdisjoint(text.split())
        if isinstance(one.remedy, kinds[name]) and heard:
            yield from one.by


def left_over(asked: Sequence[Asked], files: dict[str, str]) -> Iterator[str]:
    """What was asked for and could not be written."""
    names = dict.fromkeys(name for one in asked for name in one.remedy.nodes if not is_host(name))
    if names:
        yield f"nothing for {first(map(one_line, names), 4)}: no file can hold such names of hosts"
    elif any(isinstance(one.remedy, Exclude) for one in asked) and "exclude.txt" not in files:
        yield "no exclude.txt: every node is accused, and leaving nodes out is no way"
