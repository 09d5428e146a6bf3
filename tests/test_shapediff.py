"""What tells one hardware shape from another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.hardware import Shape
from topocheck.shapediff import MOST, differences, layer_of, rate_of, state_of
from topocheck.snapshot import GpuShape, Hardware, LinkMatrix, NicShape, PeerAccess, Port

GPU = GpuShape(model="NVIDIA Q9", memory_bytes=80 << 30, numa=0, nvlinks=18, mig=False)
NIC = NicShape(
    name="mlx5_0",
    board="MT_0000000001",
    firmware="28.1",
    numa=0,
    ports=(Port(state="ACTIVE", layer="InfiniBand", rate_gbps=400.0),),
)


def shape(count: int = 4, link: str = "NV18", **changes: Any) -> Shape:
    """A node of some GPUs, all pairs joined alike, and two NICs of which the first is near the first half."""
    half, numbers = count // 2, range(count)
    parts: dict[str, Any] = {
        "gpus": (GPU,) * count,
        "nics": (NIC, msgspec.structs.replace(NIC, name="mlx5_1", numa=1)),
        "matrix": LinkMatrix(
            gpus=tuple(tuple("X" if a == b else link for b in numbers) for a in numbers),
            nics=tuple(("PIX", "SYS") if gpu < half else ("SYS", "PIX") for gpu in numbers),
        ),
    }
    return Shape(msgspec.json.encode(Hardware(**{**parts, **changes})))


def with_gpu(number: int, **changes: Any) -> Shape:
    """The same with one GPU changed."""
    gpus = [GPU] * 4
    gpus[number] = msgspec.structs.replace(GPU, **changes)
    return made(tuple(gpus))


def made(gpus: tuple[GpuShape, ...]) -> Shape:
    """The same with other GPUs."""
    hardware = shape().hardware
    return Shape(msgspec.json.encode(msgspec.structs.replace(hardware, gpus=gpus)))


def with_nic(change: Callable[[NicShape], NicShape]) -> Shape:
    """The same with its second NIC changed."""
    hardware = shape().hardware
    first, second = hardware.nics
    return Shape(msgspec.json.encode(msgspec.structs.replace(hardware, nics=(first, change(second)))))


def ported(**changes: Any) -> Callable[[NicShape], NicShape]:
    """A NIC whose port is changed."""

    def change(nic: NicShape) -> NicShape:
        return msgspec.structs.replace(nic, ports=(msgspec.structs.replace(nic.ports[0], **changes),))

    return change


def test_the_same_shape_differs_in_nothing() -> None:
    assert differences(shape(), shape()) == []


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (with_gpu(2, model="NVIDIA Q8"), "GPU 2 is NVIDIA Q8, not NVIDIA Q9"),
        (with_gpu(1, memory_bytes=40 << 30), "GPU 1 with 40 GiB, not 80"),
        (with_gpu(3, nvlinks=12), "GPU 3 with 12 active NVLinks, not 18"),
        (with_gpu(0, numa=1), "GPU 0 on NUMA node 1, not 0"),
        (with_gpu(0, mig=True), "GPU 0 with MIG on, not off"),
        (with_nic(ported(state="DOWN", rate_gbps=None)), "mlx5_1 DOWN, not ACTIVE"),
        (with_nic(ported(rate_gbps=200.0)), "mlx5_1 at 200 Gb/s, not 400"),
        (with_nic(ported(layer="Ethernet")), "mlx5_1 on Ethernet, not InfiniBand"),
        (with_nic(lambda nic: msgspec.structs.replace(nic, firmware="28.2")), "firmware 28.2, not 28.1"),
        (with_nic(lambda nic: msgspec.structs.replace(nic, name="mlx5_7")), "mlx5_1 not there"),
        (with_nic(lambda nic: msgspec.structs.replace(nic, name="mlx5_7")), "mlx5_7 in addition"),
    ],
)
def test_a_difference_is_told_with_both_values(odd: Shape, words: str) -> None:
    assert any(words in told for told in differences(shape(), odd))


def test_gpus_that_differ_alike_are_told_once() -> None:
    odd = made((GPU, *(msgspec.structs.replace(GPU, nvlinks=12),) * 3))
    assert differences(shape(), odd) == ["GPUs 1..3 with 12 active NVLinks, not 18"]


def test_a_gpu_whose_links_all_differ_is_told_by_its_number() -> None:
    rows = [["X" if a == b else "NV12" if 2 in {a, b} else "NV18" for b in range(4)] for a in range(4)]
    matrix = LinkMatrix(gpus=tuple(map(tuple, rows)), nics=shape().hardware.matrix.nics)  # type: ignore[union-attr]
    assert differences(shape(), shape(matrix=matrix)) == ["GPU 2 to 3 others over NV12, not NV18"]


def test_a_node_with_a_gpu_less_says_so_first() -> None:
    assert differences(shape(4), shape(3))[0] == "3 GPUs, not 4"


def test_another_nearest_nic_is_told_for_its_gpu() -> None:
    hardware = shape().hardware
    assert hardware.matrix is not None
    near = (("SYS", "PIX"), *hardware.matrix.nics[1:])
    odd = shape(matrix=msgspec.structs.replace(hardware.matrix, nics=near))
    assert differences(shape(), odd) == ["nearest to GPU 0: mlx5_1 (PIX), not mlx5_0 (PIX)"]


def test_links_that_are_not_shown_are_no_other_links() -> None:
    told = differences(shape(), shape(matrix=None))
    assert "the link of 6 pairs of GPUs not shown" in told
    assert not any("over" in words for words in told)


def test_what_no_table_shows_is_named_as_that() -> None:
    odd = shape(peers=(PeerAccess(a=0, b=1, status="CNS"),))
    assert differences(shape(), odd) == ["otherwise in peer access between GPUs"]


def test_a_flood_of_differences_is_cut_and_counted() -> None:
    gpus = tuple(msgspec.structs.replace(GPU, model=f"Q{number}", nvlinks=number) for number in range(16))
    told = differences(shape(16), shape(16, gpus=gpus))
    assert len(told) == MOST + 1
    assert told[-1].startswith("and ")


def test_facts_of_a_nic_are_those_of_its_active_ports() -> None:
    up, down = NIC.ports[0], Port(state="DOWN", layer="Ethernet", rate_gbps=10.0)
    both = msgspec.structs.replace(NIC, ports=(up, down))
    assert (rate_of(both), layer_of(both), state_of(both)) == (400.0, "both", "ACTIVE, DOWN")
    silent = msgspec.structs.replace(NIC, ports=(Port(),))
    assert (rate_of(silent), layer_of(silent), state_of(silent)) == (None, None, None)


ANY = st.builds(
    Hardware,
    gpus=st.lists(
        st.builds(
            GpuShape,
            model=st.sampled_from([None, "a", "b{}"]),
            nvlinks=st.sampled_from([None, 0, 4]),
            numa=st.sampled_from([None, 0, 1]),
        ),
        max_size=3,
    ).map(tuple),
    nics=st.lists(
        st.builds(NicShape, name=st.sampled_from(["x", "y", "{0}"]), numa=st.sampled_from([None, 0])),
        max_size=2,
        unique_by=lambda nic: nic.name,
    ).map(tuple),
)


@given(ANY, ANY)
@settings(max_examples=50, deadline=None)
def test_any_two_shapes_compare_and_only_equal_ones_have_nothing_to_tell(
    one: Hardware, other: Hardware
) -> None:
    first, second = (Shape(msgspec.json.encode(each)) for each in (one, other))
    assert bool(differences(first, second)) == (one != other)
