"""The entry point: `topocheck`, `python -m topocheck`."""

from __future__ import annotations

import gc

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    What is imported stays: to look through it for garbage takes a twentieth of a short command's time, so
    that the collector starts with the command itself.
    """
    gc.disable()
    from topocheck.cli.main import main as run  # noqa: PLC0415 - only now, the collector asleep

    run()


if __name__ == "__main__":
    main()
