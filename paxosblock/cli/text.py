"""Numbers and tables as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paxosblock.base.wording import LEAST_SHARE, counted, human_size, percent

__all__ = ["LEAST_SHARE", "aligned", "counted", "human_size", "percent", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of left-aligned columns, two spaces apart."""
    return list(aligned([head, *rows]))


def aligned(rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> Iterator[str]:
    """Yield the rows as lines of columns two spaces apart, some of them aligned on the right, as
    hdfs prints them.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            f"{cell:>{width}}" if column in right else f"{cell:<{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
