"""Networks as Slurm, topograph, Kubernetes labels and ibnetdiscover describe them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from launch_facts import facts, one, text
from torn_text import read, texts

from topocheck.errors import CaptureError
from topocheck.probes.capture import ibnetdiscover, node_labels, topology_conf, topology_yaml
from topocheck.probes.capture.recognise import read_capture
from topocheck.probes.capture.text import read_text

CAPTURES = Path(__file__).parent / "captures"
MACHINES = Path(__file__).resolve().parents[2] / "shared" / "data" / "machines" / "fabric"
NAMES = (
    "slurm-tree.txt",
    "slurm-topology.conf",
    "slurm-blocks.conf",
    "slurm-topology.yaml",
    "switch-model.yaml",
    "ibnetdiscover.txt",
    "node-tiers.txt",
    "node-tiers.yaml",
)
TREE = [
    ("switch-nodes", "slurm/edge0", "hx01 hx02"),
    ("switch-nodes", "slurm/edge1", "hx03 hx04 hx09"),
    ("switch-links", "slurm/mid", "slurm/edge0 slurm/edge1"),
]


@pytest.mark.parametrize("name", ["slurm-tree.txt", "slurm-topology.conf"])
def test_scontrol_and_the_file_that_it_was_made_of_say_the_same(name: str) -> None:
    assert facts(topology_conf.parse(read_text(CAPTURES / name))) == TREE


def test_blocks_are_put_together_by_their_sizes_and_are_one_network() -> None:
    found = facts(topology_conf.parse(read_text(CAPTURES / "slurm-blocks.conf")))
    assert ("switch-nodes", "slurm-blocks/row5", "hx09 hx10") in found
    assert [(name, value) for kind, name, value in found if kind == "switch-links"] == [
        ("slurm-blocks/row1..row2", "slurm-blocks/row1 slurm-blocks/row2"),
        ("slurm-blocks/row3..row4", "slurm-blocks/row3 slurm-blocks/row4"),
        (
            "slurm-blocks/all-blocks",
            "slurm-blocks/row1..row2 slurm-blocks/row3..row4 slurm-blocks/row5",
        ),
    ]


def test_aggregated_blocks_of_scontrol_nest() -> None:
    lines = [f"BlockName=b{n} BlockIndex={n} Nodes=h{n} BlockSize=1" for n in range(4)]
    lines += ["AggregatedBlock=b[0-3] Nodes=h[0-3] BlockSize=4"]
    lines += [f"AggregatedBlock=b[{n}-{n + 1}] Nodes=h[{n}-{n + 1}] BlockSize=2" for n in (0, 2)]
    assert facts(topology_conf.parse(text(*lines)), "switch-links") == [
        ("switch-links", "slurm-blocks/b0..b1", "slurm-blocks/b0 slurm-blocks/b1"),
        ("switch-links", "slurm-blocks/b2..b3", "slurm-blocks/b2 slurm-blocks/b3"),
        ("switch-links", "slurm-blocks/b0..b3", "slurm-blocks/b0..b1 slurm-blocks/b2..b3"),
    ]


def test_of_several_topologies_that_of_the_clusters_default_counts() -> None:
    reading = one(topology_yaml.parse(read_text(CAPTURES / "slurm-topology.yaml")))
    assert facts([reading]) == [
        ("switch-links", "slurm/mid", "slurm/edge0 slurm/edge1"),
        ("switch-nodes", "slurm/edge0", "hx01 hx02"),
        ("switch-nodes", "slurm/edge1", "hx03 hx04"),
    ]
    assert [(note.line, note.kind) for note in reading.notes] == [(3, "ignored")]
    assert [fact.at.line for fact in reading.snapshots[0].job if fact.at] == [18, 20, 22]


def test_blocks_in_yaml_are_those_of_the_older_file() -> None:
    shown = read_text(CAPTURES / "slurm-topology.yaml").lines
    found = facts(topology_yaml.parse(text(*shown[:13])))
    assert found[0] == ("switch-nodes", "slurm-blocks/row1", "hx01 hx02")
    assert found[2] == ("switch-links", "slurm-blocks/row1..row2", "slurm-blocks/row1 slurm-blocks/row2")


def test_a_model_of_topograph_is_a_tree() -> None:
    assert facts(topology_yaml.parse(read_text(CAPTURES / "switch-model.yaml"))) == [
        ("switch-links", "topograph-model/top", "topograph-model/left topograph-model/right"),
        ("switch-nodes", "topograph-model/left", "hx01 hx02 hx09"),
        ("switch-nodes", "topograph-model/right", "hx03 hx04"),
    ]


def test_adapters_bear_their_hosts_names_and_aggregation_nodes_are_no_hosts() -> None:
    found = facts(ibnetdiscover.parse(read_text(CAPTURES / "ibnetdiscover.txt")))
    spine, edges = (
        "infiniband/MF0;spine-1:MQM9700/U1",
        [f"infiniband/MF0;edge-{n}:MQM9700/U1" for n in (1, 2)],
    )
    assert found == [
        ("switch-links", spine, " ".join(edges)),
        ("switch-nodes", edges[0], "hx01 hx02"),
        ("switch-links", edges[0], spine),
        ("switch-nodes", edges[1], "hx03 hx01"),
        ("switch-links", edges[1], spine),
    ]


def test_switches_of_one_name_are_told_apart_by_guid() -> None:
    shown = "\n".join(read_text(CAPTURES / "ibnetdiscover.txt").lines).replace("edge-2", "edge-1")
    found = facts(ibnetdiscover.parse(read(shown)), "switch-nodes")
    assert [name for _, name, _ in found] == [
        "infiniband/S-a000000000000002",
        "infiniband/S-a000000000000003",
    ]


def test_a_tier_is_named_by_its_path_and_zones_are_none() -> None:
    found = facts(node_labels.parse(read_text(CAPTURES / "node-tiers.txt")))
    assert found == [
        ("switch-nodes", "topograph-0.5/c1/m1/e1", "hx01"),
        ("switch-nodes", "topograph-0.5/c1/m2/e1", "hx02"),
        ("switch-links", "topograph-0.5/c1", "topograph-0.5/c1/m1 topograph-0.5/c1/m2"),
        ("switch-links", "topograph-0.5/c1/m1", "topograph-0.5/c1/m1/e1"),
        ("switch-links", "topograph-0.5/c1/m2", "topograph-0.5/c1/m2/e1"),
    ]


def test_labels_in_yaml_and_json_belong_to_their_node() -> None:
    found = facts(node_labels.parse(read_text(CAPTURES / "node-tiers.yaml")), "switch-nodes")
    assert found == [
        ("switch-nodes", "aws/nn-10/nn-20/nn-30", "ip-10-1-0-5.internal"),
        ("switch-nodes", "aws/nn-10/nn-20/nn-31", "ip-10-1-0-6.internal"),
    ]
    node = {"kind": "Node", "metadata": {"labels": {"fabric.topograph.run/tier-0": "e1"}, "name": "hx07"}}
    assert facts(node_labels.parse(read(json.dumps(node, indent=4)))) == [
        ("switch-nodes", "topograph/e1", "hx07")
    ]


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ("fabric.topograph.run/tier-1=m1,fabric.topograph.run/tier-0=e1", "topograph/m1/e1"),
        ("network.topology.nvidia.com/block=b,network.topology.nvidia.com/spine=m", "topograph-0.1/m/b"),
        ("cloud.google.com/gce-topology-block=b,cloud.google.com/gce-topology-subblock=s", "gke/b/s"),
        ("oci.oraclecloud.com/rdma.local_block_id=l,oci.oraclecloud.com/rdma.network_block_id=n", "oci/n/l"),
        ("oci.oraclecloud.com/host.rack_id=r,oci.oraclecloud.com/host.network_block_id=n", "oci-host/n/r"),
    ],
)
def test_each_cloud_has_its_tiers(labels: str, name: str) -> None:
    found = facts(node_labels.parse(text(f"hx01 Ready <none> 1d v1.33.0 {labels}")), "switch-nodes")
    assert found == [("switch-nodes", name, "hx01")]


@pytest.mark.parametrize(
    "labels", ["cloud.google.com/gce-topology-block=b", "network.topology.nvidia.com/spine=m", "a.b/c=d"]
)
def test_a_node_without_its_nearest_tier_has_no_place(labels: str) -> None:
    assert node_labels.parse(text(f"hx01 Ready {labels}")) == []


def test_a_label_without_a_node_is_cut_and_two_values_contradict_each_other() -> None:
    (cut,) = node_labels.parse(text("    fabric.topograph.run/tier-0=e1"))
    assert [note.kind for note in cut.notes] == ["cut"]
    label = "fabric.topograph.run/tier-0"
    (torn,) = node_labels.parse(text(f"hx01 Ready {label}=e1", f"hx01 Ready {label}=e2"))
    assert [(note.line, note.kind) for note in torn.notes] == [(2, "contradictory")]


@pytest.mark.parametrize(
    "shown",
    ["SwitchName=e0 Nodes=hx[01-", "BlockName=b Nodes=hx[1-9999999]", "- topology: t\n  tree: [\n"],
)
def test_names_that_cannot_be_read_are_an_error_with_its_line(shown: str) -> None:
    with pytest.raises(CaptureError, match=r"x:[123]: "):
        read_capture(shown.encode(), "x")


@settings(max_examples=60, deadline=None)
@given(texts(*NAMES))
def test_any_text_is_read_or_refused_in_words(shown: str) -> None:
    for parser in (topology_conf, topology_yaml, ibnetdiscover, node_labels):
        try:
            readings = parser.parse(read(shown))
        except CaptureError:
            continue
        assert all("/" in name and value for _, name, value in facts(readings))


@pytest.mark.skipif(not MACHINES.exists(), reason="the shared machines are not here")
@pytest.mark.parametrize(
    ("name", "switches", "nodes"),
    [
        ("topograph-slurm-tree-expected.conf", 12, 96),
        ("topograph-slurm-block-expected.conf", 12, 96),
        ("topograph-model-nvl72.yaml", 4, 72),
        ("topograph-model-small-tree.yaml", 2, 6),
        ("superbench-ibnetdiscover.txt", 5, 10),
    ],
)
def test_real_files_are_read_whole(name: str, switches: int, nodes: int) -> None:
    found = facts(read_capture((MACHINES / name).read_bytes(), name), "switch-nodes")
    assert (len(found), len({host for _, _, value in found for host in value.split()})) == (switches, nodes)


def test_a_switch_whose_head_is_damaged_leaves_its_ports_to_no_other() -> None:
    shown = "\n".join(read_text(CAPTURES / "ibnetdiscover.txt").lines)
    whole = facts(ibnetdiscover.parse(read(shown)), "switch-nodes")
    torn = re.sub(r'(?m)^(Switch.*)"S-a000000000000003"', r'\1"S-a00000 ', shown)
    assert torn != shown
    assert facts(ibnetdiscover.parse(read(torn)), "switch-nodes") == whole[:1]


def test_a_model_of_topograph_may_begin_with_a_comment_and_a_ruler() -> None:
    shown = "\n".join(read_text(CAPTURES / "switch-model.yaml").lines)
    one_document = topology_yaml.parse(read(shown))
    headed = topology_yaml.parse(read("# (c) the authors\n---\n" + shown))
    assert facts(headed) == facts(one_document) != []
    lines = [fact.at.line for fact in one(headed).snapshots[0].job if fact.at]
    before = [fact.at.line for fact in one(one_document).snapshots[0].job if fact.at]
    assert lines == [line + 2 for line in before if line is not None]


def test_labels_in_yaml_are_not_of_the_node_that_was_described_before() -> None:
    label = "fabric.topograph.run/tier-0"
    described = ["Name:               hx01", f"Labels:             {label}=e1"]
    listing = ["metadata:", "  labels:", f"    {label}: e2", "  name: hx02"]
    assert facts(node_labels.parse(text(*described, *listing))) == [
        ("switch-nodes", "topograph/e1", "hx01"),
        ("switch-nodes", "topograph/e2", "hx02"),
    ]
