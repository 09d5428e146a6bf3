"""Words of rdma-core's tools in the kernel's spelling."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.prompt import Section
from topocheck.probes.capture.rdma_device import (
    lists_all,
    parse_gid,
    parse_guid,
    parse_lid,
    parse_physical,
    parse_rate,
    parse_state,
)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("Active", "ACTIVE"),
        ("PORT_ACTIVE (4)", "ACTIVE"),
        ("4: ACTIVE", "ACTIVE"),
        ("Initializing", "INIT"),
        ("PORT_INIT (2)", "INIT"),
        ("PORT_ARMED (3)", "ARMED"),
        ("1: DOWN", "DOWN"),
        ("5: ACTIVE_DEFER", "ACTIVE_DEFER"),
        ("PORT_NOP (0)", None),
        ("invalid state", None),
        ("", None),
    ],
)
def test_a_state_has_the_kernels_word(text: str, state: str | None) -> None:
    assert parse_state(text) == state


@pytest.mark.parametrize(
    ("text", "state"),
    [("LinkUp", "LinkUp"), ("5: LinkUp", "LinkUp"), ("LINK_UP (5)", "LinkUp"), ("3: Disabled", "Disabled"),
     ("POLLING (2)", "Polling"), ("LinkErrorRecovery", "LinkErrorRecovery"), ("9: <unknown>", None)],
)  # fmt: skip
def test_a_physical_state_has_the_kernels_word(text: str, state: str | None) -> None:
    assert parse_physical(text) == state


def test_rates_local_ids_guids_and_gids() -> None:
    assert parse_rate("400 Gb/sec (4X NDR)") == (400.0, "NDR")
    assert parse_rate("2.5") == (2.5, None)
    assert parse_rate("fast") == (None, None)
    assert (parse_lid("0x1f"), parse_lid("987"), parse_lid("-1")) == (31, 987, None)
    assert parse_guid("0x5a5a0300000000A1") == "5a5a:0300:0000:00a1"
    assert (parse_guid("0" * 16), parse_guid("5a")) == (None, None)
    assert parse_gid("::ffff:192.0.2.17") == "0000:0000:0000:0000:0000:ffff:c000:0211"
    assert (parse_gid("::"), parse_gid("mlx5_0")) == (None, None)


@pytest.mark.parametrize(
    ("command", "whole"),
    [
        ("ibstat", True),
        ("sudo /usr/sbin/ibstat -v 2>&1", True),
        ("kubectl exec pod-a -- ibstat", True),
        ("ibstat mlx5_0", False),
        ("ibstat | grep Rate", False),
        ("ibstatus", False),
        ("cat ibstat.txt", False),
        (None, False),
    ],
)
def test_a_command_that_asks_for_one_device_lists_not_all(command: str | None, whole: bool) -> None:
    assert lists_all(Section(1, 9, command), "ibstat") is whole


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_any_words_are_read(text: str) -> None:
    for parse in (parse_state, parse_physical, parse_rate, parse_lid, parse_guid, parse_gid):
        parse(text)
    lists_all(Section(1, 1, text), "ibstat")
