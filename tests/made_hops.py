"""Jobs for the rules of distance: four nodes of four GPUs on two leaf switches below one spine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from build import TWO, snap
from made_capacity import Made

from topocheck.snapshot import SCHEMA, At, FullSnapshot, Host, Identity, JobFact, Source

__all__ = ["CASES", "FAILURES", "NODES", "WARNINGS", "four", "network", "stages_of"]

Job = tuple[str, Sequence[FullSnapshot]]

WARNINGS = frozenset({"PP006", "GR003"})
NODES = ("node-a", "node-b", "node-c", "node-d")
TREE = {"spine": "leaf0 leaf1"}


def network(
    leaves: Mapping[str, str],
    tree: Mapping[str, str] = TREE,
    system: str = "slurm",
    source: str = "topology.conf",
) -> FullSnapshot:
    """What Slurm's topology says: nodes of each leaf, and switches below each other one."""
    facts = [
        JobFact(kind="switch-nodes", name=f"{system}/{leaf}", value=nodes, at=At(source=source, line=line))
        for line, (leaf, nodes) in enumerate(leaves.items(), 2)
    ]
    facts += [
        JobFact(
            kind="switch-links",
            name=f"{system}/{upper}",
            value=" ".join(f"{system}/{lower}" for lower in below.split()),
            at=At(source=source, line=1),
        )
        for upper, below in tree.items()
    ]
    return FullSnapshot(
        schema=SCHEMA,
        sources=(Source(name=source, kind="slurm topology"),),
        identity=Identity(host=Host()),
        job=tuple(facts),
    )


def stages_of(tensor: int = 4, pipeline: int = 4, data: int = 1, nodes: Sequence[str] = NODES) -> str:
    """A plan of vLLM on named nodes."""
    sizes = f"{{tensor: {tensor}, pipeline: {pipeline}, data: {data}}}"
    return f"engine: vllm\nparallel: {sizes}\nnodes: [{', '.join(nodes)}]\n"


def four(*ranks: Sequence[int], nodes: Sequence[str] = NODES) -> list[FullSnapshot]:
    """Four nodes with these ranks each, four in order if not said."""
    each = ranks or [range(4 * place, 4 * place + 4) for place in range(4)]
    return [snap(name, own, size=16) for name, own in zip(nodes, each, strict=True)]


NEAR = network({"leaf0": "node-a node-b", "leaf1": "node-c node-d"})
CROSSED = network({"leaf0": "node-a node-c", "leaf1": "node-b node-d"})
STRADDLING = ((0, 1, 2, 3), (4, 5, 8, 9), (6, 7, 10, 11), (12, 13, 14, 15))

CASES: dict[str, Made] = {
    "PP006": Made(
        (stages_of(), [*four(), NEAR]),
        (stages_of(), [*four(), CROSSED]),
        (stages_of(), four()),
        (TWO, [snap("node-a", range(4)), snap("node-b", range(4, 8))]),
        "warning",
        ("node-a", "9 switches", "they pass 5", "node-a, node-c, node-b, node-d", "topology.conf", "leaf0"),
    ),
    "GR003": Made(
        (stages_of(2, 2, 4), four()),
        (stages_of(2, 2, 4), four(*STRADDLING)),
        (stages_of(2, 2, 4), [*four()[:3], snap("node-d", (), size=16)]),
        (stages_of(), four()),
        "warning",
        ("replica 1 (ranks 4..7)", "node-b", "node-c", "rank 4", "rank 6"),
    ),
}

ALPHABET = ("alpha", "bravo", "charlie", "delta")
FAILURES: dict[str, Job] = {
    "PP006": (
        stages_of(nodes=ALPHABET),
        [*four(nodes=ALPHABET), network({"leaf0": "alpha charlie", "leaf1": "bravo delta"})],
    ),
    "GR003": (stages_of(2, 2, 4, ALPHABET), four(*STRADDLING, nodes=ALPHABET)),
}
