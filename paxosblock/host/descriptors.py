"""File descriptors of a node: as many as the system allows, some kept for what must not fail.

Connections may come by the thousand, and a vote that cannot be written for lack of a descriptor
would stop a NameNode. So a node keeps some descriptors open on nothing; code that must open a file
and cannot gets one of those (`opening`), and the reserve is filled up again later.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import threading
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

RESERVE_COUNT: Final = 32
"""A vote takes two at a time, and so does a new piece of a log; several threads do such things."""
PATIENCE_S: Final = 5.0
"""Seconds a thread waits for a descriptor when those in reserve are used up."""

_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)
_LOOK_AGAIN_S: Final = 0.01


def raise_limit() -> int:
    """Raise the limit of descriptors as far as the system allows; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def scarce() -> bool:
    """True if less than an eighth of the limit of this process is left: nothing new should begin.

    The system gives the lowest number that is free, so that many are in use below a high one.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        probe = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if not is_shortage(error):
            raise
        return True
    os.close(probe)
    return probe >= most - most // 8


def is_shortage(error: OSError) -> bool:
    """True if the only trouble was that no descriptor was left: it may succeed later."""
    return error.errno in _NONE_LEFT


class Reserve:
    """Descriptors that are open on nothing. Any thread may use it."""

    def __init__(self) -> None:
        """Hold none: a program that is no node needs none."""
        self._wanted = 0
        self._held: list[int] = []
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Return the number of descriptors held now."""
        return len(self._held)

    def keep(self, count: int) -> None:
        """Hold `count` from now on, or as many as there are."""
        self._wanted = count
        self.refill()

    def refill(self) -> None:
        """Fill the reserve up again, as far as there are descriptors."""
        if len(self._held) >= self._wanted:
            return
        with self._lock:
            try:
                while len(self._held) < self._wanted:
                    self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                if not is_shortage(error):
                    raise

    def give(self) -> bool:
        """Release one for the next file that is opened; return False if none is left."""
        with self._lock:
            if not self._held:
                return False
            os.close(self._held.pop())
            return True

    def let_go(self) -> None:
        """Hold none any more."""
        self._wanted = 0
        while self.give():
            pass


RESERVE: Final = Reserve()
"""The reserve of this process."""


def opening(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `call`, which opens a file or a folder and changes nothing if it cannot.

    When no descriptor is left it gets one from the reserve. When that is used up, too, a thread
    waits for one; the event loop must not wait.

    Raises: what `call` raises; OSError for the lack of a descriptor only when it lasted.
    """
    deadline_s: float | None = None
    while True:
        try:
            result = call(*args, **kwargs)
        except OSError as error:
            if not is_shortage(error):
                raise
            if RESERVE.give():
                continue
            if asyncio._get_running_loop() is not None:
                raise
            deadline_s = deadline_s or time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_LOOK_AGAIN_S)
        else:
            RESERVE.refill()
            return result


def close(file: int) -> None:
    """Close the file; the reserve takes back what it lacks."""
    os.close(file)
    RESERVE.refill()
