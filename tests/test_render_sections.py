"""The report's sections on hardware, pipeline, record and audit: what they say is what is known."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample_report
from hypothesis import given, settings
from hypothesis import strategies as st
from report_sections import many_shapes, measured, pipelined, read_report, spoiled, worked
from shell import topocheck

from topocheck.demo.scenario import SCENARIOS
from topocheck.plan import Policy
from topocheck.record import NOT_MEASURED, fields
from topocheck.render import html
from topocheck.render.acceptance import GROUPS, record_view
from topocheck.render.audit import _OWN, JUDGED_BY, all_inputs
from topocheck.render.sectionwords import SECTION_WORDS
from topocheck.render.shapes import MOST_SHAPES, shapes_view
from topocheck.render.stages import MOST_BLOCKS, pipeline_view
from topocheck.render.words import WORDS
from topocheck.report import Report
from topocheck.rulebook import in_force

CASES = Path(__file__).resolve().parents[2] / "shared" / "data" / "cases"


class Sections(HTMLParser):
    """Words of each section by its heading's id, tables, headings and cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: dict[str, list[str]] = {}
        self.cells: dict[str, list[tuple[str, str]]] = {}
        self.headings: list[int] = []
        self.heads: list[dict[str, str | None]] = []
        self.tables = 0
        self.regions: list[bool] = []
        self._open: list[str] = []
        self._section = ""
        self._regions = 0
        self._divs: list[bool] = []
        self._cell: str | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "section":
            self._section = given.get("aria-labelledby") or ""
        if tag == "div":
            self._divs.append(given.get("role") == "region" and given.get("tabindex") == "0")
        if tag == "table":
            self.tables += 1
            self.regions.append(any(self._divs))
        if tag == "th":
            self.heads.append(given)
        if tag in {"h1", "h2", "h3", "h4"}:
            self.headings.append(int(tag[1]))
        self._cell = (given.get("class") or "") if tag in {"td", "dt"} else self._cell

    def handle_endtag(self, tag: str) -> None:
        if tag == "section":
            self._section = ""
        if tag == "div":
            self._divs.pop()
        if tag in {"td", "dt"}:
            self._cell = None

    def handle_data(self, data: str) -> None:
        self.words.setdefault(self._section, []).append(data)
        if self._cell is not None:
            self.cells.setdefault(self._section, []).append((data, self._cell))

    def text(self, section: str) -> str:
        """Words of a section on one line."""
        return " ".join(" ".join(self.words.get(section, [])).split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Report, str]]:
    """Folder, report and page of every made job."""
    found = {}
    for scenario in SCENARIOS:
        folder = tmp_path_factory.mktemp(scenario)
        topocheck("demo", scenario, "-o", "job", "--html", "report.html", "--json", "report.json", cwd=folder)
        report = msgspec.json.decode((folder / "report.json").read_bytes(), type=Report)
        found[scenario] = folder, report, (folder / "report.html").read_text(encoding="utf-8")
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_made_job_has_all_sections_in_a_sound_page(
    made: dict[str, tuple[Path, Report, str]], scenario: str
) -> None:
    _, report, page = made[scenario]
    shown = Sections(page)
    assert {"hardware", "pipeline", "record", "audit"} <= set(shown.words)
    assert all(
        follow <= before + 1 for before, follow in zip(shown.headings, shown.headings[1:], strict=False)
    )
    assert all(head.get("scope") for head in shown.heads)
    assert html.render(report) == page


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_record_counts_what_is_open_and_names_what_fills_it(
    made: dict[str, tuple[Path, Report, str]], scenario: str
) -> None:
    _, report, page = made[scenario]
    view = record_view(report)
    assert view is not None
    assert report.record is not None
    starts = tuple(start for own in GROUPS.values() for start in own)
    open_fields = [one for one in report.record.missing if one.field.startswith(starts)]
    assert view.total - view.known == len(open_fields)
    text = Sections(page).text("record")
    assert f"{view.known} of {view.total} single fields" in text
    assert all(one.supply in text for one in report.record.missing if one.field != "requests")
    assert "first token (mean)" in text
    assert "After a change" in text


def test_the_record_of_the_page_is_that_of_topocheck_record(
    made: dict[str, tuple[Path, Report, str]],
) -> None:
    folder, report, _ = made["running"]
    ran = topocheck(
        "record",
        "--plan",
        "job/plan.yaml",
        "job/evidence",
        "--from-log",
        "job/evidence/vllm.log",
        "--at",
        report.at,
        "--json",
        cwd=folder,
    )
    assert report.record is not None
    own = msgspec.json.decode(ran.out, type=type(report.record))
    # The page has these elsewhere, and calls the plan so whatever its file.
    beside: dict[str, Any] = {"mapping": (), "inputs": (), "sources": {}, "missing": ()}
    assert fields(msgspec.structs.replace(own, **beside)) == fields(
        msgspec.structs.replace(report.record, **beside)
    )


def test_the_healthy_job_shows_one_shape_with_letters_and_near_nics(
    made: dict[str, tuple[Path, Report, str]],
) -> None:
    shown = Sections(made["healthy"][2])
    text = shown.text("hardware")
    assert "All nodes whose hardware is known have the same." in text
    assert "gpu-a, gpu-b" in text
    cells = shown.cells["hardware"]
    assert cells.count(("NV18", "nv")) == 12 + 1  # the pairs both ways, and the legend
    assert ("PIX", "pix") in cells
    assert ("SYS", "sys first") in cells or ("SYS", "sys") in cells
    assert "mlx5_0 InfiniBand 400 Gb/s ACTIVE" in text
    assert "GPUs 0, 1 (PIX)" in text
    assert "PXB" not in text


def test_the_odd_node_out_says_what_differs(made: dict[str, tuple[Path, Report, str]]) -> None:
    _, report, page = made["nvlink-missing"]
    assert report.placement is not None
    assert [shape.usual for shape in report.placement.shapes] == [False, False]
    text = Sections(page).text("hardware")
    assert "No shape is that of more than half of the nodes" in text
    assert "GPU 2 with 12 active NVLinks, not 18" in text
    assert "GPU 2 to 3 others over NV12, not NV18" in text
    assert ("NV12", "nv differs") in Sections(page).cells["hardware"]


def test_a_node_that_never_reported_has_no_shape(made: dict[str, tuple[Path, Report, str]]) -> None:
    shown = Sections(made["missing-node"][2])
    assert "Of 1 node nothing shows the hardware." in shown.text("hardware")
    assert "8 ranks: the node of" in shown.text("record")


def test_what_thin_evidence_does_not_show_is_a_question_mark(
    made: dict[str, tuple[Path, Report, str]],
) -> None:
    shown = Sections(made["thin-evidence"][2])
    assert ("?", "open") in shown.cells["hardware"]
    assert "RDMA devices: none known." in shown.text("hardware")
    assert "NV18" not in shown.text("hardware")


def test_the_transport_that_was_seen_is_in_the_record(made: dict[str, tuple[Path, Report, str]]) -> None:
    assert "links between stages NET/IB with GPUDirect RDMA log of the job" in Sections(
        made["running"][2]
    ).text("record")
    assert "links between stages NET/Socket log of the job" in Sections(made["sockets"][2]).text("record")


def test_the_audit_has_the_digests_of_plan_and_inputs(made: dict[str, tuple[Path, Report, str]]) -> None:
    folder, report, page = made["running"]
    assert report.audit is not None
    text = Sections(page).text("audit")
    plan = hashlib.sha256((folder / "job" / "plan.yaml").read_bytes()).hexdigest()
    assert f"job/plan.yaml plan \u2013 sha256:{plan}" in text
    assert report.audit.plan_digest in text
    files_ = sorted((folder / "job" / "evidence").iterdir())
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files_]
    assert all(f"sha256:{digest}" in text for digest in digests)
    names = [one.name for one in report.inputs]
    lines = "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    assert all_inputs(report) == f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    assert all_inputs(report) in text
    assert "2026-01-31T12:00:00Z (given by --at)" in text
    asked = sum(rule.verdict != "deselected" for rule in report.rules)
    assert f"All {asked} {report.counts.passed} {report.counts.failed} {report.counts.unknown}" in text


def test_options_files_policy_and_waivers_stand_with_what_they_decided(tmp_path: Path) -> None:
    plan, evidence = worked(tmp_path / "job")
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "policy: {skip: [ENV007], severity: {PP009: info}}\n"
        "waivers: [{rule: PP010, reason: new switch comes, owner: net, expires: 2026-06-30}]\n"
    )
    report = read_report(plan, evidence, "--policy", str(policy), env={"TOPOCHECK_VERIFY_FAIL_ON": "warning"})
    assert report.audit is not None
    assert [(one.name, one.value, one.source) for one in report.audit.options] == [
        ("--plan", str(plan), "command line"),
        ("--policy", str(policy), "command line"),
        ("--fail-on", "warning", "environment"),
        ("--at", "2026-01-31T12:00:00Z", "command line"),
    ]
    assert [(one.kind, one.digest) for one in report.audit.files] == [
        (kind, f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")
        for kind, path in (("plan", plan), ("policy", policy))
    ]
    text = Sections(html.render(report)).text("audit")
    assert "skip ENV007" in text
    assert "ENV007 deselected" in text
    assert re.search(r"severity PP009 info \S+ PP009 fail", text)
    assert "bubble 0.1 plan PP009 fail" in text
    assert re.search(r"PP010 everything new switch comes net 2026-06-30 \S+ used", text)


def test_the_plan_in_force_has_one_digest_however_its_file_is_written(tmp_path: Path) -> None:
    plan, evidence = worked(tmp_path / "job")
    first = read_report(plan, evidence)
    plan.write_text(f"# the same in other words\n{plan.read_text()}")
    second = read_report(plan, evidence)
    assert first.audit is not None
    assert second.audit is not None
    assert first.audit.plan_digest == second.audit.plan_digest
    assert first.audit.files[0].digest != second.audit.files[0].digest
    plan.write_text(plan.read_text().replace("microbatches: 8", "microbatches: 16"))
    third = read_report(plan, evidence)
    assert third.audit is not None
    assert third.audit.plan_digest != first.audit.plan_digest


def test_every_key_of_a_policy_is_told_what_it_decided() -> None:
    assert set(JUDGED_BY) | set(_OWN) == {*Policy.__struct_fields__, "fail_on"}
    known = {rule.id for rule in in_force()}
    assert {rule for rules in JUDGED_BY.values() for rule in rules} <= known


def test_a_workload_has_its_pictures_with_the_figures_that_the_rules_judge(tmp_path: Path) -> None:
    plan, evidence = worked(tmp_path / "job")
    report = read_report(plan, evidence)
    assert report.pipeline is not None
    assert report.pipeline.lacking == []
    assert report.pipeline.bubble is not None
    assert report.pipeline.bubble.idle == 1 / 9
    assert report.pipeline.balance is not None
    assert [stage.layers for stage in report.pipeline.balance.stages] == [16, 16]
    [crossing] = report.pipeline.boundaries
    prefill, decode = crossing.transfers
    assert prefill.rank_bytes == (2048 * 4096 * 2 * 2 // 4,) * 2
    verdicts = {rule.id: rule.verdict for rule in report.rules}
    assert (verdicts["PP009"], verdicts["PP007"], verdicts["PP010"]) == ("fail", "pass", "fail")
    assert decode.limit_ms is not None
    assert decode.time_ms[0] > decode.limit_ms
    page = html.render(report)
    text = Sections(page).text("pipeline")
    assert "stand idle for 11.1% of their time" in text
    assert "Policy allows only 10.0% (PP009)." in text
    assert "Computed from plan and evidence, not measured" in text
    assert page.count('class="timeline"') == 1
    assert page.count('class="bars"') == 3


def test_stages_that_read_alike_and_hold_unlike_are_not_called_within_the_limit() -> None:
    made = pipelined()
    assert made.balance is not None
    for holds, told in ((0.1, False), (0.5, True)):
        uneven = msgspec.structs.replace(made.balance, imbalance=0.1, holds_imbalance=holds)
        words = pipeline_view(msgspec.structs.replace(made, balance=uneven), None, 0).shares_words
        assert "within the 20.0% that are allowed (PP007)" in words
        assert ("less even: 50.0% by the same measure, more than the 20.0%" in words) is told


def test_kinds_of_boundaries_that_are_left_out_are_counted() -> None:
    report = msgspec.structs.replace(
        sample_report.healthy(), pipeline=msgspec.structs.replace(pipelined(), boundaries_left=5)
    )
    assert "5 more kinds of boundaries were not computed." in Sections(html.render(report)).text("pipeline")


def test_a_plan_without_a_workload_says_what_its_pictures_lack(
    made: dict[str, tuple[Path, Report, str]],
) -> None:
    text = Sections(made["healthy"][2]).text("pipeline")
    assert (
        "bubble: microbatches that are ready at once missing; workload: {microbatches: N} in the plan" in text
    )
    assert "<svg" not in text


@pytest.mark.parametrize(("stages", "count"), [(2, 1_000_000_000), (32, 64), (64, 5), (4000, 3)])
def test_a_picture_is_bounded_whatever_the_sizes(stages: int, count: int) -> None:
    view = pipeline_view(pipelined(stages=stages, microbatches=count), None, 0)
    size = len(view.timeline or "")
    assert size < 200 * (MOST_BLOCKS + 600)
    assert view.cut or size
    assert view.shares is not None
    assert len(view.shares.bars) <= 32
    made = msgspec.structs.replace(
        sample_report.healthy(), pipeline=pipelined(stages=stages, microbatches=count)
    )
    assert len(html.render(made)) < 700_000


def test_fifty_shapes_of_12_500_nodes_are_twelve_tables_and_a_list() -> None:
    report = many_shapes()
    assert report.placement is not None
    view = shapes_view(report.placement, None)
    assert view is not None
    assert (len(view.full), len(view.named), view.left) == (MOST_SHAPES, 38, 0)
    assert view.usual
    assert view.full[0].report.usual
    assert "gpu-0150 to gpu-12499" not in view.full[1].nodes
    assert view.full[0].nodes.endswith("more")
    assert view.full[1].nodes == "gpu-0003"
    shown = Sections(html.render(report)).text("hardware")
    assert "odd shape 49: 1 node: GPU 49 otherwise" in shown
    left = msgspec.structs.replace(report.placement, shapes=report.placement.shapes * 2)
    more = shapes_view(left, None)
    assert more is not None
    assert len(more.named) + more.left == 100 - MOST_SHAPES


def test_nodes_are_named_in_runs_with_their_true_number() -> None:
    made = sample_report.swept(40)
    assert made.placement is not None
    view = shapes_view(made.placement, None)
    assert view is not None
    assert view.full[0].nodes == "gpu-0000 to gpu-0039 (40 in a row)"


def test_a_measured_record_shows_its_values_with_their_sources() -> None:
    report = msgspec.structs.replace(sample_report.healthy(), record=measured())
    text = Sections(html.render(report)).text("record")
    assert "engine what the trace shows what the trace shows" in text
    assert "25.0% (what the trace shows: what the trace shows)" in text
    assert "8 x what the trace shows" in text
    assert "and 12 more" in text
    assert "3 GiB" in text
    assert "0 ms 1.5 ms" in text
    assert "measured gain 1.25" in text
    assert NOT_MEASURED in text


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "</table></section><img src=x onerror='alert(1)'>",
        '"><svg onload=alert(1)>',
        "{{ 7 * 7 }}{% raw %}{count}",
        "\x1b[31m\u202egnp.exe\u2066",
        "A" * 50_000,
    ],
)
def test_hostile_text_stays_text_in_every_section(text: str) -> None:
    calm, page = html.render(spoiled("calm")), html.render(spoiled(text))
    tags = re.compile(r"<[a-z/!][^>]*>")
    names = re.compile(r"<(/?[a-z0-9!]+)")

    def elements(whole: str) -> list[str]:
        body = whole[whole.index("<body") : whole.index('<script type="application/octet-stream"')]
        return [found[1] for tag in tags.findall(body) if (found := names.match(tag))]

    assert elements(page) == elements(calm)
    shown = " ".join(word for words in Sections(page).words.values() for word in words)
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", shown.partition("application")[0])


@given(st.text(st.characters(), max_size=30))
@settings(max_examples=15, deadline=None)
def test_any_text_renders_the_same_twice(text: str) -> None:
    report = spoiled("x" + text)
    assert html.render(report) == html.render(report)


def test_the_words_of_the_sections_hide_no_word_of_the_page() -> None:
    source = files("topocheck.render").joinpath("words.py").read_text(encoding="utf-8")
    assert [name for name in SECTION_WORDS if f'"{name}":' in source] == []
    assert set(SECTION_WORDS) <= set(WORDS)


def test_every_field_of_a_record_has_a_name() -> None:
    starts = tuple(start for own in GROUPS.values() for start in own)
    empty = measured()
    paths = [
        path
        for path in fields(msgspec.structs.replace(empty, utilization=type(empty.utilization)()))
        if path.startswith(starts)
    ]
    assert [path for path in paths if f"field_{path}" not in WORDS] == []


def test_memory_that_the_engine_logged_is_evidence_that_the_stages_fit(tmp_path: Path) -> None:
    plan, evidence = worked(tmp_path / "job", more="model: {layers: 80, hidden: 8192}")
    with (evidence / "vllm.log").open("a") as log:
        for stage in range(2):
            worker = f"(Worker_PP{stage}_TP0 pid={stage}) INFO 01-31 12:00:00 [gpu_model_runner.py:1] "
            log.write(f"{worker}Model loading took 16.25 GiB memory and 9.1 seconds\n")
            log.write(f"{worker}Available KV cache memory: 50.5 GiB\n")
    report = read_report(plan, evidence)
    assert report.record is not None
    assert report.record.model.precision == "bfloat16"
    assert isinstance(report.record.stages, tuple)
    assert [stage.capacity.fits for stage in report.record.stages] == ["yes", "yes"]
    text = Sections(html.render(report)).text("record")
    assert "0..39 embedding 0..3 yes 79.65 GiB 16.25 GiB 50.5 GiB not measured not measured" in text
    assert "vllm.log: the engine's own report of its workers" in text


@pytest.mark.skipif(not CASES.exists(), reason="the collected cases are not here")
@pytest.mark.parametrize(
    ("name", "tensor", "expected"),
    [
        ("C63-nccl2x-h100-2node-ib.log", 8, "links between stages"),
        ("C64-nccl278-v100-2node-socket.log", 4, "links between stages NET/Socket log of the job"),
    ],
)
def test_a_real_two_node_log_fills_what_it_shows_and_no_more(
    tmp_path: Path, name: str, tensor: int, expected: str
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(f"engine: vllm\nparallel: {{tensor: {tensor}, pipeline: 2}}\nnodes: 2\n")
    report = read_report(plan, CASES / name)
    shown = Sections(html.render(report))
    record = shown.text("record")
    assert expected in record
    assert f"{2 * tensor} ranks: the node of {2 * tensor} and the GPU of {2 * tensor} are known" in record
    assert "how the mapping is known observed placement" in record
    assert "Of 2 nodes nothing shows the hardware." in shown.text("hardware")
    assert "not measured" in record
    assert name in shown.text("audit")
    assert all(host in shown.text("audit") for host in ("node-a", "node-b"))
