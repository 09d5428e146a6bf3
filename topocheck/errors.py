"""Everything that can go wrong, and the exit code it leads to.

    TopocheckError
    ├── UsageError            exit 2: the caller can mend it
    │   ├── InputError        a file or a field of one: which, where, what was expected, what to do
    │   │   ├── PlanError     the plan file
    │   │   ├── SnapshotError a snapshot or a stream of them
    │   │   └── CaptureError  text that another tool wrote
    │   ├── LayoutError       sizes that the engine itself refuses
    │   │   └── UnknownLayoutError  the layout hangs on a version or an order that was not given
    │   └── TwoJobsError      the input holds more than one job
    ├── UndecidedError        exit 3: what a verdict needs is away, or did not come in time
    └── InternalError         exit 3: topocheck broke; never the job's fault, never a pass
        └── PluginError       a package that adds to it broke

Errors become words in one place, `topocheck.cli.main`.
"""

from __future__ import annotations

__all__ = [
    "CaptureError",
    "InputError",
    "InternalError",
    "LayoutError",
    "PlanError",
    "PluginError",
    "SnapshotError",
    "TopocheckError",
    "TwoJobsError",
    "UndecidedError",
    "UnknownLayoutError",
    "UsageError",
]


class TopocheckError(Exception):
    """Base of all errors that topocheck raises on purpose."""

    exit_code = 3


class UsageError(TopocheckError):
    """A bad option, a bad file or an input that cannot be read: the caller can mend it."""

    exit_code = 2


class InputError(UsageError):
    """What is wrong with one input.

    Reads as `FILE:LINE: PROBLEM: FIX`, for instance
    `plan.yaml:6: unknown key 'tensr': did you mean 'tensor'?`.
    """

    def __init__(self, problem: str, *, path: str, line: int | None = None, fix: str = "") -> None:
        self.problem = problem
        self.path = path
        self.line = line
        self.fix = fix
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {problem}" + (f": {fix}" if fix else ""))


class PlanError(InputError):
    """The plan cannot be used as it is."""


class SnapshotError(InputError):
    """A snapshot document does not follow its schema."""


class CaptureError(InputError):
    """Captured text cannot be read without guessing."""


class LayoutError(UsageError):
    """Sizes, orders or layer splits that the engine refuses, in the engine's own terms."""


class UnknownLayoutError(LayoutError):
    """Cannot be known without engine_version, or without what else the message asks for."""


class TwoJobsError(UsageError):
    """Evidence of several jobs lies in one input; a verdict over their mixture would be false."""


class UndecidedError(TopocheckError):
    """There is no verdict: what one needs is away or did not come in time, and may be there next time."""


class InternalError(TopocheckError):
    """topocheck itself broke. The message names the part that did."""


class PluginError(InternalError):
    """A package that adds to topocheck cannot be used. The message names the package."""
