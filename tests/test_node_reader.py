"""Files are read so that the kinds of nothing stay apart."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from rooted import roots_at

from topocheck.probes.node.reader import Reader, kind_of, parse_number
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import ProbeFault

NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike that of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_missing_file_is_absent(tmp_path: Path) -> None:
    reader = Reader("nics")
    assert reader.text(tmp_path / "none") is None
    assert reader.faults() == (
        ProbeFault(
            part="nics", kind="absent", path=str(tmp_path / "none"), reason="No such file or directory"
        ),
    )


def test_a_forbidden_file_is_not_permitted(open_folder: Path) -> None:
    (open_folder / "secret").write_text("1")
    (open_folder / "secret").chmod(0)
    reader = Reader("nics")
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)
    try:
        assert reader.text(open_folder / "secret") is None
    finally:
        os.seteuid(me)
    assert [(fault.kind, fault.reason) for fault in reader.faults()] == [
        ("not-permitted", "Permission denied")
    ]


def test_what_the_kernel_refuses_for_a_device_is_not_supported() -> None:
    speed = Path("/sys/class/net/lo/speed")
    if not speed.exists():
        pytest.skip("no sysfs with a loopback device")
    reader = Reader("network")
    assert reader.text(speed) is None
    assert [fault.kind for fault in reader.faults()] == ["not-supported"]


def test_a_folder_in_the_place_of_a_file_is_broken(tmp_path: Path) -> None:
    reader = Reader("nics")
    assert reader.data(tmp_path) is None
    assert [(fault.kind, fault.reason) for fault in reader.faults()] == [("broken", "Is a directory")]


def test_an_expected_error_leaves_no_fault(tmp_path: Path) -> None:
    reader = Reader("nics")
    assert reader.text(tmp_path / "none", {2}) is None
    assert reader.names(tmp_path / "none", {2}) == ()
    assert reader.faults() == ()


def test_one_fault_of_many_devices_is_told_once(tmp_path: Path) -> None:
    reader = Reader("nics")
    for number in range(9):
        reader.text(tmp_path / f"mlx5_{number}/lid")
        reader.text(tmp_path / f"mlx5_{number}/rate{number}")
    assert [fault.path for fault in reader.faults()] == [
        f"{tmp_path}/mlx5_0/lid and 8 more",
        f"{tmp_path}/mlx5_0/rate0 and 8 more",
    ]


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert Reader("nics").data(tmp_path / "pipe") == b""


def test_a_text_that_is_no_number_is_broken_and_no_zero(tmp_path: Path) -> None:
    (tmp_path / "numa_node").write_text("unknown\n")
    reader = Reader("links")
    assert reader.number(tmp_path / "numa_node") is None
    assert [(fault.kind, fault.reason) for fault in reader.faults()] == [
        ("broken", "expected a number, found 'unknown'")
    ]


def test_only_so_much_of_a_file_is_read_as_was_asked(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(bytes(9000))
    assert Reader("links").data(tmp_path / "config", most=4096) == bytes(4096)


def test_names_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("mlx5_10", "mlx5_2", "ib0", "mlx5_bond_0"):
        (tmp_path / name).touch()
    assert Reader("nics").names(tmp_path) == ("ib0", "mlx5_2", "mlx5_10", "mlx5_bond_0")


def test_a_name_of_any_bytes_can_be_told(tmp_path: Path) -> None:
    reader = Reader("nics")
    reader.text(tmp_path / os.fsdecode(b"\xff\xfe"))
    assert reader.faults()[0].path.encode()


@pytest.mark.parametrize(
    ("text", "number"),
    [("-1\n", -1), ("16", 16), ("", None), ("0x10", None), ("1" * 30, None), ("1_0", None)],
)
def test_a_number_is_decimal(text: str, number: int | None) -> None:
    assert parse_number(text) == number


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOENT, "absent"),
        (errno.ENODEV, "absent"),
        (errno.EPERM, "not-permitted"),
        (errno.EOPNOTSUPP, "not-supported"),
        (errno.ETIMEDOUT, "timeout"),
        (errno.EIO, "broken"),
        (None, "broken"),
    ],
)
def test_each_error_is_one_kind_of_nothing(code: int | None, kind: str) -> None:
    assert kind_of(OSError(code, "words") if code else OSError("words")) == kind


def test_absolute_links_stay_in_the_tree(tmp_path: Path) -> None:
    (tmp_path / "run/daemon").mkdir(parents=True)
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    (tmp_path / "var/up").symlink_to("../../../../run")
    (tmp_path / "var/loop").symlink_to("loop")
    roots = roots_at(tmp_path)
    assert roots.place("/var/run/daemon") == tmp_path / "run/daemon"
    assert roots.place("/var/up/daemon") == tmp_path / "run/daemon"
    assert roots.place("/../../etc") == tmp_path / "etc"
    assert not roots.place("/var/loop/x").exists()
    assert Roots.real().place("/var/run/daemon") == Path("/var/run/daemon")


def test_a_tree_of_another_boot_takes_nothing_from_this_process(tmp_path: Path) -> None:
    kernel = tmp_path / "proc/sys/kernel/random"
    kernel.mkdir(parents=True)
    (kernel / "boot_id").write_text("5f2b7a10-3e0a-4d3f-8c55-0f1f2f3f4f5f\n")
    recorded = Roots.at(tmp_path)
    assert (recorded.live, recorded.nvml, dict(recorded.env)) == (False, None, {})
    (kernel / "boot_id").write_text(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    mounted = Roots.at(tmp_path)
    assert mounted.live
    assert mounted.env is os.environ
