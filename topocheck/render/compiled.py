"""Compiled templates, kept where Python keeps its compiled modules: in `__pycache__` beside the source.

Compiling the page's templates takes ten times as long as filling them. As with modules, what cannot be
written is compiled each time, and a changed source is compiled again: Jinja holds its digest against it.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from importlib.resources import files
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

__all__ = ["CompiledTemplates"]


class CompiledTemplates(BytecodeCache):
    """Compiled templates of this Python beside their sources."""

    def __init__(self) -> None:
        self.folder = Path(str(files("topocheck.templates"))) / "__pycache__"

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket, if there is something for it."""
        with contextlib.suppress(OSError), self._path(bucket).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was compiled: written aside, then renamed, so that nobody reads half of it."""
        if sys.dont_write_bytecode:
            return
        path = self._path(bucket)
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            self.folder.mkdir(exist_ok=True)
            with aside.open("xb") as file:
                bucket.write_bytecode(file)
            aside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink()

    def _path(self, bucket: Bucket) -> Path:
        """File of a bucket; its key comes from the name of the template."""
        return self.folder / f"{bucket.key}.{sys.implementation.cache_tag}.template"
