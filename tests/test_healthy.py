"""Healthy set-ups, each whole: no rule accuses them, and those that matter there have something to pass on.

Every set-up says which rules have to pass; a warning that belongs to the machine is named, and nothing else
may be found. The thin machines of `test_traps` ask single rules; these go through all of them as verify does.
"""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest
from set_ups import verified
from set_ups_jobs import JOBS
from set_ups_machines import MACHINES

from topocheck.rules import RULES

SET_UPS = MACHINES | JOBS


@pytest.mark.parametrize("name", SET_UPS)
def test_a_healthy_set_up_is_accused_by_nobody_and_passes_what_matters(name: str) -> None:
    made = SET_UPS[name]()
    found = verified(made.plan, *made.evidence)
    said = [f"{rule.id} {f.severity} {f.message}" for rule in found.rules for f in rule.findings]
    assert [words for words in said if " error " in words] == []
    assert {words.split()[0] for words in said} == made.warns, said
    assert {
        rule.id: rule.verdict for rule in found.rules if rule.id in made.passing and rule.verdict != "pass"
    } == {}
    required = {rule.id for rule in found.rules if rule.required and rule.verdict == "unknown"}
    assert required == made.undecided
    assert found.exit_code == (3 if made.undecided else 0)


def test_every_rule_that_has_to_pass_somewhere_exists() -> None:
    asked = set().union(*(made().passing | made().warns for made in SET_UPS.values()))
    assert asked <= {rule.id for rule in RULES}


@pytest.mark.parametrize("name", ["hgx", "dense", "two_replicas"])
def test_the_order_of_the_evidence_changes_no_byte(name: str) -> None:
    made = SET_UPS[name]()
    orders = list(permutations(made.evidence))[:6]
    told = {msgspec.json.encode(verified(made.plan, *order)) for order in orders}
    assert len(told) == 1
