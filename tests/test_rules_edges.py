"""OBS004: what sender and receiver of an edge say of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from build import A40, H100, TWO, answer, edge, fact, pair, report, running, snap, sockets, text_of
from made_edges import DIRECT, both_ends, received

from topocheck.demo.scenario import SCENARIOS
from topocheck.probes.capture.recognise import read_capture
from topocheck.snapshot import FullSnapshot

CASE = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases" / "C45-nccl-gdr-asym.txt"
STAGED = "NET/IB/0"


def mute(model: str | None = H100, **parts: object) -> list[FullSnapshot]:
    """Senders without GPUDirect, receivers with, beside the hardware of the nodes."""
    logs = both_ends(sent=STAGED, got=DIRECT)
    seen = logs[0].observed
    assert seen is not None
    edges = tuple(
        msgspec.structs.replace(one, how=DIRECT, gdr=True) if one.side == "receive" else one
        for one in seen.edges
    )
    logs[0] = msgspec.structs.replace(logs[0], observed=msgspec.structs.replace(seen, edges=edges))
    if model is None:
        return logs
    hardware: dict[str, object] = {"model": model} | parts
    views = [snap("node-a", **hardware), snap("node-b", **hardware)]  # type: ignore[arg-type]  # build's keywords
    return [*logs, *views]


def switched_off(view: FullSnapshot) -> FullSnapshot:
    """A node whose log says that senders do not read by GPUDirect."""
    if view.observed is None:
        return view
    off = fact("env", "NCCL_NET_GDR_READ=0", host=view.identity.host.name or "", line=3)
    return msgspec.structs.replace(view, observed=msgspec.structs.replace(view.observed, facts=(off,)))


def obs004(evidence: Sequence[FullSnapshot]) -> str:
    return answer(report(TWO, *evidence), "OBS004").verdict


def test_a_sender_without_gpudirect_is_strange_where_gpus_have_nvlink() -> None:
    found = answer(report(TWO, *mute()), "OBS004")
    assert found.verdict == "fail"
    assert "received with GPUDirect RDMA and sent without" in text_of(found)


def test_a_sender_without_gpudirect_is_nccls_own_choice_where_gpus_have_no_nvlink() -> None:
    assert obs004(mute(A40, links=sockets, nvlinks=[0] * 4, switch=None)) == "pass"


def test_a_sender_without_gpudirect_on_unknown_hardware_is_unknown() -> None:
    assert obs004(mute(None)) == "unknown"


def test_a_sender_that_was_told_to_read_through_the_host_is_as_meant() -> None:
    told = [switched_off(view) for view in mute()]
    assert obs004(told) == "pass"


def test_what_one_end_alone_lacks_is_told_once() -> None:
    found = report(TWO, *both_ends(got="NET/IB/1"))
    assert (answer(found, "OBS004").verdict, answer(found, "OBS009").verdict) == ("fail", "pass")


def test_both_ends_without_gpudirect_are_obs009_alone() -> None:
    logs = both_ends(sent=STAGED, got=STAGED)
    found = report(TWO, *logs)
    assert (answer(found, "OBS004").verdict, answer(found, "OBS009").verdict) == ("pass", "fail")


def test_channels_over_several_nics_may_differ() -> None:
    far = [
        edge(3, 4, "NET/IB/5", host="node-a", line=70),
        received(3, 4, "node-b"),
        received(3, 4, "node-b", "NET/IB/5"),
    ]
    ends = {"node-a": [received(7, 0, "node-a"), far[0]], "node-b": far[1:]}
    assert obs004(running(edges=ends)) == "pass"


def test_two_networks_at_one_edge_are_named() -> None:
    found = answer(report(TWO, *both_ends(got="NET/Socket/0")), "OBS004")
    assert found.verdict == "fail"
    assert "sent over NET/IB by node-a and received over NET/Socket by node-b" in text_of(found)


def test_an_end_that_was_not_logged_is_unknown_and_named() -> None:
    whole = report(TWO, *both_ends()[:1], running()[1])
    found = answer(whole, "OBS004")
    assert found.verdict == "unknown"
    assert [whole.gaps[index].about for index in found.gaps] == [["node-b"]]


def test_lines_of_no_known_communicator_accuse_nobody() -> None:
    ends = {"node-b": [msgspec.structs.replace(received(3, 4, "node-b", STAGED), comm=None)]}
    assert obs004(running(edges=ends)) == "unknown"


def test_the_made_running_job_passes() -> None:
    log = SCENARIOS["running"].files()["evidence/nccl.log"]
    plan = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: 2\n"
    views = [view for one in read_capture(log.encode(), "nccl.log") for view in one.snapshots]
    assert answer(report(plan, *views), "OBS004").verdict == "pass"


@pytest.mark.skipif(not CASE.exists(), reason="the recorded cases are not here")
def test_the_recorded_lines_without_a_process_are_unattributed() -> None:
    views = [view for one in read_capture(CASE.read_bytes(), "gdr.txt") for view in one.snapshots]
    plan = "engine: vllm\nparallel: {tensor: 8, pipeline: 2}\nnodes: 2\n"
    found = answer(report(plan, *views), "OBS004")
    assert (found.verdict, found.findings) == ("unknown", [])


def test_a_job_that_does_not_run_is_not_asked() -> None:
    assert obs004(pair()) == "not-applicable"
