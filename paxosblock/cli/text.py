"""Numbers and tables as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from paxosblock.base.wording import LEAST_SHARE, counted, human_size, percent

__all__ = ["LEAST_SHARE", "counted", "human_size", "percent", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of left-aligned columns, two spaces apart."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
