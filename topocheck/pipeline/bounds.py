"""A number that is known between two bounds."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bounds", "exactly"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is at least `low` and at most `high`: bytes, seconds, bytes a second. Raises ValueError if not."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise ValueError(f"{self.low} and {self.high} are no bounds")

    def __add__(self, other: Bounds) -> Bounds:
        return Bounds(self.low + other.low, self.high + other.high)

    def scaled(self, factor: float) -> Bounds:
        """So many times as much."""
        return Bounds(self.low * factor, self.high * factor)

    @property
    def exact(self) -> bool:
        """Both bounds are one number."""
        return self.low == self.high


def exactly(number: float) -> Bounds:
    """What is known."""
    return Bounds(number, number)
