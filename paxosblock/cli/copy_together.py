"""Copies the files of a directory, several at once: each waits for the cluster most of its time."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from paxosblock.cli.invocation import Invocation
from paxosblock.cli.progress_bar import Advance

AT_ONCE: Final = 8
AHEAD: Final = 4
"""Files for each thread that are given to them before the first is done: it may be a long one."""


@dataclass(frozen=True, slots=True)
class CopyJob:
    """A file to be copied, and its target."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Copied:
    """A file that was copied; `warning` says how it is not as it was asked for."""

    job: CopyJob
    size_bytes: int
    warning: str = ""

    def tell(self, invocation: Invocation) -> None:
        """Tell it to who asked for it."""
        source, target = self.job.source, self.job.target
        if self.warning:
            invocation.warn(target, f"warning: {self.warning}")
        invocation.tell({"source": source, "path": target, "size_bytes": self.size_bytes})


CopyOne = Callable[[CopyJob, Advance], Copied]


class _CopyStoppedError(Exception):
    """The command ends, so this copy ends, too, and takes back what it has begun."""


def copy_together(
    invocation: Invocation,
    jobs: Iterable[CopyJob],
    copy: CopyOne,
    advance: Advance,
    at_once: int = AT_ONCE,
) -> None:
    """Copy all of them; tell each one, and each that failed, in their order. What cannot be copied
    does not hold up the others.
    """
    with contextlib.closing(_copies(invocation, jobs, copy, advance, at_once)) as copies:
        invocation.for_each(copies, lambda each: each.result().tell(invocation))


def _copies(
    invocation: Invocation,
    jobs: Iterable[CopyJob],
    copy: CopyOne,
    advance: Advance,
    at_once: int,
) -> Generator[Future[Copied], None, None]:
    """Yield the copies in the order of their jobs; when this is closed all of them have ended."""
    stop, hearing = threading.Event(), threading.local()

    def check() -> None:
        """Raise once in each thread: what it takes back then may wait for the cluster again."""
        if stop.is_set() and not hasattr(hearing, "stopped"):
            hearing.stopped = True
            raise _CopyStoppedError

    def go_on(count: int) -> None:
        check()
        advance(count)

    def while_waiting(waited_s: float) -> None:
        check()
        invocation.tell_waiting(waited_s)

    client, waiting = invocation.client, deque[Future[Copied]]()
    client.while_waiting(while_waiting)
    threads = ThreadPoolExecutor(at_once, "copy")
    try:
        for job in jobs:
            waiting.append(threads.submit(copy, job, go_on))
            if len(waiting) == AHEAD * at_once:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        stop.set()
        threads.shutdown(cancel_futures=True)
        client.while_waiting(invocation.tell_waiting)
