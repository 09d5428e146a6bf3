"""The fabric manager's log, journal and service."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.fabricmanager_log import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import read_text

CAPTURES = Path(__file__).parent / "captures"
MACHINES = Path(__file__).resolve().parents[2] / "shared" / "data" / "machines"
LOG = (CAPTURES / "fabricmanager.log").read_text(encoding="utf-8")


def facts(reading: Reading) -> list[tuple[str, str]]:
    (snapshot,) = reading.snapshots
    return [(fact.kind, fact.value) for fact in snapshot.observed.facts] if snapshot.observed else []


def test_a_log_tells_version_state_and_each_kind_of_error_once() -> None:
    (reading,) = parse(read(LOG))
    assert reading.snapshots[0].software.fabric_manager == "575.51.03"
    assert facts(reading) == [
        ("fabric-manager", "configured"),
        ("nvswitch-error", "fatal 20034 0000:c5:00.0 port 17"),
        (
            "fabric-manager-error",
            "failed to find the GPU handle 1a2b3c in the multicast team request setup 7.",
        ),
    ]


def test_a_log_without_a_word_on_its_state_shows_that_it_ran() -> None:
    (reading,) = parse(read("[Jan 05 2026 09:00:00] [INFO] [tid 7] multicast group 0 is freed.\n"))
    assert facts(reading) == [("fabric-manager", "ran")]


def test_a_service_that_failed_over_another_drivers_version() -> None:
    (reading,) = parse(read_text(CAPTURES / "fabricmanager-journal.txt"))
    (snapshot,) = reading.snapshots
    assert snapshot.identity.host.name == "gpu-37"
    assert (snapshot.software.fabric_manager, snapshot.software.driver) == ("575.51.03", "575.57.08")
    assert facts(reading) == [
        ("fabric-manager", "failed"),
        ("fabric-manager-mismatch", "575.51.03 575.57.08"),
    ]


@pytest.mark.parametrize(
    ("active", "state"), [("active (running) since Mon", "running"), ("inactive (dead)", "inactive")]
)
def test_systemd_says_whether_it_runs(active: str, state: str) -> None:
    text = f"● nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Active: {active}\n"
    assert facts(parse(read(text))[0]) == [("fabric-manager", state)]


def test_its_version_is_what_it_prints() -> None:
    (reading,) = parse(read("$ nv-fabricmanager --version\nFabric Manager version is : 535.161.08\n"))
    assert reading.snapshots[0].software.fabric_manager == "535.161.08"
    assert facts(reading) == []


def test_a_flood_of_different_errors_is_bounded() -> None:
    line = "[Jan 05 2026 09:00:00] [ERROR] [tid 7] detected NVSwitch fatal error {} on fid 0 on NVSwitch"
    text = "\n".join(line.format(n) + " pci bus id 00000000:C5:00.0 port 1" for n in range(500))
    (reading,) = parse(read(text))
    assert len(facts(reading)) <= 65
    assert [note.kind for note in reading.notes] == ["ignored"]


@pytest.mark.parametrize(
    "text", ["install nvidia-fabricmanager.service\n", "the Fabric Manager is old\n", "[tid 4] x\n"]
)
def test_other_text_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@settings(max_examples=60, deadline=None)
@given(texts("fabricmanager.log", "fabricmanager-journal.txt"))
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        assert len(facts(reading)) == len(set(facts(reading)))


@pytest.mark.skipif(not MACHINES.exists(), reason="the shared captures are not here")
def test_the_shared_log_reads_as_its_truth_says() -> None:
    (reading,) = parse(read_text(MACHINES / "misc" / "gpud-fabricmanager.log"))
    assert facts(reading) == [
        ("nvswitch-error", "non-fatal 12028 0000:86:00.0 port 61"),
        ("fabric-manager", "ran"),
    ]
