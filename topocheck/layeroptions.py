"""Options of an engine's layer split as a plan gives them: `layers: {first_stage: 10, last_stage: 8}`."""

from __future__ import annotations

import re

import yaml

from topocheck.engines.engine import Engine, Option
from topocheck.errors import PlanError
from topocheck.spelling import suggest
from topocheck.strictyaml import FLAG, NUMBER, TEXT, describe, flag, line_of, quoted

__all__ = ["check_options", "option"]

DECIMAL = re.compile(r"0|[1-9][0-9]{0,8}")
FRACTION = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,9})?")
MOST_WEIGHTS = 10_000

KINDS = {
    "number": "a whole number",
    "flag": "true or false",
    "text": "text",
    "numbers": "a list of numbers",
}
OTHER_NAMES = {
    "decoder_first_pipeline_num_layers": "first_stage",
    "decoder_last_pipeline_num_layers": "last_stage",
    "first_stage_layers": "first_stage",
    "last_stage_layers": "last_stage",
    "virtual_stages_per_rank": "virtual_stages",
    "num_virtual_stages_per_pipeline_rank": "virtual_stages",
    "vpp": "virtual_stages",
    "mtp": "mtp_layers",
    "pipeline_layout": "layout",
}
"""Names that flags and people use for options, besides the engines' own."""


def option(node: yaml.Node, what: str, source: str) -> int | bool | str | tuple[float, ...]:
    """One value, by how it is written. Raises PlanError for what is none of the kinds."""
    if isinstance(node, yaml.SequenceNode) and node.value and len(node.value) <= MOST_WEIGHTS:
        return tuple(_weight(item, what, source) for item in node.value)
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    if node.tag == NUMBER and DECIMAL.fullmatch(text):
        return int(text)
    if node.tag == FLAG:
        return flag(node, what, source)
    if node.tag == TEXT and text.strip() and text.isprintable():
        return str(text)
    problem = f"expected a number, true or false, or text for {what}, got {describe(node)}"
    raise PlanError(problem, path=source, line=line_of(node), fix="write digits, for instance 10")


def _weight(node: yaml.Node, what: str, source: str) -> float:
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    if not FRACTION.fullmatch(text) or node.tag == TEXT:
        problem = f"expected a number in {what}, got {describe(node)}"
        raise PlanError(problem, path=source, line=line_of(node), fix="write digits, for instance 1 or 0.5")
    return float(text) if "." in text else int(text)


def check_options(engine: Engine, node: yaml.MappingNode, source: str) -> None:
    """Refuse options that the engine's split does not have, or that are of another kind. Raises PlanError."""
    words = {one.word or one.name: one for one in engine.options}
    for key, value in node.value:
        found = words.get(key.value)
        if found is None:
            problem = f"{engine.title}'s layer split has no option {quoted(key.value)}"
            raise PlanError(problem, path=source, line=line_of(key), fix=_meant(key.value, words))
        if KIND_OF.get(type(option(value, key.value, source))) != found.kind:
            problem = f"expected {KINDS[found.kind]} for layers.{key.value}, got {describe(value)}"
            raise PlanError(problem, path=source, line=line_of(value), fix="correct the value")


KIND_OF = {int: "number", bool: "flag", str: "text", tuple: "numbers"}


def _meant(name: str, words: dict[str, Option]) -> str:
    """What an unknown option was meant to be, else those that there are."""
    if not words:
        return "it takes none; write the layers of each stage: [16, 16]"
    others = {one.name: word for word, one in words.items()}
    meant = suggest(name, words, {**OTHER_NAMES, **others})
    return f"did you mean '{meant}'?" if meant else f"it takes {', '.join(words)}"
