"""Whose output a part of a text is."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topocheck.probes.capture.prompt import host_before, section_at, sections
from topocheck.probes.capture.reading import Text


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("root@gpu-17:/work# nvidia-smi topo -m", "gpu-17"),
        ("[root@gpu-17 ~]# nvidia-smi", "gpu-17"),
        ("(base) user@gpu-17:~/a b$ ls", "gpu-17"),
        ("user@gpu-17$", "gpu-17"),
        ("gpu-17:~ # nvidia-smi", "gpu-17"),
        ("kubectl exec -it pod-3 -n ml -- nvidia-smi", "pod-3"),
        ("$ kubectl -n ml exec -c main pod/pod-3 -- nvidia-smi", "pod-3"),
        ("root@login:~# kubectl exec deploy/trainer -- nvidia-smi", None),
        ("~$ srun -p batch -w node1 -n 2 nvidia-smi -L", "node1"),
        ("root@login:~# srun --nodelist=node1 nvidia-smi", "node1"),
        ("root@login:~# srun --nodelist node[1-2] nvidia-smi", None),
        ("root@login:~# srun -N2 nvidia-smi", None),
        ("root@login:~# srun nvidia-smi -w node1", None),
        ("root@login:~# ssh -p 2222 admin@gpu-4 nvidia-smi", "gpu-4"),
        ("root@login:~# sudo LANG=C ssh gpu-4 'nvidia-smi", "gpu-4"),
        ("root@login:~# mpirun -H gpu-1,gpu-2 nvidia-smi", None),
        ("root@login:~# docker exec box nvidia-smi", "login"),
        ("$ nvidia-smi topo -m", None),
        ("(env) ➜  ~ nvidia-smi topo -m", None),
        ("# nvidia-smi", None),
        ("nvidia-smi nvlink -s", None),
        ("==> gpu-1.txt <==", None),
    ],
)
def test_a_prompt_or_command_names_the_host_of_what_follows(line: str, host: str | None) -> None:
    text = Text("x", ("root@before:~# ls", "some output", line, "", "GPU0"))
    assert host_before(text, 2) == "before"
    assert host_before(text, 5) == host


@pytest.mark.parametrize(
    "line",
    [
        "gpu-17:12:34 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "[1,4]<stdout>:gpu-17:12:34 NCCL INFO x",
        "root@10.0.0.7's password:",
        "# Rank  0 Group  0 Pid  12 on gpu-17",
        "nvidia-smi: command not found",
        "ssh works only after the keys are copied",
        "80% of the memory is used",
        "GPU0     X      NV4",
        "",
    ],
)
def test_other_lines_do_not_end_a_section(line: str) -> None:
    assert host_before(Text("x", ("root@before:~# ls", line, "GPU0")), 3) == "before"


def test_sections_reach_from_their_command_to_the_next_prompt_or_the_end() -> None:
    text = Text("x", ("head", "root@a:~# nvidia-smi -L", "GPU 0", "GPU 1", "root@a:~#", "$ ls", "x"))
    parts = sections(text)
    assert [(part.start, part.end, part.command, part.host) for part in parts] == [
        (1, 1, None, None),
        (3, 4, "nvidia-smi -L", "a"),
        (6, 5, None, "a"),
        (7, 7, "ls", None),
    ]
    assert [section_at(parts, line).start for line in range(1, 8)] == [1, 3, 3, 3, 6, 7, 7]


def test_a_command_with_a_selection_does_not_list_all() -> None:
    commands = [
        "nvidia-smi -L",
        "nvidia-smi -L | tee out",
        "nvidia-smi -L | head -2",
        "nvidia-smi -L -i 0",
        "ls",
    ]
    found = [sections(Text("x", (f"$ {command}", "y")))[1].lists_all("nvidia-smi") for command in commands]
    assert found == [True, True, False, False, False]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=60), max_size=8))
def test_any_text_falls_into_sections_that_cover_it(lines: list[str]) -> None:
    text = Text("x", tuple(lines))
    parts = sections(text)
    assert parts[0].start == 1
    assert parts[-1].end == len(lines)
    for line in range(1, len(lines) + 1):
        part = section_at(parts, line)
        assert part.start - 1 <= line <= part.end
        host_before(text, line)
