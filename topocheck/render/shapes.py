"""Hardware shapes as tables: links of a node's devices in letters and colours, its NICs, who is otherwise.

Everything is taken from the distinct shapes; nodes are only counted, in runs of the plan's order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from topocheck.render.words import say
from topocheck.report import NodeReport, PlacementReport, ShapeReport

__all__ = ["Cell", "DeviceRow", "ShapeView", "ShapesView", "shapes_view"]

MOST_SHAPES = 12
"""Shapes shown in full; the others are named with their number of nodes."""
MOST_NAMED = 40
"""Shapes named; of the others only how many they are is said."""
MOST_WIDE = 20
"""GPUs, and RDMA devices, of a table; a larger one is no longer read."""
MOST_RUNS = 8
KINDS = ("PIX", "PXB", "PHB", "NODE", "SYS", "PCI")
"""Classes of a link in the order of the legend, after NVLink."""


class Cell(msgspec.Struct, frozen=True):
    """One cell of the table of links."""

    text: str
    kind: str
    """Class of the style sheet: nv, pix, pxb, phb, node, sys, pci, self, open."""
    differs: bool = False
    """The first shape has another class there."""


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """One RDMA device."""

    name: str
    layer: str
    rate: str
    state: str
    numa: str
    rail: str
    near: str
    """GPUs to which it is nearest, with the class of the link."""


class ShapeView(msgspec.Struct, frozen=True, kw_only=True):
    """One shape in full."""

    report: ShapeReport
    nodes: str
    """Nodes that have it, in runs."""
    rows: list[list[Cell]]
    """Links of each GPU: to the GPUs, then to the RDMA devices; empty of a shape that is too large."""
    gpus: int
    """How many of the columns are GPUs."""
    numa: list[str] | None
    """NUMA node of each GPU; None where none is known."""
    near: list[str]
    """Nearest RDMA devices of each GPU with class, rate and link layer."""
    devices: list[DeviceRow]
    columns: list[str]
    """Columns of the table of devices for which any device has something to say."""


class ShapesView(msgspec.Struct, frozen=True, kw_only=True):
    """The shapes of one placement, the commonest first."""

    world: str | None
    full: list[ShapeView]
    named: list[str]
    """Other shapes in words."""
    left: int
    """Shapes that are not named."""
    usual: bool
    """One of them is that of most nodes."""
    alone: bool
    """All nodes whose hardware is known have the same."""
    legend: list[tuple[Cell, str]]
    """Classes that occur, and what they mean."""
    framed: bool
    """Some cells differ from those of the first shape."""
    silent: int
    """Nodes whose hardware is not known."""


def shapes_view(placement: PlacementReport, world: str | None) -> ShapesView | None:
    """What the page shows of the shapes; None without any node."""
    shapes = sorted(enumerate(placement.shapes), key=lambda pair: (not pair[1].usual, -pair[1].nodes))
    if not placement.nodes:
        return None
    where = _places(placement.nodes)
    full = [_shape(shape, shapes[0][1], _runs(where.get(place, ()))) for place, shape in shapes[:MOST_SHAPES]]
    rest = [shape for _, shape in shapes[MOST_SHAPES:]]
    return ShapesView(
        world=world,
        full=full,
        named=[_named(shape) for shape in rest[:MOST_NAMED]],
        left=max(0, len(rest) - MOST_NAMED),
        usual=any(shape.usual for _, shape in shapes),
        alone=len(shapes) == 1,
        legend=list(_legend({cell.text: cell for view in full for row in view.rows for cell in row})),
        framed=any(cell.differs for view in full for row in view.rows for cell in row),
        silent=sum(node.shape is None for node in placement.nodes),
    )


def _places(nodes: Sequence[NodeReport]) -> dict[int | None, list[tuple[str, str, int]]]:
    """First name, last name and length of each run of neighbours with one shape, by shape."""
    found: dict[int | None, list[tuple[str, str, int]]] = {}
    for shape, run in groupby(nodes, key=lambda node: node.shape):
        members = list(run)
        found.setdefault(shape, []).append((members[0].name, members[-1].name, len(members)))
    return found


def _runs(runs: Sequence[tuple[str, str, int]]) -> str:
    """Runs in words, the longest ones that there is room for in their order."""
    parts = []
    for first, last, count in runs[:MOST_RUNS]:
        if count < 3:
            parts += [first, last][:count]
        else:
            parts.append(say("run_of_nodes", first=first, last=last, count=count))
    left = sum(count for _, _, count in runs[MOST_RUNS:])
    return ", ".join(parts) + (f" {say('and_more', count=left)}" if left else "")


def _named(shape: ShapeReport) -> str:
    """A shape that is not shown: what it is, on how many nodes, and what is otherwise first of all."""
    words = say("shape_nodes", title=shape.title, count=shape.nodes)
    return f"{words}: {shape.differs[0]}" if shape.differs else words


def _shape(shape: ShapeReport, first: ShapeReport, nodes: str) -> ShapeView:
    """One shape in full."""
    wide = max(len(shape.gpus), len(shape.nics)) <= MOST_WIDE
    devices = list(_devices(shape))
    return ShapeView(
        report=shape,
        nodes=nodes,
        rows=_rows(shape, first) if wide else [],
        gpus=len(shape.links),
        numa=_known(shape.numa) if len(shape.numa) == len(shape.links) else None,
        near=[_near(shape, gpu) for gpu in range(len(shape.links))],
        devices=devices,
        columns=[
            name
            for name in ("layer", "rate", "state", "rail", "numa", "near")
            if any(getattr(device, name) != say("open") for device in devices)
        ],
    )


def _known(numbers: Sequence[int | None]) -> list[str] | None:
    """Numbers as text; None where none is known."""
    shown = [say("open") if number is None else str(number) for number in numbers]
    return shown if any(number is not None for number in numbers) else None


def _rows(shape: ShapeReport, first: ShapeReport) -> list[list[Cell]]:
    """Links of all GPUs; where the first shape has the same devices, what differs from it is framed."""
    rows = [_row(shape, gpu) for gpu in range(len(shape.links))]
    if shape is first or (len(shape.gpus), shape.nics) != (len(first.gpus), first.nics):
        return rows
    usual = [_row(first, gpu) for gpu in range(len(first.links))]
    return [
        [
            cell if cell == other else msgspec.structs.replace(cell, differs=True)
            for cell, other in zip(row, others, strict=True)
        ]
        for row, others in zip(rows, usual, strict=True)
    ]


def _row(shape: ShapeReport, gpu: int) -> list[Cell]:
    """Links of one GPU: to the GPUs, then to the RDMA devices."""
    cells = [Cell("X", "self") if gpu == at else _cell(link) for at, link in enumerate(shape.links[gpu])]
    nics = shape.nic_links[gpu] if gpu < len(shape.nic_links) else [None] * len(shape.nics)
    return [*cells, *map(_cell, nics)]


def _cell(link: str | None) -> Cell:
    """A link as its letters and the class of its colour."""
    if link is None:
        return Cell(say("open"), "open")
    if link.startswith("NV"):
        return Cell(link, "nv")
    return Cell(link, link.lower() if link in KINDS else "open")


def _legend(cells: dict[str, Cell]) -> Iterator[tuple[Cell, str]]:
    """What the classes that occur mean, the fastest first."""
    bonded = sorted(
        (text for text, cell in cells.items() if cell.kind == "nv"), key=lambda text: (len(text), text)
    )
    for text in reversed(bonded):
        yield (
            cells[text],
            say("link_nv", count=int(text[2:]))
            if text[2:].isdecimal() and len(text) < 8
            else say("link_nvs"),
        )
    for kind in KINDS:
        if kind in cells:
            yield cells[kind], say(f"link_{kind}")
    if say("open") in cells:
        yield cells[say("open")], say("link_open")


def _near(shape: ShapeReport, gpu: int) -> str:
    """`mlx5_0 (PIX, 400 Gb/s InfiniBand)`, all that tie."""
    devices = {device.name: device for device in shape.devices}
    parts = []
    for name in shape.near[gpu] if gpu < len(shape.near) else ():
        device = devices.get(name)
        facts = [_class(shape, gpu, name)]
        if device is not None:
            facts.append(" ".join(filter(None, (_rate(device.rate_gbps), device.layer))))
        told = ", ".join(filter(None, facts))
        parts.append(f"{name} ({told})" if told else name)
    return ", ".join(parts) or say("nearest_unknown")


def _class(shape: ShapeReport, gpu: int, name: str) -> str | None:
    """Class of the link between a GPU and a device."""
    if name not in shape.nics or gpu >= len(shape.nic_links):
        return None
    place = shape.nics.index(name)
    return shape.nic_links[gpu][place] if place < len(shape.nic_links[gpu]) else None


def _rate(rate: float | None) -> str | None:
    return None if rate is None else say("gbps", rate=f"{rate:g}")


def _devices(shape: ShapeReport) -> Iterator[DeviceRow]:
    """RDMA devices with the GPUs that are near them."""
    unknown = say("open")
    for device in shape.devices[:MOST_WIDE]:
        by_class: dict[str, list[int]] = {}
        for gpu, names in enumerate(shape.near):
            if device.name in names:
                by_class.setdefault(_class(shape, gpu, device.name) or unknown, []).append(gpu)
        near = [
            say("near_gpus", count=len(gpus), gpus=", ".join(map(str, gpus)), kind=kind)
            for kind, gpus in by_class.items()
        ]
        yield DeviceRow(
            name=device.name,
            layer=device.layer or unknown,
            rate=_rate(device.rate_gbps) or unknown,
            state=device.state or unknown,
            numa=unknown if device.numa is None else str(device.numa),
            rail=unknown if device.rail is None else str(device.rail),
            near=", ".join(near) or (say("near_none") if any(shape.near) else unknown),
        )
