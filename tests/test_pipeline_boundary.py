"""Bytes between stages are rows x hidden x element x tensors, and times are bounds no link can beat."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.engines import ENGINES
from topocheck.pipeline.boundary import (
    FORMS,
    NVLINK_VERSIONS,
    Link,
    Payload,
    assumptions,
    describe,
    form_of,
    nvlink,
    pcie,
    pcie_bytes_per_s,
    rdma,
    shared,
    transfer_seconds,
)
from topocheck.pipeline.bounds import Bounds, exactly

SIZES = st.integers(1, 1_000_000)


def test_the_hand_calculation_is_64_mebibytes() -> None:
    payload = Payload(rows=4096, hidden=8192, element_bytes=2)
    assert payload.bytes == payload.rank_bytes == 67_108_864 == 64 << 20


def test_the_residual_counts_again_and_parts_divide_what_a_rank_sends() -> None:
    payload = Payload(rows=4096, hidden=8192, element_bytes=2, tensors=2, parts=8)
    assert payload.bytes == 2 * 67_108_864
    assert payload.rank_bytes == 16 << 20
    assert Payload(rows=1, hidden=5, element_bytes=1, parts=4).rank_bytes == 2  # the larger part


def test_engines_that_slice_say_so_and_others_send_everything() -> None:
    assert {name: (form.tensors, form.split) for name, form in FORMS.items()} == {
        "vllm": (2, "tensor"),
        "sglang": (2, "tensor"),
        "tensorrt_llm": (2, "none"),
        "megatron": (1, "none"),
    }
    assert all((form_of(engine).tensors, bool(form_of(engine).source)) >= (1, True) for engine in ENGINES)


def test_a_microbatch_over_ndr_takes_at_least_its_bytes_by_the_nominal_rate() -> None:
    link = rdma(exactly(400), "NDR", direct=True)
    time = transfer_seconds(64 << 20, link)
    assert time.low == pytest.approx(64 * 2**20 / 50e9 + 3e-6)
    assert time.high == pytest.approx(64 * 2**20 / 40e9 + 50e-6)


def test_staging_adds_two_copies_at_worst_and_nothing_but_start_up_at_best() -> None:
    lane = Bounds(20e9, 30e9)
    direct = transfer_seconds(1 << 30, rdma(exactly(100), "", direct=True, pcie_rate=lane))
    staged = transfer_seconds(1 << 30, rdma(exactly(100), "", direct=False, pcie_rate=lane))
    unknown = transfer_seconds(1 << 30, rdma(exactly(100), "", direct=None, pcie_rate=lane))
    assert staged.low == pytest.approx(direct.low, rel=1e-3)
    assert staged.high - direct.high == pytest.approx(2 * 2**30 / 20e9, rel=1e-2)
    assert unknown.low == direct.low
    assert unknown.high == pytest.approx(staged.high)


def test_staged_data_is_no_faster_than_pcie() -> None:
    lane = Bounds(10e9, 12e9)
    assert rdma(exactly(400), "", direct=False, pcie_rate=lane).bytes_per_s == lane
    assert rdma(exactly(400), "", direct=True, pcie_rate=lane).bytes_per_s.high == 50e9


@pytest.mark.parametrize(
    ("links", "generation", "rate"),
    [(18, 4, 450e9), (12, 3, 300e9), (6, 2, 150e9), (4, 1, 80e9), (18, 5, 900e9)],
)
def test_nvlink_has_the_rate_of_its_generation(links: int, generation: int, rate: float) -> None:
    assert nvlink(links, NVLINK_VERSIONS[generation]).bytes_per_s.high == rate


def test_nvlink_of_unknown_generation_has_the_bounds_of_all() -> None:
    link = nvlink(18, None)
    assert (link.bytes_per_s.low, link.bytes_per_s.high) == (18 * 20e9 * 0.8, 18 * 50e9)
    assert "20 to 50 GB/s" in link.name


@pytest.mark.parametrize(
    ("gts", "lanes", "rate"), [(32.0, 16, 63.0e9), (16.0, 16, 31.5e9), (8.0, 8, 7.88e9), (2.5, 4, 1e9)]
)
def test_pcie_has_the_rate_of_its_generation_and_lanes(gts: float, lanes: int, rate: float) -> None:
    found = pcie_bytes_per_s(gts, lanes)
    assert found is not None
    assert found.high == pytest.approx(rate, rel=2e-3)


@pytest.mark.parametrize(("gts", "lanes"), [(None, 16), (32.0, None), (3.7, 16), (32.0, 0)])
def test_pcie_of_unknown_speed_has_none(gts: float | None, lanes: int | None) -> None:
    assert pcie_bytes_per_s(gts, lanes) is None


def test_pcie_without_peer_access_goes_twice() -> None:
    rate = Bounds(20e9, 25e9)
    assert pcie(rate, peer=True).bytes_per_s == rate
    assert pcie(rate, peer=False).bytes_per_s == Bounds(10e9, 25e9)
    assert "not known" in pcie(None, peer=None).name


def test_senders_share_the_devices_that_they_have_in_common() -> None:
    assert shared({"a": 400.0}, {"a": 4}) == exactly(100)
    assert shared({"a": 400.0, "b": 400.0}, {"a": 2, "b": 2}) == Bounds(200, 400)
    assert shared({"a": 400.0, "b": 100.0}, {"a": 1}) == Bounds(400, 500)


@given(st.integers(1, 1 << 40), SIZES, SIZES, st.sampled_from([True, False, None]))
@settings(max_examples=50, deadline=None)
def test_more_bytes_take_longer_and_bounds_are_in_order(
    size: int, more: int, rate: int, direct: bool | None
) -> None:
    link = rdma(exactly(rate), "", direct=direct)
    one, two = transfer_seconds(size, link), transfer_seconds(size + more, link)
    assert 0 < one.low <= one.high
    assert one.low <= two.low
    assert one.high <= two.high
    assert one.low >= size / (rate * 1e9 / 8)


@given(SIZES, SIZES, st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(1, 64))
@settings(max_examples=50, deadline=None)
def test_the_parts_hold_the_whole(rows: int, hidden: int, element: int, tensors: int, parts: int) -> None:
    payload = Payload(rows=rows, hidden=hidden, element_bytes=element, tensors=tensors, parts=parts)
    assert payload.bytes <= payload.rank_bytes * parts < payload.bytes + parts


def test_every_link_says_what_its_rate_rests_on() -> None:
    links: list[Link] = [rdma(exactly(1), "", direct=None), nvlink(1, None), pcie(None, peer=None)]
    assert all(link.assumptions and all(word.endswith(".") for word in link.assumptions) for link in links)
    assert any("not a measurement" in word for word in assumptions(None))


def test_the_document_has_bytes_and_times_by_link() -> None:
    document = describe("prefill", Payload(rows=4096, hidden=8192), [rdma(exactly(400), "NDR", direct=True)])
    assert (document.bytes, document.transfers[0].link) == (67_108_864, "NDR")
    assert document.transfers[0].time_ms == pytest.approx((1.345, 1.728), rel=1e-3)


def test_bounds_that_are_none_are_refused() -> None:
    for low, high in ((2, 1), (-1, 1)):
        with pytest.raises(ValueError, match="are no bounds"):
            Bounds(low, high)
    assert (exactly(3) + Bounds(1, 2)).scaled(2) == Bounds(8, 10)
