"""Structures, masks and words of NVML, whatever bytes a driver leaves in them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.node.nvml_fabric import merge_fabrics, parse_fabric
from topocheck.probes.node.nvml_identity import parse_platform
from topocheck.probes.node.nvml_p2p import joining_links
from topocheck.probes.node.nvml_shape import listed, parse_affinity
from topocheck.probes.node.nvml_state import parse_throttle
from topocheck.snapshot import Fabric, GpuShape, NvLink

FUZZ = settings(max_examples=50, deadline=None)
VERSION_2 = bytes.fromhex("2c000002")
ALL_ONES = 2**64 - 1


def words(code: int) -> str:
    """Stands for NVML's own words."""
    return f"code {code}"


def test_a_platform_is_read_by_the_places_of_its_bytes() -> None:
    """Zero bytes in the GUID and slot 5 are what the binding's character fields get wrong."""
    guid = bytes.fromhex("00ff00a1b2c3d4e5") + bytes(8)
    place = parse_platform(
        VERSION_2 + guid + b"1820000000001".ljust(16, b"\0") + bytes((5, 0, 1, 2, 3)) + bytes(3)
    )
    assert (place.guid, place.chassis) == ("00ff00a1b2c3d4e5", "1820000000001")
    assert (place.slot, place.tray, place.host, place.peer_type, place.module) == (5, 0, 1, 2, 3)


def test_a_platform_without_guid_and_chassis_has_none() -> None:
    place = parse_platform(VERSION_2 + bytes(40))
    assert (place.guid, place.chassis, place.slot) == (None, None, 0)


@FUZZ
@given(st.binary(min_size=44, max_size=44))
def test_any_bytes_are_some_platform(content: bytes) -> None:
    place = parse_platform(content)
    assert place.slot == content[36]
    assert place.guid is None or len(place.guid) == 16


def test_layouts_of_the_fabric_share_their_beginning() -> None:
    begin = bytes(range(16)) + (7).to_bytes(4, "little") + (3).to_bytes(4, "little") + bytes((3, 0, 0, 0))
    oldest = parse_fabric(begin, 2, words)
    newest = parse_fabric(begin + (0x556).to_bytes(4, "little") + bytes((3, 0, 0, 0)), 2, words)
    assert (oldest.cluster_uuid, oldest.clique, oldest.state) == (bytes(range(16)).hex(), 3, "Completed")
    assert (oldest.status, oldest.health_mask, oldest.health) == ("code 7", None, None)
    assert (newest.status, newest.health_mask, newest.health) == ("code 7", 0x556, "Limited Capacity")


@FUZZ
@given(st.sampled_from((28, 32, 36)).flatmap(lambda size: st.binary(min_size=size, max_size=size)))
def test_any_bytes_are_some_fabric(content: bytes) -> None:
    fabric = parse_fabric(content, 0, words)
    assert fabric.cluster_uuid == content[:16].hex()
    assert (fabric.status is None) == (content[24] != 3)


def test_gpus_that_agree_share_one_entry() -> None:
    one, two = Fabric(gpus=(0,), clique=1), Fabric(gpus=(1,), clique=2)
    three = Fabric(gpus=(2,), clique=1)
    assert merge_fabrics([one, two, three]) == (Fabric(gpus=(0, 2), clique=1), two)


@FUZZ
@given(st.sets(st.integers(0, 4095), max_size=200))
def test_an_affinity_is_the_numbers_of_its_bits(numbers: set[int]) -> None:
    masks = [
        sum(1 << bit - start for bit in numbers if start <= bit < start + 64) for start in range(0, 4096, 64)
    ]
    assert parse_affinity(masks) == sorted(numbers)


def test_an_affinity_of_every_bit_says_nothing() -> None:
    assert parse_affinity([ALL_ONES] * 4) == []
    assert parse_affinity([]) == []
    assert len(parse_affinity([ALL_ONES, 0])) == 64


@FUZZ
@given(st.sets(st.integers(0, 300), min_size=1))
def test_a_list_of_numbers_reads_back(numbers: set[int]) -> None:
    text = listed(sorted(numbers))
    assert text is not None
    pairs = [part.partition("-") for part in text.split(",")]
    assert {n for low, _, high in pairs for n in range(int(low), int(high or low) + 1)} == numbers


def test_no_number_is_no_list() -> None:
    assert listed([]) is None


def test_reasons_for_low_clocks_have_words_and_new_ones_their_bit() -> None:
    assert parse_throttle(None) is None
    assert parse_throttle(0) == ()
    assert parse_throttle(0x1C9) == (
        "gpu_idle",
        "hw_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "display_clock_setting",
    )
    assert parse_throttle(0x404) == ("sw_power_cap", "0x400")


def test_links_that_join_a_pair_need_both_ends() -> None:
    switched = tuple(NvLink(link=link, active=True, remote="switch") for link in range(4))
    shapes = [
        GpuShape(links=switched, nvswitch=True),
        GpuShape(links=switched[:3], nvswitch=True),
        GpuShape(links=()),
        GpuShape(),
        GpuShape(links=(NvLink(link=0, active=True, remote="gpu", peer=2),)),
        GpuShape(links=(NvLink(link=0, active=None),)),
    ]
    found = {(a, b): joining_links(shapes, a, b) for a in range(6) for b in range(a)}
    assert found[1, 0] == 3
    assert found[2, 0] == 0
    assert found[3, 0] is None
    assert found[4, 2] == 1
    assert found[4, 0] == 0
    assert found[5, 2] is None
