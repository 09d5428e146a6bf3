"""NCCL_IB_HCA is read as NCCL reads it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.hcafilter import HcaEntry, parse_hca_filter

DEVICES = [f"mlx5_{n}" for n in range(12)]


def taken(text: str, port: int = 1) -> list[str]:
    value = parse_hca_filter(text)
    return [name for name in DEVICES if value.selects(name, port)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", DEVICES),
        ("mlx5_3,mlx5_4", ["mlx5_3", "mlx5_4"]),
        ("mlx5_1", ["mlx5_1", "mlx5_10", "mlx5_11"]),
        ("=mlx5_1", ["mlx5_1"]),
        ("mlx5", DEVICES),
        ("^mlx5_1", [name for name in DEVICES if not name.startswith("mlx5_1")]),
        ("^=mlx5_1,mlx5_2", [name for name in DEVICES if name not in ("mlx5_1", "mlx5_2")]),
        ("^=mlx5_1,^=mlx5_2", [name for name in DEVICES if name != "mlx5_1"]),
        ("=^mlx5_1", []),
        ("^", []),
        ("=", DEVICES),
        ("mlx5_0, mlx5_2", ["mlx5_0"]),
        (",,mlx5_2,", ["mlx5_2"]),
        (":1,mlx5_2", ["mlx5_2"]),
        ("mlx5_2:-1", ["mlx5_2"]),
        ("mlx5_2:1:0:3", ["mlx5_2"]),
        ("mlx5_2:", ["mlx5_2"]),
        ("mlx5_2::1", ["mlx5_2"]),
        ("mlx5_2:x", []),
        ("mlx5_2:2", []),
    ],
)
def test_a_value_selects_what_nccl_would_take(text: str, names: list[str]) -> None:
    assert taken(text) == names


def test_a_port_is_chosen_by_its_number() -> None:
    assert taken("=mlx5_1:2,mlx5_3:1", port=2) == ["mlx5_1"]
    assert taken("^=mlx5_1:2", port=1) == DEVICES


def test_entries_are_kept_in_their_own_words() -> None:
    value = parse_hca_filter("^=mlx5_1:2,mlx5_3")
    assert (value.exclude, value.exact) == (True, True)
    assert value.entries == (HcaEntry("mlx5_1", 2), HcaEntry("mlx5_3"))
    assert [str(entry) for entry in value.entries] == ["mlx5_1:2", "mlx5_3"]
    assert str(value) == "NCCL_IB_HCA=^=mlx5_1:2,mlx5_3"


def test_what_follows_the_thirty_second_entry_is_ignored() -> None:
    value = parse_hca_filter(",".join(f"ib{n}x" for n in range(40)))
    assert [entry.name for entry in value.entries][-1] == "ib31x"


def as_nccl(text: str, device: str, port: int) -> bool:
    """matchIfList over parseStringList, character by character as NCCL 2.29 does it; ports have digits."""
    exclude = text[:1] == "^"
    text = text[exclude:]
    exact = text[:1] == "="
    text = text[exact:] + "\0"
    entries: list[tuple[str, int]] = []
    name, place = "", 0
    while len(entries) < 32:
        char = text[place]
        if char == ":":
            if name:
                entries.append((name, atoi(text[place + 1 :])))
                name = ""
            while char not in {",", "\0"}:
                place += 1
                char = text[place]
        elif char in {",", "\0"}:
            if name:
                entries.append((name, -1))
                name = ""
        else:
            name += char
        place += 1
        if char == "\0":
            break
    met = not entries or any(
        (device == own if exact else device.startswith(own)) and wanted in {-1, port}
        for own, wanted in entries
    )
    return met != exclude


def atoi(text: str) -> int:
    """The number at the beginning of a text, 0 for none."""
    text = text.lstrip(" ")
    sign, digits = text[:1] in {"+", "-"}, ""
    for char in text[sign:]:
        if char not in "0123456789":
            break
        digits += char
    return int(text[:sign] + digits) if digits else 0


@settings(max_examples=200, deadline=None)
@given(
    st.from_regex(r"\^?=?([,:]?[mlx5_0123^= +-]{0,8}(:[0-9 +-][0-9x:]{0,3})?,?){0,4}", fullmatch=True).filter(
        lambda text: not re.search(r":(?=[:,]|$)", text)
    ),
    st.sampled_from(DEVICES),
    st.integers(1, 3),
)
def test_any_value_is_read_as_nccl_does_it_character_by_character(text: str, device: str, port: int) -> None:
    assert parse_hca_filter(text).selects(device, port) == as_nccl(text, device, port)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_no_text_breaks_it(text: str) -> None:
    value = parse_hca_filter(text)
    assert len(value.entries) <= 32
    assert value.selects("mlx5_0", 1) in (True, False)
