"""`topocheck boundary`: what crosses from stage to stage, and how long links take for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import click

from topocheck.cli.bubble import labelled, pretty
from topocheck.cli.streams import show
from topocheck.errors import UsageError
from topocheck.pipeline.boundary import (
    ELEMENT_BYTES,
    NVLINK_VERSIONS,
    SCHEMA,
    BoundaryReport,
    Form,
    Link,
    Payload,
    PayloadReport,
    assumptions,
    describe,
    form_of,
    nvlink,
    pcie,
    pcie_bytes_per_s,
    rdma,
)
from topocheck.pipeline.bounds import exactly
from topocheck.plan import Plan, Workload
from topocheck.planfile import read_plan

__all__ = ["boundary"]

RDMA = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)\s*(?:G|Gb/s|Gbit/s|Gbps)?")
NVLINK = re.compile(r"nvlink([0-9])?:([0-9]{1,3})")
PCIE = re.compile(r"pcie([1-5])x([0-9]{1,2})")
GTS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0}
"""GT/s of a PCIe lane by generation."""
MOST = 1_000_000_000
SIZE = click.IntRange(1, MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Sizes by options, else by the plan; and where each comes from."""

    rows: dict[str, int]
    """Rows of a microbatch by phase."""
    hidden: int
    element_bytes: int
    tensors: int
    parts: int
    form: Form | None
    sources: dict[str, str]


@click.command()
@click.option("--rows", type=SIZE, help="Rows of a prefill microbatch: tokens of a chunk.")
@click.option("--decode-rows", type=SIZE, help="Rows of a decode microbatch: sequences of a step.")
@click.option("--hidden", type=SIZE, help="Hidden size of the model.")
@click.option(
    "--dtype", type=click.Choice(list(ELEMENT_BYTES)), help="Type of activations  [default: bfloat16]"
)
@click.option("--tensors", type=click.IntRange(1, 64), help="Tensors sent: 2 with the residual  [default: 1]")
@click.option("--split", type=click.IntRange(1, 4096), help="Ranks that send a part each  [default: 1]")
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="LINK",
    help="400Gb/s (RDMA), nvlink4:18 (generation, links) or pcie5x16; may be given again.",
)
@click.option(
    "--gpudirect/--staged", default=None, help="Whether the NIC reads GPU memory  [default: either]"
)
@click.option("--from-plan", metavar="PLAN", help="Take sizes from a plan; - is standard input.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def boundary(  # noqa: PLR0917 - one parameter an option
    rows: int | None,
    decode_rows: int | None,
    hidden: int | None,
    dtype: str | None,
    tensors: int | None,
    split: int | None,
    links: tuple[str, ...],
    gpudirect: bool | None,
    from_plan: str | None,
    as_json: bool,
) -> None:
    """Compute what one microbatch hands from stage to stage, and the time it takes over a link.

    Bytes are rows x hidden size x element size x tensors. `topocheck verify` computes the time over the
    links that the placement really uses (PP010).
    """
    plan = None if from_plan is None else read_plan(from_plan)
    options = {"rows": rows, "decode-rows": decode_rows, "hidden": hidden, "tensors": tensors, "split": split}
    given = resolve(options, dtype, plan, from_plan or "")
    ways = [parse_link(link, gpudirect) for link in links]
    payloads = [describe(phase, payload_of(given, count), ways) for phase, count in given.rows.items()]
    said = [*assumptions(given.form), *dict.fromkeys(word for way in ways for word in way.assumptions)]
    if as_json:
        document = BoundaryReport(schema=SCHEMA, payloads=payloads, sources=given.sources, assumptions=said)
        return show(pretty(document), exact=True)
    lines = [line for payload in payloads for line in words(payload)]
    for what, source in given.sources.items():
        if not source.startswith("--"):
            lines += labelled(what, f"by {source}")
    for number, assumption in enumerate(said):
        lines += labelled("" if number else "assumed", assumption)
    return show("".join(f"{line}\n" for line in lines))


def resolve(options: dict[str, int | None], dtype: str | None, plan: Plan | None, path: str) -> Given:
    """Sizes by options, else by the plan, else the default. Raises UsageError for what is not known."""
    declared = declared_sizes(plan) if plan is not None else {}
    sources: dict[str, str] = {}
    found: dict[str, int] = {}
    for name, value in options.items():
        if value is not None:
            found[name], sources[name] = value, f"--{name}"
        elif name in declared:
            found[name], key = declared[name]
            sources[name] = f"{path}: {key}"
    rows = {
        phase: found[name]
        for phase, name in (("prefill", "rows"), ("decode", "decode-rows"))
        if name in found
    }
    if not rows:
        raise UsageError("the rows of a microbatch are not known: give them, for instance --rows 4096")
    if "hidden" not in found:
        raise UsageError("the hidden size is not known: give it, for instance --hidden 8192")
    workload = (plan.workload if plan else None) or Workload()
    asked = options["tensors"] is not None or plan is None
    return Given(
        rows=rows,
        hidden=found["hidden"],
        element_bytes=ELEMENT_BYTES[dtype or workload.dtype],
        tensors=found.get("tensors", 1),
        parts=found.get("split", 1),
        form=None if asked or plan is None else form_of(plan.engine),
        sources=sources,
    )


def declared_sizes(plan: Plan) -> dict[str, tuple[int, str]]:
    """What a plan gives, with the key that gives it."""
    workload, form = plan.workload or Workload(), form_of(plan.engine)
    hidden = plan.model.hidden if plan.model else None
    split = workload.boundary_split or form.split
    found = {
        "rows": (workload.max_batched_tokens, "workload.max_batched_tokens")
        if workload.max_batched_tokens
        else (workload.input_tokens, "workload.input_tokens, a whole prompt"),
        "decode-rows": (workload.max_sequences, "workload.max_sequences, all in one microbatch"),
        "hidden": (hidden, "model"),
        "tensors": (workload.boundary_tensors, "workload.boundary_tensors")
        if workload.boundary_tensors
        else (form.tensors, f"engine {plan.engine}"),
        "split": (plan.parallel.tensor if split == "tensor" else 1, f"engine {plan.engine}, parallel.tensor"),
    }
    return {name: (number, key) for name, (number, key) in found.items() if number}


def payload_of(given: Given, rows: int) -> Payload:
    """What one microbatch of so many rows hands on."""
    return Payload(
        rows=rows,
        hidden=given.hidden,
        element_bytes=given.element_bytes,
        tensors=given.tensors,
        parts=given.parts,
    )


def parse_link(text: str, direct: bool | None) -> Link:
    """A link of `--link`. Raises UsageError."""
    word = text.strip()
    if match := NVLINK.fullmatch(word.lower()):
        version = NVLINK_VERSIONS.get(int(match[1])) if match[1] else None
        if int(match[2]) and (version or not match[1]):
            return nvlink(int(match[2]), version)
    elif match := PCIE.fullmatch(word.lower()):
        rate = pcie_bytes_per_s(GTS[int(match[1])], int(match[2]))
        if rate is not None:
            return pcie(rate, peer=None)
    elif (match := RDMA.fullmatch(word)) and float(match[1]) > 0:
        return rdma(exactly(float(match[1])), f"RDMA at {float(match[1]):g} Gb/s", direct=direct)
    raise UsageError(f"--link {word[:40]!r}: expected a link such as 400Gb/s, nvlink4:18 or pcie5x16")


def words(payload: PayloadReport) -> Iterator[str]:
    """The numbers of one payload, a line each."""
    tensors = f"{payload.tensors} tensor{'s' * (payload.tensors > 1)}"
    yield from labelled(
        payload.phase,
        f"{payload.rows:,} rows x {payload.hidden:,} hidden x {payload.element_bytes} bytes x {tensors}",
    )
    yield from labelled("bytes", f"{payload.bytes:,}: {mebibytes(payload.bytes)}")
    if payload.parts > 1:
        sent = f"{payload.rank_bytes:,}: {mebibytes(payload.rank_bytes)}, one part of {payload.parts}"
        yield from labelled("from a rank", sent)
    for transfer in payload.transfers:
        low, high = transfer.time_ms
        yield from labelled("time", f"{low:.3g} to {high:.3g} ms over {transfer.link}")


def mebibytes(size: int) -> str:
    """`64 MiB`."""
    return f"{size / (1 << 20):.6g} MiB"
