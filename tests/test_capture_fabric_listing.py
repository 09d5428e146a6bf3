"""gpud's tables, telemetry lines, scripts that wait for the fabric."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.fabric_listing import parse
from topocheck.probes.capture.text import read_text

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
needs_cases = pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")

TELEMETRY = (
    "rank=3 host=tray-1 clusterId=0807060504030201.100f0e0d0c0b0a09 cliqueId=5 nNvlDomains=1\n"
    "rank=4 clusterId=1.2 cliqueId=5\n"
)


def test_tables_are_of_one_gpu_each_and_of_the_model_above_them() -> None:
    (reading,) = parse(read_text(CAPTURES / "fabric-boxes.txt"))
    (snapshot,) = reading.snapshots
    assert snapshot.identity.host.name == "tray-07"
    assert [gpu.model for gpu in snapshot.hardware.gpus] == ["NVIDIA GB300"] * 2
    assert [(gpu.uuid or "")[-2:] for gpu in snapshot.identity.gpus] == ["c1", "c2"]
    good, bad = snapshot.fabric
    assert (good.gpus, good.state, good.clique, good.health) == ((0,), "Completed", 12, "Healthy")
    assert (bad.gpus, bad.state, bad.status) == ((1,), "Not Supported", None)
    assert snapshot.coverage.gpus == "part"


def test_telemetry_is_a_fact_of_the_job_in_nvidia_smis_order_of_digits() -> None:
    (reading,) = parse(read(TELEMETRY))
    (snapshot,) = reading.snapshots
    assert snapshot.identity.host.name is None
    assert [(fact.kind, fact.name, fact.value, fact.host) for fact in snapshot.job] == [
        ("nvlink-domain", "3", "0102030405060708090a0b0c0d0e0f10.5", "tray-1"),
        ("nvlink-domain", "4", "0100000000000000" + "0200000000000000.5", None),
    ]


def test_one_rank_in_two_domains_is_a_contradiction() -> None:
    (reading,) = parse(read(TELEMETRY + "rank=4 clusterId=1.3 cliqueId=5\n"))
    assert [(note.line, note.kind) for note in reading.notes] == [(3, "contradictory")]


def test_a_script_that_waited_in_vain_and_cudas_answer_are_facts_of_the_host() -> None:
    (reading,) = parse(read_text(CAPTURES / "fabric-wait.log"))
    (snapshot,) = reading.snapshots
    assert snapshot.observed
    assert [(fact.kind, fact.value) for fact in snapshot.observed.facts] == [
        ("fabric-not-completed", "[fabric-wait] the fabric state never became Completed (31 tries)"),
        ("cuda-error", "802 system not yet initialized"),
    ]
    assert [(gpu.nvml, gpu.model) for gpu in snapshot.identity.gpus] == [
        (0, "NVIDIA B200"),
        (1, "NVIDIA B200"),
    ]
    assert snapshot.coverage.gpus == "part"


@pytest.mark.parametrize(
    "text",
    [
        "| Colour | blue |\n",
        "| Clique ID | 3 |\n| Size | 4 |\n",
        "rank=0 clusterId=xyz.1 cliqueId=2\n",
        "clusterId=1.2 cliqueId=2\n",
        "Error 802: out of paper\n",
        "the fabric is Completed\n",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@settings(max_examples=60, deadline=None)
@given(
    texts("fabric-boxes.txt", "fabric-wait.log") | texts("smi-q-grep.txt").map(lambda text: text + TELEMETRY)
)
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        for snapshot in reading.snapshots:
            assert len(snapshot.identity.gpus) == len(snapshot.hardware.gpus)


@needs_cases
def test_the_shared_cases_read_as_their_truth_says() -> None:
    (reading,) = parse(read_text(CASES / "C32-fabric-box-notsupported.txt"))
    (snapshot,) = reading.snapshots
    (fabric,) = snapshot.fabric
    assert (fabric.state, fabric.status, fabric.clique) == ("Not Supported", None, 0)
    assert [gpu.model for gpu in snapshot.hardware.gpus] == ["NVIDIA GB200"]
    (reading,) = parse(read_text(CASES / "C33-clique-telemetry.txt"))
    domains = {fact.name: fact.value for fact in reading.snapshots[0].job}
    assert sorted(domains) == ["0", "1", "2"]
    assert len(set(domains.values())) == 3
    assert {value.partition(".")[2] for value in domains.values()} == {"32766"}
    (reading,) = parse(read_text(CASES / "C30-fabric-802.log"))
    (snapshot,) = reading.snapshots
    assert snapshot.observed
    assert "(12 tries)" in snapshot.observed.facts[0].value
    assert snapshot.observed.facts[1].value.startswith("802")
    assert [gpu.model for gpu in snapshot.hardware.gpus] == ["NVIDIA H200"]
