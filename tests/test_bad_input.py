"""Input that cannot be used: exit 2 and one sentence that names the file, and never a traceback."""

from __future__ import annotations

import copy
import gzip
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from evidence import PLAN, PLAN_OF_ONE, TOPOLOGY, snapshot, stream
from hypothesis import given, settings
from hypothesis import strategies as st
from real import require
from shell import COMMAND, Ran, topocheck

from topocheck.answer import Declared
from topocheck.checklist import Gate
from topocheck.cli.verify import check
from topocheck.errors import TopocheckError
from topocheck.gather.files import arguments, gather
from topocheck.inventory import Inventory
from topocheck.planfile import parse_plan
from topocheck.report import Report

NOBODY = 65534
AS_NOBODY = f"""
import os
import encodings.utf_8_sig, networkx, topocheck.cli.verify
import topocheck.probes.capture.recognise, topocheck.render.json_report, topocheck.render.terminal
from topocheck.cli.main import main
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
main()
"""
"""The whole command is imported first: nobody may be unable to read the place where it is installed."""

SPREAD = json.dumps(snapshot(0), indent=2).replace('"nvml": 2', '"nvml": 2 2')
SPREAD_LINE = SPREAD[: SPREAD.index("2 2")].count("\n") + 1
TWO = stream(snapshot(0), snapshot(1))
PACKED = gzip.compress(TWO.encode(), mtime=0)


def broken(data: bytes, place: int) -> bytes:
    """The same bytes with some in the middle inverted."""
    return data[:place] + bytes(byte ^ 0xFF for byte in data[place : place + 8]) + data[place + 8 :]


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "rubbish": (b"once upon a time\nthere was a log\n", "holds nothing that topocheck recognises"),
    "empty": (b"", "is empty"),
    "blank": (b"\n  \n\t\n", "is empty"),
    "binary": (b"ELF\n\n" + bytes(range(256)), "is not text"),
    "cut gzip": (PACKED[:-100], "cannot be read: Compressed file ended"),
    "damaged gzip": (broken(PACKED, len(PACKED) // 2), "cannot be read"),
    "a gzip of nothing": (gzip.compress(b""), "is empty"),
    "newer schema": (
        stream(snapshot(0, schema="topocheck.snapshot/9")).encode(),
        ":1: has schema 'topocheck.snapshot/9', this version reads topocheck.snapshot/1",
    ),
    "first line cut": (stream(snapshot(0)).encode()[:-200], ":1: is not JSON"),
    "damaged over several lines": (SPREAD.encode(), f":{SPREAD_LINE}: is not JSON"),
    "wrong type": (
        stream(snapshot(0), snapshot(1, ranks=[{"rank": "three"}])).encode(),
        ":2: expected `int`, got `str` - at `$.ranks[0].rank`",
    ),
    "no identity": (b'{"schema": "topocheck.snapshot/1"}\n', ":1: "),
    "no such GPU": (
        stream(snapshot(0, ranks=[{"rank": 0, "gpu": 4}])).encode(),
        ":1: rank 0 uses GPU ordinal 4 and identity.gpus lists 4",
    ),
    "state of no such GPU": (
        stream(snapshot(0, state={"gpus": [{"gpu": 9}]})).encode(),
        ":1: state uses GPU ordinal 9 and identity.gpus lists 4",
    ),
    "addresses of other network devices": (
        stream(
            snapshot(0),
            snapshot(1, network={"netdevs": [{"name": "lo"}]}, state={"addresses": [None, ["10.0.0.1/8"]]}),
        ).encode(),
        ": document 2: hardware, environment or network: `state.addresses` lists 2 and `network.netdevs` 1",
    ),
    "addresses without network devices": (
        stream(snapshot(0, state={"addresses": [None]})).encode(),
        "`state.addresses` lists 1 and `network.netdevs` 0",
    ),
    "network of another form": (
        stream(snapshot(0, network={"netdevs": [{"name": 7}]})).encode(),
        "network: Expected `str`, got `int` - at `$.netdevs[0].name`",
    ),
    "fabric of no such GPU": (
        stream(snapshot(0, fabric=[{"gpus": [-1]}])).encode(),
        ":1: fabric uses GPU ordinal -1 and identity.gpus lists 4",
    ),
}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan that is right."""
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "plan.yaml").write_text(PLAN)
        yield folder


def refused(ran: Ran, *words: str) -> None:
    """The run ended with exit 2 and one sentence on stderr that holds these words."""
    assert ran.code == 2, ran
    assert ran.out == ""
    assert ran.err.startswith("topocheck: ")
    assert ran.err.count("\n") == 1, ran.err
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err


@pytest.mark.parametrize(("data", "problem"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_file_is_named_with_what_is_wrong(
    tmp_path: Path, plan: Path, data: bytes, problem: str
) -> None:
    bad = tmp_path / "evidence.bin"
    bad.write_bytes(data)
    refused(topocheck("verify", "--plan", plan, bad), f"{bad}", problem)


def test_a_bad_file_among_good_ones_is_not_left_out(tmp_path: Path, plan: Path) -> None:
    (tmp_path / "good.jsonl").write_text(TWO)
    (tmp_path / "odd.txt").write_text("hello\n")
    refused(topocheck("verify", "--plan", plan, tmp_path / "good.jsonl", tmp_path / "odd.txt"), "odd.txt")


def test_a_missing_file_is_named_as_the_user_gave_it(tmp_path: Path, plan: Path) -> None:
    refused(topocheck("verify", "--plan", plan, "no.txt", cwd=tmp_path), "topocheck: no.txt: no such file")
    refused(topocheck("verify", "--plan", plan, "node-a=no.txt", cwd=tmp_path), "no.txt: no such file")


def test_a_folder_without_a_file_is_no_evidence(tmp_path: Path, plan: Path) -> None:
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures" / ".hidden").write_text(TOPOLOGY)
    refused(topocheck("verify", "--plan", plan, tmp_path / "captures"), "captures: the folder is empty")


def denied(*arguments: str | Path) -> Ran:
    """Run topocheck as a user whom file modes bind."""
    command = (*COMMAND[:-1], AS_NOBODY) if os.getuid() == 0 else COMMAND
    return topocheck(*arguments, command=command)


@pytest.mark.parametrize("closed", ["captures", "captures/rack-1", "captures/rack-1/topo.txt"])
def test_what_may_not_be_read_is_an_error_and_no_hole(open_folder: Path, closed: str) -> None:
    rack = open_folder / "captures" / "rack-1"
    rack.mkdir(parents=True)
    (rack / "topo.txt").write_text(TOPOLOGY)
    (open_folder / "captures" / "other.txt").write_text(TOPOLOGY)
    (open_folder / closed).chmod(0)
    try:
        ran = denied("verify", "--plan", open_folder / "plan.yaml", open_folder / "captures")
    finally:
        (open_folder / closed).chmod(stat.S_IRWXU)
    refused(ran, f"{open_folder / closed}: cannot be read: Permission denied")


BAD_PLANS: dict[str, tuple[bytes, str]] = {
    "misspelt key": (
        b"engine: vllm\nparallel: {tensr: 4, pipeline: 2}\nnodes: 2\n",
        ":2: unknown key 'tensr' in parallel: did you mean 'tensor'?",
    ),
    "unknown engine": (b"engine: vlm\nparallel: {tensor: 4}\nnodes: 1\n", ":1: "),
    "empty": (b"", ": is empty"),
    "not YAML": (b"engine: vllm\n\tparallel: 4\n", ":2: is not valid YAML"),
    "not text": (b"\xff\xfe\x00engine", ":1: is not UTF-8 text"),
    "a report": (b'{"schema": "topocheck.report/1"}', ":1: unknown key 'schema'"),
}


@pytest.mark.parametrize(("text", "problem"), BAD_PLANS.values(), ids=BAD_PLANS.keys())
def test_a_bad_plan_is_refused_with_its_line(tmp_path: Path, text: bytes, problem: str) -> None:
    (tmp_path / "plan.yaml").write_bytes(text)
    (tmp_path / "nodes.jsonl").write_text(TWO)
    ran = topocheck("verify", "--plan", "plan.yaml", "nodes.jsonl", cwd=tmp_path)
    refused(ran, f"topocheck: plan.yaml{problem}")


def test_a_plan_that_is_missing_or_a_folder_is_refused(tmp_path: Path) -> None:
    refused(topocheck("verify", "--plan", "no.yaml", cwd=tmp_path), "no.yaml: cannot be read")
    refused(topocheck("verify", "--plan", ".", cwd=tmp_path), ".: cannot be read")


def test_standard_input_is_read_once(tmp_path: Path, plan: Path) -> None:
    refused(topocheck("verify", "--plan", plan, "-", "node-b=-", stdin=TOPOLOGY), "given twice")
    refused(topocheck("verify", "--plan", "-", "-", stdin=PLAN), "either the plan or evidence")


def test_standard_input_that_is_closed_or_empty_is_no_evidence(plan: Path) -> None:
    refused(topocheck("verify", "--plan", plan, "-"), "-: is empty")
    closed = ("sh", "-c", 'exec "$@" <&-', "sh", *COMMAND)
    refused(topocheck("verify", "--plan", plan, "-", command=closed), "-: is empty")


@pytest.mark.parametrize(
    ("place", "problem"),
    [("nowhere/report.json", "No such file or directory"), (".", "Is a directory"), ("", "Is a directory")],
)
def test_an_output_that_cannot_be_written_is_named(
    tmp_path: Path, plan: Path, place: str, problem: str
) -> None:
    (tmp_path / "nodes.jsonl").write_text(TWO)
    ran = topocheck("verify", "--plan", plan, "--json", place, "nodes.jsonl", cwd=tmp_path)
    refused(ran, f"{place or '.'}: cannot be written: {problem}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nodes.jsonl", "plan.yaml"]


def test_an_output_in_a_folder_of_somebody_else_is_named(open_folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("every file here belongs to the user who runs the tests: only root can become another")
    (open_folder / "nodes.jsonl").write_text(TWO)
    for file in open_folder.iterdir():
        file.chmod(0o644)
    out = open_folder / "report.json"
    ran = denied("verify", "--plan", open_folder / "plan.yaml", "--json", out, open_folder / "nodes.jsonl")
    refused(ran, f"{out}: cannot be written: Permission denied")


def test_two_outputs_to_one_place_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    ran = topocheck("verify", "--plan", "no.yaml", "--json", "-", "--html", "-", cwd=tmp_path)
    refused(ran, "--json and --html both write to standard output")


def test_standard_output_that_is_full_is_no_verdict(tmp_path: Path, plan: Path) -> None:
    full = ("sh", "-c", 'exec "$@" >/dev/full', "sh", *COMMAND)
    (tmp_path / "nodes.jsonl").write_text(TWO)
    ran = topocheck("verify", "--plan", plan, tmp_path / "nodes.jsonl", command=full)
    refused(ran, "standard output cannot be written: No space left on device")


@pytest.mark.parametrize(
    "time", ["yesterday", "2026-01-31T12:00:00", "0001-01-01T00:00:00+23:00", "\x1b[31m"]
)
def test_a_time_that_is_none_is_refused(plan: Path, time: str) -> None:
    ran = topocheck("verify", "--plan", plan, "--at", time)
    refused(ran, "--at ")
    assert "\x1b" not in ran.err


def test_verify_without_a_plan_says_what_a_plan_is(tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(TOPOLOGY)
    refused(topocheck("verify", tmp_path / "topo.txt"), "needs a plan", "engine: vllm")


@pytest.mark.parametrize("words", [["verify", "--plam", "x"], ["verfy"], ["verify", "--fail-on", "never"]])
def test_a_misspelt_command_or_option_is_usage(words: list[str]) -> None:
    ran = topocheck(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.last
    assert "Traceback" not in ran.err


def test_a_file_name_cannot_write_to_the_terminal(tmp_path: Path, plan: Path) -> None:
    ran = topocheck("verify", "--plan", plan, "no\x1b]0;owned\x07\u202e.txt", cwd=tmp_path)
    refused(ran, "no such file")
    assert not set(ran.err) & set("\x1b\x07\u202e")


def test_a_file_name_that_is_not_text_is_shown_with_escapes(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN_OF_ONE)
    (tmp_path / os.fsdecode(b"t\xff.txt")).write_text(TOPOLOGY)
    name = os.fsdecode(b"t\xff.txt")
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", name, cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["inputs"][0]["name"] == r"t\xff.txt"


def test_a_log_of_fifty_megabytes_gives_what_lies_in_it(tmp_path: Path) -> None:
    foreign = "2026-01-31 12:00:00 INFO trainer step=%d loss=2.5 tokens=4096 lr=1e-4 [rank 3] ok\n" * 1000
    nccl = "node-q:4242:4242 [{0}] NCCL INFO comm 0x55d0 rank {0} nRanks 4 nNodes 1 localRanks 4\n"
    with (tmp_path / "job.log").open("w") as log:
        for rank in range(4):
            log.write(foreign * (50_000_000 // len(foreign) // 4 + 1))
            log.write(nccl.format(rank))
    assert (tmp_path / "job.log").stat().st_size > 50_000_000
    (tmp_path / "plan.yaml").write_text(PLAN_OF_ONE)
    ran = topocheck("verify", "--plan", "plan.yaml", "--json", "-", "job.log", cwd=tmp_path)
    assert ran.code in {0, 1, 3}, ran.err
    assert json.loads(ran.out)["inputs"][0]["hosts"] == ["node-q"]


def packed_with_zstd(text: str) -> bytes:
    """Text packed as two frames, as `cat a.zst b.zst` leaves it."""
    require("zstandard")
    import zstandard  # noqa: PLC0415 - an extra

    half = text.index("\n") + 1
    pack: Callable[[bytes], bytes] = zstandard.ZstdCompressor().compress
    return pack(text[:half].encode()) + pack(text[half:].encode())


def test_frames_of_zstd_are_read_to_the_last(tmp_path: Path, plan: Path) -> None:
    (tmp_path / "nodes.zst").write_bytes(packed_with_zstd(TWO))
    ran = topocheck("verify", "--plan", plan, tmp_path / "nodes.zst")
    assert ran.code == 0, ran.err


def test_a_cut_frame_of_zstd_is_an_error_and_no_end(tmp_path: Path, plan: Path) -> None:
    (tmp_path / "nodes.zst").write_bytes(packed_with_zstd(TWO)[:-5])
    refused(topocheck("verify", "--plan", plan, tmp_path / "nodes.zst"), "nodes.zst", "cannot be read")


HOSTILE = st.sampled_from(
    [None, True, -1, 0, 3, 2**31, 2**63, 1e308, "", "x", "\x1b[31m", "\u202e", "NV4", "GPU-" + "0" * 36]
) | st.sampled_from([[], {}, [None], {"a": 1}, "y" * 300])


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Path of every value in a document."""
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    found = []
    for key, value in inner:
        found.append((*path, key))
        if isinstance(value, (dict, list)):
            found += places(value, (*path, key))
    return found


NETWORKED = snapshot(
    0,
    network={
        "nics": [
            {
                "nic": nic,
                "ports": [
                    {
                        "sm_lid": 0,
                        "has_lid": False,
                        "gids": [{"index": 3, "family": "ipv4", "type": "RoCE v2", "netdev": "eth0"}],
                    }
                ],
            }
            for nic in range(2)
        ],
        "netdevs": [
            {"name": "lo", "kind": "loopback", "state": "unknown"},
            {"name": "eth0", "kind": "physical", "layer": "ethernet", "state": "up", "mtu": 1500},
        ],
    },
    state={
        "gpus": [{"gpu": 0, "memory_used_bytes": 0, "processes": []}],
        "ports": [
            {"nic": nic, "lid": 0, "gids": [f"0000:0000:0000:0000:0000:ffff:0a00:0{nic}01"]}
            for nic in range(2)
        ],
        "addresses": [["127.0.0.1/8"], ["10.0.0.1/16"]],
        "clock": {"synchronised": True, "error_seconds": 1e-05},
    },
)
"""A node that shows its ports and network devices as well."""
PLACES = places(NETWORKED)
Answer = TypeVar("Answer")


def tried(read: Callable[[], Answer], file: Path) -> Answer | None:
    """The answer, or None where the file was refused in a sentence that names it."""
    try:
        return read()
    except TopocheckError as error:
        refusal = error
    assert refusal.exit_code == 2
    assert str(file) in str(refusal)
    return None


def verified(file: Path) -> Report:
    """The report over one file and the plan of two nodes."""
    return check(
        Declared(parse_plan(PLAN, "plan.yaml")),
        [str(file)],
        Gate("error", "predicted", exit_zero=False),
        at="2026-01-31T12:00:00Z",
        whole=True,
        digests=True,
    )


def changed(changes: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    """The first node with some values replaced, inner ones first."""
    document = copy.deepcopy(NETWORKED)
    for path, value in sorted(changes.items(), key=lambda change: -len(change[0])):
        inner: Any = document
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
    return document


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(PLACES), HOSTILE, max_size=3))
def test_any_value_anywhere_in_a_snapshot_gives_a_report_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[tuple[Any, ...], Any]
) -> None:
    file = tmp_path_factory.getbasetemp() / "changed.jsonl"
    file.write_text(stream(changed(changes), snapshot(1)))
    report = tried(lambda: verified(file), file)
    if report is not None:
        assert [rule.id for rule in report.rules if rule.verdict == "error"] == []


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(TWO)), st.integers(0, 40), st.booleans())
def test_any_bytes_are_read_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, extra: bytes, place: int, gone: int, packed: bool
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    whole = PACKED if packed else TWO.encode()
    place = min(place, len(whole))
    file.write_bytes(whole[:place] + extra + whole[place + gone :])
    found = tried(lambda: gather(arguments([str(file)]), Inventory()), file)
    assert found is None or len(found) == 1
