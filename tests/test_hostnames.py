"""Which host a view is of."""

from __future__ import annotations

import pytest

from topocheck.hostnames import HostNames, short_name
from topocheck.snapshot import Host


def known(*hosts: Host) -> HostNames:
    """These hosts, numbered in order."""
    names = HostNames()
    for index, host in enumerate(hosts):
        names.register(index, host)
    return names


def test_a_boot_id_says_which_host_whatever_its_name() -> None:
    names = known(Host(name="a", boot_id="b1"), Host(name="b", boot_id="b2"))
    assert names.find(Host(name="a", boot_id="b2")) == 1


def test_a_new_boot_id_under_a_known_name_is_a_new_host() -> None:
    assert known(Host(name="a", boot_id="b1")).find(Host(name="a", boot_id="b2")) is None


def test_a_name_joins_evidence_without_a_boot_id() -> None:
    names = known(Host(name="a", boot_id="b1"))
    assert names.find(Host(name="a")) == 0
    assert names.find(Host(aliases=("a",))) == 0
    assert known(Host(name="a")).find(Host(name="a", boot_id="b1")) == 0


@pytest.mark.parametrize(("kept", "asked"), [("n1.cluster.local", "n1"), ("n1", "n1.cluster.local")])
def test_a_name_that_is_cut_at_its_first_dot_is_the_same_host(kept: str, asked: str) -> None:
    assert known(Host(name=kept)).find(Host(name=asked)) == 0


def test_two_full_names_with_one_first_label_are_two_hosts() -> None:
    assert known(Host(name="n1.east")).find(Host(name="n1.west")) is None


def test_a_first_label_that_two_hosts_have_is_ambiguous_once_evidence_relies_on_it() -> None:
    names = known(Host(name="n1.east"), Host(name="n1.west"))
    assert names.ambiguous == []
    names.find(Host(name="n1"))
    assert names.ambiguous == [("n1", 0, 1)]


def test_two_machines_of_one_name_are_no_fault_while_boot_ids_tell_them_apart() -> None:
    names = known(Host(name="clone", boot_id="b1"), Host(name="clone", boot_id="b2"))
    assert names.ambiguous == []
    names.find(Host(name="clone"))
    assert names.ambiguous == [("clone", 0, 1)]


def test_machines_may_be_renumbered() -> None:
    names = known(Host(name="z", boot_id="b1"), Host(name="a.x"), Host(name="z"))
    names.find(Host(name="z"))
    names.renumber([2, 0, 1])
    assert names.find(Host(boot_id="b1")) == 2
    assert names.find(Host(name="a")) == 0
    assert names.ambiguous == [("z", 1, 2)]


@pytest.mark.parametrize(
    ("name", "label"), [("n1.east", "n1"), ("n1", "n1"), ("10.0.0.138", "10.0.0.138"), ("fe80::1", "fe80::1")]
)
def test_an_address_has_no_first_label(name: str, label: str) -> None:
    assert short_name(name) == label
