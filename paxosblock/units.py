"""Sizes and durations as people write them: a number and its unit, never a bare number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from paxosblock.errors import ConfigError

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_BINARY_SIZES: Final[Mapping[str, int]] = {
    "B": 1,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": 1024 * GIB,
}
SIZES: Final[Mapping[str, int]] = {
    **_BINARY_SIZES,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}
"""Bytes per unit."""

DURATIONS: Final[Mapping[str, int]] = {
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""Microseconds per unit."""

_QUANTITY: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", re.ASCII)


def parse_size(text: str) -> int:
    """Bytes in `text`, such as "512KiB", "1.5GiB" or "0B".

    Raises ConfigError for a missing or unknown unit and for a part of a byte.
    """
    return _whole("size", "bytes", text, SIZES)


def parse_duration(text: str) -> float:
    """Seconds in `text`, such as "20min", "1.5s" or "0s", to the microsecond.

    Raises ConfigError for a missing or unknown unit and for a part of a microsecond.
    """
    return _whole("duration", "microseconds", text, DURATIONS) / DURATIONS["s"]


def format_size(size_bytes: int) -> str:
    """`size_bytes` (0 or more) exactly, in the largest binary unit: "512KiB", "1000B".

    `parse_size` gives the same number back.
    """
    return _in_largest_unit(size_bytes, _BINARY_SIZES, zero="0B")


def format_duration(duration_s: float) -> str:
    """`duration_s` (0 or more) to the microsecond, in the largest unit: "20min", "1500ms".

    `parse_duration` gives the same number back.
    """
    return _in_largest_unit(round(duration_s * DURATIONS["s"]), DURATIONS, zero="0s")


def _whole(kind: str, smallest: str, text: str, units: Mapping[str, int]) -> int:
    number, unit = _split(kind, text, units)
    quantity = number * units[unit]
    if quantity.denominator != 1:
        raise ConfigError(f"{kind} {text!r} is not a whole number of {smallest}")
    return quantity.numerator


def _split(kind: str, text: str, units: Mapping[str, int]) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text)
    known = ", ".join(units)
    if match is None:
        raise ConfigError(f"{text!r} is not a {kind}: write a number and one of the units {known}")
    number, unit = match.groups()
    if not unit:
        raise ConfigError(f"{kind} {text!r} has no unit: add one of {known}")
    if unit not in units:
        raise ConfigError(f"{kind} {text!r} has an unknown unit {unit!r}: use one of {known}")
    return Fraction(number), unit


def _in_largest_unit(quantity: int, units: Mapping[str, int], *, zero: str) -> str:
    if quantity == 0:
        return zero
    unit = max((unit for unit in units if quantity % units[unit] == 0), key=units.__getitem__)
    return f"{quantity // units[unit]}{unit}"
