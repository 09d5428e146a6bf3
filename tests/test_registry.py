"""GPUs of one host as several views name them."""

from __future__ import annotations

from build import gpus
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.registry import Registry, numbering
from topocheck.snapshot import At, GpuId


def joined(*views: tuple[GpuId, ...], one_boot: bool = True) -> tuple[Registry, list[list[int]]]:
    """Views one after the other: the registry, and where each GPU of each view went."""
    registry = Registry([], [], None, At(source="view"), one_boot=one_boot)
    ties = [registry.tie(view) for view in views]
    return registry, ties


def test_views_are_tied_by_uuid_then_bus_then_index() -> None:
    registry, ties = joined(
        gpus(nvml=False),
        gpus(bus=False, nvml=False)[::-1],
        gpus(uuid=False)[1:3],
        gpus(uuid=False, bus=False),
    )
    assert ties == [[0, 1, 2, 3], [3, 2, 1, 0], [1, 2], [4, 1, 2, 5]]
    assert registry.still_untied() == ((0, 4), (3, 4), (0, 5), (3, 5))


def test_what_is_tied_has_everything_that_either_view_shows() -> None:
    registry, _ = joined(gpus(uuid=False), gpus(bus=False))
    assert registry.gpus == list(gpus())
    assert registry.still_untied() == ()


def test_what_nothing_ties_stays_apart_and_may_be_one() -> None:
    registry, ties = joined(gpus(count=1, bus=False, nvml=False), gpus(count=1, uuid=False, nvml=False))
    assert ties == [[0], [1]]
    assert registry.still_untied() == ((0, 1),)


def test_a_later_view_may_tell_apart_what_was_untied() -> None:
    first, second = gpus(count=1, bus=False, nvml=False), gpus(count=1, uuid=False, nvml=False, first=1)
    registry, _ = joined(first, second, gpus(count=2))
    assert registry.still_untied() == ()


def test_a_later_view_may_show_that_two_were_one() -> None:
    registry, ties = joined(
        gpus(count=1, bus=False, nvml=False), gpus(count=1, uuid=False, nvml=False), gpus(count=1)
    )
    assert ties[2] == [0]
    assert (registry.twins(), registry.still_untied()) == ({1: 0}, ())


def test_gpus_of_one_view_are_never_taken_for_one() -> None:
    registry, _ = joined((GpuId(uuid="GPU-1"), GpuId(bus="0000:01:00.0")))
    assert registry.still_untied() == ()


def test_an_index_that_each_task_counts_from_zero_ties_nothing() -> None:
    view = (GpuId(nvml=0, scope="task"),)
    registry, ties = joined(gpus(), view)
    assert ties[1] == [4]
    assert numbering(registry.gpus) == (0, 1, 2, 3, None)


def test_the_hosts_index_takes_the_place_of_a_tasks() -> None:
    tasks = tuple(GpuId(uuid=gpu.uuid, nvml=0, scope="task") for gpu in gpus())
    registry, ties = joined(tasks, gpus())
    assert ties[1] == [0, 1, 2, 3]
    assert numbering(registry.gpus) == (0, 1, 2, 3)


def test_a_tasks_index_does_not_become_the_hosts() -> None:
    registry, _ = joined(gpus(nvml=False), tuple(GpuId(uuid=g.uuid, nvml=0, scope="task") for g in gpus()))
    assert numbering(registry.gpus) == (None,) * 4


def test_an_index_does_not_tie_against_a_bus_id() -> None:
    _, ties = joined((GpuId(bus="0000:01:00.0", nvml=0),), (GpuId(bus="0000:02:00.0", nvml=0),))
    assert ties[1] == [1]


def test_a_uuid_that_moved_to_another_bus_is_a_conflict() -> None:
    registry, _ = joined(
        (GpuId(uuid="GPU-1", bus="0000:01:00.0"),), (GpuId(uuid="GPU-1", bus="0000:02:00.0"),)
    )
    assert [(c.about, c.values) for c in registry.conflicts] == [
        ("bus id of GPU 0000:01:00.0", ("0000:01:00.0", "0000:02:00.0"))
    ]


def test_two_uuids_in_one_slot_are_two_machines_only_under_one_boot_id() -> None:
    views = (GpuId(uuid="GPU-1", bus="0000:01:00.0"),), (GpuId(uuid="GPU-2", bus="0000:01:00.0"),)
    same, _ = joined(*views)
    assert (len(same.two_uuids), len(same.conflicts)) == (1, 0)
    named, _ = joined(*views, one_boot=False)
    assert (len(named.two_uuids), len(named.conflicts)) == (0, 1)


def test_a_model_with_and_without_its_vendor_is_no_conflict() -> None:
    views = (GpuId(uuid="GPU-1", model="NVIDIA A40"),), (GpuId(uuid="GPU-1", model="A40"),)
    assert joined(*views)[0].conflicts == []


KINDS = st.tuples(st.booleans(), st.booleans(), st.booleans())


@given(st.lists(st.tuples(KINDS, st.permutations(range(4))), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_each_gpu_of_a_view_has_a_place_of_its_own_and_keeps_its_identity(
    views: list[tuple[tuple[bool, bool, bool], list[int]]],
) -> None:
    shown = [
        tuple(gpus(uuid=uuid, bus=bus, nvml=nvml)[n] for n in order) for (uuid, bus, nvml), order in views
    ]
    registry, ties = joined(*shown)
    assert registry.conflicts == registry.two_uuids == []
    for view, places in zip(shown, ties, strict=True):
        assert len(set(places)) == len(places)
        for gpu, place in zip(view, places, strict=True):
            known = registry.gpus[place]
            assert all(getattr(gpu, name) in {None, getattr(known, name)} for name in ("uuid", "bus", "nvml"))
