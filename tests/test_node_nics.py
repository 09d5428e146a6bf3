"""RDMA devices are told apart by what they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from rooted import (
    DESCRIPTIONS,
    lay_out,
    machine,
    roots_at,
    unpack_inventory,
    unpack_tar,
    unpack_ttar,
)

from topocheck.probes.node.infiniband import Signs, judge, parse_guid, read_infiniband
from topocheck.probes.node.infiniband_port import parse_gid, parse_lid, parse_rate, parse_state
from topocheck.probes.node.nics import Nics, read_nics
from topocheck.probes.node.pci import PciTree, read_pci
from topocheck.probes.node.roots import Roots
from topocheck.probes.node.slingshot import read_slingshot
from topocheck.snapshot import Gid, NicId, NicShape, Port, ProbeFault


def nics_of(roots: Roots) -> tuple[Nics, tuple[ProbeFault, ...]]:
    tree, _ = read_pci(roots)
    return read_nics(roots, tree)


def kinds(nics: Nics) -> dict[str, str | None]:
    return {nic.name: nic.kind for nic in nics.shapes}


def test_eight_rails_with_gaps_and_a_bond_for_storage(tmp_path: Path) -> None:
    nics, faults = nics_of(machine("hgx-h100", tmp_path))
    assert kinds(nics) == {**{f"mlx5_{n}": "rdma" for n in (0, 2, 3, 4, 7, 8, 9, 10)}, "mlx5_bond_0": "bond"}
    assert nics.ids[1] == NicId(
        name="mlx5_2", bus="0000:2b:00.0", guid="5c25:7303:00a1:b140", card="5c25:7303:00a1:b140"
    )
    assert nics.shapes[1] == NicShape(
        name="mlx5_2",
        kind="rdma",
        numa=0,
        pci="root2/0/0/0/0",
        ports=(Port(port=1, state="ACTIVE", physical="LinkUp", layer="InfiniBand", rate_gbps=400.0),),
        model="MT4129",
        board="QC_0000000917",
        firmware="28.43.2026",
        virtual=False,
    )
    shared, port = nics.networks[1].ports[0], nics.ports[1]
    assert (shared.sm_lid, shared.has_lid) == (0x11, True)
    assert (port.nic, port.lid) == (1, 0x2A1)
    assert port.counters == {"link_downed": 1, "symbol_error": 0, "out_of_sequence": 7}
    assert (nics.whole, faults) == (True, ())


def test_a_bond_is_one_by_its_members_and_not_by_its_name(tmp_path: Path) -> None:
    text = (DESCRIPTIONS / "hgx-h100.txt").read_text(encoding="utf-8")
    lay_out(text.replace("mlx5_bond_0", "storage0"), tmp_path)
    assert kinds(nics_of(roots_at(tmp_path))[0])["storage0"] == "bond"


def test_a_bond_in_software_leaves_both_devices_rails(tmp_path: Path) -> None:
    text = (DESCRIPTIONS / "hgx-h100.txt").read_text(encoding="utf-8").replace("mlx5_bond_0", "mlx5_12")
    second = next(line for line in text.splitlines() if "mlx5_12 {" in line)
    second = second.replace("00.0/infiniband/mlx5_12", "00.1/infiniband/mlx5_13")
    lay_out(f"{text}\n{second}", tmp_path)
    found = kinds(nics_of(roots_at(tmp_path))[0])
    assert (found["mlx5_12"], found["mlx5_13"]) == ("rdma", "rdma")


def test_roce_shows_its_gids_with_types_and_devices(tmp_path: Path) -> None:
    nics, faults = nics_of(machine("roce", tmp_path))
    assert kinds(nics) == {"rocep68s0f0": "rdma", "rocep68s0f1": "rdma"}
    up, down = (nic.ports[0] for nic in nics.networks)
    assert [gid.index for gid in up.gids or ()] == [0, 1, 2, 3, 10]
    assert (up.gids or ())[3] == Gid(index=3, family="ipv4", type="RoCE v2", netdev="ens1f0")
    assert (nics.ports[0].gids or ())[3] == "0000:0000:0000:0000:0000:ffff:0a14:0105"
    assert [len(port.gids or ()) for port in nics.ports] == [5, 0]
    assert down.gids == ()
    assert nics.shapes[1].ports[0].state == "DOWN"
    assert {nic.card for nic in nics.ids} == {"9c63:c003:0012:77a0"}
    assert faults == ()


def test_efa_is_known_by_its_vendor_and_has_no_link_layer(tmp_path: Path) -> None:
    nics, faults = nics_of(machine("efa-vm", tmp_path))
    assert kinds(nics) == {"rdmap0s25": "efa", "rdmap160s25": "efa"}
    assert [(nic.numa, nic.pci, nic.ports[0].layer) for nic in nics.shapes] == [
        (0, None, None),
        (1, None, None),
    ]
    assert nics.ids[0].card is None
    assert [gid.type for gid in nics.networks[0].ports[0].gids or ()] == [None]
    assert faults == ()


def test_slingshot_lies_outside_the_rdma_devices(tmp_path: Path) -> None:
    nics, faults = nics_of(machine("slingshot", tmp_path))
    assert [(nic.name, nic.kind, nic.numa, nic.model) for nic in nics.shapes] == [
        ("cxi0", "slingshot", 1, "Cassini 1.1"),
        ("cxi1", "slingshot", 2, "Cassini 1.1"),
    ]
    assert [nic.ports[0] for nic in nics.shapes] == [
        Port(port=1, state="DOWN", physical="Disabled", layer="Ethernet"),
        Port(port=1, state="ACTIVE", physical="LinkUp", layer="Ethernet", rate_gbps=200.0),
    ]
    assert [nic.pci for nic in nics.shapes] == ["root1/1/0", "root0/1/0"]
    assert [(fault.kind, fault.path) for fault in faults] == [
        ("absent", str(tmp_path / "sys/class/infiniband"))
    ]


def test_the_class_for_user_space_is_enough_for_slingshot(tmp_path: Path) -> None:
    text = (
        (DESCRIPTIONS / "slingshot.txt").read_text(encoding="utf-8").replace("class cxi ", "class cxi_user ")
    )
    lay_out(text, tmp_path)
    devices, faults = read_slingshot(roots_at(tmp_path))
    assert [device.id.bus for device in devices] == ["0000:62:00.0", "0000:22:00.0"]
    assert faults == ()


def test_virtual_functions_share_a_card_and_have_no_counters(tmp_path: Path) -> None:
    nics, faults = nics_of(machine("pod-vf", tmp_path))
    assert [(nic.name, nic.virtual) for nic in nics.shapes] == [
        ("mlx5_4", False),
        ("mlx5_18", True),
        ("mlx5_19", True),
    ]
    assert len({nic.guid for nic in nics.ids}) == 3
    assert len({nic.card for nic in nics.ids}) == 1
    assert [port.counters for port in nics.ports] == [{"symbol_error": 0}, {}, {}]
    assert [(fault.part, fault.kind, fault.reason) for fault in faults] == [
        ("counters", "not-supported", "'N/A (no PMA)' in place of a number")
    ]


def test_a_machine_without_rdma_has_none_for_certain(tmp_path: Path) -> None:
    nics, faults = nics_of(machine("laptop", tmp_path))
    assert (nics.ids, nics.whole) == ((), True)
    assert [(fault.part, fault.kind) for fault in faults] == [("nics", "absent")]


def test_a_machine_without_sysfs_may_have_any(tmp_path: Path) -> None:
    nics, faults = read_nics(roots_at(tmp_path), PciTree())
    assert (nics.ids, nics.whole) == ((), False)
    assert [fault.kind for fault in faults] == ["absent"]


def test_a_slow_rate_on_a_link_that_is_up_is_not_believed(tmp_path: Path) -> None:
    text = (DESCRIPTIONS / "hgx-h100.txt").read_text(encoding="utf-8")
    lay_out(text.replace("400 Gb/sec (4X NDR)", "10 Gb/sec (4X SDR)"), tmp_path)
    nics, faults = nics_of(roots_at(tmp_path))
    assert [nic.ports[0].rate_gbps for nic in nics.shapes] == [None] * 8 + [200.0]
    assert [(fault.kind, fault.path.rpartition(" and ")[2]) for fault in faults] == [
        ("not-supported", "7 more")
    ]
    assert "a kernel older than the NIC prints SDR" in faults[0].reason


def test_damaged_values_are_told_and_never_guessed(tmp_path: Path) -> None:
    folder = "sys/class/infiniband/mlx5_0"
    lay_out(
        f"{folder} {{ node_guid: none | node_type: ? | ports/1/state: up | ports/1/phys_state: 9: <unknown> "
        "| ports/1/rate: fast | ports/1/link_layer: Unknown | ports/1/lid: lid | ports/1/sm_lid: 0x0 "
        "| ports/1/gids/0: none | ports/1/counters/symbol_error: many }",
        tmp_path,
    )
    (device,), faults = read_infiniband(roots_at(tmp_path))
    assert device.id == NicId(name="mlx5_0")
    assert device.shape == NicShape(name="mlx5_0", ports=(Port(),))
    assert (device.ports[0].lid, device.ports[0].sm_lid) == (None, 0)
    assert {(fault.part, fault.kind) for fault in faults} == {("nics", "broken"), ("counters", "broken")}
    assert len(faults) == 6


def test_a_real_h100_host_has_eight_rails_and_a_bond(tmp_path: Path) -> None:
    nics, _ = nics_of(unpack_ttar("sysfs_ib/gpud-h100-class-infiniband.ttar", tmp_path))
    assert kinds(nics) == {**{f"mlx5_{n}": "rdma" for n in (0, 1, 4, 5, 6, 7, 8, 9)}, "mlx5_bond_0": "bond"}
    assert {nic.ports[0].rate_gbps for nic in nics.shapes if nic.kind == "rdma"} == {400.0}
    assert {nic.ports[0].layer for nic in nics.shapes if nic.kind == "bond"} == {"Ethernet"}
    assert all(len(port.counters) > 10 for port in nics.ports)


def test_omni_path_is_no_infiniband_though_it_says_so(tmp_path: Path) -> None:
    nics, _ = nics_of(unpack_ttar("sysfs_ib/procfs-infiniband-pci.ttar", tmp_path, below="fixtures/"))
    assert kinds(nics) == {"hfi1_0": "omni-path", "mlx4_0": "rdma", "mlx5_0": "rdma"}
    assert [len(nic.ports) for nic in nics.shapes] == [1, 2, 1]
    assert nics.ids[2].guid == "0a7f:bc12:45ef:d23b"
    assert nics.shapes[2].ports[0].rate_gbps == 25.0


def test_soft_roce_is_reached_through_its_network_device(tmp_path: Path) -> None:
    nics, _ = nics_of(unpack_tar("sysfs/sysfs-qemu-2numa-2switch-rxe.tar.gz", tmp_path))
    assert set(kinds(nics).values()) == {"soft"}
    assert [(nic.name, nic.numa, nic.pci) for nic in nics.shapes] == [
        ("rxe0", 1, "root1/0/0/1/0"),
        ("rxe1", 0, "root0/0/0/2/0"),
        ("rxe2", None, None),
        ("rxe3", None, None),
    ]
    assert nics.shapes[0].ports[0].rate_gbps == 2.5
    assert [gid.netdev for gid in nics.networks[0].ports[0].gids or ()] == ["eth0", "eth0"]


def test_a_real_a100_host_without_its_identities(tmp_path: Path) -> None:
    nics, faults = nics_of(unpack_inventory("misc/gcm-learn_good-host-inventory.json", tmp_path))
    assert kinds(nics) == {f"mlx5_{n}": "rdma" for n in (0, 1, 2, 3, 6, 7, 8, 9)}
    assert {nic.ports[0].rate_gbps for nic in nics.shapes} == {200.0}
    assert nics.ids[0].bus == "0000:0c:00.0"
    assert {fault.kind for fault in faults} == {"broken", "absent"}


@pytest.mark.parametrize(
    ("signs", "kind"),
    [
        (Signs(virtual=True, layers=("Ethernet",)), "soft"),
        (Signs(vendor=0x1D0F, node_type=7, layers=(None,)), "efa"),
        (Signs(vendor=0x8086, code=0x0208, layers=("InfiniBand",)), "omni-path"),
        (Signs(vendor=0x434E, code=0x0208), "omni-path"),
        (Signs(node_type=4, layers=("Ethernet",)), "iwarp"),
        (Signs(node_type=6), "usnic"),
        (Signs(vendor=0x15B3, lag=True, layers=("Ethernet",)), "bond"),
        (Signs(vendor=0x15B3, node_type=1, layers=("Ethernet",)), "rdma"),
        (Signs(layers=(None, "InfiniBand")), "rdma"),
        (Signs(vendor=0x15B3), None),
    ],
)
def test_signs_decide_the_kind(signs: Signs, kind: str | None) -> None:
    assert judge(signs) == kind


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("4: ACTIVE\n", "ACTIVE"),
        ("5: LinkUp", "LinkUp"),
        ("4: PortConfigurationTraining", "PortConfigurationTraining"),
        ("7: Phy Test", "Phy Test"),
        ("9: <unknown>", None),
        ("ACTIVE", None),
    ],
)
def test_states_are_words(text: str, word: str | None) -> None:
    assert parse_state(text) == word


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400 Gb/sec (4X NDR)\n", (400.0, "NDR")),
        ("2.5 Gb/sec (1X)", (2.5, None)),
        ("56 Gb/sec (4X FDR10)", (56.0, "FDR10")),
        ("800 Gb/sec", (800.0, None)),
        ("400 Gb/sec (4X NDR) 1", (None, None)),
        ("", (None, None)),
    ],
)
def test_rates_are_numbers_and_speeds(text: str, rate: tuple[float | None, str | None]) -> None:
    assert parse_rate(text) == rate


def test_zeros_are_no_identity_but_a_local_id_may_be_zero() -> None:
    assert parse_guid("0000:0000:0000:0000") is None
    assert parse_guid("0A7F:bc12:45ef:d23b\n") == "0a7f:bc12:45ef:d23b"
    assert parse_gid(":".join(["0000"] * 8)) is None
    assert parse_lid("0x0\n") == 0
    assert parse_lid("0x1f") == 31
    assert parse_lid("31") is None
