"""Counts the calls of the product's functions in one process, on all threads.

A call is what `sys.setprofile` reports as one: a function that is entered, or a coroutine or
generator that goes on. Left out are comprehensions, which are calls in Python 3.11 only, and
`host/stall.py`, whose watch ticks whatever a caller does.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import paxosblock
from tests.waiting import wait_until_async

_ROOT: Final = f"{Path(paxosblock.__file__).parent}/"
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
_TICKS: Final = f"{_ROOT}host/stall.py"
QUIET_S: Final = 0.03
"""Seconds without a call after which what went before is over."""

Way = Counter[tuple[str, str]]
"""The count of calls of each function: of a file of the package, and a name in it."""


class Tracer:
    """Counts calls while `tracing` lasts."""

    def __init__(self) -> None:
        self._way: Way = Counter()
        self._called_s = 0.0

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Count on this thread and on those that are started from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    async def way_of(self, work: Awaitable[object]) -> Way:
        """Return the calls that `work` makes, once nothing else makes any."""
        self._called_s = time.monotonic()
        await wait_until_async(self._is_quiet, what="nothing is under way")
        await work
        way, self._way = self._way, Counter()
        return way

    def _is_quiet(self) -> bool:
        if self._way:
            self._way.clear()
            self._called_s = time.monotonic()
        return time.monotonic() > self._called_s + QUIET_S

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            file = code.co_filename
            if file.startswith(_ROOT) and file != _TICKS and code.co_name not in _COMPREHENSIONS:
                self._way[file.removeprefix(_ROOT), code.co_qualname] += 1


def files(way: Way) -> set[str]:
    """The files of the package through which a way goes."""
    return {file for file, _ in way}


def listed(way: Way) -> str:
    """A way in words, a line for each file."""
    lines = []
    for file in sorted(files(way)):
        calls = sorted((name, count) for (its, name), count in way.items() if its == file)
        named = ", ".join(name if count == 1 else f"{count} {name}" for name, count in calls)
        lines.append(f"{sum(count for _, count in calls):5} {file}: {named}\n")
    return "".join(lines)
