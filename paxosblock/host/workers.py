"""Several processes that do the same work: forked, watched, started again, and ended together.

They are forked, so that all have the settings and the code of the first one,
also one that is started again later, and share the memory of what was imported.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from paxosblock.host.logs import facts
from paxosblock.host.process import Child, die_with

FIRST_PAUSE_S: Final = 0.1
"""Seconds until a worker that ended is started again; twice as many when it ends soon again."""
MOST_PAUSE_S: Final = 30.0
LIVED_S: Final = 60.0
"""Seconds after which a worker that ends counts as one that was well."""
END_WITHIN_S: Final = 30.0
"""Seconds that workers have to end when they are asked to."""
_ENDS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_WATCHED: Final = _ENDS | {signal.SIGCHLD}

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Worker:
    number: int
    child: Child | None = None
    started_s: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    due_s: float = 0.0
    """The time at which it is started, while it does not run."""


class Workers:
    """Processes that this one forks, numbered from 1. They die with it.

    Both methods return as `os.fork` does: in the new process, too, which goes on from there. So
    this process must have one thread, which has no event loop.
    """

    def __init__(self, count: int) -> None:
        self._workers = tuple(_Worker(number) for number in range(1, count + 1))
        self._ready: int | None = None

    def start(self) -> int | None:
        """Start them, each when the one before is ready.

        Returns:
            The number of a worker in each of them; None in this process, once all are ready.

        Raises:
            SystemExit: one ended before it was ready, and has told why: with its exit code.
        """
        for worker in self._workers:
            heard, told = os.pipe()
            if self._fork(worker):
                os.close(heard)
                self._ready = told
                return worker.number
            os.close(told)
            with os.fdopen(heard, "rb") as ready:
                if not ready.read(1):
                    assert worker.child is not None, "it was forked"
                    code = worker.child.exit_code(wait=True) or 1
                    worker.child = None
                    self._end_all()
                    sys.exit(code if code > 0 else 1)
        return None

    def tell_ready(self) -> None:
        """Say in a worker that it is ready."""
        if self._ready is not None:
            os.write(self._ready, b".")
            os.close(self._ready)
            self._ready = None

    def watch(self) -> int | None:
        """Start a worker again that ends, until SIGTERM or SIGINT; then end all of them.

        Returns:
            As `start`; None in this process when all have ended.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        while True:
            self._note_ended()
            now_s = time.monotonic()
            for worker in self._stopped():
                if worker.due_s <= now_s and self._fork(worker):
                    return worker.number
            until_s = min((each.due_s for each in self._stopped()), default=now_s + MOST_PAUSE_S)
            came = signal.sigtimedwait(_WATCHED, max(0.0, until_s - now_s))
            if came is not None and came.si_signo in _ENDS:
                self._end_all()
                return None

    def _stopped(self) -> Iterator[_Worker]:
        return (each for each in self._workers if each.child is None)

    def _fork(self, worker: _Worker) -> bool:
        """Start a worker; return True in it."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with(parent)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
            return True
        worker.child, worker.started_s = Child(pid), time.monotonic()
        return False

    def _note_ended(self) -> None:
        """Plan another start for those that have ended."""
        now_s = time.monotonic()
        for worker in self._workers:
            if worker.child is None or (code := worker.child.exit_code()) is None:
                continue
            if now_s - worker.started_s >= LIVED_S:
                worker.pause_s = FIRST_PAUSE_S
            told = facts(worker=worker.number, pid=worker.child.pid, again_in_s=worker.pause_s)
            _log.warning("a worker %s, and is started again", _how(code), extra=told)
            worker.child, worker.due_s = None, now_s + worker.pause_s
            worker.pause_s = min(MOST_PAUSE_S, 2 * worker.pause_s)

    def _end_all(self) -> None:
        """Ask all to end, and kill those that do not do so in time."""
        running = [each.child for each in self._workers if each.child is not None]
        for child in running:
            if child.exit_code() is None:
                os.kill(child.pid, signal.SIGTERM)
        until_s = time.monotonic() + END_WITHIN_S
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        while any(child.exit_code() is None for child in running):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                break
            signal.sigtimedwait({signal.SIGCHLD}, left_s)
        for child in running:
            if child.exit_code() is None:
                _log.warning("a worker did not end, and is killed", extra=facts(pid=child.pid))
                os.kill(child.pid, signal.SIGKILL)
                child.exit_code(wait=True)


def _how(code: int) -> str:
    """Return how a process ended that has this exit code."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # a signal of real time
        return f"was ended by signal {-code}"
