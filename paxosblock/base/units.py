"""Sizes and durations as people write them: a number and its unit, never a bare number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Final

from paxosblock.errors import ConfigError

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

SIZES: Final[Mapping[str, int]] = {
    "B": 1,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": 1024 * GIB,
}
"""Bytes per unit."""

_SIZE_SPELLINGS: Final[Mapping[str, int]] = {
    spelling.lower(): factor
    for unit, factor in SIZES.items()
    for spelling in (unit, unit.replace("i", ""), unit[0])
}
"""Units may also be spelled as Spark, Hadoop and the JVM do, in any case. To all of these "64k",
"128m" and "40KB" are powers of 1024: a unit of 1000 bytes could not be told apart from them."""

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
    """Return the bytes in `text`, such as "512KiB", "1.5GiB" or "0B"; "128MB" and "128m" are
    128MiB.

    Raises ConfigError for a missing or unknown unit and for a part of a byte.
    """
    return _whole("size", "bytes", text, SIZES, _of_size)


def parse_rate(text: str) -> int:
    """Return the bytes per second in `text`, such as "64MiB/s".

    Raises ConfigError for what is not a size, and for a size without "/s".
    """
    size, slash, per = text.rpartition("/")
    if not slash or per.strip() != "s":
        raise ConfigError(f'rate {text!r} is not per second: write it as "64MiB/s"')
    return parse_size(size)


def parse_duration(text: str) -> float:
    """Seconds in `text`, such as "20min", "1.5s" or "0s", to the microsecond.

    Raises ConfigError for a missing or unknown unit and for a part of a microsecond.
    """
    return _whole("duration", "microseconds", text, DURATIONS, DURATIONS.get) / DURATIONS["s"]


def format_size(size_bytes: int) -> str:
    """`size_bytes` (0 or more) exactly, in the largest binary unit: "512KiB", "1000B".

    `parse_size` gives the same number back.
    """
    return _in_largest_unit(size_bytes, SIZES, zero="0B")


def format_duration(duration_s: float) -> str:
    """`duration_s` (0 or more) to the microsecond, in the largest unit: "20min", "1500ms".

    `parse_duration` gives the same number back.
    """
    return _in_largest_unit(round(duration_s * DURATIONS["s"]), DURATIONS, zero="0s")


def _of_size(unit: str) -> int | None:
    return _SIZE_SPELLINGS.get(unit.lower())


def _whole(
    kind: str,
    smallest: str,
    text: str,
    units: Iterable[str],
    factor_of: Callable[[str], int | None],
) -> int:
    match = _QUANTITY.fullmatch(text)
    known = ", ".join(units)
    if match is None:
        raise ConfigError(f"{text!r} is not a {kind}: write a number and one of the units {known}")
    number, unit = match.groups()
    if not unit:
        raise ConfigError(f"{kind} {text!r} has no unit: add one of {known}")
    factor = factor_of(unit)
    if factor is None:
        raise ConfigError(f"{kind} {text!r} has an unknown unit {unit!r}: use one of {known}")
    quantity = Fraction(number) * factor
    if quantity.denominator != 1:
        raise ConfigError(f"{kind} {text!r} is not a whole number of {smallest}")
    return quantity.numerator


def _in_largest_unit(quantity: int, units: Mapping[str, int], *, zero: str) -> str:
    if quantity == 0:
        return zero
    unit = max((unit for unit in units if quantity % units[unit] == 0), key=units.__getitem__)
    return f"{quantity // units[unit]}{unit}"
