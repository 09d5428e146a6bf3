"""All ranks of a placement in a few kilobytes: what the page's script draws its table of ranks from.

Numbers are columns by row, each as its first value and the differences from row to row, which makes a
regular layout all but vanish in deflate; names are told once. UUIDs are random and cannot vanish: they stand
in the page once, in the report that it holds (`embedded`), and the script takes them from there. The same
placement gives the same bytes.
"""

from __future__ import annotations

import base64
import operator
import zlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from topocheck.render.marks import worst_marks
from topocheck.render.text import printable, shorten
from topocheck.report import GpuReport, PlacementReport, Placing, RankReport

__all__ = [
    "BASES",
    "MOST_ROWS",
    "Seat",
    "differs",
    "in_columns",
    "listed_ranks",
    "number_of",
    "pack",
    "seats_of",
]

BASES = ("predicted", "claimed", "observed")
"""Columns of a placement that say where a rank lies."""

ABSENT, SAME, NODE_ONLY, UNKNOWN, DIFFERS = range(5)
"""What one of them says of a rank, beside where the rank is placed."""

NONE = -1
"""In the columns of numbers: not known."""

Seat = tuple[int, int, int]
"""Where a rank sits by the list of its node: place of the node, ordinal of the GPU, number of the GPU."""

MOST_ROWS = 512
"""Rows of the table that stands in the page for readers without script, and on paper."""

_LEVEL = 6
_UUIDS = ("GPU-", "MIG-")
_MOST_NAME = 100
_MOST_NAMED = 2_000


def listed_ranks(placement: PlacementReport) -> frozenset[int]:
    """Ranks that are shown to readers without script: all, or the marked ones and then the first ones."""
    if len(placement.ranks) <= MOST_ROWS:
        return frozenset(rank.rank for rank in placement.ranks)
    marked = worst_marks(placement.marks)
    ranks = (rank.rank for rank in placement.ranks)
    chosen = list(islice((rank for rank in ranks if rank in marked), MOST_ROWS))
    others = (rank.rank for rank in placement.ranks if rank.rank not in marked)
    return frozenset([*chosen, *islice(others, MOST_ROWS - len(chosen))])


def pack(placement: PlacementReport) -> str:
    """The columns as JSON, deflated, in base64."""
    packed = zlib.compress(msgspec.json.encode(in_columns(placement)), _LEVEL)
    return base64.b64encode(packed).decode()


def seats_of(placement: PlacementReport) -> dict[int, Seat]:
    """Seat of each rank that a GPU of some node lists."""
    return {
        rank: (place, gpu.ordinal, number_of(gpu))
        for place, node in enumerate(placement.nodes)
        for gpu in node.gpus
        for rank in gpu.ranks
    }


def in_columns(placement: PlacementReport) -> dict[str, Any]:
    """The columns."""
    ranks, nodes, seats = placement.ranks, placement.nodes, seats_of(placement)
    places = {node.name: place for place, node in reversed(list(enumerate(nodes)))}
    names = [_name(node.name) for node in nodes]
    for name in dict.fromkeys(_all(ranks, "node")):
        if name and name not in places:
            places[name] = len(names)
            names.append(_name(name))
    sat = [seats.get(rank.rank) or (places.get(rank.node or "", NONE), NONE, NONE) for rank in ranks]
    homes, ordinals, numbers = zip(*sat, strict=True) if sat else ((), (), ())
    coordinates: list[dict[str, int]] = _all(ranks, "coordinates")
    told_by: set[str] = set().union(*_all(ranks, "sources"))
    return {
        "world": placement.world,
        "phase": placement.phase,
        "rank": steps(_all(ranks, "rank")),
        "axes": [
            [_name(axis), _axis(coordinates, axis)] for axis, size in placement.axes.items() if size > 1
        ],
        "stage": steps(_all(ranks, "stage")),
        "replica": steps(_all(ranks, "replica")),
        "group": steps(_all(ranks, "tensor_group")),
        "layers": told([layers and tuple(layers) for layers in _all(ranks, "layers")]),
        "local": steps([NONE if local is None else local for local in _all(ranks, "local_rank")]),
        "node": steps(homes),
        "ordinal": steps(ordinals),
        "number": steps(numbers),
        "loose": [[one.rank, _name(one.gpu)] for one in ranks if one.gpu and one.rank not in seats],
        "nodes": names,
        "seen": steps([int(node.seen) for node in nodes]),
        "shape": steps([NONE if node.shape is None else node.shape for node in nodes]),
        "domain": told([node.domain and _name(node.domain) for node in nodes]),
        "near": [[[_name(nic) for nic in near] for near in shape.near] for shape in placement.shapes],
        "bus": _buses(placement),
        "columns": [[basis, _basis(placement, basis)] for basis in BASES if basis in told_by],
        "marks": [[_name(m.rule), m.severity, m.kind, steps(m.ranks)] for m in placement.marks],
    }


def _all(ranks: Iterable[RankReport], field: str) -> list[Any]:
    """One field of every rank; C code does it."""
    return list(map(operator.attrgetter(field), ranks))


def steps(numbers: Sequence[int]) -> list[int]:
    """The first number, then the difference of each from the one before it."""
    return [*numbers[:1], *map(operator.sub, numbers[1:], numbers)]


def told(values: Sequence[Any]) -> list[Any]:
    """Each value once, in the order in which they come, then which of them each row has."""
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return [list(places), steps(list(map(places.__getitem__, values)))]


def differs(placing: Placing, rank: RankReport) -> bool:
    """A column contradicts the place that the verdict rests on; what is not known contradicts nothing."""
    elsewhere = None not in (placing.node, rank.node) and placing.node != rank.node
    return elsewhere or _other_gpu(placing.gpu, rank.gpu)


def _other_gpu(said: str | None, known: str | None) -> bool:
    """Two names of one kind that differ; a UUID and a bus id may well be one GPU."""
    if said is None or known is None or said == known:
        return False
    kinds = [(name.startswith(_UUIDS), ":" in name) for name in (said, known)]
    return kinds[0] == kinds[1]


def _name(text: str) -> str:
    """Text of others as the page may show it."""
    return shorten(printable(text), _MOST_NAME)


def _axis(coordinates: Iterable[dict[str, int]], axis: str) -> list[int]:
    """Position of each rank along an axis."""
    return steps([one.get(axis, NONE) for one in coordinates])


def number_of(gpu: GpuReport) -> int:
    """Number of a GPU as people call it: NVML index, else place in the node's list."""
    return gpu.ordinal if gpu.index is None else gpu.index


def _buses(placement: PlacementReport) -> list[Any]:
    """Bus ids of the GPUs of each node, told by kind of node."""
    kinds, chosen = told([tuple([gpu.bus for gpu in node.gpus]) for node in placement.nodes])
    return [[[bus and _name(bus) for bus in kind] for kind in kinds], chosen]


def _basis(placement: PlacementReport, basis: str) -> dict[str, Any]:
    """What a column says of each rank, where that was read, and where it puts those it puts elsewhere."""
    placings = [rank.sources.get(basis) for rank in placement.ranks]
    states = [
        # Nearly all are as placed, and a call for each of them would cost more than all the rest.
        SAME
        if placing is not None
        and placing.gpu is not None
        and placing.gpu == rank.gpu
        and placing.node == rank.node
        else _state(placing, rank)
        for placing, rank in zip(placings, placement.ranks, strict=True)
    ]
    sources, chosen = told([None if placing is None else placing.source for placing in placings])
    other: list[list[Any]] = []
    for row in [row for row, state in enumerate(states) if state == DIFFERS]:
        placing = placings[row]
        if placing is not None:
            gpu = placing.gpu if len(other) < _MOST_NAMED else None
            other.append([row, _name(placing.node or ""), _name(gpu or "")])
    return {
        "state": steps(states),
        "source": [[source and _name(source) for source in sources], chosen],
        "other": other,
    }


def _state(placing: Placing | None, rank: RankReport) -> int:
    """What one column says of a rank."""
    if placing is None:
        return ABSENT
    if differs(placing, rank):
        return DIFFERS
    return SAME if placing.gpu else NODE_ONLY if placing.node else UNKNOWN
