"""One host as all evidence shows it."""

from __future__ import annotations

from build import inventory, snap

from topocheck.machine import changed


def test_a_machine_that_is_changed_is_looked_at_anew_and_leaves_the_other_as_it_is() -> None:
    (machine,) = inventory(snap("node-a")).machines
    other = changed(machine, has_claims=not machine.has_claims)
    assert machine.look
    assert other.look == ()
    assert other.has_claims is not machine.has_claims
    assert other.host is machine.host
