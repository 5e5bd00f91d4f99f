"""Growth curves as SVG: a panel for each figure, a dot for each round, a line through the medians.

Plain text without a library, so that the same records make the same picture everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.record import OURS, Record
from benchmarks.stats import median

PANEL_WIDTH, PANEL_HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 250, 56, 20, 44, 38
PANELS_IN_A_ROW: Final = 3
TICKS: Final = 4
WIDE: Final = 30.0
"""An axis is logarithmic if its last value is at least so many times its first one."""
COLOURS: Final = ("#36c", "#c63", "#393", "#939", "#777")
LIMIT: Final = "bare limit"


@dataclass(frozen=True, slots=True)
class Axis:
    """The numbers from `low` to `high`, on a line from 0 to 1."""

    low: float
    high: float
    logarithmic: bool

    def place(self, value: float) -> float:
        """Return where a number stands."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return the numbers to write at it."""
        if not self.logarithmic:
            step = (self.high - self.low) / TICKS
            return [self.low + step * tick for tick in range(TICKS + 1)]
        base = 10.0 if self.high / self.low >= 100 else 2.0
        count = math.floor(math.log(self.high / self.low, base) + 1e-9)
        return [self.low * base**tick for tick in range(count + 1)]


def picture(title: str, records: Sequence[Record]) -> str:
    """Return an SVG of records that have a place (`at`)."""
    panels: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        panels.setdefault((record.what, record.unit), []).append(record)
    columns = min(PANELS_IN_A_ROW, len(panels))
    width = columns * PANEL_WIDTH
    height = -(-len(panels) // PANELS_IN_A_ROW) * PANEL_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="system-ui, sans-serif" font-size="11">',
        f"  <title>{escape(title)}</title>",
        f'  <rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, ((what, unit), those) in enumerate(panels.items()):
        row, column = divmod(number, PANELS_IN_A_ROW)
        lines.append(f'  <g transform="translate({column * PANEL_WIDTH} {row * PANEL_HEIGHT})">')
        lines += _panel(f"{what}, {unit}", those)
        lines.append("  </g>")
    return "\n".join([*lines, "</svg>", ""])


def _panel(title: str, records: Sequence[Record]) -> Iterator[str]:
    curves = _curves(records)
    across = _across([at for points in curves.values() for at, _ in points])
    values = [value for points in curves.values() for _, value in points]
    up = Axis(0.0, _round_up(max(values)), False)

    def place(at: float, value: float) -> tuple[float, float]:
        x = LEFT + across.place(at) * (PANEL_WIDTH - LEFT - RIGHT)
        return x, PANEL_HEIGHT - BOTTOM - up.place(value) * (PANEL_HEIGHT - BOTTOM - TOP)

    yield f'    <text x="10" y="18" font-weight="bold">{escape(title)}</text>'
    for value in up.ticks():
        _, y = place(across.low, value)
        yield f'    <path d="M{LEFT} {y:.1f} H{PANEL_WIDTH - RIGHT}" stroke="#ddd"/>'
        yield f'    <text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
    for at in across.ticks():
        x, _ = place(at, 0)
        yield (
            f'    <text x="{x:.1f}" y="{PANEL_HEIGHT - BOTTOM + 15}" text-anchor="middle">'
            f"{_short(at)}</text>"
        )
    middle, unit = (LEFT + PANEL_WIDTH - RIGHT) / 2, escape(records[0].at_unit)
    yield f'    <text x="{middle}" y="{PANEL_HEIGHT - 8}" text-anchor="middle">{unit}</text>'
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " L".join("{:.1f} {:.1f}".format(*place(*each)) for each in _medians(points))
        dashes = ' stroke-dasharray="4 3"' if name == LIMIT else ""
        yield f'    <path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        for each in points:
            x, y = place(*each)
            yield f'    <circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" opacity=".6"/>'
        if len(curves) > 1:
            yield (
                f'    <text x="{LEFT + number * 90}" y="34" fill="{colour}">{escape(name)}</text>'
            )


def _curves(records: Sequence[Record]) -> dict[str, list[tuple[float, float]]]:
    """Return the points of each side, and those of the bare limit where one was measured."""
    found: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        assert record.at is not None, "only figures with a place are drawn"
        found.setdefault(record.side, []).append((record.at, record.value))
        if record.limit is not None and record.side == OURS:
            found.setdefault(LIMIT, []).append((record.at, record.limit))
    return found


def _medians(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    places = sorted({at for at, _ in points})
    return [(at, median([value for x, value in points if x == at])) for at in places]


def _across(places: Sequence[float]) -> Axis:
    low, high = min(places), max(places)
    if low <= 0 or high / low < WIDE:
        return Axis(0.0, _round_up(high), False)
    return Axis(low, high, True)


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.4g}"


def _round_up(value: float) -> float:
    """Return the next number above that divides into four round ones."""
    if value <= 0:
        return 1.0
    unit: float = 10.0 ** math.floor(math.log10(value))
    return unit * next(step for step in (1, 2, 4, 8, 10) if unit * step >= value)
