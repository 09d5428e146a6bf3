"""ID008, ID009, ID011, ID013: which GPU a process sees and uses."""

from __future__ import annotations

import msgspec
import pytest
from build import FOUR, H100, TWO, answer, fact, log, pair, report, running, snap, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from made_devices import listing, mixed, on_gpus, sliced

from topocheck.snapshot import Coverage, FullSnapshot, GpuId, JobFact, MigDevice
from topocheck.visible import list_faults, needs_the_list

UUIDS = ("GPU-1a2b0000-0000-0000-0000-000000000001", "GPU-1a2c0000-0000-0000-0000-000000000002")
GPUS = tuple(GpuId(uuid=uuid) for uuid in UUIDS)


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("0,1", []),
        ("1", []),
        (UUIDS[0], []),
        ("GPU-1a2b,GPU-1a2c", []),
        ("MIG-00000000-0000-0000-0000-000000000001", []),
        ("", ["hides every GPU"]),
        ("-1", ["hides every GPU"]),
        ("0,2", ["device 2", "0..1"]),
        ("0,-1,1", ["'-1'", "1 behind it is hidden too"]),
        ("0,0", ["twice"]),
        ("0,00", ["twice"]),
        ("GPU-1a2", ["2 GPUs begin with"]),
        ("GPU-ffff", ["no GPU here"]),
        ("0,,1", ["empty entry"]),
        ("0;1", ["names no device"]),
    ],
)
def test_a_list_is_read_as_cuda_reads_it(listed: str, words: list[str]) -> None:
    found = list(list_faults(listed, GPUS, whole=True))
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)


def test_an_index_beyond_a_list_that_may_be_longer_is_no_fault() -> None:
    assert not list(list_faults("7", GPUS, whole=False))
    assert not list(list_faults("GPU-ffff", GPUS, whole=False))


@given(st.text(max_size=60), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_list_has_one_fault_at_most(listed: str, whole: bool) -> None:
    assert len(list(list_faults(listed, GPUS, whole=whole))) <= 1


def test_a_node_of_several_models_needs_an_order_that_is_shown() -> None:
    assert answer(report(FOUR, *mixed("FASTEST_FIRST")), "ID009").verdict == "fail"
    assert answer(report(FOUR, *mixed("PCI_BUS_ID")), "ID009").verdict == "pass"


def test_an_order_that_two_tools_show_is_proof_enough() -> None:
    (view,) = mixed(shown=False)
    seen = running()[0].observed
    assert seen is not None
    order = fact("cuda-order", "1,2,0,3", host="node-a")
    found = answer(
        report(
            FOUR,
            msgspec.structs.replace(
                view, observed=msgspec.structs.replace(seen, facts=(order,), comms=(), edges=())
            ),
        ),
        "ID009",
    )
    assert found.verdict == "fail"
    assert "1,2,0,3" in text_of(found)


def test_a_warning_of_the_engine_counts_without_a_list_of_gpus() -> None:
    facts = (
        JobFact(kind="gpu-models", value="NVIDIA A10, NVIDIA A100", engine="vllm"),
        JobFact(kind="option", name="CUDA_DEVICE_ORDER", value="not PCI_BUS_ID", engine="vllm"),
    )
    first, second = pair()
    found = answer(report(TWO, msgspec.structs.replace(first, job=facts), second), "ID009")
    assert found.verdict == "fail"


def test_a_process_that_touches_a_second_gpu_is_on_its_own_too() -> None:
    first, second = on_gpus(0, 1, 2, 3)
    gpus = list(first.state.gpus)
    both = (*(gpus[0].processes or ()), *(gpus[3].processes or ()))
    gpus[0] = msgspec.structs.replace(gpus[0], processes=both)
    first = msgspec.structs.replace(first, state=msgspec.structs.replace(first.state, gpus=tuple(gpus)))
    assert answer(report(TWO, first, second), "ID011").verdict == "pass"


def test_the_running_job_may_show_another_gpu_than_the_claim() -> None:
    claims = pair()
    seen = running()
    swapped = tuple(
        msgspec.structs.replace(claim, gpu={0: 1, 1: 0}.get(claim.gpu or 0, claim.gpu))
        for claim in claims[0].ranks
    )
    both = [
        msgspec.structs.replace(seen[0], ranks=swapped),
        msgspec.structs.replace(seen[1], ranks=claims[1].ranks),
    ]
    found = answer(report(TWO, *both), "ID011")
    assert found.verdict == "fail"
    assert {"rank 0", "rank 1"} <= set(found.findings[0].subjects)


def test_lists_of_one_job_of_one_node_are_held_against_its_gpus() -> None:
    view = snap("node-a", range(4), size=4)
    told = JobFact(kind="option", name="CUDA_VISIBLE_DEVICES", value="0,1,9", host="node-a")
    found = answer(report(FOUR, msgspec.structs.replace(view, job=(told,))), "ID008")
    assert found.verdict == "fail"
    assert "device 9" in text_of(found)


@pytest.mark.parametrize("sliced_node", [0, 1])
def test_a_slice_on_any_one_of_equal_nodes_is_found(sliced_node: int) -> None:
    views = pair()
    identity = views[sliced_node].identity
    gpus = (msgspec.structs.replace(identity.gpus[0], mig=(MigDevice(uuid="MIG-1"),)), *identity.gpus[1:])
    views[sliced_node] = msgspec.structs.replace(
        views[sliced_node], identity=msgspec.structs.replace(identity, gpus=gpus)
    )
    assert answer(report(TWO, *views), "ID013").verdict == "fail"


def test_no_list_at_all_is_well() -> None:
    views = [msgspec.structs.replace(view, environment={"NCCL_DEBUG": "INFO"}) for view in listing(None)]
    assert answer(report(TWO, *views), "ID008").verdict == "pass"


def test_an_index_beyond_the_gpus_that_are_listed_needs_the_whole_list() -> None:
    known = [GpuId(uuid=f"GPU-{n}0000000-0000-0000-0000-000000000000") for n in range(2)]
    assert not needs_the_list("0,1", known)
    assert not needs_the_list("GPU-1", known)
    assert needs_the_list("0,2", known)
    assert needs_the_list("GPU-7", known)


def test_a_rank_whose_process_was_not_found_leaves_its_node_undecided() -> None:
    views = on_gpus(0, 1, 2, 3)
    gpus = views[0].state.gpus[:3]
    less = msgspec.structs.replace(views[0], state=msgspec.structs.replace(views[0].state, gpus=gpus))
    assert answer(report(TWO, *views), "ID011").verdict == "pass"
    assert answer(report(TWO, less, views[1]), "ID011").verdict == "unknown"


def test_ranks_that_two_views_of_a_node_found_count_once() -> None:
    views = on_gpus(0, 1, 2, 3)
    gpus = views[0].state.gpus[:2]
    half = msgspec.structs.replace(views[0], state=msgspec.structs.replace(views[0].state, gpus=gpus))
    assert answer(report(TWO, half, half, views[1]), "ID011").verdict == "unknown"


def test_each_process_of_a_node_has_a_list_of_its_own() -> None:
    first, second = pair(environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    parts = [
        msgspec.structs.replace(first, ranks=first.ranks[:2], environment={"CUDA_VISIBLE_DEVICES": "0,9"}),
        msgspec.structs.replace(first, ranks=first.ranks[2:]),
    ]
    found = answer(report(TWO, *parts, second), "ID008")
    assert found.verdict == "fail"
    assert "device 9" in text_of(found)


def test_an_order_of_one_process_of_several_counts() -> None:
    (view,) = mixed("PCI_BUS_ID")
    parts = [
        msgspec.structs.replace(
            view, ranks=view.ranks[:2], environment={"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
        ),
        msgspec.structs.replace(view, ranks=view.ranks[2:]),
    ]
    assert answer(report(FOUR, *parts), "ID009").verdict == "fail"


def test_an_order_that_one_of_two_logs_denies_is_not_by_bus() -> None:
    said = tuple(
        JobFact(kind="option", name="CUDA_DEVICE_ORDER", value=value)
        for value in ("FASTEST_FIRST", "PCI_BUS_ID")
    )
    (view,) = mixed(shown=False)
    assert answer(report(FOUR, msgspec.structs.replace(view, job=said)), "ID009").verdict == "fail"


def test_a_uuid_is_not_judged_by_a_list_without_uuids() -> None:
    views = []
    for view in pair(environment={"CUDA_VISIBLE_DEVICES": f"{UUIDS[0]},{UUIDS[1]}"}):
        gpus = tuple(msgspec.structs.replace(gpu, uuid=None) for gpu in view.identity.gpus)
        views.append(
            msgspec.structs.replace(view, identity=msgspec.structs.replace(view.identity, gpus=gpus))
        )
    assert answer(report(TWO, *views), "ID008").verdict == "unknown"


def test_a_process_that_runs_on_another_node_than_it_claims_is_not_found_on_its_gpu() -> None:
    claims, seen = pair(), running()
    both = [
        msgspec.structs.replace(view, ranks=other.ranks)
        for view, other in zip(seen, reversed(claims), strict=True)
    ]
    assert answer(report(TWO, *both), "ID011").verdict == "unknown"


def with_mode(
    mig: bool | None, slices: tuple[MigDevice, ...] | None = None, model: str = H100
) -> list[FullSnapshot]:
    """Two nodes whose GPUs show this MIG mode and these slices."""
    made = []
    for view in pair(model=model):
        shapes = tuple(msgspec.structs.replace(gpu, mig=mig, model=model) for gpu in view.hardware.gpus)
        gpus = tuple(msgspec.structs.replace(gpu, mig=slices) for gpu in view.identity.gpus)
        made.append(
            msgspec.structs.replace(
                view,
                hardware=msgspec.structs.replace(view.hardware, gpus=shapes),
                identity=msgspec.structs.replace(view.identity, gpus=gpus),
            )
        )
    return made


@pytest.mark.parametrize(
    ("views", "verdict"),
    [
        (with_mode(None), "unknown"),
        (with_mode(False), "pass"),
        (with_mode(None, ()), "pass"),
        (with_mode(None, model="NVIDIA GeForce RTX 4090"), "pass"),
        (with_mode(True), "fail"),
        (with_mode(True, ()), "fail"),
    ],
)
def test_a_mode_that_nobody_shows_is_not_off(views: list[FullSnapshot], verdict: str) -> None:
    assert answer(report(TWO, *views), "ID013").verdict == verdict


def test_slices_that_a_later_list_shows_are_not_lost() -> None:
    whole = snap("node-a", range(4), size=4)
    listed = sliced()[0].identity
    later = log("node-a", identity=listed, observed=None, coverage=Coverage(gpus="all"))
    assert answer(report(FOUR, whole, later), "ID013").verdict == "fail"
