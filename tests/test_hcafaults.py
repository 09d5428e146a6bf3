"""What a value of NCCL_IB_HCA misses of what it means."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.hcafaults import Devices, filter_faults, perhaps_more
from topocheck.hcafilter import parse_hca_filter
from topocheck.snapshot import Port

UP, DOWN = Port(state="ACTIVE", physical="LinkUp"), Port(state="DOWN", physical="Disabled")
EIGHT: Devices = {f"mlx5_{n}": (UP,) for n in range(8)}
TWELVE: Devices = {f"mlx5_{n}": (UP,) for n in range(12)}
FABRIC_AND_STORAGE: Devices = {f"mlx5_{n}": (UP,) for n in range(18)}


def faults(value: str, devices: Devices = EIGHT, *, whole: bool = True) -> list[str]:
    return [fault.cause for fault in filter_faults(parse_hca_filter(value), devices, whole=whole)]


@pytest.mark.parametrize(
    "value",
    [
        "mlx5",
        "mlx5_",
        "mlx5_0,mlx5_1",
        "=mlx5_0,mlx5_7",
        "mlx5_0:1,mlx5_1:1",
        "^mlx5_7",
        "^=mlx5_6,mlx5_7",
        "^mlx5_bond_0",
        "mlx5,hns,irdma",
        "",
    ],
)
def test_values_that_select_what_they_say_are_not_accused(value: str) -> None:
    assert faults(value) == []


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("mlx4_0", "selects nothing"),
        ("=mlx5", "selects nothing"),
        ("mlx5_0:2", "selects nothing"),
        ("^mlx5", "selects nothing"),
        ("mlx5_0,mlx5_8", "no such device"),
        ("=mlx5_0,rocep1", "no such device"),
        ("mlx5_0:1,mlx5_1:2", "no such device"),
        ("^=mlx5_6,^=mlx5_7", "marks inside the list"),
        ("mlx5_0, mlx5_1", "marks inside the list"),
        ("=^mlx5_7", "marks inside the list"),
    ],
)
def test_a_value_that_misses_is_one_fault(value: str, cause: str) -> None:
    assert faults(value) == [cause]


def test_a_prefix_takes_devices_of_two_digits_too() -> None:
    assert faults("mlx5_0,mlx5_1", TWELVE) == ["selects more"]
    assert faults("=mlx5_0,mlx5_1", TWELVE) == []
    assert faults("^mlx5_1", TWELVE) == ["leaves out more"]
    assert faults("^=mlx5_1", TWELVE) == []


def test_what_is_listed_itself_or_is_down_is_not_more_than_meant() -> None:
    rails = "mlx5_0,mlx5_1,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7,mlx5_8,mlx5_9,mlx5_10,mlx5_12,mlx5_13,mlx5_14"
    without_front_end = {name: ports for name, ports in FABRIC_AND_STORAGE.items() if name != "mlx5_11"}
    assert faults(f"{rails},mlx5_15,mlx5_16,mlx5_17", without_front_end) == []
    assert faults(f"{rails},mlx5_15,mlx5_16,mlx5_17", FABRIC_AND_STORAGE) == ["selects more"]
    dark = {**TWELVE, "mlx5_10": (DOWN,), "mlx5_11": (DOWN,)}
    assert faults("mlx5_0,mlx5_1", dark) == []


def test_virtual_functions_of_other_names_are_devices_like_others() -> None:
    functions: Devices = {f"mlx5_{n}": (UP,) for n in range(18, 34)}
    assert faults("=" + ",".join(functions), functions) == []
    assert faults("mlx5", functions) == []


def test_from_a_part_of_a_list_only_what_is_there_is_concluded() -> None:
    assert faults("mlx5_0,mlx5_8", whole=False) == []
    assert faults("mlx5_1", TWELVE, whole=False) == ["selects more"]


def test_the_fix_is_a_value_that_has_no_fault() -> None:
    for value, devices in (("^=mlx5_6,^=mlx5_7", EIGHT), ("mlx5_1", TWELVE), ("^mlx5_1", TWELVE)):
        fault = next(iter(filter_faults(parse_hca_filter(value), devices, whole=True)))
        assert faults(fault.fix.split("`")[1], devices) == []


@given(st.text(alphabet="^=,: mlx5_0123", max_size=24))
@settings(max_examples=50, deadline=None)
def test_any_text_has_faults_in_words(text: str) -> None:
    for fault in filter_faults(parse_hca_filter(text), TWELVE, whole=True):
        assert fault.cause
        assert fault.words
        assert fault.fix


def test_devices_of_unknown_state_leave_open_whether_a_prefix_takes_more() -> None:
    silent: Devices = {**TWELVE, "mlx5_10": (Port(),), "mlx5_11": ()}
    value = parse_hca_filter("mlx5_0,mlx5_1")
    assert perhaps_more(value, silent) == ["mlx5_10", "mlx5_11"]
    assert perhaps_more(value, TWELVE) == []
    assert perhaps_more(parse_hca_filter("=mlx5_0,mlx5_1"), silent) == []
