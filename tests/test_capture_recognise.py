"""Recognition by content: no parser takes what is another's, and what is nobody's is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from topocheck.errors import CaptureError
from topocheck.probes.capture.recognise import read_capture

CAPTURES = Path(__file__).parent / "captures"
CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


def kinds(path: Path) -> set[str]:
    return {reading.kind for reading in read_capture(path.read_bytes(), path.name)}


@pytest.mark.parametrize("name", [path.name for path in sorted(CAPTURES.glob("nccl-2*.log"))])
def test_a_log_of_nccl_is_nccls_alone(name: str) -> None:
    assert kinds(CAPTURES / name) == {"nccl log"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vllm-mp-two-nodes.log", "vllm log"),
        ("sglang-wrapped.log", "sglang log"),
        ("trtllm.log", "tensorrt-llm log"),
        ("megatron.log", "megatron log"),
        ("deepspeed-launch.log", "deepspeed log"),
        ("torchrun-agents.log", "torch log"),
        ("process-titles-smi.txt", "process titles"),
        ("environment-two-pods.txt", "environment variables"),
        ("collect-env-flat.txt", "collect_env"),
        ("ray-workers.txt", "ray worker list"),
    ],
)
def test_a_log_of_one_engine_is_taken_by_one_parser(name: str, kind: str) -> None:
    assert kinds(CAPTURES / name) == {kind}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "| model | layers | before |\n|---|---|---|\n| A | 61 | `[15,15,16,15]` |\n",
        "NCCL_DEBUG is set to INFO, tp_size is 8 and world_size too\n",
    ],
)
def test_what_nobody_recognises_is_an_error(text: str) -> None:
    with pytest.raises(CaptureError, match="holds nothing that topocheck recognises"):
        read_capture(text.encode(), "x.txt")


def test_a_table_in_a_text_of_the_shared_cases_is_nobodys() -> None:
    path = CASES / "C57-pp-partitions.txt"
    if not path.exists():
        pytest.skip("the shared cases are not here")
    with pytest.raises(CaptureError):
        kinds(path)
