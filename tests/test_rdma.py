"""Whether a node can use RDMA where the ranks run."""

from __future__ import annotations

from typing import Any

import pytest
from build import TWO, fact, full, log, nics, placed, snap

from topocheck.rdma import FIXES, Rdma, rdma_of
from topocheck.snapshot import FullSnapshot, JobFact, LogFact, NcclFile, NicShape, Port

OPENED = fact("hca", "mlx5_0:1/IB", line=3)


def of(*views: FullSnapshot) -> Rdma | None:
    found = placed(TWO, *views)
    return rdma_of(found, found.nodes[0])


def told(*facts: LogFact) -> Rdma | None:
    return of(log("node-a", facts=facts))


def test_nothing_shown_is_nothing_known() -> None:
    assert of() is None
    assert told() is None
    assert told(fact("network", "IB")) is None


@pytest.mark.parametrize(
    "kind", ["no-verbs", "device-open-failed", "no-rdma-device", "verbs-call-failed", "ofi-no-provider"]
)
def test_what_the_log_says_of_a_failure_is_the_cause(kind: str) -> None:
    found = told(fact(kind, "thing", line=9), fact("network", "Socket", line=11))
    assert found
    assert (found.works, found.cause, found.met) == (False, kind, True)
    assert "thing" in found.reason
    assert found.fix == FIXES[kind]
    assert [evidence.line for evidence in found.evidence] == [9, 11]


@pytest.mark.parametrize("kind", ["no-verbs", "device-open-failed", "no-rdma-device", "ofi-no-provider"])
@pytest.mark.parametrize("network", ["IB", "AWS Libfabric", "NCCL RDMA Plugin v8"])
def test_what_nccl_did_without_is_no_failure(kind: str, network: str) -> None:
    found = told(fact(kind), fact("network", network), OPENED)
    assert found
    assert found.works


def test_a_call_that_failed_is_one_whatever_network_was_chosen() -> None:
    found = told(fact("network", "IB"), OPENED, fact("verbs-call-failed", "ibv_create_cq"))
    assert found
    assert (found.works, found.cause) == (False, "verbs-call-failed")


def test_one_process_on_sockets_is_enough() -> None:
    found = told(fact("network", "IB"), fact("network", "Socket", pid=2), OPENED)
    assert found
    assert (found.works, found.cause) == (False, "socket network")


@pytest.mark.parametrize("setting", ["NCCL_IB_DISABLE=1", "NCCL_NET=Socket", "NCCL_NET=socket"])
def test_the_user_may_have_switched_it_off(setting: str) -> None:
    for found in (
        told(fact("env", setting), fact("network", "Socket")),
        of(snap(environment=dict([setting.split("=")]))),
    ):
        assert found
        assert (found.works, found.cause, found.met) == (False, "switched off", False)
        assert setting in found.reason
        assert found.evidence


@pytest.mark.parametrize("setting", ["NCCL_IB_DISABLE=0", "NCCL_NET=IB", "NCCL_IB_DISABLE="])
def test_other_values_switch_nothing_off(setting: str) -> None:
    found = of(snap(environment=dict([setting.split("=")])))
    assert found
    assert found.works


def test_a_plugin_serves_although_nccls_own_verbs_are_off() -> None:
    found = told(fact("env", "NCCL_IB_DISABLE=1"), fact("network", "AWS Libfabric"), OPENED)
    assert found
    assert found.works


def test_a_device_that_the_job_opened_is_more_than_a_port_that_is_up() -> None:
    opened, up = told(OPENED), of(snap())
    assert opened
    assert up
    assert (opened.works, opened.opened) == (True, True)
    assert (up.works, up.opened, up.cause) == (True, False, "active port")


def port(**fields: Any) -> tuple[NicShape, ...]:
    return (NicShape(name="mlx5_0", ports=(Port(**fields),)),)


def test_a_whole_listing_without_an_active_port_disproves() -> None:
    found = of(snap(ports=nics(state="DOWN")))
    assert found
    assert (found.works, found.cause, found.met) == (False, "no active port", False)
    assert "mlx5_0 DOWN" in found.evidence[0].fact


@pytest.mark.parametrize(
    "view",
    [
        snap(ports=nics(state="DOWN"), coverage=full(nics="part")),
        snap(ports=port(state=None)),
        snap(ports=(*nics(state="DOWN"), NicShape(name="mlx5_9"))),
        snap(ports=(NicShape(name="mlx5_0"),)),
        snap(ports=()),
    ],
)
def test_ports_that_are_not_all_known_disprove_nothing(view: FullSnapshot) -> None:
    assert of(view) is None


def test_an_active_port_whose_cable_is_off_is_not_up() -> None:
    found = of(snap(ports=port(state="ACTIVE", physical="Disabled")))
    assert found
    assert not found.works
    assert of(snap(ports=port(state="ACTIVE")))


def test_an_unknown_cause_has_advice_too() -> None:
    assert "NCCL_DEBUG=INFO" in Rdma(False, "else", "", ()).fix


def test_a_file_or_a_launch_command_may_switch_it_off_too() -> None:
    hidden = NcclFile(path="/etc/nccl.conf", kind="settings", exists=True, settings={"NCCL_IB_DISABLE": "1"})
    told_all = JobFact(kind="option", name="NCCL_IB_DISABLE", value="1")
    for view in (snap(files=(hidden,)), snap(environment={}, job=(told_all,))):
        found = of(view)
        assert found
        assert (found.works, found.cause) == (False, "switched off")
    said_otherwise = of(snap(environment={"NCCL_IB_DISABLE": "0"}, files=(hidden,), job=(told_all,)))
    assert said_otherwise
    assert said_otherwise.works
