"""The fabric in words, and the mask that a probe would read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.fabric_words import (
    FABRIC_HEADINGS,
    fabric_heading,
    merge_fabrics,
    parse_cluster_uuid,
    parse_fabric,
)
from topocheck.snapshot import At

HERE = At(source="x", line=1)


def mask(**words: str) -> int | None:
    fabric = parse_fabric({"state": "Completed", **words}, HERE)
    assert fabric
    return fabric.health_mask


def test_headings_have_one_spelling() -> None:
    assert {fabric_heading(text) for text in ("CliqueId", "Clique ID", "cliqueId", "clique_id")} == {
        "cliqueid"
    }


@pytest.mark.parametrize("state", ["", "N/A", "[N/A]", "Unknown Error"])
def test_no_state_is_no_fabric(state: str) -> None:
    assert parse_fabric({"state": state, "status": "Success"}, HERE) is None


def test_not_supported_is_a_state_and_its_status_means_nothing() -> None:
    fabric = parse_fabric({"state": "not supported", "status": "Success"}, HERE)
    assert fabric
    assert (fabric.state, fabric.status) == ("Not Supported", None)


def test_health_is_two_bits_a_field() -> None:
    assert mask() is None
    assert mask(bandwidth="N/A", routeunhealthy="Not Supported") is None
    assert mask(bandwidth="Full") == 2
    assert mask(bandwidth="Degraded", routerecovery="True") == 1 | 1 << 2
    assert mask(partitionassigned="True") == 1 << 12


@pytest.mark.parametrize(
    ("reason", "number"),
    [
        ("None", 1),
        ("No Partition", 4),
        ("Insufficient NVLinks", 5),
        ("Incompatible GPU FW", 6),
        ("Other", 15),
    ],
)
def test_a_wrong_configuration_has_its_number(reason: str, number: int) -> None:
    assert mask(incorrectconfiguration=reason) == number << 8


@pytest.mark.parametrize("text", ["", "N/A", "0a0b", "g" * 32, "0" * 33])
def test_what_is_no_uuid_is_unknown(text: str) -> None:
    assert parse_cluster_uuid(text) is None


def test_fabrics_that_differ_stay_apart() -> None:
    one, two = (parse_fabric({"state": "Completed", "cliqueid": c}, HERE, (n,)) for n, c in enumerate("79"))
    assert one
    assert two
    assert [fabric.gpus for fabric in merge_fabrics([one, two, one])] == [(0, 0), (1,)]


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(FABRIC_HEADINGS)), st.text(max_size=40)))
def test_any_words_are_read(words: dict[str, str]) -> None:
    fabric = parse_fabric(words, HERE)
    assert fabric is None or fabric.state
