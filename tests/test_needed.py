"""Which ports a job needs: what NCCL_IB_HCA names, else what is near to its GPUs, and nobody else's."""

from __future__ import annotations

from typing import Any

import msgspec
from build import fact, log, placed, snap
from made_ports import DOWN, PLAN, STORAGE, UP, bond, fabric, nic, node, rails

from topocheck.hca import Hca, is_up
from topocheck.needed import Needed, hca_settings, named_hcas, need_kind, needed
from topocheck.snapshot import FullSnapshot, JobFact, NcclFile, PciNode, Port

SMALL = "engine: vllm\nparallel: {tensor: 1, pipeline: 2}\nnodes: [node-a, node-b]\n"


def need(*views: FullSnapshot, plan: str = PLAN) -> Needed | None:
    placement = placed(plan, *views)
    return needed(placement, placement.nodes[0])


def names(found: Needed | None) -> list[str]:
    assert found is not None
    return [hca.name for hca in found.devices]


def test_named_devices_are_needed_whatever_is_near() -> None:
    found = need(*fabric(hca="mlx5_1,mlx5_2"))
    assert found is not None
    assert (found.by, names(found), found.whole) == ("filter", ["mlx5_1", "mlx5_2"], True)
    assert found.devices[0].why == "selected by NCCL_IB_HCA=mlx5_1,mlx5_2"
    assert found.evidence[0].fact == "NCCL_IB_HCA=mlx5_1,mlx5_2"


def test_a_name_that_others_begin_with_names_itself_alone() -> None:
    ports = (*rails(count=2), nic("mlx5_10", DOWN), nic("mlx5_11", DOWN))
    assert names(need(*fabric(ports=ports, hca="mlx5_1"))) == ["mlx5_1"]


def test_a_prefix_of_many_names_leaves_the_choice_to_nearness() -> None:
    ports = (*rails(), bond(), nic("mlx5_20", DOWN, model="MT4125"))
    found = need(*fabric(ports=ports, hca="mlx5", near=lambda gpu, n, _: "PIX" if gpu == n else "SYS"))
    assert found is not None
    assert (found.by, names(found)) == ("nearest", ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"])


def test_what_is_left_out_is_not_needed_and_the_rest_is_not_needed_whole() -> None:
    found = need(*fabric(ports=(*rails(), bond()), hca="^mlx5_3,mlx5_bond"))
    assert names(found) == ["mlx5_0", "mlx5_1", "mlx5_2"]


def test_an_entry_that_no_device_answers_to_is_missing() -> None:
    found = need(*fabric(hca="mlx5_0,mlx5_7,mlx5_1:2"))
    assert found is not None
    assert (names(found), found.missing) == (["mlx5_0"], ("mlx5_7", "mlx5_1:2"))


def test_a_chosen_port_counts_alone() -> None:
    card = nic("mlx5_0", UP, msgspec.structs.replace(DOWN, port=2))
    both, second = (need(*fabric(ports=(card,), hca=value)) for value in ("mlx5_0", "mlx5_0:2"))
    assert both is not None
    assert second is not None
    assert (both.devices[0].up, second.devices[0].up) == (True, False)


def test_each_rank_may_have_a_list_of_its_own() -> None:
    first = node("node-a", hca="mlx5_0")
    second = msgspec.structs.replace(first, environment={"NCCL_IB_HCA": "mlx5_3"})
    assert names(need(first, second, node("node-b"))) == ["mlx5_0", "mlx5_3"]


def test_the_log_goes_before_the_environment_and_that_before_nccl_conf() -> None:
    conf = NcclFile(path="/etc/nccl.conf", kind="settings", settings={"NCCL_IB_HCA": "mlx5_2"})
    by_file = msgspec.structs.replace(node("node-a"), files=(conf,))
    by_variable = msgspec.structs.replace(node("node-a", hca="mlx5_1"), files=(conf,))
    said = log("node-a", facts=[fact("env", "NCCL_IB_HCA=mlx5_0")])
    for views, source, name in (
        ([by_file], "/etc/nccl.conf", "mlx5_2"),
        ([by_variable], "environment of the ranks", "mlx5_1"),
        ([by_variable, said], "node-a.log", "mlx5_0"),
    ):
        placement = placed(PLAN, *views, node("node-b"))
        [setting] = hca_settings(placement, placement.nodes[0])
        assert (setting.evidence.source, setting.filter.text) == (source, name)
        assert [hca.name for hca in named_hcas(placement, placement.nodes[0])] == [name]


def test_only_gpus_in_use_need_a_nic() -> None:
    rows = node("node-a").hardware
    views = [snap(name, [rank], size=2) for rank, name in enumerate(("node-a", "node-b"))]
    views = [msgspec.structs.replace(view, hardware=rows) for view in views]
    assert names(need(*views, plan=SMALL)) == ["mlx5_0"]


def test_nothing_is_guessed_where_a_distance_or_a_list_is_not_whole() -> None:
    assert need(*fabric(near=None)) is None
    part = msgspec.structs.replace(node("node-a").coverage, nics="part")
    assert need(msgspec.structs.replace(node("node-a"), coverage=part), node("node-b")) is None


def test_what_the_job_opened_stands_in_where_nothing_else_tells() -> None:
    said = log("node-a", facts=[fact("hca", "mlx5_2:1/IB")])
    found = need(node("node-a", near=None), said, node("node-b"))
    assert found is not None
    assert (found.by, names(found)) == ("opened", ["mlx5_2"])


def test_storage_on_the_switch_of_one_gpu_is_not_meant() -> None:
    ports = (*rails(), nic("mlx5_4", STORAGE, model="MT4125"), nic("mlx5_5", STORAGE, model="MT4125"))
    near = lambda gpu, n, _: "PIX" if n in (gpu, gpu + 4) else "NODE"  # noqa: E731
    assert names(need(*fabric(ports=ports, near=near))) == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


def test_of_two_makes_that_are_always_near_the_faster_is_meant() -> None:
    ports = tuple(nic(f"mlx5_{n}", *(UP,) if n < 4 else (STORAGE,), model=f"MT41{n // 4}") for n in range(8))
    near = lambda gpu, n, _: "PIX" if n % 4 == gpu else "NODE"  # noqa: E731
    assert names(need(*fabric(ports=ports, near=near))) == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


def on_switches(*ports: Port, functions: int = 1) -> tuple[FullSnapshot, FullSnapshot]:
    """Two nodes whose four GPUs and NICs hang on one switch, so many functions a slot."""
    tree = [PciNode(id="root", kind="root", numa=0)]
    for name, parent in (("port", "root"), ("switch", "port")):
        tree.append(PciNode(id=name, parent=parent, kind="bridge"))
    slots = [f"g{n}" for n in range(4)] + [f"n{n}" for n in range(-(-len(ports) // functions))]
    tree += [PciNode(id=f"{slot}.port", parent="switch", kind="bridge") for slot in slots]
    tree += [PciNode(id=f"g{n}", parent=f"g{n}.port", kind="gpu") for n in range(4)]
    tree += [PciNode(id=f"m{n}", parent=f"n{n // functions}.port", kind="nic") for n in range(len(ports))]
    views = []
    for name in ("node-a", "node-b"):
        devices = tuple(nic(f"mlx5_{n}", port, pci=f"m{n}") for n, port in enumerate(ports))
        made = node(name, devices, near=None)
        gpus = tuple(msgspec.structs.replace(gpu, pci=f"g{n}") for n, gpu in enumerate(made.hardware.gpus))
        hardware = msgspec.structs.replace(made.hardware, gpus=gpus, pci=tuple(tree))
        views.append(msgspec.structs.replace(made, hardware=hardware))
    return views[0], views[1]


def test_a_nic_that_shares_a_switch_is_needed_where_the_others_are_too_few() -> None:
    found = need(*on_switches(UP, UP, UP, DOWN))
    assert found is not None
    assert (names(found), found.doubtful) == (["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"], ())


def test_a_second_function_without_a_cable_is_nobodys_fault() -> None:
    found = need(*on_switches(UP, DOWN, UP, DOWN, functions=2))
    assert found is not None
    assert (names(found), found.doubtful) == (["mlx5_0", "mlx5_2"], ())


def test_a_spare_nic_beside_enough_others_is_not_needed() -> None:
    assert names(need(*on_switches(UP, UP, UP, UP, DOWN))) == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


def test_a_dark_port_that_is_shared_by_all_is_doubtful() -> None:
    far: Any = lambda _gpu, _n, _nic: "NODE"  # noqa: E731
    found = need(*fabric(ports=rails({1: DOWN}, 2), near=far))
    assert found is not None
    assert (names(found), [hca.name for hca in found.doubtful]) == (["mlx5_0"], ["mlx5_1"])


def test_an_ethernet_port_that_is_down_near_a_gpu_may_be_storage() -> None:
    dark = msgspec.structs.replace(STORAGE, state="DOWN", physical="Disabled")
    ports = (nic("mlx5_0", dark, model="MT4125"), *rails()[1:])
    found = need(*fabric(ports=ports))
    assert found is not None
    assert [hca.name for hca in found.doubtful] == ["mlx5_0"]


def test_a_soft_device_is_no_rail() -> None:
    ports = (*rails(), nic("rxe0", STORAGE, kind="soft"))
    assert "rxe0" not in names(need(*fabric(ports=ports, near=lambda *_: "PIX")))


def test_equal_nodes_are_of_one_kind_and_nothing_is_said_of_unknown_ones() -> None:
    placement = placed(PLAN, node("node-a"))
    assert need_kind(placement, placement.nodes[1]) == (None, None)
    assert needed(placement, placement.nodes[1]) is None
    placement = placed(PLAN, *fabric())
    kinds = [need_kind(placement, each) for each in placement.nodes]
    assert kinds[0] == kinds[1]


def test_a_port_is_up_as_far_as_its_states_are_shown() -> None:
    assert is_up(Port(state="ACTIVE")) is True
    assert is_up(Port(state="ACTIVE", physical="LinkUp")) is True
    assert is_up(Port(state="ACTIVE", physical="Polling")) is False
    assert is_up(Port(state="INIT", physical="LinkUp")) is False
    assert is_up(Port(physical="LinkUp")) is None
    assert is_up(Port(physical="Disabled")) is False
    assert Hca("mlx5_0", 0, (), "").up is None


def test_a_launch_command_names_devices_where_nothing_else_does() -> None:
    told = JobFact(kind="option", name="NCCL_IB_HCA", value="=mlx5_2")
    first, second = [msgspec.structs.replace(view, ranks=(), environment={}) for view in fabric()]
    found = need(msgspec.structs.replace(first, job=(told,)), second)
    assert found is not None
    assert (found.by, names(found)) == ("filter", ["mlx5_2"])
