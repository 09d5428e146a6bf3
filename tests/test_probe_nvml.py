"""GPUs by NVML: what is read of a machine is what the machine is."""

from __future__ import annotations

from collections import Counter

import msgspec
import nvml_expected as expected
import pytest
from nvml_machine import Machine, ask, machine

from topocheck.probes.node.nvml import GpuReading
from topocheck.snapshot import Coverage, Fabric, LinkMatrix, Software

HGX, BRIDGES, TRAY = machine("hgx_h100"), machine("a100_bridges"), machine("gb200_tray")
GEFORCE, MIG = machine("mixed_geforce"), machine("mig")
WHOLE = Coverage(gpus="all", links="all")
CUDA = {"12080": "12.8", "12020": "12.2", "12090": "12.9", "12060": "12.6", "12040": "12.4"}

HIDE_NVSWITCH = "link * 0-17 kind 255\nlink * 0-17 far FFFFFFFF:FF:FF.0"
"""An HGX board as a virtual machine sees it."""

each = pytest.mark.parametrize(
    "described", [HGX, BRIDGES, TRAY, GEFORCE, MIG], ids=["hgx", "a100", "tray", "geforce", "mig"]
)


def read(described: Machine) -> GpuReading:
    """The reading of a machine on which nothing fails."""
    ran = ask(described)
    assert ran.code == 0, ran.err
    assert ran.reading.faults == ()
    return ran.reading


def fabric_of(reading: GpuReading) -> list[tuple[int, Fabric]]:
    """Fabric by GPU."""
    return sorted(
        (gpu, msgspec.structs.replace(fabric, gpus=())) for fabric in reading.fabric for gpu in fabric.gpus
    )


def without(described: Machine, *keys: str) -> Machine:
    """The same machine without some facts."""
    kept = [line for line in described.text.splitlines() if not any(f" {key} " in line for key in keys)]
    return Machine("\n".join(kept))


@each
def test_identity_is_as_described(described: Machine) -> None:
    assert read(described).ids == tuple(expected.identity(described, gpu) for gpu in described.gpus)


@each
def test_state_is_as_described(described: Machine) -> None:
    assert read(described).states == tuple(expected.state(described, gpu) for gpu in described.gpus)


@each
def test_fabric_is_as_described(described: Machine) -> None:
    assert fabric_of(read(described)) == sorted(expected.fabrics(described))


@each
def test_peer_access_is_as_described(described: Machine) -> None:
    assert read(described).peers == expected.peers(described)


@each
def test_versions_are_as_described(described: Machine) -> None:
    assert read(described).software == Software(
        driver=described.system("driver"),
        cuda=CUDA[described.system("cuda") or ""],
        nvml=described.system("nvml"),
    )


def test_an_hgx_board_has_its_links_to_switches() -> None:
    """A sleeping link is up; one that is closed to traffic is not."""
    reading = read(HGX)
    assert reading.shapes == tuple(
        expected.shape(HGX, gpu, links=expected.links(HGX, gpu), nvswitch=True) for gpu in HGX.gpus
    )
    assert all(link.active for link in reading.shapes[2].links or ())
    assert [link.link for link in reading.shapes[6].links or () if not link.active] == [11]
    assert reading.coverage == WHOLE
    assert reading.matrix is not None
    assert reading.matrix.gpus[0] == ("X", "NV18", "NV18", "NV18", "NV18", "NV18", "NV17", "NV18")


def test_bridges_join_pairs_and_the_rest_is_pcie() -> None:
    reading = read(BRIDGES)
    assert reading.shapes == tuple(
        expected.shape(BRIDGES, gpu, links=expected.links(BRIDGES, gpu), nvswitch=False)
        for gpu in BRIDGES.gpus
    )
    assert reading.coverage == WHOLE
    assert reading.matrix == LinkMatrix(
        gpus=(
            ("X", "NV12", "SYS", "SYS"),
            ("NV12", "X", "SYS", "SYS"),
            ("SYS", "SYS", "X", "NV8"),
            ("SYS", "SYS", "NV8", "X"),
        )
    )


def test_hidden_far_ends_lead_to_switches_where_the_driver_counts_them() -> None:
    reading = read(TRAY)
    assert reading.shapes == tuple(
        expected.shape(TRAY, gpu, links=expected.links(TRAY, gpu), nvswitch=True) for gpu in TRAY.gpus
    )
    assert {link.remote for shape in reading.shapes for link in shape.links or ()} == {None}
    assert reading.matrix is not None
    assert reading.matrix.gpus[1] == ("NV18", "X", "NV18", "NV18")
    assert reading.coverage == WHOLE


def test_hidden_far_ends_that_nobody_counts_prove_nothing() -> None:
    reading = read(without(HGX, "switch_links") + HIDE_NVSWITCH)
    assert [shape.nvswitch for shape in reading.shapes] == [None] * 8
    assert {link.active for link in reading.shapes[0].links or ()} == {True}
    assert reading.matrix is not None
    assert reading.matrix.gpus[0] == ("X", *[None] * 7)
    assert reading.coverage == Coverage(gpus="all", links="part")
    assert {peer.nvlink for peer in reading.peers} == {"OK"}


def test_a_far_end_of_unknown_kind_is_a_gpu_if_it_has_the_address_of_one() -> None:
    assert read(BRIDGES + "link * 0-11 kind 255").shapes == read(BRIDGES).shapes


def test_a_bridge_to_a_gpu_that_is_not_shown_is_a_link_to_no_peer() -> None:
    reading = read(Machine(BRIDGES.text.replace("system gpus 4", "system gpus 3")))
    ends = {(link.active, link.remote, link.peer) for link in reading.shapes[2].links or ()}
    assert ends == {(True, "gpu", None), (False, None, None)}
    assert reading.coverage.links == "all"


def test_boards_without_nvlink_have_proven_none_and_bridges_that_lack_are_down() -> None:
    reading = read(GEFORCE)
    assert [shape.links for shape in reading.shapes] == [(), expected.links(GEFORCE, 1), ()]
    assert [shape.nvswitch for shape in reading.shapes] == [None] * 3
    assert reading.matrix == LinkMatrix(gpus=(("X", "PHB", "PHB"), ("PHB", "X", "PHB"), ("PHB", "PHB", "X")))
    assert reading.coverage == WHOLE
    assert reading.fabric == ()


def test_peer_access_is_asked_both_ways_where_the_ways_may_differ() -> None:
    status = {(peer.a, peer.b): peer.status for peer in read(GEFORCE).peers}
    assert status == {
        (0, 1): "GNS",
        (1, 0): "CNS",
        (0, 2): "OK",
        (2, 0): "OK",
        (1, 2): "CNS",
        (2, 1): "CNS",
    }


@pytest.mark.parametrize("place", ["gpu * virtualization 2", "gpu * mig 1 1"])
def test_a_refusal_of_nvlink_proves_none_only_where_the_driver_is_not_told_to_be_silent(place: str) -> None:
    """A vGPU guest is denied NVLink whether the board has it or not, and so may be a GPU in MIG mode."""
    reading = read(GEFORCE + place)
    assert reading.shapes[0].links is None
    assert reading.coverage.links == "part"


def test_a_gpu_that_counts_no_link_has_none() -> None:
    assert [shape.links for shape in read(GEFORCE + "gpu * links 0").shapes] == [()] * 3


def test_links_end_where_the_driver_refuses_whatever_their_number() -> None:
    """36 links are the most that any binding knows of; 40 and 4 are read all the same."""
    without_count = without(BRIDGES, "links", "common_speed")
    forty = read(without_count + "link 0 12-39 enabled 0\nlink 0 12-39 version 9\nlink 1 0-11 kind 0")
    assert len(forty.shapes[0].links or ()) == 40
    assert forty.shapes[0].links == expected.links(
        without_count + "link 0 12-39 enabled 0\nlink 0 12-39 version 9", 0
    )
    assert forty.shapes[1:] == read(BRIDGES).shapes[1:]
    assert len(read(without(GEFORCE, "none")).shapes[1].links or ()) == 4


def test_a_field_that_a_link_lacks_is_asked_by_the_older_call() -> None:
    lines = [line for line in HGX.text.splitlines() if not line.startswith("link * 0-17 state")]
    reading = read(Machine("\n".join(lines)))
    assert reading.shapes[0] == read(HGX).shapes[0]
    assert [link.active for link in reading.shapes[6].links or ()].count(False) == 1


def test_slices_are_found_behind_holes_and_by_the_parent() -> None:
    """The handle of GPU 0 is that of a slice, which refuses questions about the GPU."""
    reading = read(MIG)
    assert [part.gpu_instance for part in reading.ids[0].mig or ()] == [1, 9, 5]
    assert reading.ids[1].mig == ()
    assert [shape.mig for shape in reading.shapes] == [True, False]
    assert [state.mig_pending for state in reading.states] == [True, True]
    assert reading.states[0].rows_remapped is None
    assert reading.shapes[0].memory_bytes == 81920 << 20


def test_memory_near_several_nodes_is_near_none() -> None:
    assert [(shape.numa, shape.memory_affinity) for shape in read(MIG).shapes] == [(None, "0-1")] * 2


def test_an_affinity_of_all_there_could_be_is_none() -> None:
    shape = read(GEFORCE + "gpu * cpus *\ngpu * nodes *").shapes[0]
    assert (shape.cpu_affinity, shape.memory_affinity, shape.numa) == (None, None, None)


def test_a_zero_cluster_is_read_as_it_is() -> None:
    (fabric,) = read(HGX).fabric
    assert (fabric.cluster_uuid, fabric.clique, fabric.gpus) == ("0" * 32, 0, tuple(range(8)))


def test_a_fabric_that_is_not_completed_has_no_status() -> None:
    lines = f"gpu 0 fabric {'0' * 32} 0 0 2 0x0 0\ngpu 1 fabric {'0' * 32} 0 0 0 0x0 0"
    found = read(HGX + lines + f"\ngpu 2 fabric {'0' * 32} 999 0 3 0x0 2").fabric
    assert [(one.state, one.status, one.health, one.gpus) for one in found] == [
        ("In Progress", None, None, (0,)),
        ("Not Supported", None, None, (1,)),
        ("Completed", "Unknown Error", "Unhealthy", (2,)),
        ("Completed", "Success", "Healthy", (3, 4, 5, 6, 7)),
    ]


def test_a_domain_beyond_sixteen_bits_keeps_its_digits() -> None:
    assert read(GEFORCE + "gpu 1 bus 00010001:2B:00.0").ids[1].bus == "10001:2b:00.0"


def test_processes_are_kept_in_order_and_hidden_memory_is_unknown() -> None:
    found = read(HGX + "gpu 0 processes 900:5 12:- 0:-").states[0].processes or ()
    assert [(process.pid, process.memory_bytes) for process in found] == [(0, None), (12, None), (900, 5)]


def test_the_platform_of_the_first_layout_names_a_rack_by_its_guid() -> None:
    place = read(TRAY + "system platform_version 1").ids[0].platform
    assert place is not None
    assert (place.chassis, place.slot) == (b"1821224190031".hex(), 27)


def test_no_gpu_is_a_whole_answer_of_a_driver_that_runs() -> None:
    reading = read(Machine("system gpus 0\nsystem driver 570.1"))
    assert (reading.ids, reading.coverage, reading.matrix) == ((), WHOLE, None)


def test_equal_machines_have_equal_shapes() -> None:
    """What is asleep, busy or named makes no difference."""
    other = (
        HGX
        + "link * 0-17 state 1\ngpu * throttle 0x0\ngpu * memory 85520809984 9 625999872\ngpu 3 uuid GPU-0"
    )
    assert read(other).shapes[:6] == read(HGX).shapes[:6]
    assert read(other).ids != read(HGX).ids


def test_eight_gpus_of_eighteen_links_take_few_calls() -> None:
    """Each call goes to the kernel; the sum says why there are not fewer.

    A call with an array is one for all links (state, rate); NVML has no array for the version and the
    kind of the far end, so these two are asked for each link that is up, and the address of the far end
    not at all where it is a switch. Pairs are asked once: peer access and NVLink access; the ancestor
    in the PCI tree is not asked where NVLink joins the pair.
    """
    made = Counter(line.split()[0] for line in ask(HGX).made)
    assert made["nvmlDeviceGetFieldValues"] == 8 * 2
    assert made["nvmlDeviceGetNvLinkVersion"] == made["nvmlDeviceGetNvLinkRemoteDeviceType"] == 8 * 18 - 1
    assert made["nvmlDeviceGetP2PStatus"] == 28 * 2
    assert not made.keys() & {
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetVirtualizationMode",
    }
    by_gpu = {
        name: count for name, count in made.items() if count in {8, 9, 16} and "FieldValues" not in name
    }
    once = {"nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetCount_v2", "nvmlSystemGetDriverVersion"}
    assert {name for name, count in made.items() if count == 1} == once | {
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlSystemGetNVMLVersion",
    }
    links, pairs, fields = 2 * (8 * 18 - 1), 28 * 2, 8 * 2
    assert sum(made.values()) == links + pairs + fields + sum(by_gpu.values()) + 6
    assert sum(by_gpu.values()) <= 8 * 24
    assert sum(made.values()) <= 560
