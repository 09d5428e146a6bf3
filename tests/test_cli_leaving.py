"""A process that ends without taking its objects apart has written all that it had to say."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from topocheck.cli.leaving import keep, leave
sys.stdout.write("x" * 100_000)
sys.stderr.write("y")
{kept}
leave({code})
"""


@pytest.mark.parametrize("kept", ["keep([])", ""], ids=["with something kept", "with nothing"])
@pytest.mark.parametrize("code", [0, 1, 3])
def test_the_exit_code_and_all_output_arrive(kept: str, code: int) -> None:
    program = PROGRAM.format(kept=kept, code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert (done.returncode, len(done.stdout), done.stderr) == (code, 100_000, "y")
