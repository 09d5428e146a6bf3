"""`topocheck verify` of a job of several worlds: its report in every form."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import msgspec
import pytest
from made_worlds import POOLS, TWINS, carrier, of, pools
from shell import topocheck

from topocheck.schema import schema_for
from topocheck.snapshot import FullSnapshot

AT = ("--at", "2026-01-31T12:00:00Z")


def stream(*snapshots: FullSnapshot) -> str:
    return "".join(msgspec.json.encode(snapshot).decode() + "\n" for snapshot in snapshots)


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with plans and evidence."""
    (tmp_path / "pools.yaml").write_text(POOLS)
    (tmp_path / "twins.yaml").write_text(TWINS)
    (tmp_path / "one.yaml").write_text("engine: vllm\nparallel: {tensor: 4}\nnodes: [node-a]\n")
    (tmp_path / "pools.jsonl").write_text(stream(*pools()))
    (tmp_path / "torn.jsonl").write_text(
        stream(
            pools()[0],
            carrier("node-b", of("decode", [0, 1, 4, 5], 8), count=4),
            carrier("node-c", of("decode", [2, 3, 6, 7], 8), count=4),
        )
    )
    (tmp_path / "twins.jsonl").write_text(
        stream(carrier("node-a", of("0", range(4), 4), of("1", range(4), 4, first=4)))
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_healthy_job_passes_and_shows_the_world_of_each_rank() -> None:
    ran = topocheck("verify", *AT, "-v", "--plan", "pools.yaml", "pools.jsonl")
    assert ran.code == 0
    assert "2 worlds: prefill (vLLM, tensor 4: 4 ranks on 1 node); decode (vLLM" in " ".join(ran.out.split())
    table = ran.out[ran.out.index("Placement (claimed)") :].splitlines()[1:]
    assert table[0].split()[:3] == ["world", "rank", "at"]
    shown = [line.split()[:2] for line in table[1:]]
    assert shown == [["prefill", str(n)] for n in range(4)] + [["decode", str(n)] for n in range(8)]


def test_a_fault_names_its_world_on_the_last_line() -> None:
    ran = topocheck("verify", *AT, "--plan", "pools.yaml", "torn.jsonl")
    assert ran.code == 1
    assert ran.last.startswith("FAIL: world decode: TP group 0 (ranks 0..3) crosses 2 nodes")
    assert "prefill: TP" not in ran.out


def test_json_has_the_worlds_and_fits_its_schema() -> None:
    ran = topocheck("verify", *AT, "--json", "-", "--plan", "pools.yaml", "torn.jsonl")
    document = json.loads(ran.out)
    jsonschema.validate(document, schema_for("report"))
    assert [(world["name"], world["verdict"]) for world in document["worlds"]] == [
        ("prefill", "pass"),
        ("decode", "fail"),
    ]
    assert [len(world["placement"]["ranks"]) for world in document["worlds"]] == [4, 8]
    assert document["placement"] is None
    marked = [sorted({mark["rule"] for mark in world["placement"]["marks"]}) for world in document["worlds"]]
    assert marked[0] == []
    assert "TP001" in marked[1]


def test_html_draws_every_world(job: Path) -> None:
    topocheck("verify", *AT, "--html", "report.html", "--plan", "pools.yaml", "torn.jsonl")
    page = (job / "report.html").read_text()
    assert min(page.count(f"<h3>World {name}</h3>") for name in ("prefill", "decode")) >= 2
    assert page.count('aria-label="Map of nodes and GPUs"') == 2
    names = re.findall(r' id="([^"]+)"', page)
    assert len(set(names)) == len(names)


def test_html_draws_the_worlds_that_fail_before_others(job: Path) -> None:
    (job / "many.yaml").write_text("engine: vllm\nparallel: {tensor: 4}\nnodes: n[0-9]\nworlds: 10\n")
    hosts = [carrier(f"n{n}", of("", range(3 if n == 9 else 4), 4), count=4) for n in range(10)]
    (job / "many.jsonl").write_text(stream(*hosts))
    topocheck("verify", *AT, "--html", "report.html", "--plan", "many.yaml", "many.jsonl")
    page = (job / "report.html").read_text()
    assert page.count('aria-label="Map of nodes and GPUs"') == 8
    assert "<h3>World 9</h3>" in page
    assert "8 of 10 worlds are shown" in page


def test_the_same_input_gives_the_same_bytes_in_any_order(job: Path) -> None:
    one = topocheck("verify", *AT, "--json", "-", "--plan", "pools.yaml", "pools.jsonl").out
    (job / "pools.jsonl").write_text(stream(*reversed(pools())))
    other = topocheck("verify", *AT, "--json", "-", "--plan", "pools.yaml", "pools.jsonl").out
    first, second = json.loads(one), json.loads(other)
    assert first.pop("inputs") != second.pop("inputs"), "the digest is that of the file"
    assert first == second


def test_worlds_that_the_plan_does_not_have_are_named() -> None:
    ran = topocheck("verify", *AT, "--plan", "one.yaml", "twins.jsonl")
    assert ran.code == 2
    assert "several worlds (0, 1), each with a rank 0" in ran.err
    assert topocheck("verify", *AT, "--plan", "twins.yaml", "twins.jsonl").code == 0


def test_a_plan_of_one_world_says_nothing_of_worlds(job: Path) -> None:
    (job / "one.jsonl").write_text(stream(carrier("node-a", of("", range(4), 4), count=4)))
    ran = topocheck("verify", *AT, "--json", "-", "--plan", "one.yaml", "one.jsonl")
    assert "worlds" not in json.loads(ran.out)
    plain = topocheck("verify", *AT, "-v", "--plan", "one.yaml", "one.jsonl").out
    assert "world" not in plain[plain.index("Placement (claimed)") :]


def test_what_is_assumed_of_replicas_is_said(job: Path) -> None:
    (job / "open.yaml").write_text("engine: vllm\nparallel: {tensor: 4, data: 2}\nnodes: [node-a]\n")
    (job / "idle.jsonl").write_text(stream(carrier("node-a")))
    ran = topocheck("verify", *AT, "--plan", "open.yaml", "idle.jsonl")
    assert "the data parallel replicas are one world" in " ".join(ran.out.split())
