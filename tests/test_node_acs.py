"""Access control is read from configuration space, and an unprivileged read is not an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooted import machine

from topocheck.probes.node.acs import parse_acs, read_acs
from topocheck.probes.node.pci import read_pci

BUS = "0000:41:00.0"


def space(*capabilities: tuple[int, int, int, bytes], size: int = 4096) -> bytes:
    """Configuration space with extended capabilities: (offset, id, offset of the next, content)."""
    config = bytearray(size)
    config[:4] = b"\x00\x10\x30\xc0"
    for at, kind, following, content in capabilities:
        config[at : at + 4] = (kind | 1 << 16 | following << 20).to_bytes(4, "little")
        config[at + 4 : at + 4 + len(content)] = content
    return bytes(config)


def acs(control: int) -> bytes:
    return b"\x5f\x00" + control.to_bytes(2, "little")


def test_controls_have_the_names_of_lspci() -> None:
    config = space((0x100, 0x0001, 0x148, b""), (0x148, 0x000D, 0, acs(0b11101)))
    assert parse_acs(config) == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")


def test_a_bridge_without_the_capability_redirects_nothing() -> None:
    assert parse_acs(space((0x100, 0x0001, 0, b""))) == ()
    assert parse_acs(space()) == ()
    assert parse_acs(b"\xff" * 4096) == ()


def test_controls_that_are_off_are_none() -> None:
    assert parse_acs(space((0x100, 0x000D, 0, acs(0)))) == ()


@pytest.mark.parametrize("size", [0, 64, 256, 260])
def test_a_short_space_is_not_known(size: int) -> None:
    assert parse_acs(space((0x100, 0x000D, 0, acs(1)))[:size]) is None


def test_capabilities_in_a_circle_end() -> None:
    assert parse_acs(space((0x100, 0x0001, 0x200, b""), (0x200, 0x0002, 0x100, b""))) == ()


def test_an_unprivileged_read_is_not_permitted(tmp_path: Path) -> None:
    roots = machine("roce", tmp_path)
    path = roots.sys / "bus/pci/devices" / BUS / "config"
    path.write_bytes(space()[:64])
    found, faults = read_acs(roots, [BUS])
    assert found == {}
    assert [(fault.part, fault.kind, fault.path) for fault in faults] == [
        ("links", "not-permitted", str(path))
    ]
    path.write_bytes(space()[:256])
    _, faults = read_acs(roots, [BUS])
    assert [fault.kind for fault in faults] == ["not-supported"]


def test_the_tree_shows_the_controls_of_its_bridges(tmp_path: Path) -> None:
    roots = machine("roce", tmp_path)
    for bridge in ("0000:40:01.1", BUS, "0000:42:00.0", "0000:42:01.0", "0000:42:02.0", "0000:45:00.0"):
        (roots.sys / "bus/pci/devices" / bridge / "config").write_bytes(space((0x100, 0x000D, 0, acs(4))))
    tree, faults = read_pci(roots)
    by_id = {node.id: node.acs for node in tree.nodes}
    assert by_id["root0/0/0"] == ("ReqRedir",)
    assert by_id["root0/0/0/2/0/0"] is None
    assert [(fault.kind, fault.path) for fault in faults] == [
        ("absent", str(roots.sys / "bus/pci/devices/0000:46:00.0/config"))
    ]
