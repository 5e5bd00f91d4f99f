"""Percentiles of samples, and numbers of things in words."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def percentile(sample: Sequence[float], fraction: float) -> float:
    """Return the value below which `fraction` of the sample lies; it must not be empty."""
    return sorted(sample)[min(len(sample) - 1, int(len(sample) * fraction))]


def counted(number: int, thing: str) -> str:
    """Return "1 writer", "20 writers"."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


def median(sample: Sequence[float]) -> float:
    """Return the value in the middle, or the mean of the two that are."""
    return statistics.median(sample)
