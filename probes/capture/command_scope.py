"""Whose view the output of a command is: that of a container if the command ran inside one."""

from __future__ import annotations

import re

from topocheck.probes.capture.prompt import Section
from topocheck.snapshot import Scope

__all__ = ["scope_of"]

EXEC = re.compile(r"(?:^|[\s/])(?:kubectl|oc|docker|podman|nerdctl|crictl)\s(?:\S+\s+){0,12}?exec\s")


def scope_of(section: Section) -> Scope:
    """`container` for what `kubectl exec` and its like ran, else unknown.

    A prompt does not tell: a root prompt in a pod looks as one on a host does. So limits that a shell
    shows are not taken for the job's.
    """
    return "container" if EXEC.search(f"{section.command or ''} ") else "unknown"
