"""`topocheck report`, and the outputs of `topocheck verify` that people keep."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from evidence import PLAN, snapshot, stream
from shell import topocheck

from topocheck.cli.main import run
from topocheck.render.embedded import digest_of

AT = "2026-01-31T12:00:00Z"
POLICY = "policy: {severity: {NV001: warning}}\n"
OUTPUTS = {"--json": "r.json", "--html": "r.html", "--markdown": "r.md", "--junit": "r.xml"}


def exchanged() -> list[dict[str, object]]:
    """The job with ranks 3 and 4 on each other's node: both TP groups cross."""
    nodes = [snapshot(0), snapshot(1)]
    nodes[0]["ranks"][3]["rank"], nodes[1]["ranks"][0]["rank"] = 4, 3
    return nodes


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a plan and a broken job of two files."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "nodes").mkdir()
    for node, made in enumerate(exchanged()):
        (tmp_path / "nodes" / f"{node}.jsonl").write_text(stream(made))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verified(*words: str) -> int:
    return run(["verify", "--at", AT, *words])


def kept(*words: str) -> None:
    """The report of the job as r.html."""
    assert verified("--plan", "plan.yaml", "--html", "r.html", *words, "nodes") == 1


def checked(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, what was found, and the last line of `topocheck report check`."""
    capfd.readouterr()
    code = run(["report", "check", *words])
    said = capfd.readouterr()
    return code, " ".join(said.out.split()), said.err.rstrip("\n").rpartition("\n")[2]


def test_one_run_writes_every_output_and_two_processes_write_the_same_bytes(job: Path) -> None:
    written = []
    for seed in ("1", "2"):
        options = [word for pair in OUTPUTS.items() for word in pair]
        ran = topocheck(
            "verify", "--at", AT, "--plan", "plan.yaml", *options, "nodes", env={"PYTHONHASHSEED": seed}
        )
        assert ran.code == 1
        written.append({name: (job / name).read_bytes() for name in OUTPUTS.values()})
        assert not list(job.glob(".r.*")), "what is written aside is renamed"
    assert written[0] == written[1]


@pytest.mark.parametrize("option", OUTPUTS)
def test_each_output_can_be_standard_output(option: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    verified("--plan", "plan.yaml", option, OUTPUTS[option], "nodes")
    capfdbinary.readouterr()
    verified("--plan", "plan.yaml", option, "-", "nodes")
    assert capfdbinary.readouterr().out == Path(OUTPUTS[option]).read_bytes()


def test_two_outputs_do_not_go_to_one_place(capfd: pytest.CaptureFixture[str]) -> None:
    assert verified("--plan", "plan.yaml", "--junit", "x", "--markdown", "x", "nodes") == 2
    assert "both write to x: give each a place of its own" in capfd.readouterr().err


def test_junit_agrees_with_the_exit_code() -> None:
    assert verified("--plan", "plan.yaml", "--junit", "r.xml", "nodes") == 1
    (suite,) = ET.parse("r.xml").getroot()  # noqa: S314  what was just written
    assert suite.get("failures") != "0"
    failed = [case.get("name", "")[:5] for case in suite.iter("testcase") if case.find("failure") is not None]
    assert "TP001" in failed


def test_the_report_shows_as_verify_printed_it(capfd: pytest.CaptureFixture[str]) -> None:
    for options in ((), ("-v",)):
        kept(*options)
        printed = capfd.readouterr().out
        assert run(["report", "show", *options, "r.html"]) == 0
        assert capfd.readouterr().out == printed


def test_the_raw_document_is_that_of_json(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    kept("--json", "r.json")
    for file in ("r.html", "r.json"):
        capfdbinary.readouterr()
        assert run(["report", "show", "--json", file]) == 0
        assert capfdbinary.readouterr().out == Path("r.json").read_bytes()


def test_a_changed_report_is_shown_with_a_word_about_it(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept()
    page = (job / "r.html").read_text()
    (job / "r.html").write_text(page.replace('"exit_code": 1', '"exit_code": 0', 1))
    assert run(["report", "show", "r.html"]) == 1
    assert "DIFFERS: r.html: the report was changed" in capfd.readouterr().err


def test_a_page_alone_is_checked_and_says_what_was_not(capfd: pytest.CaptureFixture[str]) -> None:
    kept()
    code, found, last = checked(capfd, "r.html")
    assert code == 0
    assert "page is what its report renders to, byte for byte" in found
    assert last.startswith("SAME: r.html is what it was; the inputs and the verdict were not checked")


def test_a_packed_page_of_a_real_run_is_checked_as_a_plain_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("topocheck.render.embedded.MOST_PLAIN", 0)
    kept("--json", "r.json")
    assert 'data-coding="columns"' in Path("r.html").read_text()
    assert checked(capfd, "r.html", "nodes")[0] == 0
    assert run(["report", "show", "--json", "r.html"]) == 0
    assert capfd.readouterr().out == Path("r.json").read_text()


def big(job: Path) -> None:
    """A job of 520 ranks on 130 nodes in place of the small one, with the boot ids and UUIDs of all."""
    (job / "plan.yaml").write_text("engine: vllm\nparallel: {tensor: 4, pipeline: 130}\nnodes: 130\n")
    for node in range(130):
        made = snapshot(node, name=f"node-{node:03d}")
        for claim in made["ranks"]:
            claim["size"] = 520
        (job / "nodes" / f"{node}.jsonl").write_text(stream(made))


@pytest.mark.parametrize("options", [[], ["--html-identities"]])
def test_a_page_without_identities_says_so_and_is_checked_like_any_other(
    job: Path, capfd: pytest.CaptureFixture[str], options: list[str]
) -> None:
    big(job)
    files = ["--html", "r.html", "--json", "r.json"]
    verified("--plan", "plan.yaml", *files, *options, "nodes")
    code, found, last = checked(capfd, "r.html", "nodes")
    assert (code, last) == (0, "SAME: r.html is what it was"), found
    assert "page is what its report renders to, byte for byte" in found
    assert "verdict is again" in found
    run(["report", "show", "--json", "r.html"])
    shown = capfd.readouterr().out
    page, whole = (job / "r.html").read_text(), (job / "r.json").read_text()
    assert f'the report has the digest <code class="digest">{digest_of(shown)}</code>' in page
    assert "This page holds the report for programs too, without boot ids and GUIDs" in page
    assert digest_of(shown) != digest_of(whole)
    boot, uuids = "6f0c1a52-8d3e-4b7a-9c11", "GPU-1b2c3d4e"
    assert (boot in shown, boot in whole) == (False, True)
    assert len(set(re.findall(f"{uuids}[-0-9a-f]*", whole))) == 520
    assert (len(set(re.findall(f"{uuids}[-0-9a-f]*", shown))) == 520) == bool(options)


def test_a_changed_digit_of_the_evidence_of_a_big_job_is_found(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    big(job)
    verified("--plan", "plan.yaml", "--html", "r.html", "nodes")
    path = job / "nodes" / "129.jsonl"
    path.write_text(path.read_text().replace("400.0", "200.0"))
    code, _, last = checked(capfd, "r.html", "nodes")
    assert (code, "input nodes/129.jsonl is changed" in last) == (1, True)


def test_the_verdict_follows_again_from_the_same_evidence_wherever_it_lies(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept("--policy", "policy.yaml", "--fail-on", "warning", "--min-basis", "claimed")
    code, found, last = checked(capfd, "r.html", "nodes")
    assert (code, last) == (0, "SAME: r.html is what it was")
    assert "verdict is again fail, exit code 1" in found
    moved = job / "kept"
    moved.mkdir()
    for name in ("nodes", "plan.yaml", "policy.yaml"):
        shutil.move(job / name, moved / name)
    assert checked(capfd, "r.html", "kept")[0] == 0
    code, found, _ = checked(capfd, "r.html", "kept/nodes")
    assert code == 3
    assert "input plan.yaml is missing" in found


def test_a_changed_byte_of_the_evidence_is_found(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept()
    path = job / "nodes" / "1.jsonl"
    path.write_bytes(path.read_bytes().replace(b"node-b", b"node-c", 1))
    code, found, last = checked(capfd, "r.html", "nodes")
    assert code == 1
    assert last.startswith("DIFFERS: r.html: input nodes/1.jsonl is changed")
    assert "verdict was not run again" in found


def test_files_that_are_missing_and_files_that_came_are_named(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept()
    (job / "nodes" / "1.jsonl").unlink()
    code, found, _ = checked(capfd, "r.html", "nodes")
    assert (code, "input nodes/1.jsonl is missing" in found) == (3, True)
    (job / "nodes" / "2.jsonl").write_text(stream(snapshot(2)))
    code, found, _ = checked(capfd, "r.html", "nodes")
    assert (code, "input nodes/2.jsonl is extra" in found) == (1, True)


def test_a_changed_plan_is_found(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept()
    (job / "plan.yaml").write_text(PLAN + "# more\n")
    code, _, last = checked(capfd, "r.html", "nodes")
    assert code == 1
    assert "input plan.yaml is changed" in last


def test_labels_baseline_and_a_plan_that_the_evidence_shows_are_as_they_were(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (job / "launch.sh").write_text("vllm serve m --tensor-parallel-size 4 --pipeline-parallel-size 2\n")
    evidence = ["node-a=nodes/0.jsonl", "nodes/1.jsonl", "launch.sh"]
    assert verified("--json", "old.json", *evidence) == 1
    assert verified("--baseline", "old.json", "--html", "r.html", *evidence) == 3
    code, found, last = checked(capfd, "r.html", "nodes", "launch.sh")
    assert (code, last) == (0, "SAME: r.html is what it was"), found
    (job / "old.json").unlink()
    assert checked(capfd, "r.html", "nodes", "launch.sh")[0] == 3


def test_the_launch_command_of_a_plan_is_given_again(capfd: pytest.CaptureFixture[str]) -> None:
    command = ["--", "vllm", "serve", "m", "-tp", "4", "-pp", "2", "--nnodes", "2"]
    assert verified("--html", "r.html", "nodes", *command) == 1
    code, found, _ = checked(capfd, "r.html", "nodes")
    assert (code, "give the launch command after -- too" in found) == (3, True)
    assert checked(capfd, "r.html", "nodes", *command)[0] == 0
    code, _, last = checked(capfd, "r.html", "nodes", *[word.replace("4", "8") for word in command])
    assert (code, "verdict is another" in last) == (1, True)


def test_a_json_report_is_checked_too(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept("--json", "r.json")
    assert checked(capfd, "r.json", "nodes")[0] == 0
    document = json.loads((job / "r.json").read_text())
    document["exit_code"] = 0
    (job / "r.json").write_text(json.dumps(document, indent=2) + "\n")
    code, found, _ = checked(capfd, "r.json", "nodes")
    assert code == 1
    assert "verdict is another in a run over the same inputs: exit_code is 1, the report has 0" in found


def test_a_json_report_alone_has_no_digest_and_is_not_called_the_same(
    job: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept("--json", "r.json")
    edited = (job / "r.json").read_text().replace('"exit_code": 1', '"exit_code": 0', 1)
    (job / "edited.json").write_text(edited)
    for name in ("r.json", "edited.json"):
        code, found, last = checked(capfd, name)
        assert (code, "report is what topocheck writes" in found) == (3, True)
        assert last.startswith(f"UNDECIDED: {name}: digest is not in a JSON report")


def test_a_start_up_log_is_read_where_it_lies_now(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    worker = "(Worker_PP0_TP0 pid=1) INFO 01-31 12:00:00 [gpu_model_runner.py:1] "
    log = job / "nodes" / "vllm.log"
    log.write_text(
        "INFO 01-31 12:00:00 [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='m', "
        "tensor_parallel_size=4, pipeline_parallel_size=2\n"
        f"{worker}Model loading took 16.25 GiB memory and 9.1 seconds\n"
    )
    kept("--json", "r.json")
    assert "vllm.log: the engine's own report of its workers" in (job / "r.json").read_text()
    shutil.move(job / "nodes", job / "moved")
    code, found, _ = checked(capfd, "r.html", "moved")
    assert (code, "verdict is again fail" in found) == (0, True), found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--since", "old.json"),
        ("--record", "run.yaml"),
        ("--fail-on", "x"),
        ("--min-basis", "x"),
        ("at", "x"),
    ],
)
def test_options_that_no_run_can_have_had_are_no_bug_of_the_check(
    job: Path, capfd: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    kept("--json", "r.json")
    document = json.loads((job / "r.json").read_text())
    document["audit"]["options"].append({"name": name, "value": value, "source": "command line"})
    document |= {"at": value} if name == "at" else {}
    (job / "r.json").write_text(json.dumps(document, indent=2) + "\n")
    code, found, _ = checked(capfd, "r.json", "nodes")
    assert (code, "verdict was not run again" in found) == (3, True)


def test_what_cannot_be_used_is_exit_2_in_one_sentence(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (job / "page.html").write_text("<!DOCTYPE html>\n")
    for file in ("page.html", "plan.yaml", "nodes/0.jsonl", "nothing.html", "nodes"):
        for command in ("check", "show"):
            assert run(["report", command, file]) == 2
            assert len(capfd.readouterr().err.splitlines()) == 1
    kept()
    capfd.readouterr()
    assert run(["report", "check", "r.html", "-"]) == 2
    assert "give files" in capfd.readouterr().err
