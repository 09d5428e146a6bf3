"""`topocheck bubble` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from shell import topocheck


def test_four_stages_and_four_microbatches_read_as_the_hand_calculation() -> None:
    ran = topocheck("bubble", "-p", "4", "-m", "4", "-t", "5ms")
    assert ran.code == 0
    assert ran.err == ""
    words = " ".join(ran.out.split())
    for fact in (
        "first result after 20 ms: one forward pass",
        "then every 5 ms",
        "all done after 35 ms (closed form); 80 ms one after the other",
        "slots 28: 16 busy, 12 idle",
        "occupancy 57.1 %",
        "idle 42.9 %, fill and drain",
        "stage 3 ..............................[0>>>>>>>]",
        "not a forecast of the utilisation that nvidia-smi shows",
        "Speculative decoding is outside this model",
    ):
        assert fact in words
    assert max(map(len, ran.out.splitlines())) <= 80


def test_uneven_stages_show_the_interval_and_what_stays_idle() -> None:
    words = " ".join(topocheck("bubble", "--times", "4,11,5", "-m", "6").out.split())
    assert "then every 11 ms, the slowest stage's time, whatever the input" in words
    assert "39.4 % stays with ever more microbatches: the stages are uneven" in words
    assert "slots " not in words


def test_without_a_time_slots_are_counted() -> None:
    words = " ".join(topocheck("bubble", "-p", "4", "-m", "8").out.split())
    assert "all done after 11 slots (closed form); 32 slots one after the other" in words
    assert "idle 27.3 %" in words


def test_a_schedule_of_training_is_compared_with_the_others() -> None:
    ran = topocheck("bubble", "-p", "4", "-m", "8", "-t", "5ms", "--schedule", "1f1b")
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["gpipe", "27.3", "%", "165", "ms", "8", "microbatches"] in rows
    assert ["1f1b", "27.3", "%", "165", "ms", "4", "microbatches"] in rows
    assert ["interleaved,", "2", "virtual", "15.8", "%", "142.5", "ms", "5.5", "microbatches"] in rows


def test_the_backward_factor_counts() -> None:
    ran = topocheck(
        "bubble", "-p", "2", "-m", "2", "-t", "4ms", "--schedule", "gpipe", "--backward", "1.5", "--json"
    )
    assert json.loads(ran.out)["total"] == 30_000_000


def test_several_sizes_give_a_table() -> None:
    ran = topocheck("bubble", "-p", "2,4,8", "-m", "4,8,32")
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["8", "11.1", "27.3", "46.7"] in rows
    assert ["32", "3.0", "8.6", "17.9"] in rows
    cells = json.loads(topocheck("bubble", "-p", "4", "-m", "1..64", "--json").out)["cells"]
    assert [cell["microbatches"] for cell in cells] == list(range(1, 65))
    assert cells[7]["idle"] == pytest.approx(3 / 11)


def test_the_svg_goes_to_a_file_or_to_standard_output(tmp_path: Path) -> None:
    path = tmp_path / "timeline.svg"
    ran = topocheck("bubble", "-p", "4", "-m", "8", "-t", "5ms", "--svg", path)
    assert ran.code == 0
    title = ET.parse(path).find("{http://www.w3.org/2000/svg}title")  # noqa: S314 - our own text
    assert title is not None
    assert title.text == "4 stages, 8 microbatches, 5 ms a stage, forward only"
    assert topocheck("bubble", "-p", "4", "-m", "8", "-t", "5ms", "--svg", "-").out == path.read_text()


def test_stages_come_from_a_plan_and_microbatches_from_a_log(tmp_path: Path) -> None:
    plan, log = tmp_path / "plan.yaml", tmp_path / "run.log"
    plan.write_text("engine: megatron\nparallel: {tensor: 2, pipeline: 4}\nnodes: 1\n")
    log.write_text("hello\nsetting number of microbatches to constant 8\n")
    ran = topocheck("bubble", "--from-plan", plan, "--from-log", log, "--json")
    found = json.loads(ran.out)
    assert (found["stages"], found["microbatches"]) == (4, 8)
    assert found["sources"] == {
        "stages": f"{plan}: parallel.pipeline",
        "microbatches": f"{log}:2: stated by Megatron",
    }


def test_a_plan_that_the_log_contradicts_is_said(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("engine: vllm\nparallel: {pipeline: 4}\nnodes: 1\n")
    command = "vllm serve m --pipeline-parallel-size 2 --ubatch-size 3"
    ran = topocheck("bubble", "--from-plan", plan, "--from-log", "-", "--json", stdin=command)
    found = json.loads(ran.out)
    assert (found["stages"], found["microbatches"]) == (2, 3)
    assert found["notes"] == [f"{plan}: parallel.pipeline says 4 stages"]
    assert "is an assumption" in found["sources"]["microbatches"]


def test_an_option_goes_before_what_was_read() -> None:
    ran = topocheck("bubble", "-m", "4", "--from-log", "-", stdin="--pp-size 2 --ubatch-size 3\n")
    words = " ".join(ran.out.split())
    assert "2 stages, 4 microbatches" in words
    assert "stages by -:1: pp_size" in words
    assert "says 3 microbatches" in words


def test_escapes_of_a_file_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "run\x1b[31m.log"
    log.write_text("--pp-size 2\n")
    ran = topocheck("bubble", "-m", "4", "--from-log", log)
    assert ran.code == 0
    assert "\x1b" not in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the number of stages is not known: give it, for instance -p 4"),
        (["-p", "4"], "the number of microbatches is not known: give it, for instance -m 8"),
        (["-p", "0", "-m", "4"], "--stages must be numbers from 1 to 10,000"),
        (["-p", "-4", "-m", "4"], "--stages must be numbers from 1"),
        (["-p", "4", "-m", "4.5"], "--microbatches must be numbers from 1"),
        (["-p", "", "-m", "4"], "--stages must be numbers from 1"),
        (["-p", "99999999999999", "-m", "4"], "--stages must be numbers from 1 to 10,000"),
        (["-p", "4", "-m", "1..99999999"], "10,000 numbers are the most"),
        (["-p", "4", "-m", "4", "-t", "0"], "expected a time above zero"),
        (["-p", "4", "-m", "4", "-t", "5 parsecs"], "expected a time above zero"),
        (["-p", "4", "-m", "4", "-t", "5", "--times", "5"], "not both"),
        (["--times", "", "-m", "4"], "expected a time above zero"),
        (["--times", "4,5", "-p", "3", "-m", "4"], "--times has 2 times, and --stages is 3"),
        (["-p", "4", "-m", "4", "--backward", "-1"], "--backward must be a number above zero"),
        (["-p", "4", "-m", "4", "--virtual", "2"], "--virtual belongs to interleaved"),
        (["-p", "4", "-m", "9", "--schedule", "interleaved"], "do not divide by 2: give for instance 12"),
        (["-p", "9000", "-m", "9000", "--svg", "-"], "too many to draw"),
        (["-p", "2,4", "-m", "4", "--svg", "-"], "--svg draws one pipeline"),
        (["-p", "4", "-m", "4", "--svg", "-", "--json"], "both write to standard output"),
        (["-p", "4", "-m", "4", "--svg", "/no/such/folder/x.svg"], "cannot be written"),
        (["--from-log", "/no/such/file"], "/no/such/file: cannot be read"),
        (["--from-plan", "-", "--from-log", "-"], "standard input is either the plan or the log"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(arguments: list[str], message: str) -> None:
    ran = topocheck("bubble", *arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert message in ran.last
    assert "Traceback" not in ran.err


def test_sizes_beyond_any_simulation_are_answered_by_the_closed_form() -> None:
    ran = topocheck("bubble", "-p", "10000", "-m", "1000000000", "-t", "5ms", "--schedule", "1f1b")
    assert ran.code == 0
    assert "idle          <0.1 %" in ran.out
    assert "no timeline" in ran.out
