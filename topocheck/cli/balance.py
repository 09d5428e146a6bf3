"""`topocheck balance`: how evenly pipeline stages share a model, and the partition that shares it best."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import click
import msgspec

from topocheck.cli.streams import show
from topocheck.engines import ENGINES, find
from topocheck.errors import LayoutError, UsageError
from topocheck.layers import options_of, split_of
from topocheck.modelconfig import ConfigModel
from topocheck.pipeline.architecture import DTYPES
from topocheck.pipeline.balance import Balance, Cut, Job, Measure, Memory, balance
from topocheck.pipeline.balance_report import BalanceReport, LayerKind, describe, fit_of
from topocheck.pipeline.bytesize import parse_bytes, spell_bytes
from topocheck.pipeline.checkpoint import read_weights
from topocheck.pipeline.division import division_of
from topocheck.pipeline.duration import parse_duration, spell_duration
from topocheck.pipeline.schedule import MOST_STAGES
from topocheck.pipeline.sweep import percent
from topocheck.pipeline.weights import ModelWeights
from topocheck.plan import Model, Parallel, Plan
from topocheck.planfile import read_plan
from topocheck.render.text import printable

__all__ = ["balance_stages"]

WIDTH = 80
SIZE = click.IntRange(1, 1_000_000)
RESERVE = Fraction(1, 10)
"""Part of a GPU's memory that weights leave unless --reserve says how much."""
LOADS: dict[Measure, tuple[str, Callable[[Fraction], str]]] = {
    "read": ("rank reads", lambda load: spell_bytes(int(load))),
    "parameters": ("rank's parameters", lambda load: f"{int(load):,}"),
    "time": ("time", spell_duration),
}
"""Title of the column of each measure that is not shown anyway, and how its loads are said."""


@click.command("balance")
@click.option("--engine", metavar="NAME", help="vllm, sglang, tensorrt_llm, megatron ...")
@click.option("--engine-version", metavar="VERSION", help="Version, where the layer split depends on it.")
@click.option("-t", "--tensor", type=SIZE, help="Tensor parallel size.")
@click.option("-p", "--stages", type=click.IntRange(1, MOST_STAGES), help="Pipeline stages.")
@click.option("-e", "--expert", type=SIZE, help="Expert parallel size.")
@click.option("--layers", metavar="COUNTS", help="Layers of each stage, or the engine's own override.")
@click.option("--from-plan", metavar="PLAN", help="Take engine, sizes, model and layers from a plan.")
@click.option(
    "--by",
    type=click.Choice(("bytes", "read", "parameters")),
    help="What to balance on the fullest rank: bytes held, bytes read, parameters  [default: bytes]",
)
@click.option("--stage-times", metavar="TIMES", help="Measured times of the stages as they are: 4,11,5 ms.")
@click.option(
    "--from-trace",
    multiple=True,
    metavar="TRACE",
    help="Take stage times from a measured run, as topocheck waits reads it; once for each file.",
)
@click.option("--gpu-memory", metavar="SIZE", help="Memory of each GPU: 80GiB.")
@click.option("--reserve", metavar="SIZE", help="What weights must leave of it  [default: a tenth]")
@click.option("--dtype", type=click.Choice(list(DTYPES)), help="Data type that weights are loaded in.")
@click.option("--mtp", is_flag=True, help="Count layers for multi-token prediction, on the last stage.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.argument("model", required=False)
def balance_stages(  # noqa: PLR0917 - one parameter an option
    engine: str | None,
    engine_version: str | None,
    tensor: int | None,
    stages: int | None,
    expert: int | None,
    layers: str | None,
    from_plan: str | None,
    by: Measure | None,
    stage_times: str | None,
    from_trace: tuple[str, ...],
    gpu_memory: str | None,
    reserve: str | None,
    dtype: str | None,
    mtp: bool,
    as_json: bool,
    model: str | None,
) -> int:
    """Weigh the pipeline stages of MODEL and find the partition that balances best.

    MODEL is a config.json or the folder of a model: of safetensors files beside it the headers are read,
    never the weights. Stage times are those of the partition as it is. Exits with 1 if --gpu-memory is
    given and no partition fits.
    """
    if (by is not None) + (stage_times is not None) + bool(from_trace) > 1:
        raise UsageError("--by, --stage-times and --from-trace are three measures: give one of them")
    times = read_times(stage_times, from_trace)
    sizes = Parallel(tensor=tensor, pipeline=stages, expert=expert)
    plan = planned(from_plan, engine, engine_version, sizes, layers)
    if times is not None and plan.parallel.pipeline is None:
        plan = with_sizes(plan, Parallel(pipeline=len(times)))
    weights, source = weigh_model(model, plan, dtype)
    job = job_of(plan, weights, memory=read_memory(gpu_memory, reserve), mtp=mtp)
    found = balance(job, "time" if times is not None else by or "bytes", times)
    sources = {"model": source} | ({"plan": from_plan} if from_plan else {})
    sources |= {"times": ", ".join(from_trace)} if from_trace else {}
    report = describe(found, sources=sources)
    if as_json:
        show(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n", exact=True)
    else:
        show("".join(f"{line}\n" for line in words(found, report)))
    return 1 if found.fits is False else 0


def planned(
    path: str | None, engine: str | None, version: str | None, sizes: Parallel, layers: str | None
) -> Plan:
    """The plan of a file with what the options change, or the options' own. Raises UsageError."""
    name = None if engine is None else find(engine).name
    if path is not None:
        plan = read_plan(path)
        if plan.worlds != 1:
            raise UsageError(f"{path}: has several worlds: give the plan of one of them")
    elif name is not None:
        plan = Plan(engine=name, nodes=1)
    else:
        raise UsageError("the engine is not known: give it, for instance --engine vllm, or --from-plan")
    changed: dict[str, object] = {}
    if name is not None and name != plan.engine:
        changed |= {"engine": name, "engine_version": None, "layers": None, "order": None}
    changed |= {"engine_version": version} if version is not None else {}
    changed |= {"layers": layers} if layers is not None else {}
    return with_sizes(msgspec.structs.replace(plan, **changed), sizes)


def with_sizes(plan: Plan, sizes: Parallel) -> Plan:
    """The plan with these sizes in place of its own."""
    given = {key: size for key, size in msgspec.structs.asdict(sizes).items() if size is not None}
    return msgspec.structs.replace(plan, parallel=msgspec.structs.replace(plan.parallel, **given))


def weigh_model(path: str | None, plan: Plan, dtype: str | None) -> tuple[ModelWeights, str]:
    """Weights of the model that the user names, else of the plan's, and what they were read from."""
    if path is None:
        if not isinstance(plan.model, ConfigModel):
            raise UsageError("the model is not known: give its folder or its config.json")
        path = plan.model.source
    place = Path(path)
    weights = read_weights(place if place.is_dir() else with_files(place), dtype)
    return weights, f"{path}: {weights.source}"


def with_files(config: Path) -> Path:
    """The folder of a config.json where the files of the model lie beside it."""
    beside = ("model.safetensors.index.json", "model.safetensors")
    there = config.name == "config.json" and any((config.parent / name).is_file() for name in beside)
    return config.parent if there else config


def read_times(words: str | None, traces: Sequence[str]) -> tuple[Fraction, ...] | None:
    """Times of the stages in ns, of `4,11,5` or of a measured run; None without. Raises UsageError."""
    if words is not None:
        return tuple(map(parse_duration, words.split(",", MOST_STAGES)))
    if not traces:
        return None
    from topocheck.pipeline.trace import stage_times  # noqa: PLC0415 - only for a measured run
    from topocheck.pipeline.trace_files import read_traces  # noqa: PLC0415

    return tuple(map(Fraction, stage_times(read_traces(traces))))


def read_memory(gpu: str | None, reserve: str | None) -> Memory | None:
    """Memory of a GPU and what weights leave of it. Raises UsageError."""
    if gpu is None:
        if reserve is not None:
            raise UsageError("--reserve is a part of --gpu-memory: give both")
        return None
    size = parse_bytes(gpu)
    kept = int(size * RESERVE) if reserve is None else parse_bytes(reserve)
    if not 0 <= kept < size:
        raise UsageError(
            f"a reserve of {spell_bytes(kept)} leaves nothing of {spell_bytes(size)} for weights"
        )
    return Memory(gpu=size, reserve=kept)


def job_of(plan: Plan, weights: ModelWeights, *, memory: Memory | None, mtp: bool) -> Job:
    """The model on the plan's stages. Raises LayoutError for sizes that the engine refuses."""
    engine, parallel = ENGINES[plan.engine], plan.parallel
    sizes = {key: size for key, size in msgspec.structs.asdict(parallel).items() if size is not None}
    if engine.name == "vllm" and sizes.get("expert", 1) > 1:
        ranks = [sizes.get(axis, 1) for axis in ("data", "context", "tensor")]
        sizes["expert"] = ranks[0] * ranks[1] * ranks[2]  # a switch in vLLM, not a number of the user's
    layout = engine.layout(sizes, plan.engine_version, plan.order)
    stages = layout.size("pipeline")
    routed = any(layer.of("experts").blocks for layer in weights.layers)
    sized = msgspec.structs.replace(plan, model=Model(layers=len(weights.layers), tied=weights.tied))
    split, refusal = None, ""
    try:
        split = split_of(sized, stages)
    except LayoutError as error:
        if plan.layers is not None:
            raise
        refusal = str(error)
    return Job(
        model=weights,
        engine=engine,
        version=plan.engine_version,
        stages=stages,
        division=division_of(layout, routed=routed, attention_data=parallel.attention_data or 1),
        options=options_of(plan),
        split=split,
        refusal=refusal,
        mtp=mtp,
        memory=memory,
    )


def words(found: Balance, report: BalanceReport) -> Iterator[str]:
    """The balance for people."""
    yield from model_words(report)
    yield ""
    sizes = f"tensor {report.division.tensor} x pipeline {report.stages}"
    spread = report.division.expert
    yield (
        f"{found.job.engine.title} {report.engine_version or ''}".rstrip()
        + f", {sizes}"
        + (f", experts over {spread} ranks" if spread > 1 else "")
    )
    if found.current is not None:
        yield from cut_words(found.current, found)
    else:
        yield from labelled("refused", report.refusal or "")
    yield ""
    yield from verdict(found)
    yield ""
    for label, source in report.sources.items():
        yield from labelled(label, f"by {source}")
    for note in report.notes:
        yield from labelled("note", note)
    for number, assumption in enumerate(report.assumptions):
        yield from labelled("" if number else "assumed", assumption)


def model_words(report: BalanceReport) -> Iterator[str]:
    """What the model consists of."""
    model = report.model
    kind = ", ".join(word for word in (model.dtype, model.quantisation) if word)
    kind = f" ({kind})" if kind else ""
    yield f"{model.layers} layers, {model.parameters:,} parameters, {spell_bytes(model.bytes)}{kind}"
    for layers in model.kinds:
        yield from labelled(kind_name(layers), f"{spell_bytes(layers.bytes)}{each(layers)}: {parts(layers)}")
    yield from labelled("embedding", spell_bytes(model.embedding.bytes))
    yield from labelled(
        "head",
        "the embedding's matrix (tied): a copy on the last stage"
        if model.tied
        else "none"
        if model.head is None
        else spell_bytes(model.head.bytes),
    )
    if model.other is not None:
        yield from labelled("other", f"{spell_bytes(model.other.bytes)}, in no layer")


def kind_name(kind: LayerKind) -> str:
    """`layers 0-2`, `layer 3`."""
    return f"layer {kind.first}" if kind.first == kind.last else f"layers {kind.first}-{kind.last}"


def each(kind: LayerKind) -> str:
    """` each`, of several."""
    return " each" if kind.first < kind.last else ""


def parts(kind: LayerKind) -> str:
    """`attention 80 MiB, mlp 336 MiB`."""
    return ", ".join(
        f"{name.replace('_', ' ')} {spell_bytes(amount.bytes)}" for name, amount in kind.parts.items()
    )


def cut_words(cut: Cut, found: Balance) -> Iterator[str]:
    """A line a stage."""
    title, spell = LOADS.get(found.measure, ("", str))
    rows = [["stage", "layers", "", "stage holds", "rank holds", *([title] if title else []), "", ""]]
    for number, stage in enumerate(cut.stages):
        cells = [str(number), " ".join(map(spell_range, stage.ranges)) or "-", f"({stage.layers})"]
        cells += [spell_bytes(stage.weights.bytes), spell_bytes(stage.rank_bytes)]
        cells += [spell(stage.load)] if title else []
        fit = "" if fit_of(stage, found.job) in {None, True} else "does not fit"
        rows.append([*cells, "+ " + ", ".join(stage.ends) if stage.ends else "", fit])
    yield from aligned(rows)
    yield f"  imbalance {percent(cut.imbalance)}: stage {cut.heaviest} carries most"


def spell_range(layers: tuple[int, int]) -> str:
    """`0-19`, `20`: the last included."""
    start, end = layers
    return str(start) if end == start + 1 else f"{start}-{end - 1}"


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Cells under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        yield f"  {line}".rstrip()


def verdict(found: Balance) -> Iterator[str]:
    """What to change."""
    memory, best, override = found.job.memory, found.best, found.override
    if found.refused is not None and memory is not None:
        stage = found.refused.too_full(memory)[0]
        held = spell_bytes(found.refused.stages[stage].rank_bytes)
        yield from labelled(
            "refused",
            f"{found.refused.rule} would balance better, but a rank of stage {stage} would hold {held} of "
            f"weights and has {spell_bytes(memory.most)} for them (CAP002)",
        )
    if found.fits is False and memory is not None:
        yield from labelled(
            "refused",
            f"no partition into {found.job.stages} stages fits GPUs of {spell_bytes(memory.gpu)} with a "
            f"reserve of {spell_bytes(memory.reserve)} (CAP002): use more stages or a larger tensor size",
        )
    elif best is not None and override is None:
        yield "the partition as it is balances best"
    elif best is not None and override is not None:
        yield f"balances best: {','.join(map(str, best.counts))}"
        yield from cut_words(best, found)
        if found.measure == "time" and found.current is not None:
            before, after = spell_duration(found.current.most), spell_duration(best.most)
            yield from labelled("results", f"every {after} at best in place of every {before}")
        yield f"  {'set':13} {printable(override.line)}"  # unbroken, to be copied


def labelled(label: str, said: str) -> Iterable[str]:
    """A line with its label; what does not fit goes on under it."""
    return textwrap.wrap(
        printable(said),
        WIDTH,
        initial_indent=f"  {label:13} ",
        subsequent_indent=" " * 16,
        break_on_hyphens=False,
        break_long_words=False,
    )
