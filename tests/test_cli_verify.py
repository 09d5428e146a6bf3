"""`topocheck verify` as its user meets it: arguments, streams, files and exit codes."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from evidence import PLAN, PLAN_OF_ONE, TOPOLOGY, snapshot, stream
from shell import COMMAND, clean_environment, topocheck

HEALTHY = stream(snapshot(0), snapshot(1))
AT = "2026-01-31T12:00:00Z"
ESCAPE = "\x1b"


def exchanged() -> str:
    """The job with ranks 3 and 4 on each other's node: both TP groups cross."""
    nodes = [snapshot(0), snapshot(1)]
    nodes[0]["ranks"][3]["rank"], nodes[1]["ranks"][0]["rank"] = 4, 3
    return stream(*nodes)


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with a plan and a healthy job; runs inherit it."""
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "one.yaml").write_text(PLAN_OF_ONE)
    (tmp_path / "nodes.jsonl").write_text(HEALTHY)
    (tmp_path / "broken.jsonl").write_text(exchanged())
    (tmp_path / "topo.txt").write_text(TOPOLOGY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_healthy_job_is_a_report_on_stdout_and_one_line_on_stderr() -> None:
    ran = topocheck("verify", "--plan", "plan.yaml", "nodes.jsonl")
    assert ran.code == 0
    assert "8 ranks on 2 nodes" in ran.out
    assert re.fullmatch(r"PASS: .*\n", ran.err)


def test_a_broken_job_shuts_the_gate_and_leads_with_the_sentence_that_matters() -> None:
    ran = topocheck("verify", "--plan", "plan.yaml", "broken.jsonl")
    assert ran.code == 1
    assert ran.out.startswith("FAIL")
    assert ran.last.startswith("FAIL")
    assert "TP001" in ran.out


def test_a_missing_node_leaves_the_gate_undecided(job: Path) -> None:
    (job / "half.jsonl").write_text(stream(snapshot(0)))
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", "half.jsonl")
    assert ran.code == 3
    assert json.loads(ran.out)["exit_reason"] == "nodes_missing"
    assert "9 required rules lack evidence" in ran.last


def test_no_evidence_is_no_pass() -> None:
    ran = topocheck("verify", "--plan", "plan.yaml")
    assert ran.code == 3
    assert "required rules lack evidence" in ran.last


def test_exit_zero_reports_and_opens_the_gate() -> None:
    ran = topocheck("verify", "--plan", "plan.yaml", "--exit-zero", "broken.jsonl")
    assert ran.code == 0
    assert ran.last.startswith("FAIL")


def test_claims_satisfy_a_gate_that_predictions_do_not() -> None:
    basis = ("verify", "--min-basis", "claimed", "--plan")
    assert topocheck(*basis, "plan.yaml", "nodes.jsonl").code == 0
    assert topocheck(*basis, "one.yaml", "topo.txt").code == 3
    assert topocheck("verify", "--plan", "one.yaml", "topo.txt").code == 0


WAYS_IN: dict[str, bytes] = {
    "lines": HEALTHY.encode(),
    "gzip": gzip.compress(HEALTHY.encode()),
    "several gzips": b"".join(gzip.compress(line.encode()) for line in HEALTHY.splitlines(keepends=True)),
    "blank lines": HEALTHY.replace("\n", "\n\n\n").encode(),
    "Windows line ends": HEALTHY.replace("\n", "\r\n").encode(),
    "no last newline": HEALTHY.rstrip().encode(),
    "byte order mark": b"\xef\xbb\xbf" + HEALTHY.encode(),
}


@pytest.mark.parametrize("data", WAYS_IN.values(), ids=WAYS_IN.keys())
def test_a_stream_is_read_however_it_is_written(job: Path, data: bytes) -> None:
    (job / "evidence").write_bytes(data)
    assert topocheck("verify", "--plan", "plan.yaml", "evidence").code == 0
    assert topocheck("verify", "--plan", "plan.yaml", "-", stdin=data).code == 0


def test_pretty_printed_snapshots_are_read_one_a_file(job: Path) -> None:
    for node in range(2):
        (job / f"{node}.json").write_text(json.dumps(snapshot(node), indent=2))
    assert topocheck("verify", "--plan", "plan.yaml", "0.json", "1.json").code == 0


def test_a_folder_is_all_files_below_it(job: Path) -> None:
    (job / "evidence" / "rack").mkdir(parents=True)
    (job / "evidence" / ".git").mkdir()
    (job / "evidence" / ".git" / "config").write_text("no evidence")
    (job / "evidence" / "0.json").write_text(stream(snapshot(0)))
    (job / "evidence" / "rack" / "1.json").write_text(stream(snapshot(1)))
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", "evidence")
    assert ran.code == 0
    names = [given["name"] for given in json.loads(ran.out)["inputs"]]
    assert names == ["evidence/0.json", "evidence/rack/1.json"]


def test_evidence_that_comes_in_small_pieces_is_recognised() -> None:
    slow = (
        "import sys, time\n"
        "for piece in (sys.argv[1][:3], sys.argv[1][3:40], sys.argv[1][40:]):\n"
        "    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.05)\n"
    )
    with subprocess.Popen([sys.executable, "-c", slow, HEALTHY], stdout=subprocess.PIPE) as writer:
        done = subprocess.run(
            [*COMMAND, "verify", "--plan", "plan.yaml", "-"],
            stdin=writer.stdout,
            capture_output=True,
            check=False,
            env=clean_environment(),
        )
    assert done.returncode == 0, done.stderr


def test_the_plan_may_come_from_standard_input() -> None:
    assert topocheck("verify", "--plan", "-", "nodes.jsonl", stdin=PLAN).code == 0


def test_a_label_says_which_node_a_text_is_of() -> None:
    def hosts(*evidence: str, stdin: str = "") -> Any:
        ran = topocheck("verify", "--plan", "one.yaml", "--json", "-", *evidence, stdin=stdin)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["inputs"][0]["hosts"]

    assert hosts("topo.txt") == []
    assert hosts("gpu-17=topo.txt") == ["gpu-17"]
    assert hosts("gpu-17=-", stdin=TOPOLOGY) == ["gpu-17"]


def test_a_file_whose_name_has_an_equals_sign_is_that_file(job: Path) -> None:
    (job / "rack=7.jsonl").write_text(HEALTHY)
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", "rack=7.jsonl")
    assert ran.code == 0
    assert json.loads(ran.out)["inputs"][0]["name"] == "rack=7.jsonl"


def test_json_on_stdout_is_json_alone() -> None:
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", "broken.jsonl")
    report = json.loads(ran.out)
    assert report["schema"] == "topocheck.report/1"
    assert report["exit_code"] == ran.code == 1
    assert ran.err.count("\n") == 1


def test_several_outputs_are_written_at_once(job: Path) -> None:
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "r.json", "--html", "r.html", "broken.jsonl")
    assert ran.code == 1
    assert ran.out.startswith("FAIL")
    assert json.loads((job / "r.json").read_text())["exit_code"] == 1
    assert (job / "r.html").read_text().startswith("<!DOCTYPE html>")


def test_identities_are_asked_for_with_the_page_alone(job: Path) -> None:
    asked = ("verify", "--plan", "plan.yaml", "--html-identities", "broken.jsonl")
    ran = topocheck(*asked)
    assert ran.code == 2
    assert "give --html PATH too" in ran.err
    assert topocheck(*asked, "--html", "r.html").code == 1
    assert (job / "r.html").read_text().startswith("<!DOCTYPE html>")


def test_the_same_input_gives_the_same_bytes() -> None:
    def once() -> str:
        options = ("--at", AT, "--json", "-", "--plan", "plan.yaml")
        return topocheck("verify", *options, "broken.jsonl", "topo.txt", env={"PYTHONHASHSEED": "random"}).out

    assert once() == once()


def test_the_time_given_is_the_time_reported() -> None:
    ran = topocheck("verify", "--at", "2026-01-31T14:00:00+02:00", "--json", "-", "--plan", "plan.yaml")
    assert AT in ran.out


@pytest.mark.parametrize(
    ("options", "variables", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color"], {"NO_COLOR": "1"}, True),
        (["--no-color"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_for_those_who_want_it(
    options: list[str], variables: dict[str, str], *, coloured: bool
) -> None:
    ran = topocheck("verify", "--plan", "plan.yaml", *options, "broken.jsonl", env=variables)
    assert ran.code == 1
    assert (ESCAPE in ran.out) is coloured


@pytest.mark.parametrize("output", [(), ("-v",), ("--json", "-"), ("--html", "-")])
def test_escapes_in_a_host_name_never_reach_the_terminal(job: Path, output: tuple[str, ...]) -> None:
    evil = f"gpu{ESCAPE}[2J{ESCAPE}]0;owned\x07\x9b31m\u202e\u200b7"
    nodes = [snapshot(0, name=evil), snapshot(1)]
    nodes[1]["ranks"] = nodes[0]["ranks"]  # a finding that names both hosts
    (job / "evil.jsonl").write_text(stream(*nodes))
    ran = topocheck("verify", "--plan", "plan.yaml", *output, f"{ESCAPE}[31mlabel=topo.txt", "evil.jsonl")
    assert ran.code in {1, 3}
    assert not set(ran.out + ran.err) & set(f"{ESCAPE}\x07\x9b\u202e\u200b")


def test_a_host_name_that_the_locale_lacks_ends_nothing(job: Path) -> None:
    (job / "names.jsonl").write_text(stream(snapshot(0, name="knoten-ä"), snapshot(1)))
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = topocheck("verify", "--plan", "plan.yaml", "-v", "names.jsonl", env=ascii_only)
    assert ran.code == 0
    assert r"knoten-\xe4" in ran.out
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", "names.jsonl", env=ascii_only)
    assert "knoten-ä" in ran.out


@pytest.mark.parametrize("streams", ["", "2>&1"])
@pytest.mark.parametrize(("evidence", "code"), [("nodes.jsonl", 0), ("broken.jsonl", 1)])
def test_a_reader_that_leaves_changes_no_verdict(streams: str, evidence: str, code: int) -> None:
    script = f'{{ sleep 0.1; "$@" verify -v --plan plan.yaml {evidence} {streams}; echo $? >code; }} | true'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND], capture_output=True, check=True, env=clean_environment()
    )
    assert Path("code").read_text() == f"{code}\n"
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_a_closed_stdout_changes_no_verdict() -> None:
    closed = ("sh", "-c", 'exec "$@" >&-', "sh", *COMMAND)
    ran = topocheck("verify", "--plan", "plan.yaml", "broken.jsonl", command=closed)
    assert ran.code == 1
    assert ran.last.startswith("FAIL")


def test_the_first_line_can_be_taken_with_head() -> None:
    piped = ("sh", "-c", '"$@" | head -1', "sh", *COMMAND)
    ran = topocheck("verify", "--plan", "plan.yaml", "-v", "nodes.jsonl", command=piped)
    assert ran.out.count("\n") == 1
    assert ran.out.startswith("PASS")
    assert re.fullmatch(r"PASS: .*\n", ran.err)


def test_control_c_is_no_verdict() -> None:
    # A shell that starts its children in the background has them ignore the signal: undo that.
    heedful = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from topocheck.cli.main import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", heedful, "verify", "--plan", "plan.yaml", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as running:
        assert running.stdin is not None
        # More than a pipe holds: once it is written, the process is reading.
        running.stdin.write(b"some line of a log\n" * 50_000)
        running.stdin.flush()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == b""
    assert err.decode().strip() == "topocheck: interrupted: no verdict"


def test_a_report_goes_through_a_link_and_into_a_pipe(job: Path) -> None:
    (job / "latest.json").symlink_to("real.json")
    os.mkfifo(job / "pipe")
    # Into a file: a pipe that is read at the end alone holds less than a page.
    with (job / "read.html").open("wb") as read, subprocess.Popen(["cat", "pipe"], stdout=read) as reader:
        command = ("verify", "--plan", "plan.yaml", "--json", "latest.json", "--html", "pipe", "nodes.jsonl")
        assert topocheck(*command).code == 0
        assert reader.wait() == 0
    assert (job / "read.html").read_text().startswith("<!DOCTYPE html>")
    assert (job / "latest.json").is_symlink()
    assert (job / "pipe").is_fifo()
    assert json.loads((job / "real.json").read_text())["exit_code"] == 0


def test_a_report_has_the_modes_that_the_user_asks_for(job: Path) -> None:
    private = ("sh", "-c", 'umask 077; exec "$@"', "sh", *COMMAND)
    topocheck("verify", "--plan", "plan.yaml", "--json", "r.json", "nodes.jsonl", command=private)
    assert (job / "r.json").stat().st_mode & 0o777 == 0o600


def test_an_old_report_is_replaced_and_nothing_is_left_beside_it(job: Path) -> None:
    (job / "r.json").write_text("old")
    topocheck("verify", "--plan", "plan.yaml", "--json", "r.json", "nodes.jsonl")
    assert json.loads((job / "r.json").read_text())["exit_code"] == 0
    assert not list(job.glob(".r.json*"))


def test_a_bug_of_topocheck_is_exit_3_and_one_sentence() -> None:
    broken = (
        sys.executable,
        "-c",
        "import topocheck.answer as v, topocheck.cli.main as m; v.place = None; m.main()",
    )
    ran = topocheck("verify", "--plan", "plan.yaml", "nodes.jsonl", command=broken)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert "internal error" in ran.err
    traced = {"TOPOCHECK_TRACEBACK": "1"}
    ran = topocheck("verify", "--plan", "plan.yaml", "nodes.jsonl", command=broken, env=traced)
    assert "Traceback" in ran.err


def test_help_and_version_need_nothing() -> None:
    assert topocheck("--version").out.startswith("topocheck, version ")
    for words in (["--help"], ["verify", "--help"], ["verify", "-h"]):
        ran = topocheck(*words)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("Usage: ")
