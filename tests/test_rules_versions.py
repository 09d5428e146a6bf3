"""VER: who differs is named, with both values, and nobody is called equal who was not seen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from build import answer, pair, report, running, snap, text_of
from made_versions import NAMES, PLAN, asking, nodes

from topocheck.probes.node.model_files import read_model_files
from topocheck.probes.node.roots import Roots
from topocheck.snapshot import SCHEMA, At, FullSnapshot, Host, Identity, JobFact, Software

TWO = (
    "engine: vllm\nengine_version: {version}\nparallel: {{tensor: 4, pipeline: 2}}\nnodes: [node-a, node-b]\n"
)


def test_two_nodes_have_no_majority() -> None:
    first, second = pair(software=Software(driver="570.86.15"))
    second = msgspec.structs.replace(second, software=Software(driver="575.57.08"))
    found = answer(report(TWO.format(version="0.24.0"), first, second), "VER001")
    assert found.verdict == "fail"
    assert "no majority" in text_of(found)
    assert {"node-a", "node-b"} <= set(found.findings[0].subjects)


def test_half_and_half_is_no_majority() -> None:
    made = nodes(driver="550.54.15")
    made[3] = msgspec.structs.replace(made[3], software=made[2].software)
    text = text_of(answer(report(PLAN, *made), "VER001"))
    assert "no majority" in text
    assert all(name in text for name in NAMES)


def test_a_silent_node_beside_equal_ones_is_unknown() -> None:
    made = nodes()
    made[3] = msgspec.structs.replace(made[3], software=Software())
    found = answer(report(PLAN, *made), "VER001")
    assert found.verdict == "unknown"


def test_the_library_that_the_log_shows_goes_before_the_one_on_disk() -> None:
    made = [msgspec.structs.replace(view, software=Software(nccl="2.21.5")) for view in running()]
    made[0] = msgspec.structs.replace(made[0], software=Software(nccl="2.27.5"))
    found = answer(report(TWO.format(version="0.24.0"), *made), "VER002")
    assert found.verdict == "pass"


@pytest.mark.parametrize(("planned", "verdict"), [("0.24", "pass"), ("0.24.0", "pass"), ("0.19.1", "fail")])
def test_another_release_than_the_plans_is_a_warning(planned: str, verdict: str) -> None:
    plan = PLAN.replace("engine: vllm\n", f"engine: vllm\nengine_version: '{planned}'\n")
    found = answer(report(plan, *nodes()), "VER003")
    assert found.verdict == verdict
    assert [finding.severity for finding in found.findings] == ["warning"] * (verdict == "fail")


def test_a_newer_minor_release_of_cuda_is_a_remark() -> None:
    found = answer(report(PLAN, *nodes(cuda="12.4", cuda_runtime="12.8")), "VER004")
    assert [finding.severity for finding in found.findings] == ["info"]


def test_a_version_that_is_no_number_is_unknown() -> None:
    assert answer(report(PLAN, *nodes(cuda_runtime="rocm")), "VER004").verdict == "unknown"


def test_a_gpu_that_pytorch_was_not_built_for_is_told_once() -> None:
    fact = JobFact(kind="unsupported-gpu", name="NVIDIA GeForce RTX 5090", value="sm_120")
    made = [msgspec.structs.replace(view, job=(fact,)) for view in nodes()]
    found = answer(report(PLAN, *made), "VER004")
    assert len(found.findings) == 1
    assert "RTX 5090 (sm_120)" in found.findings[0].message


def test_one_log_that_repeats_itself_is_no_difference() -> None:
    (view,) = asking("4", named=False)
    both = msgspec.structs.replace(view, job=(*view.job, msgspec.structs.replace(view.job[0], value="8")))
    found = answer(report(PLAN, both), "VER006")
    assert found.verdict == "unknown"  # requested, then changed: who may say so is OBS001


def test_buses_numbered_otherwise_are_no_odd_node() -> None:
    made = [snap(name, ()) for name in NAMES]
    identity = made[2].identity
    moved = tuple(
        msgspec.structs.replace(gpu, bus=f"0000:{0x81 + n:02x}:00.0") for n, gpu in enumerate(identity.gpus)
    )
    made[2] = msgspec.structs.replace(made[2], identity=msgspec.structs.replace(identity, gpus=moved))
    assert answer(report(PLAN, *made), "VER007").verdict == "pass"


def test_a_models_files_are_told_by_name_and_size(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    (tmp_path / "model-00001.safetensors").write_bytes(b"\0" * 100)
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    whole, faults = read_model_files(Roots.real(), str(tmp_path))
    assert whole is not None
    assert (whole.weights_bytes, whole.weights_files, faults) == (100, 1, ())
    (tmp_path / "model-00001.safetensors").write_bytes(b"\0" * 60)
    cut, _ = read_model_files(Roots.real(), str(tmp_path))
    assert cut is not None
    assert cut.config_digest == whole.config_digest
    assert cut.weights_digest != whole.weights_digest


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    empty, _ = read_model_files(Roots.real(), str(tmp_path))
    assert empty is not None
    assert (empty.config_digest, empty.weights_digest, empty.weights_files) == (None, None, 0)
    nothing, faults = read_model_files(Roots.real(), str(tmp_path / "nowhere"))
    assert nothing is None
    assert [fault.kind for fault in faults] == ["absent"]


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    found, faults = read_model_files(Roots.real(), str(tmp_path))
    assert found is not None
    assert found.config_digest is None
    assert faults


def stating(value: str, *, host: str | None = None, source: str = "run.log", line: int = 12) -> FullSnapshot:
    """A text in which a command or a log asks for a tensor size."""
    at = At(source=source, line=line)
    fact = JobFact(kind="requested-size", name="tensor", value=value, engine="vllm", host=host, at=at)
    return FullSnapshot(schema=SCHEMA, identity=Identity(host=Host()), job=(fact,))


PAIR = "engine: vllm\nparallel: {tensor: 4, pipeline: 2}\nnodes: [node-a, node-b]\n"


def test_a_command_and_the_host_that_its_file_names_are_one_voice() -> None:
    one = [stating("4"), stating("4", host="node-a", line=40)]
    assert answer(report(PAIR, *one), "VER006").verdict == "unknown"
    changed = [stating("8"), stating("4", host="node-a", line=40)]
    of_file = snap("node-a", (), source="run.log")
    assert answer(report(PAIR, of_file, *changed), "VER006").verdict == "unknown"
    two = [stating("4", host="node-a"), stating("4", host="node-b.example.org", source="b.log")]
    assert answer(report(PAIR, *two), "VER006").verdict == "pass"


def test_two_names_of_one_host_are_one_voice() -> None:
    one = [stating("4", host="node-a"), stating("4", host="node-a.example.org", source="b.log")]
    whole = report(PAIR, snap("node-a.example.org", ()), snap("node-b", ()), *one)
    found = answer(whole, "VER006")
    assert found.verdict == "unknown"
    assert [whole.gaps[gap].about for gap in found.gaps] == [["node-b"]]


def test_files_that_name_no_host_are_not_the_logs_of_all_nodes() -> None:
    assert answer(report(PLAN, *asking("4", "4", "4", "4", named=False)), "VER006").verdict == "unknown"
    assert answer(report(PLAN, *asking("4", "8", named=False)), "VER006").verdict == "fail"


def test_a_node_that_was_started_again_with_the_others_value_accuses_nobody() -> None:
    said = [stating("8", host="node-a"), stating("4", host="node-a", line=90), stating("4", host="node-b")]
    assert answer(report(PAIR, *said), "VER006").verdict == "unknown"
