"""Words of the page: each is said somewhere."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path

from topocheck.render import words
from topocheck.render.words import SCRIPT_WORDS, WORDS

STEM = re.compile(r"""["'`]([a-z_]+_)(?:["'] [~+]|\{|\$\{)""")
"""Beginnings that are completed while the page is made: `say('verdict_' ~ state)`, say(f"by_{way}")."""
OWN = {"words.py", "sectionwords.py"}
RENDER = Path(words.__file__).parent
TEMPLATES = Path(str(files("topocheck.templates")))


def unsaid(names: Collection[str], source: str) -> list[str]:
    """Names that stand nowhere in the source, and begin with nothing that it completes."""
    stems = tuple(STEM.findall(source))
    said = [name for name in names if f"'{name}'" in source or f'"{name}"' in source]
    return [name for name in names if name not in said and not name.startswith(stems)]


def test_every_word_of_the_page_is_said() -> None:
    made = [path for path in RENDER.glob("*.py") if path.name not in OWN]
    source = "\n".join(path.read_text(encoding="utf-8") for path in (*made, *TEMPLATES.glob("*.j2")))
    assert unsaid(["no word"], source) == ["no word"]
    assert unsaid(WORDS, source) == []


def test_every_word_of_the_script_is_said() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.js"))
    packed = (RENDER / "packed.py").read_text(encoding="utf-8")
    assert unsaid(SCRIPT_WORDS, source) == ["predicted", "claimed", "observed"], "these come with the ranks"
    assert unsaid(SCRIPT_WORDS, source + packed) == []
