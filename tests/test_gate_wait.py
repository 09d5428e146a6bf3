"""How a gate waits: what it shows meanwhile, and how it ends when it is told to."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from gate_node import view, waiting
from shell import COMMAND

from topocheck.gate import pass_gate
from topocheck.gather.folder_store import FolderStore
from topocheck.gather.seal import sealed

WAITS_S = 60


def started(folder: Path, stderr: int, *, timeout_s: int = WAITS_S, **env: str) -> subprocess.Popen[bytes]:
    """A gate of two that waits for the other."""
    (folder / "plan.yaml").write_text("engine: megatron\nparallel: {tensor: 1, pipeline: 2}\nnodes: 2\n")
    (folder / "store").mkdir()
    asked = ["--store", f"file:{folder}/store", "--run-id", "try-1", "--timeout", str(timeout_s)]
    return subprocess.Popen(
        [*COMMAND, "gate", "--plan", str(folder / "plan.yaml"), *asked],
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={"PATH": "/usr/bin:/bin", **env},
        preexec_fn=heeding_ctrl_c,  # noqa: PLW1509 - nothing here starts threads
    )


def heeding_ctrl_c() -> None:
    """A shell starts what runs in the background with SIGINT ignored, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds, and fail if it never does."""
    for _ in range(WAITS_S * 20):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it never came to that")


def entries(folder: Path) -> list[Path]:
    """Entries that are there."""
    return list((folder / "store").glob("try-1/entries/*.json.gz"))


def test_sigterm_ends_a_gate_by_the_signal_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    gate = started(tmp_path, subprocess.PIPE)
    until(lambda: bool(entries(tmp_path)))
    gate.terminate()
    _, said = gate.communicate(timeout=WAITS_S)
    assert gate.returncode == -signal.SIGTERM
    assert said.decode().splitlines()[-1] == "topocheck gate: ended by SIGTERM: no verdict"
    left = [path for path in (tmp_path / "store" / "try-1").rglob("*") if path.is_file()]
    assert left == entries(tmp_path)
    FolderStore(tmp_path / "store", "try-1").entry(left[0].name.removesuffix(".json.gz"))


def test_sigterm_does_not_start_the_command(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("engine: megatron\nparallel: {tensor: 1, pipeline: 2}\nnodes: 2\n")
    (tmp_path / "store").mkdir()
    asked = ["--plan", str(tmp_path / "plan.yaml"), "--store", f"file:{tmp_path}/store", "--run-id", "try-1"]
    words = [*COMMAND, "run", *asked, "--on-fail", "warn", "--", "touch", str(tmp_path / "started")]
    run = subprocess.Popen(words, env={"PATH": "/usr/bin:/bin"})
    until(lambda: bool(entries(tmp_path)))
    run.terminate()
    assert run.wait(WAITS_S) == -signal.SIGTERM
    assert not (tmp_path / "started").exists()


def test_an_interrupted_gate_ends_with_130(tmp_path: Path) -> None:
    gate = started(tmp_path, subprocess.PIPE)
    until(lambda: bool(entries(tmp_path)))
    gate.send_signal(signal.SIGINT)
    _, said = gate.communicate(timeout=WAITS_S)
    assert gate.returncode == 130
    assert said.decode().splitlines()[-1] == "topocheck: interrupted: no verdict"


def read_all(descriptor: int, gate: subprocess.Popen[bytes]) -> str:
    """What was written to a terminal until the gate ended."""
    text = b""
    while True:
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        if ready:
            try:
                text += os.read(descriptor, 65536)
            except OSError:  # the other end is closed
                return text.decode()
        elif gate.poll() is not None:
            return text.decode()


def test_on_a_terminal_one_line_is_written_anew_and_cleared(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    gate = started(tmp_path, theirs, timeout_s=4, TERM="xterm", COLUMNS="200")
    os.close(theirs)
    text = read_all(ours, gate)
    os.close(ours)
    assert gate.wait() == 3
    shown, last = text.rstrip("\r\n").rsplit("\r\x1b[K", 1)
    assert last.startswith("topocheck gate: UNDECIDED: ")
    lines = shown.split("\r\x1b[K")[1:]
    assert len(lines) >= 2
    assert all(re.match(r"topocheck gate: waiting for 1 of 2 nodes; [0-4] s left$", line) for line in lines)
    assert "\n" not in shown


def test_elsewhere_nothing_moves_and_a_short_wait_is_silent(tmp_path: Path) -> None:
    gate = started(tmp_path, subprocess.PIPE, timeout_s=3)
    _, said = gate.communicate(timeout=WAITS_S)
    (line,) = said.decode().splitlines()
    assert line.startswith("topocheck gate: UNDECIDED: ")
    assert "\x1b" not in line


def test_a_line_of_progress_comes_each_time_that_is_asked_for(tmp_path: Path) -> None:
    lines: list[str] = []
    shown = view("r1", 0, 2)
    fields = {name: getattr(waiting("r1", 0, 2, 2), name) for name in waiting("r1", 0, 2, 2).__slots__}
    asked = type(waiting("r1", 0, 2, 2))(
        **fields | {"tell": lines.append, "tell_every_s": 0.5, "names": ("node-0", "node-1")}
    )
    pass_gate(FolderStore(tmp_path, "r1"), sealed(msgspec.json.encode(shown), shown.token or ""), asked)
    assert 1 <= len(lines) <= 4
    assert all(line.startswith("waiting for 1 of 2 nodes: node-1; ") for line in lines)
