"""Start-up log of Megatron-LM: sizes in force, the arguments, and the stages that counted parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator

from topocheck.probes.capture.job_evidence import JobEvidence
from topocheck.probes.capture.log_line import Line, parse_line, parse_lines
from topocheck.probes.capture.printed_fields import whole
from topocheck.probes.capture.reading import Reading, Text

__all__ = ["KIND", "parse"]

KIND = "megatron log"
ENGINE = "megatron"

AXES = {
    "data-parallel": "data",
    "context-parallel": "context",
    "tensor-model-parallel": "tensor",
    "pipeline-model-parallel": "pipeline",
    "expert-model-parallel": "expert",
    "expert-tensor-parallel": "expert_tensor",
}
ARGUMENTS = {
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "context_parallel_size": "context",
    "data_parallel_size": "data",
    "expert_model_parallel_size": "expert",
    "expert_tensor_parallel_size": "expert_tensor",
}
MODEL = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_experts": "experts",
}
OPTIONS = (
    "use_tp_pp_dp_mapping",
    "virtual_pipeline_model_parallel_size",
    "num_layers_per_virtual_pipeline_stage",
    "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "micro_batch_size",
    "global_batch_size",
    "num_layers",
    "moe_enable_deepep",
    "moe_flex_dispatcher_backend",
)
"""Arguments that a rule may look at; they become facts under the flag's own spelling."""

TITLE = re.compile(r"-{10,} arguments -{10,}")
END = re.compile(r"-{10,} end of arguments -{10,}")
ARGUMENT = re.compile(r"\s+([a-z]\w{0,80}) \.{2,60} (.{0,2000})")
MOST_ARGUMENTS = 3000

WORLD = re.compile(r"using world size: (\d{1,9}), ")
SIZE = re.compile(r"([a-z-]{4,40}) size: (\d{1,9})(?=,|\s*$)")
INITIALIZED = re.compile(r"> initialized (tensor|pipeline) model parallel with size (\d{1,9})")
PARAMETERS = re.compile(
    r"> number of parameters on \((?P<names>[\w, ]{1,80})\) model parallel rank \((?P<ranks>[\d, ]{1,80})\):"
)
LAYOUT = re.compile(r"Parse pipeline model parallel layout (\S{1,2000}) to:")


WORDS = (
    "using world size:",
    "> initialized ",
    "> number of parameters on",
    "Parse pipeline model",
    " arguments -----",
)


def parse(text: Text) -> list[Reading]:
    """Read all lines of Megatron-LM; [] if there are none."""
    evidence = JobEvidence(KIND, text.source, ENGINE)
    for line in parse_lines(text.lines, WORDS):
        statements(evidence, line)
        if TITLE.search(line.text):
            arguments(evidence, line, text)
    if evidence.lines:
        evidence.fact(Line(min(evidence.lines), ""), "engine", ENGINE)
    return evidence.readings()


def statements(evidence: JobEvidence, line: Line) -> None:
    """Sizes in force and coordinates."""
    match = WORLD.search(line.text)
    if match:
        evidence.fact(line, "world", int(match[1]))
        found = SIZE.findall(line.text, match.end())
        evidence.sizes(line, "size", [(AXES[name], int(size)) for name, size in found if name in AXES])
    match = INITIALIZED.search(line.text)
    if match:
        evidence.fact(line, "size", int(match[2]), match[1])
    match = PARAMETERS.search(line.text)
    if match:
        names, ranks = match["names"].split(","), match["ranks"].split(",")
        for axis, number in zip(names, ranks, strict=False):
            if axis.strip() in {"tensor", "pipeline"} and whole(number) is not None:
                evidence.fact(line, "rank-coordinate", int(number), axis.strip())
    match = LAYOUT.search(line.text)
    if match:
        evidence.fact(line, "option", match[1], "--pipeline-model-parallel-layout")


def arguments(evidence: JobEvidence, title: Line, text: Text) -> None:
    """The block of arguments, if it has Megatron's names: other programs print the same block."""
    found: dict[str, tuple[Line, str]] = {}
    closed = False
    for line in block(title, text):
        match = ARGUMENT.fullmatch(line.text)
        if match:
            found.setdefault(match[1], (line, match[2].strip()))
        closed = closed or END.search(line.text) is not None
    if "tensor_model_parallel_size" not in found and "pipeline_model_parallel_size" not in found:
        return
    if not closed:
        evidence.note(title, "cut", "the list of arguments has no end: what is not shown is not known")
    for name, (line, value) in found.items():
        if name == "world_size" and whole(value) is not None:
            evidence.fact(line, "world", int(value))
        elif name in ARGUMENTS:
            evidence.sizes(line, "requested-size", [(ARGUMENTS[name], whole(value))])
        if name in MODEL and whole(value):
            evidence.fact(line, "model-size", int(value), MODEL[name])
        if name in OPTIONS and value not in {"None", "False"}:
            evidence.fact(line, "option", value, "--" + name.replace("_", "-"))


def block(title: Line, text: Text) -> Iterator[Line]:
    """Lines of the block that a title opens, its end with them."""
    for number in range(title.number + 1, min(title.number + MOST_ARGUMENTS, len(text.lines) + 1)):
        line = parse_line(text.lines[number - 1], number)
        if TITLE.search(line.text):
            return
        yield line
        if END.search(line.text):
            return
