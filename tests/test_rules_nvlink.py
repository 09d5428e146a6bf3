"""NV001: the NVLinks that should be there are there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from build import (
    A40,
    FOUR,
    GB200,
    H100,
    L40S,
    TWO,
    answer,
    gpus,
    paired,
    report,
    running,
    snap,
    sockets,
    text_of,
)

from topocheck.report import RuleReport
from topocheck.snapshot import Fabric, Host, Identity

NVL = "NVIDIA H100 NVL"


def of(nvlinks: Sequence[int | None], model: str | None = H100, **parts: object) -> RuleReport:
    count = len(nvlinks)
    text = FOUR.replace("tensor: 4", f"tensor: {parts.pop('used', count)}")
    return answer(report(text, snap(count=count, model=model, nvlinks=nvlinks, **parts)), "NV001")  # type: ignore[arg-type]


def test_fewer_links_than_the_board_has_by_design() -> None:
    found = of([18, 18, 12, 18])
    assert "GPU 2" in text_of(found)
    assert gpus()[2].uuid in text_of(found)  # type: ignore[operator]
    assert "12 active NVLinks of the 18" in text_of(found)
    assert found.findings[0].count == 1


def test_all_links_gone_on_a_baseboard_is_an_error() -> None:
    assert of([18, 18, 0, 18]).verdict == "fail"


def test_fewer_links_than_the_peers_have_on_a_board_without_a_design() -> None:
    assert of([12, 12, 6, 12], NVL, links=None).verdict == "fail"


def test_twelve_of_eighteen_links_are_all_that_a_bridged_pair_has() -> None:
    assert of([12, 12, 12, 12], NVL, links=None).verdict == "pass"


@pytest.mark.parametrize("nvlinks", [[12, 12, 0, 0], [12, 12, 0], [0, 12]])
def test_a_board_without_a_bridge_beside_bridged_ones_is_no_fault(nvlinks: list[int]) -> None:
    assert of(nvlinks, NVL, links=None).findings == []


def test_the_only_gpu_without_links_among_many_is_odd() -> None:
    assert of([18, 18, 18, 0], None, links=None).verdict == "fail"


def test_gpus_of_another_model_are_no_peers() -> None:
    mixed = of([12, 12, 4, 4], links=None, models=[NVL, NVL, A40, A40])
    assert mixed.findings == []


def test_a_table_shows_a_gpu_that_left_the_mesh() -> None:
    found = of([None] * 4, None, links=lambda a, b: "SYS" if 3 in {a, b} else "NV6", switch=None)
    assert "NVLink to 0 of 3 GPUs" in text_of(found)


def test_bridged_pairs_in_a_table_are_complete() -> None:
    assert of([None] * 4, A40, links=paired, switch=None).verdict == "pass"


def test_a_table_without_any_nvlink_tells_nothing_about_what_should_be() -> None:
    assert of([None] * 4, A40, links=sockets, switch=None).verdict == "unknown"


def test_a_lesser_bond_in_a_table_is_a_warning() -> None:
    found = of(
        [None] * 4,
        A40,
        links=lambda a, b: "NV2" if {a, b} == {2, 3} else "NV4" if {a, b} == {0, 1} else "SYS",
        switch=None,
    )
    assert {finding.severity for finding in found.findings} == {"warning"}


def test_a_gpu_that_the_job_does_not_use_accuses_nobody() -> None:
    assert of([18, 18, 18, 12], used=2).verdict == "pass"
    assert of([18, 12, 18, 18], used=2).verdict == "fail"


def test_the_ranks_named_are_those_that_drive_the_gpu() -> None:
    turned = Identity(host=Host(name="node-a", boot_id="b"), gpus=gpus()[::-1])
    found = of([18, 18, 12, 18], identity=turned)
    assert "GPU 1 " in text_of(found)
    assert "rank 1," in text_of(found)


def test_nothing_shown_is_unknown_and_boards_without_nvlink_are_not_asked() -> None:
    assert answer(report(TWO, *running()), "NV001").verdict == "unknown"
    assert of([None] * 4, L40S, links=sockets, switch=None).verdict == "not-applicable"
    assert answer(report(FOUR), "NV001").verdict == "unknown"


@pytest.mark.parametrize(
    ("model", "switch", "verdict"),
    [
        (H100, True, "fail"),
        (GB200, None, "fail"),
        ("NVIDIA GH200 480GB", None, "pass"),
        (H100, False, "pass"),
    ],
)
def test_a_fabric_that_is_not_supported_accuses_machines_with_switches_alone(
    model: str, switch: bool | None, verdict: str
) -> None:
    view = snap(model=model, switch=switch, fabric=(Fabric(state="Not Supported"),))
    assert answer(report(FOUR, view), "NV002").verdict == verdict


def test_a_gpu_of_unknown_model_with_fewer_links_is_undecided() -> None:
    assert of([18, 18, 12, 18], None, models=[H100, H100, None, H100]).verdict == "unknown"


def test_no_links_at_all_on_a_model_that_is_not_shown_prove_nothing() -> None:
    views = [
        snap(name, range(4 * n, 4 * n + 4), model=None, nvlinks=[0] * 4, links=None, switch=None)
        for n, name in enumerate(("node-a", "node-b"))
    ]
    assert answer(report(TWO, *views), "NV001").verdict == "unknown"


def test_equal_reports_of_boards_with_and_without_switches_are_told_apart() -> None:
    none = (Fabric(state="Not Supported"),)
    views = [
        snap("node-a", range(4), fabric=none, switch=False, links=sockets),
        snap("node-b", range(4, 8), fabric=none, switch=True),
    ]
    found = answer(report(TWO, *views), "NV002")
    assert [finding.subjects for finding in found.findings] == [["node-b"]]


def test_the_fabric_of_one_gpu_is_not_that_of_the_others() -> None:
    good = Fabric(gpus=(0,), state="Completed", status="Success")
    assert answer(report(FOUR, snap(fabric=(good,))), "NV002").verdict == "unknown"
    rest = msgspec.structs.replace(good, gpus=(1, 2, 3))
    assert answer(report(FOUR, snap(fabric=(good, rest))), "NV002").verdict == "pass"
    one = Fabric(unnamed=True, state="Completed", status="Success")
    assert answer(report(FOUR, snap(fabric=(one,))), "NV002").verdict == "unknown"
