"""Interfaces that NCCL takes, by a value or by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.interfaces import Addresses, chosen, is_link_local, is_loopback, is_set, leads_nowhere, listed

NAMES = ("lo", "eth0", "eth1", "ib0", "docker0", "virbr0")
ADDRESSES: tuple[Addresses, ...] = (
    ("127.0.0.1/8", "::1/128"),
    ("10.0.0.7/24",),
    (),
    ("10.1.0.7/16",),
    ("172.17.0.1/16",),
    ("192.168.122.1/24",),
)


def names(places: tuple[int, ...]) -> list[str]:
    return [NAMES[place] for place in places]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("eth0", ["eth0"]),
        ("eth", ["eth0", "eth1"]),
        ("=eth", []),
        ("=eth0", ["eth0"]),
        ("ens,eth1", ["eth1"]),
        ("^docker,lo,virbr", ["eth0", "eth1", "ib0"]),
        ("^=eth0", ["lo", "eth1", "ib0", "docker0", "virbr0"]),
        ("^docker", ["lo", "eth0", "eth1", "ib0", "virbr0"]),
    ],
)
def test_a_value_means_prefixes_exact_names_or_what_is_left_out(value: str, meant: list[str]) -> None:
    assert names(listed(NAMES, value)) == meant


def test_by_itself_nccl_looks_for_ib_first_and_for_loopback_last() -> None:
    assert names(chosen(NAMES, ADDRESSES, None).addressed) == ["ib0"]
    without = tuple(() if name == "ib0" else own for name, own in zip(NAMES, ADDRESSES, strict=True))
    assert names(chosen(NAMES, without, None).addressed) == ["eth0"]
    only_lo = tuple(own if name == "lo" else () for name, own in zip(NAMES, ADDRESSES, strict=True))
    found = chosen(NAMES, only_lo, None)
    assert (names(found.addressed), names(found.loopback)) == ([], ["lo"])


def test_an_address_that_is_not_known_ends_the_search() -> None:
    unknown = tuple(None if name == "ib0" else own for name, own in zip(NAMES, ADDRESSES, strict=True))
    assert not chosen(NAMES, unknown, None).known
    assert chosen(NAMES, unknown, "eth0").known


def test_a_value_of_one_letter_is_none() -> None:
    assert [is_set(value) for value in (None, "", "e", "lo")] == [False, False, False, True]
    assert names(chosen(NAMES, ADDRESSES, "e").addressed) == ["ib0"]


def test_a_list_of_what_is_left_out_leaves_loopback_in() -> None:
    assert names(chosen(NAMES, ADDRESSES, "^docker").loopback) == ["lo"]


def test_bridges_of_engines_lead_nowhere_and_bridges_of_people_may() -> None:
    assert all(map(leads_nowhere, ("virbr0", "br-1f2e3d4c5b6a", "veth0a1b2c3", "cni0", "flannel.1", "wg0")))
    assert not any(map(leads_nowhere, ("br0", "bond0", "eth0", "enp3s0f0np0", "ib0", "bridge0")))


def test_addresses_of_one_link_and_of_one_host_are_told_apart() -> None:
    assert all(map(is_loopback, ("127.0.0.1/8", "127.0.1.1", "::1/128")))
    assert all(map(is_link_local, ("fe80::1/64", "FE80::2", "169.254.3.4/16")))
    assert not any(map(is_link_local, ("10.0.0.7/24", "2001:db8::7/64")))


@given(st.text(max_size=12), st.lists(st.text(min_size=1, max_size=8), max_size=5, unique=True))
@settings(max_examples=50, deadline=None)
def test_any_value_means_some_of_the_interfaces(value: str, own: list[str]) -> None:
    found = chosen(own, [("10.0.0.7/24",)] * len(own), value)
    assert set(found.addressed) <= set(found.named) <= set(range(len(own)))
