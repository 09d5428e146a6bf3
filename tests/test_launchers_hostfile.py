"""Host files of Open MPI, MPICH and DeepSpeed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import CaptureError
from topocheck.launchers.hostfile import (
    HostSlots,
    merged,
    parse_deepspeed,
    parse_hosts_option,
    parse_hydra,
    parse_openmpi,
    write_hydra,
    write_openmpi,
)

OPENMPI = "# racks\nbolt-1 slots=8 max_slots=16\n\nbolt-2   slots=4 # half\nbolt-3\n"


def pairs(entries: list[HostSlots]) -> list[tuple[str, int | None]]:
    return [(entry.host, entry.slots) for entry in entries]


def test_a_host_file_of_open_mpi_keeps_order_and_does_not_invent_slots() -> None:
    entries = parse_openmpi(OPENMPI, "hosts")
    assert pairs(entries) == [("bolt-1", 8), ("bolt-2", 4), ("bolt-3", None)]
    assert [entry.line for entry in entries] == [2, 4, 5]


def test_a_host_file_of_mpich_joins_neighbours_and_only_them() -> None:
    entries = parse_hydra("b:2\nb:2 if=ib0\n[fe80::1]:4\na\nb:1\n", "hosts")
    assert pairs(entries) == [("b", 4), ("[fe80::1]", 4), ("a", 1), ("b", 1)]


def test_open_mpi_sums_a_host_that_is_named_twice() -> None:
    entries = parse_hosts_option("b:2,a:2,b:1")
    assert pairs(merged(entries)) == [("b", 3), ("a", 2)]
    assert pairs(merged([HostSlots("b"), HostSlots("b", 2)])) == [("b", None)]


def test_a_host_option_names_hosts_and_slots() -> None:
    assert pairs(parse_hosts_option("10.0.0.138:8, n2,[::1]:2")) == [
        ("10.0.0.138", 8),
        ("n2", 1),
        ("[::1]", 2),
    ]


@pytest.mark.parametrize("text", ["", "a:", "a:x", ":8", "a:-1", "a,,b", "a b", "fe80::1", "a:8:8", "a;rm:1"])
def test_a_host_option_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a host"):
        parse_hosts_option(text)


@pytest.mark.parametrize(
    "line", ["w1 slots=x", "w1 slots", "w1 8", "w1 slots=-2", "w1 slots=", "w1:8 slots=2", "$(x) slots=1"]
)
def test_a_line_that_is_no_host_is_named_with_its_number(line: str) -> None:
    with pytest.raises(CaptureError, match=r"^hosts:2: "):
        parse_openmpi(f"w0 slots=2\n{line}\n", "hosts")


@pytest.mark.parametrize("line", ["w1:x", "w1:", "w1 8", "w1:8 up", "a/b"])
def test_a_line_of_mpichs_host_file_that_is_no_host_is_named_with_its_number(line: str) -> None:
    with pytest.raises(CaptureError, match=r"^hosts:2: "):
        parse_hydra(f"w0:2\n{line}\n", "hosts")


def test_deepspeed_wants_slots_and_each_host_once() -> None:
    assert pairs(parse_deepspeed("w1 slots=2\nw2 slots=2\n", "f")) == [("w1", 2), ("w2", 2)]
    with pytest.raises(CaptureError, match="f:2: w1 is named twice"):
        parse_deepspeed("w1 slots=2\nw1 slots=2\n", "f")
    with pytest.raises(CaptureError, match="f:1: w1 has no slots"):
        parse_deepspeed("w1\n", "f")


names = st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.builds(HostSlots, names, st.integers(0, 99)), max_size=6, unique_by=lambda entry: entry.host)
)
def test_what_is_written_is_read_back(entries: list[HostSlots]) -> None:
    assert pairs(parse_openmpi(write_openmpi(entries), "f")) == pairs(entries)
    assert pairs(parse_hydra(write_hydra(entries), "f")) == pairs(entries)


anything = st.text(alphabet="ab1:=,.[]# \n\tslots", max_size=40) | st.text(max_size=40)


@pytest.mark.parametrize("parse", [parse_openmpi, parse_hydra, parse_deepspeed])
@settings(max_examples=50, deadline=None)
@given(text=anything)
def test_any_text_is_hosts_or_one_line_that_is_none(
    parse: Callable[[str, str], list[HostSlots]], text: str
) -> None:
    try:
        entries = parse(text, "f")
    except CaptureError:
        return
    assert all(entry.host and (entry.slots is None or entry.slots >= 0) for entry in entries)


@settings(max_examples=50, deadline=None)
@given(anything)
def test_any_host_option_is_hosts_or_a_value_error(text: str) -> None:
    try:
        entries = parse_hosts_option(text)
    except ValueError:
        return
    assert all(entry.host and entry.slots is not None for entry in entries)
