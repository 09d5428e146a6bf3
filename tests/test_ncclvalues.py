"""NCCL's values are read as NCCL reads them."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.ncclvalues import effective, is_number, level_of, number_of, reaches

LIBC = ctypes.CDLL(None)
LIBC.strtoll.restype = ctypes.c_longlong


@given(st.text(alphabet=" \t+-0123456789abcxXtrue'\"", max_size=12))
@settings(max_examples=200, deadline=None)
def test_numbers_are_those_of_the_c_library(text: str) -> None:
    assert number_of(text) == LIBC.strtoll(text.encode(), None, 0)


@pytest.mark.parametrize("text", ["true", '"1"', "", "yes", "1x", "0x"])
def test_what_the_c_library_does_not_read_to_the_end_is_no_number(text: str) -> None:
    assert not is_number(text)


@pytest.mark.parametrize(
    ("text", "level"),
    [("NVL", "NVL"), ("SYS", "SYS"), ("0", "LOC"), ("3", "PHB"), ("9", "SYS")],
)
def test_words_and_old_numbers_are_path_types(text: str, level: str) -> None:
    assert level_of(text) == level


@pytest.mark.parametrize("text", ["nvl", "NVL ", "", "-1", "NVLINK", "\u0661"])
def test_anything_else_is_passed_over(text: str) -> None:
    assert level_of(text) is None


def test_a_level_reaches_what_is_nearer_and_no_number_means_nvlink_alone() -> None:
    assert reaches("NVL", "NV")
    assert not reaches("NVL", "PIX")
    assert not reaches("LOC", "NV")
    assert reaches("PHB", "NODE")
    assert not reaches("PXB", "SYS")
    assert not reaches("SYS", "unheard of")


def test_what_is_not_set_equals_its_default() -> None:
    assert effective("NCCL_P2P_DISABLE", None) == effective("NCCL_P2P_DISABLE", "true") == "0"
    assert effective("NCCL_P2P_DISABLE", "2") == "0"
    assert effective("NCCL_NVLS_ENABLE", None) == effective("NCCL_NVLS_ENABLE", "2")
    assert effective("NCCL_P2P_LEVEL", "nvl") == effective("NCCL_P2P_LEVEL", None)
    assert effective("NCCL_ALGO", None) != effective("NCCL_ALGO", "Ring")
