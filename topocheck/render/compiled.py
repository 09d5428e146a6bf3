"""Compiled templates, kept where Python keeps its compiled modules: in `__pycache__` beside the source.

Compiling the page's templates takes ten times as long as filling them. They are trusted as compiled modules
are: who can write there can change the program itself. As with modules, what cannot be written or read is
compiled each time; so is what is damaged, or what another source or Jinja was compiled for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import sys
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

__all__ = ["CompiledTemplates"]

DIGEST = hashlib.sha256().digest_size
MODE = 0o644
"""Nobody but the owner may write a file that will be run, whatever the umask; Python does the same."""


class CompiledTemplates(BytecodeCache):
    """Compiled templates of this Python beside their sources, each behind the digest of its bytes."""

    def __init__(self) -> None:
        self.folder = Path(str(files("topocheck.templates")))

    def get_source_checksum(self, source: str) -> str:
        """Digest of what a template is compiled from: its source, by this version of Jinja."""
        # A Jinja that no longer tells its version that way still marks the format of what it compiles.
        return super().get_source_checksum(f"{getattr(jinja2, '__version__', '')}\n{source}")

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket, if there is something whole for it."""
        with contextlib.suppress(OSError):
            kept = self.place(bucket).read_bytes()
            if hashlib.sha256(kept[DIGEST:]).digest() == kept[:DIGEST]:
                bucket.bytecode_from_string(kept[DIGEST:])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep what was compiled: written aside, then renamed, so that nobody reads half of it."""
        if sys.dont_write_bytecode:
            return
        code = bucket.bytecode_to_string()
        path = self.place(bucket)
        aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(0o755, parents=True, exist_ok=True)
            with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            aside.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink()

    def place(self, bucket: Bucket) -> Path:
        """File of a bucket, whose key comes from the name of the template; PYTHONPYCACHEPREFIX counts."""
        return Path(cache_from_source(str(self.folder / f"{bucket.key}.py"))).with_suffix(".template")
