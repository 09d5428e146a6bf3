"""The label nvidia.com/gpu.clique in all forms that kubectl prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from torn_text import read, texts

from topocheck.probes.capture.kube_clique import parse
from topocheck.probes.capture.reading import Reading
from topocheck.probes.capture.text import read_text

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"
LABEL = "nvidia.com/gpu.clique=4a4b4c4d-1111-4222-8333-445566778899.2"


def domains(readings: list[Reading]) -> dict[str | None, tuple[str | None, int | None]]:
    (reading,) = readings
    return {
        snapshot.identity.host.name: (fabric.cluster_uuid, fabric.clique)
        for snapshot in reading.snapshots
        for fabric in snapshot.fabric
    }


def test_a_column_gives_each_node_its_domain_and_none_to_the_others() -> None:
    readings = parse(read_text(CAPTURES / "clique-columns.txt"))
    assert domains(readings) == {
        "rack1-n1": ("0a0b0c0d111142228333445566778899", 3),
        "rack1-n2": ("0a0b0c0d111142228333445566778899", 3),
        "rack2-n1": ("1a1b1c1d111142228333445566778899", 3),
    }
    fabrics = [snapshot.fabric[0] for snapshot in readings[0].snapshots]
    assert {(fabric.state, fabric.status, fabric.gpus) for fabric in fabrics} == {
        ("Completed", "Success", ())
    }
    assert [fabric.at.line for fabric in fabrics if fabric.at] == [3, 4, 5]


def test_labels_in_lists_and_descriptions_belong_to_their_node() -> None:
    found = domains(parse(read_text(CAPTURES / "clique-labels.txt")))
    assert found == dict.fromkeys(["rack4-n1", "rack4-n2"], ("2a2b2c2d111142228333445566778899", 9))


def test_a_label_in_yaml_belongs_to_the_name_of_its_metadata() -> None:
    found = domains(parse(read_text(CAPTURES / "clique-node.yaml")))
    assert found == {"rack5-n1": ("3a3b3c3d111142228333445566778899", 0)}


def test_a_label_in_json_belongs_to_the_name_of_its_metadata() -> None:
    text = (
        '{\n  "metadata": {\n    "labels": {\n'
        '      "nvidia.com/gpu.clique": "4a4b4c4d-1111-4222-8333-445566778899.2"\n    },\n'
        '    "name": "rack6-n1"\n  }\n}\n'
    )
    assert domains(parse(read(text))) == {"rack6-n1": ("4a4b4c4d111142228333445566778899", 2)}


def test_a_label_alone_is_of_some_node() -> None:
    (reading,) = parse(read(f"    {LABEL}\n"))
    assert domains([reading]) == {None: ("4a4b4c4d111142228333445566778899", 2)}
    assert [note.kind for note in reading.notes] == ["cut"]


def test_a_node_in_two_cliques_is_a_contradiction() -> None:
    (reading,) = parse(read(f"n1 {LABEL}\nn1 {LABEL}1\n"))
    assert [(note.line, note.kind) for note in reading.notes] == [(2, "contradictory")]


@pytest.mark.parametrize(
    "text",
    [
        "NAME  CLIQUE\nn1  <none>\n",
        "nvidia.com/gpu.clique=\n",
        f"{LABEL}x\n",
        "n1 4a4b4c4d-1111-4222-8333-445566778899.2\n",
    ],
)
def test_what_is_no_label_is_left_alone(text: str) -> None:
    assert parse(read(text)) == []


@settings(max_examples=60, deadline=None)
@given(texts("clique-columns.txt", "clique-labels.txt", "clique-node.yaml"))
def test_any_text_is_read(text: str) -> None:
    for reading in parse(read(text)):
        assert all(len(snapshot.fabric[0].cluster_uuid or "") == 32 for snapshot in reading.snapshots)


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_the_shared_table_reads_as_its_truth_says() -> None:
    found = domains(parse(read_text(CASES / "C34-kubectl-clique.txt")))
    assert {clique for _, clique in found.values()} == {17001}
    assert found["10.0.53.1"] == found["10.0.61.1"] != found["10.0.58.1"] == found["10.0.63.1"]


def test_a_label_in_yaml_is_not_of_the_node_that_was_described_before() -> None:
    domain = LABEL.partition("=")[2]
    shown = [
        "Name:               rack4-n1",
        f"Labels:             {LABEL}",
        "metadata:",
        "  labels:",
        f"    nvidia.com/gpu.clique: {domain.replace('.2', '.7')}",
        "  name: rack5-n1",
    ]
    uuid = domain.partition(".")[0].replace("-", "")
    assert domains(parse(read("\n".join(shown)))) == {"rack4-n1": (uuid, 2), "rack5-n1": (uuid, 7)}
