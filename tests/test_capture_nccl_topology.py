"""NCCL's topology XML as hardware."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.hardware import Shape
from topocheck.probes.capture.nccl_topology import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import parse_text, read_text
from topocheck.snapshot import Coverage, FullSnapshot, PciNode

CAPTURES = Path(__file__).parent / "captures"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared captures are not here")
GPU = '<pci busid="0000:{0}:00.0" class="0x030200"><gpu dev="{1}" sm="90">{2}</gpu></pci>'


def read(text: str) -> list[Reading]:
    return parse(parse_text(text.encode(), "topo.xml"))


def system(inside: str) -> str:
    return f'<system version="1">\n<cpu numaid="0">\n{inside}\n</cpu>\n</system>\n'


def only(path: Path) -> FullSnapshot:
    (reading,) = parse(read_text(path))
    (snapshot,) = reading.snapshots
    return snapshot


def shape(snapshot: FullSnapshot) -> Shape:
    return Shape(msgspec.json.encode(snapshot.hardware))


def rails(snapshot: FullSnapshot) -> list[tuple[str, list[str]] | None]:
    found = shape(snapshot)
    nearest = [found.nearest_nics(gpu) for gpu in range(found.gpus)]
    return [None if entry is None else (entry[0], [nic.name for nic in entry[1]]) for entry in nearest]


def links(snapshot: FullSnapshot) -> set[str]:
    found = shape(snapshot)
    return {str(found.link(a, b)) for b in range(found.gpus) for a in range(b)}


def test_gpus_come_by_their_number_with_bus_numa_node_and_links_to_switches() -> None:
    found = only(CAPTURES / "nccl-switch.xml")
    assert [(gpu.nvml, gpu.bus) for gpu in found.identity.gpus] == [(0, "0000:12:00.0"), (1, "0000:91:00.0")]
    assert [(gpu.numa, gpu.sm, gpu.nvlinks, gpu.nvswitch) for gpu in found.hardware.gpus] == [
        (0, 90, 18, True),
        (1, 90, 18, True),
    ]
    assert links(found) == {"NV18"}
    assert found.coverage == Coverage(gpus="all", links="all", nics="all")


def test_network_devices_have_name_port_and_rate_and_sockets_are_left_out() -> None:
    found = only(CAPTURES / "nccl-switch.xml")
    assert [(nic.name, nic.kind, nic.ports[0].rate_gbps) for nic in found.hardware.nics] == [
        ("mlx5_1", "rdma", 400.0),
        ("mlx5_4", "rdma", 400.0),
    ]
    (reading,) = parse(read_text(CAPTURES / "nccl-switch.xml"))
    assert "eth7" in reading.notes[0].text


def test_the_tree_gives_the_distances_of_the_kernel_and_holds_no_identity() -> None:
    found = only(CAPTURES / "nccl-switch.xml")
    assert [entry for entry in rails(found) if entry] == [("PXB", ["mlx5_1"]), ("PIX", ["mlx5_4"])]
    nodes = found.hardware.pci
    assert nodes[0] == PciNode(id="root0", numa=0)
    assert {node.id for node in nodes} >= {"root0/0", "root0/0/0", "root0/0/0/0", "root1/0/1/0"}
    assert [node.id for node in nodes if node.max_width == 16 and node.max_speed_gts == 32.0]
    known: set[str | None] = {None}
    for node in nodes:
        assert node.parent in known
        known.add(node.id)


def test_links_to_gpus_have_peers_and_a_link_to_itself_is_none() -> None:
    found = only(CAPTURES / "nccl-mesh.xml")
    first, second, bare, looped = found.hardware.gpus
    assert [link.peer for link in first.links or ()] == [1, 1]
    assert [link.peer for link in second.links or ()] == [0, 0]
    assert (bare.links, bare.nvlinks) == (None, 0)
    assert (looped.links, looped.nvlinks) == (None, None)
    assert {gpu.sm for gpu in found.hardware.gpus} == {None}
    assert (found.hardware.nics[0].kind, found.hardware.nics[0].numa) == ("slingshot", None)
    assert found.coverage.links == "part"


def test_several_hosts_of_one_file_stay_apart() -> None:
    (reading,) = parse(read_text(CAPTURES / "nccl-two-hosts.xml"))
    names = [snapshot.identity.host.aliases for snapshot in reading.snapshots]
    assert names == [("host_hash 0xaaaa000011112222",), ("host_hash 0xbbbb000011112222",)]
    assert [len(snapshot.identity.gpus) for snapshot in reading.snapshots] == [2, 2]
    assert len({msgspec.json.encode(snapshot.hardware) for snapshot in reading.snapshots}) == 1


def test_a_hint_file_is_part_and_a_graphics_chip_of_the_board_is_no_gpu() -> None:
    (reading,) = parse(read_text(CAPTURES / "nccl-hint.xml"))
    (found,) = reading.snapshots
    assert [(gpu.bus, gpu.nvml) for gpu in found.identity.gpus] == [("0001:00:00.0", None)]
    assert found.coverage == Coverage(gpus="part")
    assert [note.kind for note in reading.notes] == ["cut"]


def test_the_host_is_that_of_the_prompt_above() -> None:
    text = "root@gpu-6:~# cat /tmp/topo.xml\n" + (CAPTURES / "nccl-switch.xml").read_text()
    assert [reading.snapshots[0].identity.host.name for reading in read(text)] == ["gpu-6"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<graphs version="1">\n</graphs>\n', r"^topo\.xml:1: is an NCCL graph file, not a topology: "),
        ('<system version="1">\n<cpu numaid="0">\n', r"^topo\.xml:2: the XML ends before </system>: "),
        (system("<pci"), r"^topo\.xml:4: is not well-formed XML \(.*\): "),
        (system("</cpu>"), r"is not well-formed XML"),
        (
            "<!DOCTYPE system [\n<!ENTITY a 'b'>\n]>\n" + system("&a;"),
            r"^topo\.xml:1: declares a document type",
        ),
        (system("<!ENTITY a 'b'>"), r"^topo\.xml:3: declares a document type or entities"),
        (system("<pci>" * 40 + "</pci>" * 40), "nests PCI devices deeper than 32"),
        (system(GPU.format("01", 0, "") + GPU.format("02", 0, "")), "has two GPUs with dev 0 on one host"),
        (system(GPU.format("01", 0, '<nvlink target="0000:02:00.0" count="99999"/>')), "count='99999'"),
    ],
)
def test_what_is_no_topology_is_refused_in_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(CaptureError, match=problem):
        read(text)


@pytest.mark.parametrize(
    "text", ["", "<system>\nYou are helpful.\n</system>\n", '<system version="1">\n</system>\n']
)
def test_other_text_is_not_read(text: str) -> None:
    assert read(text) == []


PIECES = st.sampled_from(
    ['<system version="1">\n', "</system>\n", '<cpu numaid="0">\n', "</cpu>\n",
     '<pci busid="0000:01:00.0">', "</pci>", '<gpu dev="0">', "</gpu>", '<nvlink target="x" count="1"/>',
     '<nic><net name="a" dev="0"/></nic>', "<!-- ", " -->",
     '<graphs version="1">', "<!DOCTYPE system>", "&lt;", "\n"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=24).map("".join) | st.text(max_size=200).map(system))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text)
    except CaptureError as error:
        assert "\n" not in str(error)  # noqa: PT017 - the message is what is tested


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2500), st.integers(0, 40))
def test_a_damaged_file_is_read_or_refused(start: int, length: int) -> None:
    text = (CAPTURES / "nccl-switch.xml").read_text()
    try:
        read(text[:start] + text[start + length :])
    except CaptureError as error:
        assert str(error).startswith("topo.xml:")  # noqa: PT017 - the message is what is tested


@needs_shared
def test_the_shared_dumps_read_as_their_truth_says() -> None:
    dgx = only(SHARED / "cases" / "C46-nccl-topo-dgxa100.xml")
    assert [(gpu.bus, gpu.nvml) for gpu in dgx.identity.gpus] == [("0000:07:00.0", 0)]
    assert [(gpu.numa, gpu.sm, gpu.nvlinks) for gpu in dgx.hardware.gpus] == [(3, 80, 12)]
    assert (dgx.hardware.nics[0].ports[0].rate_gbps, rails(dgx)) == (200.0, [("PXB", ["mlx5_0"])])
    files = SHARED / "machines" / "nccl_topo"
    oci = only(files / "oci-H100-topology.xml")
    assert ([gpu.nvlinks for gpu in oci.hardware.gpus], links(oci)) == ([18] * 8, {"NV18"})
    assert (len(oci.hardware.nics), rails(oci)[0]) == (16, ("PXB", ["mlx5_0", "mlx5_1"]))
    assert rails(oci)[7] == ("PXB", ["mlx5_16", "mlx5_17"])
    perlmutter = only(files / "perlmutter-a100-4gpu-slingshot.xml")
    assert (links(perlmutter), [gpu.numa for gpu in perlmutter.hardware.gpus]) == ({"NV4"}, [3, 2, 1, 0])
    assert [(entry or ("", []))[1] for entry in rails(perlmutter)] == [["cxi3"], ["cxi2"], ["cxi1"], ["cxi0"]]


@needs_shared
def test_the_shared_amd_dumps_read_as_their_index_says() -> None:
    files = SHARED / "machines" / "nccl_topo"
    mesh = only(files / "rccl-topo_8p_940.xml")
    assert [len(gpu.links or ()) for gpu in mesh.hardware.gpus] == [7] * 8
    assert [(entry or ("", []))[1] for entry in rails(mesh)] == [[f"mlx5_{n}"] for n in range(8)]
    hives = only(files / "rccl-topo_4p2h.xml")
    peers = [{link.peer for link in gpu.links or ()} for gpu in hives.hardware.gpus]
    assert all((peer or 0) // 4 == gpu // 4 for gpu, found in enumerate(peers) for peer in found)
    assert not shape(hives).link(0, 4).nvlink  # type: ignore[union-attr]
    no_rdma = only(files / "rccl-topo_8p_90a.xml")
    assert ([len(gpu.links or ()) for gpu in no_rdma.hardware.gpus], no_rdma.hardware.nics) == ([3] * 8, ())


@needs_shared
def test_the_shared_hints_prove_nothing_about_a_machine() -> None:
    files = SHARED / "machines" / "nccl_topo"
    for name, gpus in (("aws-p4d-24xl-topo.xml", 8), ("azure-ndv5-topo.xml", 8)):
        hint = only(files / name)
        assert (len(hint.identity.gpus), hint.coverage) == (gpus, Coverage(gpus="part"))
    (reading,) = parse(read_text(files / "aws-g5.48xl-topo.xml"))
    assert (reading.snapshots, [note.kind for note in reading.notes]) == ((), ["cut"])
    ncv4 = only(files / "azure-ncv4-topo.xml")
    assert [(gpu.numa, gpu.links, gpu.nvlinks) for gpu in ncv4.hardware.gpus] == [
        (n, None, None) for n in range(4)
    ]
    assert ncv4.hardware.nics == ()
    with pytest.raises(CaptureError, match="is an NCCL graph file, not a topology"):
        parse(read_text(files / "azure-ncv4-graph.xml"))
