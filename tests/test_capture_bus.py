"""One spelling for every PCI address."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.bus import make_bus, parse_bus


@pytest.mark.parametrize(
    ("text", "bus"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1b:00.0", "0000:1b:00.0"),
        ("0008:06:00", "0008:06:00.0"),
        ("[0008:06:00]", "0008:06:00.0"),
        ("0x0000:3a:1f.7", "0000:3a:1f.7"),
        ("10000:E1:00.0", "10000:e1:00.0"),
        ("1b000", "0000:1b:00.0"),
        ("e4000", "0000:e4:00.0"),
        ("1806000", "0018:06:00.0"),
        ("100000", "0001:00:00.0"),
        ("0x801000", "0008:01:00.0"),
        ("1e0", "0000:00:1e.0"),
        ("ffff:ff:01.0", "ffff:ff:01.0"),
    ],
)
def test_every_spelling_gives_one_address(text: str, bus: str) -> None:
    assert parse_bus(f" {text}\t") == bus
    assert parse_bus(bus) == bus


@pytest.mark.parametrize(
    "text",
    [
        "FFFFFFFF:FF:FF.0",
        "fffffff:ffff:ff",
        "fffffff:ff:ff.0",
        "",
        "GPU0",
        "0000:1b:20.0",
        "1b:00.9",
        "1:2:3:4",
    ],
)
def test_what_is_no_device_gives_none(text: str) -> None:
    assert parse_bus(text) is None


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 0xFFFFF), st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
def test_all_spellings_of_one_device_agree(domain: int, bus: int, device: int, function: int) -> None:
    name = make_bus(domain, bus, device, function)
    squashed = f"{domain << 20 | bus << 12 | device << 4 | function:x}"
    assert name == parse_bus(f"{domain:08X}:{bus:02X}:{device:02X}.{function}") == parse_bus(squashed)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30) | st.from_regex(r"[0-9a-fx:.\[\]]{0,24}"))
def test_any_text_gives_an_address_or_none(text: str) -> None:
    found = parse_bus(text)
    assert found is None or parse_bus(found) == found
