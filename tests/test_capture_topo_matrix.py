"""`nvidia-smi topo -m`: read, repaired or refused, never shifted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import parse_text, read_text
from topocheck.probes.capture.topo_matrix import parse
from topocheck.snapshot import Coverage, FullSnapshot, LinkMatrix

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")


def read(text: str) -> list[Reading]:
    return parse(parse_text(text.encode(), "topo.txt"))


def snapshots(path: Path) -> list[FullSnapshot]:
    return [snapshot for reading in parse(read_text(path)) for snapshot in reading.snapshots]


def only(path: Path) -> FullSnapshot:
    (found,) = snapshots(path)
    return found


def matrix(snapshot: FullSnapshot) -> LinkMatrix:
    assert snapshot.hardware.matrix is not None
    return snapshot.hardware.matrix


def pairs(snapshot: FullSnapshot, cell: str) -> set[tuple[int, int]]:
    rows = matrix(snapshot).gpus
    return {(a, b) for b in range(len(rows)) for a in range(b) if rows[a][b] == cell}


def near(snapshot: FullSnapshot, cell: str) -> set[tuple[int, int]]:
    rows = matrix(snapshot).nics
    return {(gpu, nic) for gpu, row in enumerate(rows) for nic, found in enumerate(row) if found == cell}


def numas(snapshot: FullSnapshot) -> list[int | None]:
    return [gpu.numa for gpu in snapshot.hardware.gpus]


def notes(text: str) -> list[tuple[int | None, str, str]]:
    return [(note.line, note.kind, note.text) for reading in read(text) for note in reading.notes]


def test_a_whole_table_gives_classes_numa_nodes_and_names_of_nics() -> None:
    found = only(CAPTURES / "topo-legend.txt")
    assert matrix(found).gpus == (("X", "NV8"), ("NV8", "X"))
    assert matrix(found).nics == (("PXB", "SYS"), ("SYS", "PIX"))
    assert numas(found) == [0, 1]
    assert [gpu.nvml for gpu in found.identity.gpus] == [0, 1]
    assert {gpu.scope for gpu in found.identity.gpus} == {"unknown"}
    names = ["mlx5_3", "mlx5_bond_0"]
    assert [nic.name for nic in found.identity.nics] == [nic.name for nic in found.hardware.nics] == names
    assert found.coverage == Coverage(gpus="all", links="all", nics="all")


def test_an_old_table_has_device_names_as_headings_and_says_soc() -> None:
    found = only(CAPTURES / "topo-old.txt")
    assert [nic.name for nic in found.identity.nics] == ["mlx5_1", "mlx5_0"]
    assert matrix(found).gpus[0] == ("X", "PIX", "SYS")
    assert matrix(found).nics == (("PHB", "SYS"), ("PHB", "SYS"), ("SYS", "PIX"))
    assert numas(found) == [None] * 3


def test_a_glued_header_and_glued_cells_are_repaired_with_a_note() -> None:
    (reading,) = parse(read_text(CAPTURES / "topo-glued.txt"))
    (found,) = reading.snapshots
    assert matrix(found).nics == (("NODE", "PIX", "SYS"), ("SYS", "SYS", "NODE"))
    repaired = [note for note in reading.notes if note.kind == "repaired"]
    assert [note.line for note in repaired] == [3, 4, 6, 7, 8]
    assert repaired[0].text == "NIC0NIC1 are two headings"


def test_missing_rows_are_named_and_make_the_coverage_part() -> None:
    (reading,) = parse(read_text(CAPTURES / "topo-partial.txt"))
    (found,) = reading.snapshots
    assert "4 rows are missing: GPU2..GPU3, NIC0..NIC1" in [note.text for note in reading.notes]
    assert found.coverage == Coverage(gpus="part", links="part", nics="part")
    assert len(found.identity.gpus) == 4
    assert matrix(found).gpus[2] == ("NV6", "NV6", "X", None)
    assert matrix(found).nics[3] == (None, None)
    assert found.identity.host.name == "gpu-17"
    assert reading.lines == {5, 6, 7}


def test_missing_nic_rows_leave_the_gpus_whole() -> None:
    table = "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPIX\t0-7\t0\n"
    (reading,) = read(table)
    assert reading.snapshots[0].coverage == Coverage(gpus="all", links="all", nics="part")


def test_each_table_of_a_file_is_a_reading_with_the_host_of_its_prompt() -> None:
    found = snapshots(CAPTURES / "topo-two-hosts.txt")
    assert [snapshot.identity.host.name for snapshot in found] == ["gpu-3", "gpu-4", None]
    assert [len(snapshot.identity.gpus) for snapshot in found] == [2, 2, 1]
    assert [numas(snapshot) for snapshot in found] == [[None, None], [0, 1], [None]]


def test_cells_that_contradict_each_other_are_unknown_and_noted() -> None:
    table = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tPHB\t X \t0-7\n"
    (reading,) = read(table)
    assert matrix(reading.snapshots[0]).gpus == (("X", None), (None, "X"))
    assert reading.snapshots[0].coverage.links == "part"
    assert notes(table) == [(2, "contradictory", "GPU0-GPU1 is NV4 in row GPU0 and PHB in row GPU1")]


def test_a_row_without_header_gives_a_note_only() -> None:
    (reading,) = read("NIC0    NODE    PHB     NODE    NODE     X\n\nLegend:\n\n  X    = Self\n")
    assert reading.snapshots == ()
    assert [(note.line, note.kind) for note in reading.notes] == [(1, "cut")]


def test_rows_behind_a_foreign_line_are_noted_and_not_guessed() -> None:
    table = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\n[12:00] a log line\nGPU1\tNV4\t X \t0-7\n"
    assert [(line, kind) for line, kind, _ in notes(table)] == [(2, "cut"), (4, "cut")]


def test_blank_lines_and_elisions_do_not_end_a_table() -> None:
    table = "\tGPU0\tGPU1\tCPU Affinity\n\nGPU0\t X \tNV4\t0-7\n....\n\nGPU1\tNV4\t X \t0-7\n"
    assert matrix(read(table)[0].snapshots[0]).gpus == (("X", "NV4"), ("NV4", "X"))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t0-7\nGPU1\tNV4\t X \t0-7\n",
            "row GPU0 has 1 cells.* 2 columns",
        ),
        ("\tGPU0\tCPU Affinity\nGPU0\t X \tNV4\t0-7\n\nend", "row GPU0 has 2 cells.* 1 columns"),
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tNV4\t X \t0-7\n", "self cell X of row GPU0"),
        ("\tGPU0\tGPU0\tCPU Affinity\nGPU0\t X \tNV4\t0-7\n", "header names GPU0 twice"),
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU2\tNV4\t X \t0-7\n", "row GPU2 has no column"),
        ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tNV4\t0\nGPU0\tX\tSYS\t0\n", "GPU0 is there twice"),
    ],
)
def test_what_does_not_align_is_refused_with_its_line(table: str, problem: str) -> None:
    with pytest.raises(CaptureError, match=rf"^topo\.txt:\d+: .*{problem}"):
        read(table)


def test_a_table_cut_inside_its_last_row_keeps_the_rows_before() -> None:
    table = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-7\nGPU1\tNV1"
    (reading,) = read(table)
    assert matrix(reading.snapshots[0]).gpus == (("X", "NV12"), ("NV12", "X"))
    assert reading.snapshots[0].coverage.gpus == "part"


@pytest.mark.parametrize(
    ("tail", "numa"),
    [
        ("0-7\t1\t\tN/A", 1),
        ("0-7\t0-1\t\tN/A", None),
        ("0-7\tN/A\t\tN/A", None),
        ("\t\t\tN/A", None),
        ("1\t\tN/A", None),
    ],
)
def test_a_numa_node_is_taken_only_from_a_full_tail(tail: str, numa: int | None) -> None:
    table = f"\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t{tail}\n"
    assert numas(read(table)[0].snapshots[0]) == [numa]


def test_other_tables_of_gpus_are_left_to_others() -> None:
    assert read(" \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n") == []
    assert read("       GPU0   GPU1\nGPU0   0      15\nGPU1   15     0\n") == []
    assert read("GPU0 and GPU1 are joined\nGPU0 is fine\n") == []


CLASSES = st.sampled_from(["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV12", "NV18"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[tuple[str, str], str], list[int], list[list[str]]]:
    """True classes, true NUMA nodes, and the table as cells."""
    gpus = draw(st.integers(2, 5))
    devices = [f"GPU{n}" for n in range(gpus)] + [f"NIC{n}" for n in range(draw(st.integers(0, 3)))]
    truth = {}
    for place, b in enumerate(devices):
        truth[b, b] = "X"
        for a in devices[:place]:
            truth[a, b] = truth[b, a] = draw(CLASSES)
    numa = draw(st.lists(st.integers(0, 7), min_size=gpus, max_size=gpus))
    grid = [["", *devices, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]]
    for number, a in enumerate(devices):
        tail = ["0-31,64-95", str(numa[number]), "", "N/A"] if number < gpus else []
        grid.append([a, *(" X " if a == b else truth[a, b] for b in devices), *tail])
    return truth, numa, grid


DAMAGES = (
    "remove cell",
    "glue cells",
    "double cell",
    "remove line",
    "join lines",
    "split line",
    "blank",
    "cut",
)


def damage(grid: list[list[str]], kind: str, chance: random.Random) -> None:
    line = chance.randrange(len(grid))
    row = grid[line]
    cell = chance.randrange(len(row)) if row else 0
    if kind == "remove cell" and row:
        del row[cell]
    elif kind == "glue cells" and cell + 1 < len(row):
        row[cell : cell + 2] = [row[cell] + row[cell + 1]]
    elif kind == "double cell" and row:
        row.insert(cell, row[cell])
    elif kind == "remove line" and len(grid) > 1:
        del grid[line]
    elif kind == "join lines" and line + 1 < len(grid):
        grid[line : line + 2] = [row + grid[line + 1]]
    elif kind == "split line":
        grid[line : line + 1] = [row[:cell], row[cell:]]
    elif kind == "blank" and row:
        row[cell] = ""
    elif kind == "cut":
        del grid[line + 1 :]
        if row:
            row[cell:] = [row[cell][: chance.randrange(len(row[cell]) + 1)]]


@settings(max_examples=400, deadline=None)
@given(
    tables(), st.lists(st.sampled_from(DAMAGES), max_size=2), st.randoms(use_true_random=False), st.booleans()
)
def test_a_damaged_table_gives_the_same_values_or_none_or_an_error(
    table: tuple[dict[tuple[str, str], str], list[int], list[list[str]]],
    damages: list[str],
    chance: random.Random,
    tabs: bool,
) -> None:
    truth, numa, grid = table
    for kind in damages:
        damage(grid, kind, chance)
    try:
        readings = read("\n".join(("\t" if tabs else "    ").join(row) for row in grid))
    except CaptureError:
        assert damages
        return
    assert damages or len(readings) == 1
    for snapshot in (snapshot for reading in readings for snapshot in reading.snapshots):
        gpus = [f"GPU{gpu.nvml}" for gpu in snapshot.identity.gpus]
        nics = [nic.name for nic in snapshot.identity.nics]
        wanted = [[truth[a, b] for b in gpus] for a in gpus]
        assert all(cell in (None, true) for row, line in zip(matrix(snapshot).gpus, wanted, strict=True)
                   for cell, true in zip(row, line, strict=True))  # fmt: skip
        for gpu, row in zip(gpus, matrix(snapshot).nics, strict=False):
            assert all(cell in (None, truth[gpu, nic]) for nic, cell in zip(nics, row, strict=True))
        assert all(gpu.numa in (None, numa[int(name[3:])])
                   for name, gpu in zip(gpus, snapshot.hardware.gpus, strict=True))  # fmt: skip
        if not damages:
            assert (snapshot.coverage.gpus, numas(snapshot)) == ("all", numa)
            assert None not in [cell for row in matrix(snapshot).gpus for cell in row]


WORDS = st.sampled_from(
    ["GPU0", "GPU1", "NIC0", "mlx5_0", "X", " X ", "NV4", "SYS", "PHB", "0-7", "0", "N/A",
     "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "OK", "Legend:", "NIC0: mlx5_0", "\t", "    ",
     "\n", "\n\n", "...", "GPU", "é"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(WORDS, max_size=60).map("".join) | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text)
    except CaptureError as error:
        assert "\n" not in str(error)  # noqa: PT017 - the message is what is tested


@needs_shared
def test_the_shared_tables_read_as_their_truth_says() -> None:
    cases = SHARED / "cases"
    c23 = only(cases / "C23-topo4-pxb-pix.txt")
    assert (pairs(c23, "PXB"), pairs(c23, "PIX"), len(pairs(c23, "SYS"))) == ({(0, 1)}, {(2, 3)}, 4)
    assert (numas(c23), c23.coverage) == ([0, 0, 1, 1], Coverage(gpus="all", links="all"))
    c25 = only(cases / "C25-topo4-pairs-nonadjacent.txt")
    assert (pairs(c25, "NV4"), pairs(c25, "PHB")) == ({(0, 2), (1, 3)}, {(0, 1), (2, 3)})
    assert (pairs(c25, "NODE"), numas(c25)) == ({(0, 3), (1, 2)}, [0] * 4)
    c28 = only(cases / "C28-topo8-4090.txt")
    assert (len(pairs(c28, "SYS")), near(c28, "PHB"), len(near(c28, "SYS"))) == (28, {(6, 0), (6, 1)}, 14)
    assert numas(c28) == [0] * 4 + [1] * 4
    c46 = only(cases / "C46-topo4-mlx5cols.txt")
    assert (len(pairs(c46, "NV4")), near(c46, "PIX"), len(near(c46, "SYS"))) == (6, {(1, 0), (2, 1)}, 6)
    assert (numas(c46), [nic.name for nic in c46.identity.nics]) == ([1, 0, 3, 2], ["mlx5_0", "mlx5_1"])
    c47 = only(cases / "C47-topo8-h100-9nic.txt")
    assert (len(pairs(c47, "NV18")), near(c47, "PIX")) == (28, {(gpu, 8 - gpu) for gpu in range(8)})
    assert (numas(c47), {row[0] for row in matrix(c47).nics}) == ([0] * 4 + [1] * 4, {"SYS"})
    assert c47.coverage == Coverage(gpus="all", links="all", nics="all")


@needs_shared
def test_the_shared_damaged_tables_are_repaired_and_their_cuts_told() -> None:
    cases = SHARED / "cases"
    glued = only(cases / "C48-topo-glued-dgxh100.txt")
    assert (len(pairs(glued, "NV18")), len(glued.identity.nics)) == (28, 12)
    assert near(glued, "PXB") == {(0, 0), (1, 3), (2, 4), (3, 5), (4, 6), (5, 9), (6, 10), (7, 11)}
    assert near(glued, "NODE") == {
        (gpu, nic) for gpu in range(8) for nic in range(12) if (gpu < 4) == (nic < 6)
    } - near(glued, "PXB")
    assert numas(glued) == [0] * 4 + [1] * 4
    clean = only(cases / "C48-h100x4-nv6.txt")
    assert (len(pairs(clean, "NV6")), near(clean, "PIX")) == (6, {(n, n) for n in range(4)})
    assert (numas(clean), clean.coverage.nics) == ([3, 1, 7, 5], "all")
    assert [nic.name for nic in clean.identity.nics] == [f"mlx5_{n}" for n in range(4)]
    (reading,) = parse(read_text(cases / "C43-ibstat-topo-partial.txt"))
    (cut,) = reading.snapshots
    assert "11 rows are missing: GPU3..GPU7, NIC0..NIC5" in [note.text for note in reading.notes]
    assert (len(cut.identity.gpus), near(cut, "PIX")) == (8, {(0, 0), (2, 1)})
    assert (cut.identity.host.name, cut.coverage.links) == ("node-a", "part")
    (tail,) = parse(read_text(cases / "C05-vllm-collectenv-tail.txt"))
    assert (tail.snapshots, [note.line for note in tail.notes]) == ((), [1])


@needs_shared
@pytest.mark.parametrize(
    ("name", "gpus", "cell", "count", "numa"),
    [
        ("aws-g5.48xlarge", 8, "PHB", 28, [None] * 8),
        ("aws-g6f.xlarge", 1, "SYS", 0, [0]),
        ("aws-p3.16xlarge", 8, "PHB", 12, [None] * 8),
        ("aws-p4d.24xlarge", 8, "NV12", 28, [0] * 4 + [1] * 4),
        ("aws-p5.48xlarge", 8, "NV18", 28, [0] * 4 + [1] * 4),
        ("hgx-b200-8x", 8, "NV18", 28, [0] * 4 + [1] * 4),
    ],
)
def test_the_shared_machines_read_as_their_index_says(
    name: str, gpus: int, cell: str, count: int, numa: list[int | None]
) -> None:
    found = only(SHARED / "machines" / "nvidia_smi" / f"{name}-topo-m.txt")
    assert (len(found.identity.gpus), len(pairs(found, cell)), numas(found)) == (gpus, count, numa)
    assert found.coverage == Coverage(gpus="all", links="all")
