"""Two partial views of one node made one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.hardware import Shape, read_hardware
from topocheck.merge import agree, join_coverage, join_hosts, labelled, merge_hardware
from topocheck.snapshot import (
    Coverage,
    GpuShape,
    Hardware,
    Host,
    LinkMatrix,
    NicShape,
    NvLink,
    PeerAccess,
    Port,
)

SAME = [0, 1]
TABLE = LinkMatrix(gpus=(("X", "NV4"), ("NV4", "X")))


def merged(known: Hardware, seen: Hardware, ties: list[int] | None = None, gpus: int = 2) -> Hardware:
    found, _, wrong = merge_hardware(known, seen, SAME if ties is None else ties, gpus)
    assert wrong == []
    return found


def test_each_view_fills_what_the_other_lacks() -> None:
    models = Hardware(gpus=(GpuShape(model="A40"), GpuShape(model="A40")))
    table = Hardware(gpus=(GpuShape(numa=0), GpuShape(numa=1)), matrix=TABLE)
    assert merged(models, table) == Hardware(
        gpus=(GpuShape(model="A40", numa=0), GpuShape(model="A40", numa=1)), matrix=TABLE
    )
    assert merged(table, models) == merged(models, table)


def test_merging_nothing_changes_nothing() -> None:
    known = Hardware(gpus=(GpuShape(), GpuShape()), matrix=TABLE, peers=(PeerAccess(a=0, b=1, status="OK"),))
    assert merged(known, Hardware(), []) == known


def test_cells_links_and_peers_move_with_their_gpus() -> None:
    seen = Hardware(
        gpus=(GpuShape(links=(NvLink(link=0, active=True, remote="gpu", peer=1),)), GpuShape()),
        nics=(NicShape(name="mlx5_1"),),
        matrix=LinkMatrix(gpus=(("X", "NV1"), ("NV1", "X")), nics=(("PIX",), ("SYS",))),
        peers=(PeerAccess(a=0, b=1, status="OK"),),
    )
    known = Hardware(gpus=(GpuShape(),) * 3, nics=(NicShape(name="mlx5_0"),))
    found = merged(known, seen, [2, 0], 3)
    assert found.matrix == LinkMatrix(
        gpus=(("X", None, "NV1"), (None, None, None), ("NV1", None, "X")),
        nics=((None, "SYS"), (None, None), (None, "PIX")),
    )
    assert found.gpus[2].links == (NvLink(link=0, active=True, remote="gpu", peer=0),)
    assert found.peers == (PeerAccess(a=2, b=0, status="OK"),)
    assert [nic.name for nic in found.nics] == ["mlx5_0", "mlx5_1"]


def test_what_differs_is_told_and_the_first_stays() -> None:
    known = Hardware(
        gpus=(GpuShape(numa=0), GpuShape()), matrix=TABLE, peers=(PeerAccess(a=0, b=1, status="OK"),)
    )
    seen = Hardware(
        gpus=(GpuShape(numa=1), GpuShape()),
        matrix=LinkMatrix(gpus=(("X", "SYS"), ("SYS", "X"))),
        peers=(PeerAccess(a=0, b=1, status="NS"),),
    )
    found, _, wrong = merge_hardware(known, seen, SAME, 2)
    assert found == known
    assert [about for about, _ in wrong] == [
        "numa of GPU 0",
        "link class of devices 0 and 1",
        "link class of devices 1 and 0",
        "peer access of GPUs 0 and 1",
    ]


@pytest.mark.parametrize(
    ("name", "old", "new", "same"),
    [
        ("model", "NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", True),
        ("model", "NVIDIA H100", "NVIDIA H200", False),
        ("model", "NVIDIA H20", "NVIDIA H200", False),
        ("model", "A10", "NVIDIA A100-SXM4-80GB", False),
        ("model", "NVIDIA H100 80GB HBM3", "H100", True),
        ("memory_bytes", 85_520_809_984, 84_500_000_000, True),
        ("memory_bytes", 85_520_809_984, 42_949_672_960, False),
        ("numa", 0, 1, False),
    ],
)
def test_tools_that_mean_the_same_do_not_contradict_each_other(
    name: str, old: object, new: object, same: bool
) -> None:
    assert agree(name, old, new) is agree(name, new, old) is same


def test_ports_of_a_later_view_join_a_device_without_any() -> None:
    port = Port(state="ACTIVE")
    found = merged(
        Hardware(nics=(NicShape(name="mlx5_0"),)),
        Hardware(nics=(NicShape(name="mlx5_0", ports=(port,)),)),
        [],
        0,
    )
    assert found.nics == (NicShape(name="mlx5_0", ports=(port,)),)


def test_a_part_is_whole_as_soon_as_one_view_is() -> None:
    part, whole = Coverage(gpus="part", links="part"), Coverage(gpus="all", nics="part")
    assert (
        join_coverage(part, whole)
        == join_coverage(whole, part)
        == Coverage(gpus="all", links="part", nics="part")
    )


def test_a_host_keeps_every_name_and_the_boot_id() -> None:
    seen = join_hosts(
        Host(name="a", aliases=("x",)), Host(name="b", boot_id="b1", machine_id="m", aliases=("a",))
    )
    assert seen == Host(name="a", boot_id="b1", machine_id="m", aliases=("b", "x"))
    assert join_hosts(Host(), Host()) == Host()


def test_a_label_is_the_name_of_what_has_none_and_an_alias_of_what_has_one() -> None:
    assert labelled(Host(), "a") == Host(name="a")
    assert labelled(Host(name="b"), "a") == Host(name="b", aliases=("a",))
    assert labelled(Host(name="a"), "a") == Host(name="a")


CELLS = st.sampled_from(["NV4", "PIX", "SYS", None])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_merged_table_has_the_cells_of_both_in_the_ordinals_of_the_result(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    ties = data.draw(st.permutations(range(size)))
    row = st.lists(CELLS, min_size=size, max_size=size).map(tuple)
    seen = Hardware(
        gpus=(GpuShape(),) * size,
        matrix=LinkMatrix(gpus=tuple(data.draw(st.lists(row, min_size=size, max_size=size)))),
    )
    found = merged(Hardware(), seen, list(ties), size)
    raw = msgspec.json.encode(found)
    assert read_hardware(raw) == Shape(raw).hardware == found
    assert found.matrix
    assert seen.matrix
    for a in range(size):
        for b in range(size):
            assert found.matrix.gpus[ties[a]][ties[b]] == seen.matrix.gpus[a][b]
