"""All ranks packed, what a big page leaves out, and what findings are about."""

from __future__ import annotations

import base64
import hashlib
import zlib
from itertools import accumulate
from typing import Any

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.render import html
from topocheck.render.concern import anchor, concern, homes_of
from topocheck.render.lean import as_lean_as, lean
from topocheck.render.packed import pack, steps, told
from topocheck.report import PlacementReport, Placing, Report

ONE_MEGABYTE = 1_000_000


def unpacked(placement: PlacementReport) -> dict[str, Any]:
    """The columns as the script reads them."""
    found: dict[str, Any] = msgspec.json.decode(zlib.decompress(base64.b64decode(pack(placement))))
    return found


def big() -> Report:
    """A job of 12,500 nodes and 100,000 ranks."""
    return sample_report.swept(12_500, marked=[77, 9000])


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=50))
@settings(max_examples=50, deadline=None)
def test_steps_give_the_numbers_again(numbers: list[int]) -> None:
    assert list(accumulate(steps(numbers))) == numbers


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=50))
@settings(max_examples=50, deadline=None)
def test_what_is_told_once_gives_the_values_again(values: list[str | None]) -> None:
    names, chosen = told(values)
    assert [names[place] for place in accumulate(chosen)] == values


def test_columns_hold_what_the_ranks_say() -> None:
    placement = sample_report.split_group().placement
    assert placement is not None
    found = unpacked(placement)
    assert list(accumulate(found["rank"])) == list(range(8))
    assert [found["nodes"][place] for place in accumulate(found["node"])] == [
        rank.node for rank in placement.ranks
    ]
    assert list(accumulate(found["ordinal"])) == [0, 1, 0, 1, 2, 3, 2, 3]
    claimed = dict(found["columns"])["claimed"]
    assert list(accumulate(claimed["state"])) == [0, 0, 4, 0, 0, 0, 0, 0]
    assert claimed["other"] == [[2, "gpu-0000", sample_report.gpu_uuid(0, 2)]]


def test_a_rank_that_nobody_seats_keeps_its_name() -> None:
    placement = sample_report.placed()
    found = unpacked(msgspec.structs.replace(placement, nodes=[]))
    assert found["loose"][3] == [3, sample_report.gpu_uuid(0, 3)]
    assert [found["nodes"][place] for place in accumulate(found["node"])][4] == "gpu-0001"


def random_uuid(node: int, ordinal: int) -> str:
    """As random as those of real GPUs, and the same each time."""
    digest = hashlib.sha256(f"{node} {ordinal}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def test_the_page_of_100_000_ranks_is_below_a_megabyte_and_below_five_with_all_uuids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sample_report, "gpu_uuid", random_uuid)
    report = big()
    assert len(html.render(lean(report)).encode()) < ONE_MEGABYTE
    whole = html.render(lean(report, uuids=True)).encode()
    assert ONE_MEGABYTE < len(whole) < 5 * ONE_MEGABYTE


@pytest.mark.parametrize("uuids", [False, True])
def test_what_is_lean_already_stays_as_it_is(*, uuids: bool) -> None:
    report = sample_report.swept(100, marked=[7])
    once = lean(report, uuids=uuids)
    assert lean(once, uuids=uuids) == once
    assert as_lean_as(once, report) == once
    assert as_lean_as(report, report) == report


def test_a_small_report_stays_whole_and_a_big_one_keeps_what_is_marked_or_differs() -> None:
    small = sample_report.split_group()
    assert lean(small) == small
    report = sample_report.swept(100, marked=[99])
    assert report.placement is not None
    moved = Placing(node="gpu-0001", gpu=sample_report.gpu_uuid(1, 1), source="environment")
    ranks = [*report.placement.ranks]
    ranks[700] = msgspec.structs.replace(ranks[700], sources={**ranks[700].sources, "claimed": moved})
    changed = msgspec.structs.replace(
        report, placement=msgspec.structs.replace(report.placement, ranks=ranks)
    )
    placement = lean(changed).placement
    assert placement is not None
    assert placement.ranks[792].gpu == sample_report.gpu_uuid(99, 0)
    assert placement.ranks[600].gpu == "GPU 0"
    assert placement.ranks[600].sources["predicted"].gpu == "GPU 0"
    assert placement.ranks[700].sources["claimed"] == moved
    assert placement.nodes[75].gpus[0].uuid is None


@pytest.mark.parametrize(
    ("subjects", "ranks", "nodes"),
    [
        (["rank 5"], "5", ["gpu-0001"]),
        (["TP group 0 (ranks 0..3)"], "0..3", ["gpu-0000"]),
        (["ranks 0, 4..5"], "0, 4, 5", ["gpu-0000", "gpu-0001"]),
        (["gpu-0001"], "4..7", ["gpu-0001"]),
        (["GPU 3 of gpu-0000"], "0..3", ["gpu-0000"]),
        (["the launch command"], "", []),
    ],
)
def test_subjects_tell_ranks_and_nodes(subjects: list[str], ranks: str, nodes: list[str]) -> None:
    found = concern(subjects, len(subjects), homes_of([sample_report.placed()]))
    assert (found.ranks, found.nodes, found.cut) == (ranks, "\n".join(nodes), False)
    assert concern(subjects, 99, homes_of([sample_report.placed()])).cut


@given(st.text(max_size=200))
@settings(max_examples=50, deadline=None)
def test_any_subject_is_read(text: str) -> None:
    found = concern([text, f"ranks {text}", "ranks 1..999999999"], 3, homes_of([sample_report.placed()]))
    assert found.cut
    assert set(found.nodes.split("\n")) == {"gpu-0000", "gpu-0001"}


def test_a_finding_keeps_its_name_until_it_is_about_something_else() -> None:
    one = sample_report.finding("4 of 8 links.")
    again = sample_report.finding("3 of 8 links.", severity="warning")
    other = sample_report.finding("4 of 8 links.", subjects=["rank 9"])
    assert anchor("NV001", one) == anchor("NV001", again)
    assert len({anchor("NV001", one), anchor("NV001", other), anchor("NV002", one)}) == 3
