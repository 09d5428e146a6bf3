"""Start-up log of SGLang, 0.4 to 0.5.23: its arguments, and the coordinates in the prefix of each line.

Arguments are what was asked for. A prefix `[2026-01-02 03:04:05 PP1 TP3]` is the coordinate of a scheduler
that runs; an axis stands there only where its size is above 1, in an order that changed between versions.
With attention data parallelism DP lies inside TP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, message, parse_lines
from topocheck.probes.capture.printed_fields import Printed, read_fields
from topocheck.probes.capture.reading import Reading, Text

__all__ = ["AXES", "KIND", "parse"]

KIND = "sglang log"
ENGINE = "sglang"

AXES = {
    "DP": "data",
    "PP": "pipeline",
    "TP": "tensor",
    "EP": "expert",
    "ATTN_CP": "context",
    "MOE_DP": "moe_data",
}
SIZES = {
    "tp_size": "tensor",
    "pp_size": "pipeline",
    "dp_size": "data",
    "ep_size": "expert",
    "attn_dp_size": "attention_data",
    "attn_cp_size": "context",
    "moe_dp_size": "moe_data",
}
OPTIONS = (
    "base_gpu_id",
    "gpu_id_step",
    "max_running_requests",
    "pp_max_micro_batch_size",
    "pp_async_batch_depth",
    "speculative_algorithm",
    "enable_dp_attention",
    "disaggregation_mode",
    "moe_a2a_backend",
    "deepep_mode",
    "watchdog_timeout",
    "chunked_prefill_size",
    "mem_fraction_static",
    "kv_cache_dtype",
    "use_ray",
)
"""Arguments that a rule may look at; they become facts under the flag's own spelling."""

PREFIX = re.compile(
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
    r"(?P<axes>(?: (?:ATTN_CP|MOE_DP|DP|PP|TP|EP)\d{1,6})*)\] "
)
ARGS = re.compile(r"server_args=(?:ServerArgs\(|\{)")
RANK = re.compile(
    r"world_size=(\d{1,9}) rank=(\d{1,9}) local_rank=(\d{1,9}) distributed_init_method=(\S{1,300}) backend="
)
DEVICE = re.compile(r"logical_gpu_id=\d{1,6}, physical_gpu_id=(\d{1,6})")
SPANS = "is disabled because this process group spans across nodes"
GROUPS = re.compile(r"Init (?:torch distributed|parallel) (beg|end)")  # the end of a log may cut the word
LOADED = re.compile(r"Load weight end\b.{0,300}?avail mem=(\d{1,6}(?:\.\d{1,6})?) GB")
TOKENS = re.compile(r"max_total_num_tokens=(\d{1,12}), ")
REPLICA = re.compile(r"Launch DP(\d{1,6}) starting at GPU #(\d{1,6})\b")
SERVER_INFO = re.compile(r"\{.{0,100000}\"dist_init_addr\":.{0,100000}\}")
"""Answer of /server_info, which has the arguments in force and the version."""


LONGEST = 200_000
"""Characters of such an answer."""


def parse(text: Text) -> list[Reading]:
    """Read all lines of SGLang; [] if there are none."""
    evidence = JobEvidence(KIND, text.source, ENGINE)
    names = AXES
    for line in parse_lines(text.lines, ("[20", "server_args=", '"dist_init_addr":')):
        if line.text.startswith("{"):
            server_info(evidence, line)
            continue
        prefix = PREFIX.match(line.text)
        tokens = re.findall(r" ([A-Z_]+)(\d+)", prefix["axes"]) if prefix else []
        axes = {names[token]: int(number) for token, number in tokens}
        evidence.sizes(line, "rank-coordinate", axes.items())
        match = ARGS.search(line.text)
        if match:
            found = arguments(evidence, line, text, match.end())
            requested(evidence, line, found)
            names = {**AXES, "DP": data_axis(found)}
        elif prefix:
            statements(evidence, line, axes)
    if evidence.lines:
        first = min(evidence.lines)
        evidence.fact(Line(first, ""), "engine", ENGINE)
    return evidence.readings()


def arguments(evidence: JobEvidence, line: Line, text: Text, begin: int) -> Printed:
    """The arguments, joined where a terminal broke them; a note if their end is missing."""
    found = read_fields(text.lines, line.number, line.text[begin:], PREFIX.match)
    evidence.lines.update(found.lines)
    if not found.closed:
        evidence.note(line, "cut", "the arguments are cut: what is not shown is not known")
    elif len(found.lines) > 1:
        evidence.note(line, "repaired", f"the arguments are broken over {len(found.lines)} lines: joined")
    return found


def requested(evidence: JobEvidence, line: Line, printed: Printed) -> None:
    """What the user asked for."""
    axes = {**SIZES, "dp_size": data_axis(printed) if "attn_dp_size" not in printed.fields else "data"}
    evidence.sizes(line, "requested-size", [(axis, printed.number(name)) for name, axis in axes.items()])
    for name, kind in (("nnodes", "nodes"), ("node_rank", "node-rank")):
        number = printed.number(name)
        if number is not None:
            evidence.fact(line, kind, number)
    address = printed.fields.get("dist_init_addr", "None")
    if address not in ("None", ""):
        evidence.fact(line, "rendezvous", address, "dist-init")
    for name in OPTIONS:
        if printed.fields.get(name, "None") not in ("None", "False", "null"):
            evidence.fact(line, "option", printed.fields[name], "--" + name.replace("_", "-"))


def data_axis(printed: Printed) -> str:
    """What DP means in prefixes: up to 0.5.10 the flag, later the size, says that it lies inside TP."""
    inside = printed.fields.get("enable_dp_attention") == "True" or (printed.number("attn_dp_size") or 1) > 1
    return "attention_data" if inside else "data"


def statements(evidence: JobEvidence, line: Line, axes: Mapping[str, int]) -> None:
    """What a scheduler says of itself."""
    match = RANK.search(line.text)  # at level DEBUG alone
    if match:
        world, rank, device = int(match[1]), int(match[2]), int(match[3])
        evidence.fact(line, "world", world)
        evidence.member(line, f"engine:{ENGINE} {match[4]}", rank, world, cuda=device)
    match = DEVICE.search(line.text)
    if match and axes:
        place = ", ".join(f"{axis} {number}" for axis, number in axes.items())
        evidence.fact(line, "device", int(match[1]), place)
    if SPANS in line.text:
        evidence.fact(line, "group-spans-nodes", message(line.text), "tensor")
    progress(evidence, line, ", ".join(f"{axis} {number}" for axis, number in axes.items()))


def progress(evidence: JobEvidence, line: Line, place: str) -> None:
    """How far one scheduler got, by its coordinates; a replica's first GPU does not count base_gpu_id."""
    match = GROUPS.search(line.text)
    if match:
        evidence.fact(line, "group-init", "begin" if match[1] == "beg" else "end", place)
    match = LOADED.search(line.text)
    if match:
        evidence.fact(line, "free-memory", match[1], place)
    match = TOKENS.search(line.text)
    if match:
        evidence.fact(line, "kv-tokens", int(match[1]))
    match = REPLICA.search(line.text)
    if match:
        evidence.fact(line, "first-gpu", int(match[2]), f"data {match[1]}")


def server_info(evidence: JobEvidence, line: Line) -> None:
    """The answer of a running server: its version, and its arguments as they are in force."""
    if len(line.text) > LONGEST or not SERVER_INFO.fullmatch(line.text):
        return
    try:
        found = msgspec.json.decode(line.text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return
    fields = {name: str(value) for name, value in found.items() if isinstance(value, bool | int | str)}
    requested(evidence, line, Printed(fields, (line.number,), closed=True))
    if "version" in fields and re.fullmatch(r"v?\d[\w.+-]{0,59}", fields["version"]):
        evidence.fact(line, "engine-version", fields["version"])
        evidence.version(line, engine=ENGINE, engine_version=fields["version"])
