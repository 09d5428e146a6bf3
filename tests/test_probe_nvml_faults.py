"""GPUs by NVML: what is refused, lost, old or hanging is told apart, and hides nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from itertools import groupby
from pathlib import Path

import nvml_expected as expected
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvml_machine import FOLDER, PROBE, Machine, ask, command, library, machine, parse

from topocheck.probes.node.nvml import GpuReading, read_gpus
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import Coverage, GpuId, GpuShape, GpuState, ProbeFault

HGX, BRIDGES, TRAY = machine("hgx_h100"), machine("a100_bridges"), machine("gb200_tray")
GEFORCE, MIG = machine("mixed_geforce"), machine("mig")
NEVER = 60.0
"""Seconds after which a test gives up on a process that ought to have spoken."""

OLD_DRIVER = """
missing nvmlDeviceGetGpuFabricInfoV
missing nvmlDeviceGetGpuFabricInfo
missing nvmlDeviceGetMemoryInfo_v2
missing nvmlDeviceGetComputeRunningProcesses_v3
missing nvmlDeviceGetCurrentClocksEventReasons
missing nvmlDeviceGetModuleId
missing nvmlDeviceGetPlatformInfo
missing nvmlDeviceGetNumaNodeId
missing nvmlDeviceGetFieldValues
missing nvmlDeviceIsMigDeviceHandle
"""
"""Functions that drivers of 2020 lack."""


def fault(kind: str, path: str, reason: str, part: str = "gpus") -> ProbeFault:
    """A fault as expected."""
    return ProbeFault(part=part, kind=kind, path=path, reason=reason)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said_before"), [("nvmlDeviceGetHandleByIndex_v2", None), ("nvmlDeviceGetUUID", False)]
)
def test_a_lost_gpu_is_one_fault_and_the_others_go_on(call: str, said_before: bool | None) -> None:
    ran = ask(HGX + f"fail {call} 5 15")
    lost, path = ran.reading, f"{call.removesuffix('_v2')} on GPU 5"
    assert ran.code == 0
    assert lost.faults == (fault("broken", path, "GPU is lost"),)
    assert lost.ids[5] == GpuId(nvml=5, scope="unknown", mig=None if said_before is None else ())
    assert lost.shapes[5].links is None
    assert lost.states[5] == GpuState(gpu=5, mig_pending=said_before)
    assert lost.coverage == Coverage(gpus="part", links="part")
    whole = ask(HGX).reading
    others = [gpu for gpu in HGX.gpus if gpu != 5]
    assert [lost.ids[gpu] for gpu in others] == [whole.ids[gpu] for gpu in others]
    assert [lost.shapes[gpu] for gpu in others] == [whole.shapes[gpu] for gpu in others]
    assert [lost.states[gpu] for gpu in others] == [whole.states[gpu] for gpu in others]
    assert lost.peers == tuple(peer for peer in whole.peers if 5 not in {peer.a, peer.b})


def test_a_lost_gpu_is_asked_nothing_more() -> None:
    made = [line for line in ask(HGX + "fail nvmlDeviceGetUUID 5 15").made if line.endswith(" 5")]
    assert made[-1] == "nvmlDeviceGetUUID 5"


def test_a_gpu_that_is_lost_on_the_way_keeps_what_it_said_before() -> None:
    reading = ask(HGX + "fail nvmlDeviceGetNvLinkVersion 2 15").reading
    assert reading.ids[2].uuid == expected.identity(HGX, 2).uuid
    assert reading.faults == (fault("broken", "nvmlDeviceGetNvLinkVersion on GPU 2", "GPU is lost", "links"),)
    assert reading.shapes[2].model is None
    assert reading.coverage == Coverage(gpus="all", links="all")


def test_a_broken_pair_blames_neither_gpu() -> None:
    reading = ask(BRIDGES + "fail nvmlDeviceGetP2PStatus 0 15").reading
    path = "nvmlDeviceGetP2PStatus on GPUs 0..3"
    assert reading.faults == (fault("broken", path, "GPU is lost", "peers"),)
    assert {peer.a for peer in reading.peers} == {1, 2, 3}


def test_gpus_that_may_not_be_opened_are_left_out_and_told() -> None:
    """nvmlDeviceGetCount_v2 counts them."""
    reading = ask(HGX + "fail nvmlDeviceGetHandleByIndex_v2 0-3 4").reading
    assert [gpu.nvml for gpu in reading.ids] == [4, 5, 6, 7]
    assert [state.gpu for state in reading.states] == [0, 1, 2, 3]
    assert reading.coverage == Coverage(gpus="part", links="all")
    path = "nvmlDeviceGetHandleByIndex on GPUs 0..3"
    assert reading.faults == (fault("not-permitted", path, "Insufficient Permissions"),)
    assert reading.matrix is not None
    assert len(reading.matrix.gpus) == 4


def test_a_refused_fact_is_unknown_and_not_none() -> None:
    refused = "fail nvmlDeviceGetComputeRunningProcesses_v3 * 4\nfail nvmlDeviceGetSerial * 4"
    reading = ask(HGX + refused).reading
    assert {state.processes for state in reading.states} == {None}
    assert {gpu.serial for gpu in reading.ids} == {None}
    assert [(one.kind, one.path) for one in reading.faults] == [
        ("not-permitted", "nvmlDeviceGetSerial on GPUs 0..7"),
        ("not-permitted", "nvmlDeviceGetComputeRunningProcesses_v3 on GPUs 0..7"),
    ]
    assert reading.coverage == ask(HGX).reading.coverage


def test_slices_that_may_not_be_opened_are_told() -> None:
    """A container without /dev/nvidia-caps."""
    reading = ask(MIG + "fail nvmlDeviceGetMigDeviceHandleByIndex 0 4").reading
    assert reading.ids[0].mig == ()
    path = "nvmlDeviceGetMigDeviceHandleByIndex on GPU 0"
    assert reading.faults == (fault("not-permitted", path, "Insufficient Permissions"),)


def test_many_broken_calls_of_one_gpu_are_told_once() -> None:
    calls = ("Name", "CpuAffinity", "MemoryAffinity", "ComputeMode")
    reading = ask(BRIDGES + "\n".join(f"fail nvmlDeviceGet{call} 1 999" for call in calls)).reading
    assert reading.faults == (
        fault("broken", "nvmlDeviceGetCpuAffinity and 2 more calls on GPU 1", "Unknown Error"),
        fault("broken", "nvmlDeviceGetComputeMode on GPU 1", "Unknown Error", "state"),
    )


def test_text_that_is_damaged_is_a_fault_and_no_crash() -> None:
    reading = ask(GEFORCE + "gpu 1 serial 12\\xff34\ngpu 2 name \\x80").reading
    assert reading.ids[1].serial is None
    assert [(one.kind, one.path) for one in reading.faults] == [
        ("broken", "nvmlDeviceGetSerial on GPU 1"),
        ("broken", "nvmlDeviceGetName on GPU 2"),
    ]


def uncounted() -> Machine:
    """Bridges on a driver that does not tell the number of links."""
    return Machine("\n".join(line for line in BRIDGES.text.splitlines() if " links " not in line))


def test_links_without_an_end_are_not_believed() -> None:
    reading = ask(uncounted() + "gpu 0 endless 1").reading
    assert [shape.links is None for shape in reading.shapes] == [True, False, False, False]
    assert reading.coverage.links == "part"
    path = "nvmlDeviceGetNvLinkState on GPU 0"
    assert reading.faults == (fault("broken", path, "the links have no end", "links"),)


def test_a_number_of_links_that_no_gpu_has_is_not_believed() -> None:
    reading = ask(BRIDGES + "gpu 0 links 4000000000").reading
    assert [shape.links is None for shape in reading.shapes] == [True, False, False, False]
    path = "nvmlDeviceGetFieldValues on GPU 0"
    assert reading.faults == (fault("broken", path, "it counts 4000000000 links", "links"),)


def test_links_that_answer_with_an_error_are_unknown() -> None:
    reading = ask(uncounted() + "fail nvmlDeviceGetNvLinkState 0 999").reading
    assert reading.shapes[0].links is None
    counted = ask(BRIDGES + "fail nvmlDeviceGetNvLinkState 0 999").reading
    assert {link.active for link in counted.shapes[0].links or ()} == {None}
    assert len(counted.shapes[0].links or ()) == 12
    assert counted.coverage.links == "part"


def test_an_old_driver_lacks_facts_and_nothing_else() -> None:
    reading = ask(BRIDGES + OLD_DRIVER).reading
    known = ask(BRIDGES).reading
    assert reading.faults == ()
    assert reading.ids == known.ids
    assert reading.shapes == known.shapes
    assert reading.matrix == known.matrix
    assert reading.states == tuple(
        expected_without_rates(gpu, expected.state(BRIDGES, gpu, reserve_known=False)) for gpu in BRIDGES.gpus
    )
    assert reading.coverage == known.coverage


def expected_without_rates(gpu: int, state: GpuState) -> GpuState:
    """Rates come by nvmlDeviceGetFieldValues alone."""
    assert state.nvlink_megabytes_per_s is not None
    return GpuState(
        **{name: getattr(state, name) for name in state.__struct_fields__[:-1]}, nvlink_megabytes_per_s=None
    )


@pytest.mark.parametrize(
    ("driver", "mask", "health"),
    [
        ("system fabric_version 3", 0x11AA, "Healthy"),
        ("system fabric_version 2", 0x11AA, None),
        ("system fabric_version 1", None, None),
        ("missing nvmlDeviceGetGpuFabricInfoV", None, None),
    ],
)
def test_the_fabric_is_read_in_the_layout_that_the_driver_knows(
    driver: str, mask: int | None, health: str | None
) -> None:
    reading = ask(TRAY + driver).reading
    first = reading.fabric[0]
    assert reading.faults == ()
    assert (first.health_mask, first.health) == (mask, health)
    assert (first.cluster_uuid, first.clique) == ("4c1fe09a77b3423d9a1100b7d2e86f35", 32766)
    assert (first.state, first.status) == ("Completed", "Success")
    assert len(reading.fabric) == (1 if mask is None else 2)


def test_a_driver_that_is_not_there_is_no_answer() -> None:
    path = "libnvidia-of-nobody.so.1"
    done = subprocess.run(
        [*PROBE, "--library", path],
        capture_output=True,
        check=True,
        text=True,
    )
    (reading,) = parse(done.stdout)
    (only,) = reading.faults
    assert (only.part, only.kind, only.path) == ("gpus", "absent", path)
    assert "No such file" in only.reason
    assert reading.coverage == Coverage()
    assert reading.ids == ()
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (4, "not-permitted", "Insufficient Permissions"),
        (9, "absent", "Driver Not Loaded"),
        (10, "timeout", "Timeout"),
        (18, "broken", "RM has detected an NVML/RM version mismatch."),
        (77, "broken", "double error 77"),
    ],
)
def test_a_driver_that_does_not_start_says_why(code: int, kind: str, reason: str) -> None:
    ran = ask(HGX + f"system init {code}")
    assert ran.code == 0
    assert ran.reading == GpuReading(faults=(fault(kind, "nvmlInit", reason),))


def test_a_driver_that_cannot_count_shows_no_gpus_and_no_absence() -> None:
    reading = ask(HGX + "fail nvmlDeviceGetCount_v2 - 999").reading
    assert (reading.ids, reading.coverage) == ((), Coverage())
    assert reading.faults == (fault("broken", "nvmlDeviceGetCount", "Unknown Error"),)


def test_a_machine_that_was_recorded_is_not_asked_of_the_driver_at_hand(tmp_path: Path) -> None:
    reading = read_gpus(Roots.at(tmp_path))
    (only,) = reading.faults
    assert only.kind == "absent"
    assert reading.coverage == Coverage()


def test_a_call_that_hangs_is_the_last_that_was_announced_and_the_rest_is_known() -> None:
    """What a parent does with its deadline, here by the announcement and not by time."""
    arguments, environment, _ = command(HGX + "hang nvmlDeviceGetNvLinkVersion 5")
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        written: list[str] = []
        assert process.stdout is not None
        assert process.stderr is not None
        reader = threading.Thread(target=lambda stream=process.stdout: written.append(stream.read()))
        reader.start()
        deadline = threading.Timer(NEVER, process.kill)
        deadline.start()
        last = ""
        for line in process.stderr:
            last = line
            if line == "call nvmlDeviceGetNvLinkVersion(GPU 5, 0)\n":
                process.kill()
        deadline.cancel()
        reader.join()
    assert last == "call nvmlDeviceGetNvLinkVersion(GPU 5, 0)\n"
    known = parse(written[0])[-1]
    whole = ask(HGX).reading
    assert known.ids == whole.ids
    assert known.shapes == (*whole.shapes[:5], *[GpuShape()] * 3)
    assert known.states == whole.states[:5]
    assert known.coverage == Coverage(gpus="all", links="part")


def test_a_driver_that_hangs_when_it_starts_is_announced() -> None:
    arguments, environment, _ = command(HGX + "hang nvmlInitWithFlags -")
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        deadline = threading.Timer(NEVER, process.kill)
        deadline.start()
        first = process.stderr.readline()
        process.kill()
        deadline.cancel()
        out, rest = process.communicate()
    assert (first, out, rest) == ("call nvmlInit()\n", "", "")


def test_every_call_is_announced_before_it_is_made() -> None:
    """The binding adds versions to names, and asks for processes twice: how many, and which."""
    ran = ask(TRAY)
    made = [line.split()[0] for line, _ in groupby(ran.made)]
    announced = [line.partition("(")[0] for line, _ in groupby(ran.announced, lambda call: call)]
    names = [name for name, _ in groupby(announced)]
    assert [name.removesuffix("_v2") for name, _ in groupby(made)] == [
        {"nvmlInit": "nvmlInitWithFlags"}.get(name, name).removesuffix("_v2") for name in names
    ]


def test_what_is_published_grows_until_it_is_the_reading() -> None:
    ran = ask(TRAY)
    assert [len(reading.ids) for reading in ran.readings] == [1, 2, 3, 4, 4, 4, 4, 4, 4]
    assert [len(reading.states) for reading in ran.readings] == [0, 0, 0, 0, 1, 2, 3, 4, 4]
    assert all(len(reading.shapes) == len(reading.ids) for reading in ran.readings)
    assert [reading.coverage.gpus for reading in ran.readings] == ["part"] * 3 + ["all"] * 6
    assert ran.readings[-2].peers == ()
    assert len(ran.reading.peers) == 12


@pytest.mark.parametrize(("driven", "scope"), [(4, "host"), (8, "container"), (None, "unknown")])
def test_indexes_are_the_hosts_if_nvml_shows_all_that_the_kernel_drives(
    driven: int | None, scope: str, tmp_path: Path
) -> None:
    if driven is not None:
        folder = tmp_path / "sys/bus/pci/drivers/nvidia"
        folder.mkdir(parents=True)
        for name in ["bind", "module", *(f"0000:{0x21 + gpu:02x}:00.0" for gpu in range(driven))]:
            (folder / name).touch()
    reading = ask(TRAY, "--root", str(tmp_path)).reading
    assert {gpu.scope for gpu in reading.ids} == {scope}


def test_the_probe_imports_nothing_that_is_slow() -> None:
    script = "import sys, topocheck.probes.node.nvml; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    modules = {name.partition(".")[0] for name in done.stdout.split()}
    assert "msgspec" in modules
    assert not modules & {"networkx", "jinja2", "rich", "yaml", "click", "pynvml", "ClusterShell"}


def test_the_double_takes_no_call_but_those_of_nvidias_header() -> None:
    """It is compiled against nvml.h: an export that the header does not declare as such cannot be."""
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(library())], capture_output=True, check=True, text=True
    )
    names = {line.split()[-1] for line in done.stdout.splitlines()}
    assert "nvmlDeviceGetGpuFabricInfoV" in names
    assert all(name.startswith("nvml") for name in names)


def device_calls() -> list[str]:
    """Everything that the double can refuse about one GPU."""
    source = (FOLDER / "nvml_double.c").read_text(encoding="utf-8")
    return sorted(set(re.findall(r"\b(nvmlDeviceGet\w+)[(,]", source)) - {"nvmlDeviceGetCount_v2"})


CODES = [1, 2, 3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 17, 20, 21, 25, 26, 28, 29, 77, 999]


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.sampled_from(device_calls()), st.sampled_from(CODES), min_size=1, max_size=6))
def test_whatever_one_gpu_refuses_the_others_are_read(refusals: dict[str, int]) -> None:
    lines = "\n".join(f"fail {call} 1 {code}" for call, code in refusals.items())
    ran, whole = ask(BRIDGES + lines), ask(BRIDGES).reading
    assert ran.code == 0, ran.err
    assert "Traceback" not in ran.err
    found = {gpu.nvml: ordinal for ordinal, gpu in enumerate(ran.reading.ids)}
    for gpu in (0, 2, 3):
        assert ran.reading.ids[found[gpu]] == whole.ids[gpu]
        assert ran.reading.shapes[found[gpu]].cpu_affinity == whole.shapes[gpu].cpu_affinity
        assert len(ran.reading.shapes[found[gpu]].links or ()) == 12
        assert ran.reading.states[found[gpu]].processes == ()
