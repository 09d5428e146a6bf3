"""What Ray's client says of a cluster, without one."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.errors import InternalError, TopocheckError, UndecidedError, UsageError
from topocheck.gather.ray_cluster import Answer, View, parse_view, ray_address, unpacked
from topocheck.gather.ray_worker import job_environment
from topocheck.gather.store import MOST_BYTES
from topocheck.probes.node.child import Child

NODES = {
    "type": "cluster",
    "nodes": [
        {"id": "a" * 56, "address": "10.8.0.1", "host": "one", "alive": True, "gpus": 4.0},
        {"id": "b" * 56, "address": "10.8.0.2", "host": "two", "alive": True, "gpus": 4.0},
        {"id": "c" * 56, "address": "10.8.0.3", "host": "", "alive": False, "reason": "missed its beats"},
    ],
    "driver": "a" * 56,
}


def answer(node: str, data: bytes, reason: str = "") -> dict[str, object]:
    """One line of the client."""
    packed = base64.b64encode(data).decode()
    return {"type": "answer", "id": node * 56, "packed": packed, "reason": reason}


def view(*lines: object, code: int | None = 0, err: bytes = b"", cut: bytes = b"") -> View:
    """What is made of these lines."""
    out = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return parse_view(Child(out + cut, err, code), "10.8.0.1:6379")


def test_every_node_has_an_answer_or_a_reason() -> None:
    found = view(NODES, answer("a", zlib.compress(b"{}")))
    one, two, dead = found.cluster.nodes
    assert unpacked(found.answer(one, 30)) == b"{}"
    assert found.answer(two, 30).reason == "no answer within 30 s"
    assert found.answer(dead, 30).reason == "is dead in Ray: missed its beats"
    assert (one.label, dead.label) == ("one (10.8.0.1)", "10.8.0.3")


def test_a_client_that_dies_leaves_what_it_said_before() -> None:
    """Ray ends the process that loses its cluster: with exit code 1, which here is no verdict."""
    found = view(NODES, answer("a", b"x"), code=1, err=b"I0\nF1 lost the GCS\n", cut=b'{"type": "answ')
    one, two, _ = found.cluster.nodes
    assert not found.answer(one, 30).reason
    assert found.answer(two, 30).reason == "Ray's client ended with exit code 1: F1 lost the GCS"


@pytest.mark.parametrize(
    ("lines", "code", "kind", "words"),
    [
        ([{"type": "trouble", "reason": "no Ray here"}], 0, UsageError, "10.8.0.1:6379: no Ray here"),
        ([], None, UndecidedError, "nobody answers there in time"),
        ([], 1, InternalError, "Ray's client ended with exit code 1: Check failed"),
        ([], -6, InternalError, "Ray's client ended by SIGABRT: Check failed"),
        ([answer("a", b"x")], 0, InternalError, "tells nothing of its nodes"),
    ],
)
def test_a_cluster_that_cannot_be_asked_is_one_sentence(
    lines: list[object], code: int | None, kind: type[TopocheckError], words: str
) -> None:
    with pytest.raises(kind) as raised:
        view(*lines, code=code, err=b"Traceback\nCheck failed\n")
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no zlib", "cannot be unpacked"),
        (zlib.compress(b"{}" * 90)[:-3], "is cut"),
        (zlib.compress(bytes(MOST_BYTES + 1)), "longer than 16 MiB"),
    ],
)
def test_what_a_node_sends_is_bounded(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        unpacked(Answer("a", data))


@settings(max_examples=50, deadline=None)
@given(
    st.binary(max_size=300), st.integers(-9, 3) | st.none(), st.sampled_from(["alone", "behind", "before"])
)
def test_any_words_of_the_client_give_a_view_or_one_sentence(
    out: bytes, code: int | None, place: str
) -> None:
    document = json.dumps(NODES).encode() + b"\n"
    said = {"alone": out, "behind": document + out, "before": out + b"\n" + document}[place]
    try:
        found = parse_view(Child(said, out, code), "auto")
    except TopocheckError as error:
        assert str(error)  # noqa: PT017 - a sentence is one of two right answers
    else:
        assert all(found.answer(node, 5).id == node.id for node in found.cluster.nodes)


def test_a_line_that_is_nested_without_end_is_passed_by() -> None:
    deep = b'{"type": "cluster", "nodes": [], "more": ' + b"[" * 100_000 + b"\n"
    assert len(view(NODES, cut=deep).cluster.nodes) == 3


def test_a_given_address_goes_before_rays_variable() -> None:
    assert ray_address("h:1", {"RAY_ADDRESS": "h:2"}) == "h:1"
    assert ray_address(None, {"RAY_ADDRESS": "h:2"}) == "h:2"
    assert ray_address(None, {}) == "auto"
    with pytest.raises(UsageError, match="starts a cluster of its own"):
        ray_address(None, {"RAY_ADDRESS": "local"})


def raylet(proc: Path, **variables: str) -> dict[str, str]:
    """The environment of a task whose raylet has these variables."""
    (proc / "77").mkdir()
    text = "".join(f"{name}={value}\0" for name, value in variables.items())
    (proc / "77" / "environ").write_text(text)
    return {"RAY_RAYLET_PID": "77", "PATH": "/bin"}


def test_a_list_that_ray_emptied_is_the_raylets_own(tmp_path: Path) -> None:
    env = raylet(tmp_path, CUDA_VISIBLE_DEVICES="4,5,6,7")
    assert job_environment({**env, "CUDA_VISIBLE_DEVICES": ""}, tmp_path)["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"


@pytest.mark.parametrize("pid", ["77", "78", "", "../77", "\u0667"])
def test_a_list_that_ray_emptied_and_the_node_never_had_is_unset(tmp_path: Path, pid: str) -> None:
    env = {**raylet(tmp_path), "RAY_RAYLET_PID": pid, "HIP_VISIBLE_DEVICES": ""}
    assert "HIP_VISIBLE_DEVICES" not in job_environment(env, tmp_path)


def test_a_list_that_stands_stays_and_the_probe_finds_the_workers_modules(tmp_path: Path) -> None:
    env = raylet(tmp_path, CUDA_VISIBLE_DEVICES="4,5,6,7")
    found = job_environment({**env, "CUDA_VISIBLE_DEVICES": "1"}, tmp_path)
    assert found["CUDA_VISIBLE_DEVICES"] == "1"
    assert set(found["PYTHONPATH"].split(os.pathsep)) == {path for path in sys.path if path}


def test_a_missing_package_is_one_sentence(tmp_path: Path) -> None:
    """As where topocheck is installed without its extra."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("raise ImportError('No module named ray')\n")
    plan = tmp_path / "plan.yaml"
    plan.write_text("engine: vllm\nparallel: {tensor: 4}\nnodes: 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "topocheck", "gate", "--ray", "--plan", plan],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "RAY_ADDRESS": "auto"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "ray cannot be imported" in done.stderr
    assert "install topocheck with its extra `ray`" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ray_and_a_store_exclude_each_other(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("engine: vllm\nparallel: {tensor: 4}\nnodes: 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "topocheck", "gate", "--ray", "--store", f"file:{tmp_path}", "--plan", plan],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--ray and --store" in done.stderr
