"""Entries of a GID table: which is in use, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.gidtable import default_fault, fault_at, parse_index, speaks_roce, usable
from topocheck.networkfacts import GidFacts, PortFacts

V1, V2 = "IB/RoCE v1", "RoCE v2"
LOW_1, LOW_2 = (V1, False, True), (V2, False, True)
MAPPED_1, MAPPED_2 = (V1, True, False), (V2, True, False)
GLOBAL = (V2, False, False)
"""A routable IPv6 address."""


def port(
    *entries: tuple[str | None, bool, bool], cut: bool = False, netdev: str | None = "rail0"
) -> PortFacts:
    """A port with these entries: type, whether it holds an IPv4 address, whether it is link-local."""
    gids = tuple(
        GidFacts(place, kind, netdev, mapped, low) for place, (kind, mapped, low) in enumerate(entries)
    )
    return PortFacts(0, 1, 0, gids, cut)


USUAL = port(LOW_1, LOW_2, MAPPED_1, MAPPED_2)


def test_an_index_is_a_number_or_left_to_nccl() -> None:
    assert [parse_index(text) for text in ("3", " 3 ", "0x3", "0")] == [3, 3, 3, 0]
    assert [parse_index(text) for text in ("-1", "", "auto", "3rd")] == [None] * 4


def test_each_entry_says_what_is_wrong_with_it() -> None:
    words = [fault_at(USUAL, index) for index in range(5)]
    assert words == [
        "is of RoCE v1",
        "is link-local, which no router passes on",
        "is of RoCE v1",
        "",
        "is empty",
    ]


def test_what_is_not_listed_is_empty_only_in_a_whole_table() -> None:
    assert fault_at(port(MAPPED_2, cut=True), 5) is None
    assert fault_at(PortFacts(0, 1, 0, None, cut=False), 0) is None
    assert fault_at(port((None, True, False)), 0) is None


def test_usable_entries_are_of_version_2_and_routable() -> None:
    assert usable(USUAL) == (3,)
    both = port(LOW_1, GLOBAL, MAPPED_2)
    assert (usable(both), usable(both, ipv6=True), usable(both, ipv6=False)) == ((1, 2), (1,), (2,))


def test_nccl_chooses_by_itself_from_2_21_on() -> None:
    assert default_fault(USUAL, (2, 21), ipv6=False) == ""
    assert default_fault(USUAL, (2, 20), ipv6=False) == "is of RoCE v1"
    assert default_fault(USUAL, None, ipv6=False) is None


def test_without_an_address_of_the_family_entry_0_is_taken_in_every_version() -> None:
    bare = port(LOW_1, LOW_2)
    assert {default_fault(bare, version, ipv6=False) for version in ((2, 27), (2, 18), None)} == {
        "is of RoCE v1"
    }
    assert default_fault(port(LOW_1, GLOBAL), (2, 27), ipv6=True) == ""
    assert default_fault(port(LOW_1, cut=True), (2, 27), ipv6=False) is None
    assert default_fault(port(MAPPED_2), None, ipv6=False) == ""


def test_an_infiniband_port_has_no_network_device_and_no_version_2() -> None:
    assert not speaks_roce(port(LOW_1, netdev=None))
    assert speaks_roce(port(LOW_1))
    assert speaks_roce(port(MAPPED_2, netdev=None))


ENTRY = st.tuples(st.sampled_from([V1, V2, None]), st.booleans(), st.booleans())


@given(st.lists(ENTRY, max_size=6), st.booleans(), st.text(max_size=6))
@settings(max_examples=50, deadline=None)
def test_a_usable_entry_has_no_fault_and_any_text_is_an_index_or_none(
    entries: Sequence[tuple[str | None, bool, bool]], cut: bool, text: str
) -> None:
    made = port(*entries, cut=cut)
    assert {fault_at(made, index) for index in usable(made)} <= {""}
    index = parse_index(text)
    assert index is None or index >= 0
