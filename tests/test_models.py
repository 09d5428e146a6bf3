"""What GPU models have by design."""

from __future__ import annotations

import pytest

from topocheck.models import has_nvlink, nvlinks_by_design, spans_hosts


@pytest.mark.parametrize(
    ("model", "links"),
    [
        ("NVIDIA H100 80GB HBM3", 18),
        ("NVIDIA H200", 18),
        ("NVIDIA H20", 18),
        ("NVIDIA H20-3e", 18),
        ("NVIDIA B200", 18),
        ("NVIDIA GB200", 18),
        ("NVIDIA GB300", 18),
        ("NVIDIA A100-SXM4-80GB", 12),
        ("A100-SXM-80GB", 12),
        ("NVIDIA A800-SXM4-80GB", 8),
        ("NVIDIA H800", 8),
        ("Tesla V100-SXM2-32GB", 6),
        ("Tesla P100-SXM2-16GB", 4),
    ],
)
def test_a_baseboard_has_a_fixed_number_of_links(model: str, links: int) -> None:
    assert nvlinks_by_design(model) == links
    assert has_nvlink(model) is True


@pytest.mark.parametrize(
    "model",
    [
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA H100 PCIe",
        "NVIDIA H800 PCIe",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA A40",
        "NVIDIA RTX A6000",
        "NVIDIA GeForce RTX 3090",
        "Quadro RTX 5000",
        "Quadro RTX 8000",
        "Tesla V100-PCIE-32GB",
        "NVIDIA GH200 480GB",
        "Radeon",
        None,
    ],
)
def test_a_board_with_or_without_a_bridge_tells_nothing_by_its_name(model: str | None) -> None:
    assert nvlinks_by_design(model) is None
    assert has_nvlink(model) is None


@pytest.mark.parametrize(
    "model",
    [
        "NVIDIA L4",
        "NVIDIA L40S",
        "Tesla T4",
        "NVIDIA A10",
        "NVIDIA A10G",
        "NVIDIA A16",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA GeForce RTX 5090",
        "NVIDIA GeForce RTX 4060 Ti",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA RTX 4000 Ada Generation",
        "NVIDIA GeForce GTX 1080 Ti",
        "NVIDIA GB10",
    ],
)
def test_some_boards_have_no_nvlink_at_all(model: str) -> None:
    assert has_nvlink(model) is False


def test_only_rack_boards_reach_over_hosts() -> None:
    assert [
        spans_hosts(model) for model in ("NVIDIA GB200", "NVIDIA GH200 480GB", "NVIDIA H100 80GB HBM3", None)
    ] == [
        True,
        True,
        False,
        None,
    ]
