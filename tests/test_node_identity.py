"""A host is its boot id; everything else is a name for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooted import lay_out, machine, roots_at

from topocheck.probes.node.identity import parse_boot_id, parse_machine_id, read_identity
from topocheck.snapshot import Host


def test_a_host_has_boot_id_machine_id_and_its_names(tmp_path: Path) -> None:
    host, faults = read_identity(
        machine("hgx-h100", tmp_path, {"SLURMD_NODENAME": "rack7-gpu3", "RANK": "0"})
    )
    assert host == Host(
        name="rack7-gpu3",
        boot_id="3f0cf6a2-54b7-4c8e-9f1d-6a20c1d7e5b4",
        machine_id="9b1f6d0f63c14c1cb7a8d4f0a2c3e591",
        aliases=("rack7-gpu3.cluster.example",),
    )
    assert faults == ()


def test_a_pod_knows_its_node_by_the_downward_api(tmp_path: Path) -> None:
    env = {"NODE_NAME": "gpu-node-12", "POD_NAME": "trainer-worker-0", "HOSTNAME": "trainer-worker-0"}
    host, faults = read_identity(machine("pod-vf", tmp_path, env))
    assert (host.name, host.aliases) == ("trainer-worker-0", ("gpu-node-12",))
    assert [(fault.part, fault.kind, fault.path) for fault in faults] == [
        ("identity", "absent", str(tmp_path / "etc/machine-id"))
    ]


def test_nothing_is_made_up_where_nothing_is_shown(tmp_path: Path) -> None:
    host, faults = read_identity(roots_at(tmp_path, {"NODE_NAME": " "}))
    assert host == Host()
    assert {fault.kind for fault in faults} == {"absent"}


def test_a_damaged_boot_id_is_none(tmp_path: Path) -> None:
    lay_out("proc/sys/kernel/random/boot_id = 1234", tmp_path)
    host, faults = read_identity(roots_at(tmp_path))
    assert host.boot_id is None
    assert ("broken", "expected a boot id, found '1234'") in [(fault.kind, fault.reason) for fault in faults]


@pytest.mark.parametrize(
    ("text", "machine_id"),
    [
        ("9B1F6D0F63C14C1CB7A8D4F0A2C3E591\n", "9b1f6d0f63c14c1cb7a8d4f0a2c3e591"),
        ("uninitialized\n", None),
        ("", None),
        ("0" * 32, None),
    ],
)
def test_an_image_that_was_never_started_has_no_machine_id(text: str, machine_id: str | None) -> None:
    assert parse_machine_id(text) == machine_id


def test_a_boot_id_has_the_form_of_a_uuid() -> None:
    assert parse_boot_id("3F0CF6A2-54b7-4c8e-9f1d-6a20c1d7e5b4\n") == "3f0cf6a2-54b7-4c8e-9f1d-6a20c1d7e5b4"
    assert parse_boot_id("3f0cf6a254b74c8e9f1d6a20c1d7e5b4") is None
