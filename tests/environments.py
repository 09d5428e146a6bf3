"""Environments of processes as launchers set them, recorded and cut to what matters."""

from __future__ import annotations

from pathlib import Path

__all__ = ["RECORDED", "environment"]

RECORDED = Path(__file__).parent / "launchers"


def environment(name: str) -> dict[str, str]:
    """One recorded environment, for instance `slurm-step`."""
    lines = (RECORDED / f"{name}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)
