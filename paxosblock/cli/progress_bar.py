"""A progress bar on standard error, when that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Advance = Callable[[int], None]
"""Tells the bar how many more bytes are done."""


def shows_bar(*, wanted: bool = True) -> bool:
    """True if a bar is wanted and there is a terminal for it."""
    return wanted and sys.stderr.isatty()


@contextlib.contextmanager
def progress_bar(what: str, total_bytes: int | None, *, wanted: bool = True) -> Iterator[Advance]:
    """Yield a bar for `total_bytes` (None: unknown); silent if it is not wanted or there is no
    terminal.
    """
    if not shows_bar(wanted=wanted):
        yield lambda _: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Speed(ProgressColumn):
        """A column in the units of the bytes beside it; rich's own counts in powers of 1000."""

        def render(self, task: Task) -> Text:
            return Text(speed_text(task.finished_speed or task.speed))

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        Speed(),
        TimeRemainingColumn(),
    )
    with _shown(*columns) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda count: progress.advance(task, count)


@contextlib.contextmanager
def count_bar(what: str, *, wanted: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yield a bar for a count of things out of a total; silent when `progress_bar` is."""
    if not shows_bar(wanted=wanted):
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with _shown(*columns) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _shown(*columns: ProgressColumn) -> Progress:
    """Print lines above the bar meanwhile, unless standard output goes somewhere else."""
    from rich.console import Console
    from rich.progress import Progress

    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )


def speed_text(bytes_per_s: float | None) -> str:
    """Return a speed for people; "" while it is not known."""
    if bytes_per_s is None:
        return ""
    from rich.filesize import pick_unit_and_suffix

    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    unit, suffix = pick_unit_and_suffix(int(bytes_per_s), units, 1024)
    return f"{bytes_per_s / unit:.1f} {suffix}/s"
