"""The record of how a NameNode grows with its files, and the picture of it.

`python -m benchmarks.namenodes --only files --record` keeps what it measured in
results/growth.json, as often as it is run; `python -m benchmarks.growth` (`make generate`) draws
docs/pictures/growth.svg from that. Nothing is measured here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
RECORD: Final = REPOSITORY / "benchmarks" / "results" / "growth.json"
PICTURE: Final = REPOSITORY / "docs" / "pictures" / "growth.svg"

WIDTH, HEIGHT, PANEL, LEFT, TOP, BOTTOM = 900, 290, 290, 52, 60, 250
TICKS: Final = 4


@dataclass(frozen=True, slots=True)
class Point:
    """A run at one number of files. The names of the fields are those of the record."""

    files: int
    memory_mib: float
    level_again_s: float
    longest_stall_ms: float


TITLES: Final = {
    "memory_mib": "memory beyond an empty leader, MiB",
    "level_again_s": "a follower killed, started, level, s",
    "longest_stall_ms": "longest stall while files are made, ms",
}
"""Of the panels, by the field that each shows."""


def record(about: str, points: Sequence[Point]) -> None:
    """Keep the points of one more run, beside `about`: the machine, and the day."""
    runs = json.loads(RECORD.read_text()) if RECORD.exists() else []
    runs.append({"about": about, "points": [asdict(point) for point in points]})
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(runs, indent=1) + "\n")


def recorded() -> list[Point]:
    """Return the points of all runs."""
    runs = json.loads(RECORD.read_text())
    return [Point(**point) for run in runs for point in run["points"]]


def picture(points: Sequence[Point]) -> str:
    """Return an SVG with a panel for each field: a dot for each run, a line through the means."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="system-ui, sans-serif" font-size="12">',
        "  <title>A NameNode of three as the number of its files grows</title>",
        f'  <rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for number, field in enumerate(fields(Point)[1:]):
        sample = [(point.files, getattr(point, field.name)) for point in points]
        lines += _panel(LEFT + number * PANEL, TITLES[field.name], sample)
    return "\n".join([*lines, "</svg>", ""])


def _panel(left: int, title: str, sample: Sequence[tuple[int, float]]) -> Iterator[str]:
    right = left + PANEL - 70
    top_x, top_y = (_round_up(max(values)) for values in zip(*sample, strict=True))

    def place(files: float, value: float) -> tuple[float, float]:
        return left + files / top_x * (right - left), BOTTOM - value / top_y * (BOTTOM - TOP)

    yield f'  <text x="{left - 30}" y="30" font-weight="bold">{title}</text>'
    for tick in range(TICKS + 1):
        files, value = top_x * tick / TICKS, top_y * tick / TICKS
        x, y = place(files, value)
        yield f'  <path d="M{left} {y:.1f} H{right}" stroke="#ddd"/>'
        yield f'  <text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        words = f"{files / 1000:g}k" if tick else "0 files"
        yield f'  <text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{words}</text>'
    counts = sorted({files for files, _ in sample})
    means = [_mean([value for at, value in sample if at == files]) for files in counts]
    path = " L".join(
        "{:.1f} {:.1f}".format(*place(*each)) for each in zip(counts, means, strict=True)
    )
    yield f'  <path d="M{path}" fill="none" stroke="#36c" stroke-width="2"/>'
    for each in sample:
        x, y = place(*each)
        yield f'  <circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#36c" fill-opacity=".6"/>'


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _round_up(value: float) -> float:
    """Return the next number above that divides into four round ones."""
    unit = 10.0 ** math.floor(math.log10(value))
    return unit * next(step for step in (1, 2, 4, 8, 10) if unit * step >= value)


def main() -> None:
    """Draw it."""
    PICTURE.write_text(picture(recorded()), encoding="utf-8")


if __name__ == "__main__":
    main()
