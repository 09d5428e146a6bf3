"""ENV007: nothing around the processes changes their path unseen."""

from __future__ import annotations

import msgspec
import pytest
from build import TWO, answer, fact, pair, report, running, text_of

from topocheck.rules.environment import IDENTITY_OVERRIDES
from topocheck.snapshot import NcclFile


@pytest.mark.parametrize("name", IDENTITY_OVERRIDES)
def test_a_variable_that_replaces_identity_is_told_with_its_node(name: str) -> None:
    found = answer(report(TWO, *pair(environment={name: "1"})), "ENV007")
    assert (found.passed, found.failed) == (1, 1)
    assert f"{name}=1" in text_of(found)
    assert found.findings[0].subjects == ["node-a"]


def test_the_same_variable_in_a_log_has_its_line() -> None:
    told = [fact("env", "NCCL_HOSTID=x", line=9), fact("hca", "mlx5_0:1/IB", host="node-b")]
    found = answer(report(TWO, *running(facts=told)), "ENV007")
    assert "node-a.log:9" in text_of(found)
    assert found.unknown == 1


def test_variables_that_were_not_looked_at_are_unknown_and_others_are_no_fault() -> None:
    assert answer(report(TWO, *running()), "ENV007").verdict == "unknown"
    assert answer(report(TWO, *pair(environment={"NCCL_DEBUG": "WARN"})), "ENV007").verdict == "pass"
    assert answer(report(TWO, *pair(environment={})), "ENV007").verdict == "unknown"


def test_nodes_that_have_the_same_variables_are_one_finding() -> None:
    views = [msgspec.structs.replace(view, environment={"NCCL_HOSTID": "x"}) for view in pair()]
    [only] = answer(report(TWO, *views), "ENV007").findings
    assert (only.count, only.subjects) == (2, ["node-a", "node-b"])


def test_an_nccl_conf_overrides_identity_as_a_variable_does() -> None:
    file = NcclFile(path="/etc/nccl.conf", kind="settings", settings={"NCCL_HOSTID": "x"})
    first, second = pair()
    found = answer(report(TWO, msgspec.structs.replace(first, files=(file,)), second), "ENV007")
    assert found.findings[0].subjects == ["node-a"]
    assert "/etc/nccl.conf" in text_of(found)


def test_the_variables_of_a_shell_beside_the_ranks_are_not_theirs() -> None:
    first, second = pair()
    claimed = msgspec.structs.replace(first, environment={})
    shell = msgspec.structs.replace(first, ranks=(), environment={"NCCL_DEBUG": "INFO"})
    assert answer(report(TWO, claimed, shell, second), "ENV007").verdict == "unknown"


def test_what_one_rank_alone_has_is_told_too() -> None:
    first, second = pair()
    own = msgspec.structs.replace(first, own_environments=({"NCCL_HOSTID": "x"}, {}))
    assert answer(report(TWO, own, second), "ENV007").findings[0].subjects == ["node-a"]
