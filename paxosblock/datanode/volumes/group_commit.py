"""Group commit: one `fdatasync` of a file covers every vote that waits for it.

A vote that comes while its file is being synced waits for the next sync, because the running one
may have passed its bytes already. It lives on the event loop; only the syncs run beside it: in the
kernel if that can (`kernel_syncs.py`), otherwise in threads.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from time import perf_counter

from paxosblock.base.durations import BOUNDS_S, Durations
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.errors import PaxosBlockError
from paxosblock.host.kernel_syncs import SYNCS_AT_ONCE, KernelSyncs

Done = Callable[[PaxosBlockError | None], None]
"""Called on the event loop once the bytes are on stable storage, or with the error after which they
may not be."""


class GroupCommit:
    """The syncs of one volume."""

    def __init__(
        self,
        executor: Executor,
        threads: int,
        kernel: KernelSyncs | None = None,
        step: Callable[[OpenFile], None] = OpenFile.sync,
    ) -> None:
        """Sync by the `kernel`; without one at most `threads` files at a time, each by `step` in a
        thread of `executor`."""
        self._executor = executor
        self._kernel = kernel
        self._step = step
        self._idle = threads if kernel is None else SYNCS_AT_ONCE
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[OpenFile, list[Done]] = {}
        self._ready: deque[OpenFile] = deque()
        self._syncing: set[OpenFile] = set()
        self.sync_count = 0
        """Syncs so far."""
        self.times = Durations()

    @property
    def waiting_count(self) -> int:
        """Files that wait or are being synced."""
        return len(self._waiting) + len(self._syncing)

    @property
    def ended_count(self) -> int:
        """Syncs that have ended."""
        return self.sync_count - len(self._syncing)

    def wait(self, file: OpenFile, done: Done) -> None:
        """Call `done` when everything that was written to `file` until now is durable."""
        waiters = self._waiting.get(file)
        if waiters is not None:
            waiters.append(done)
            return
        self._waiting[file] = [done]
        file.borrow()
        if file not in self._syncing:
            self._ready.append(file)
            self._start()

    def _start(self) -> None:
        while self._ready and self._idle:
            file = self._ready.popleft()
            waiters = self._waiting.pop(file)
            self._syncing.add(file)
            self._idle -= 1
            self.sync_count += 1
            synced = partial(self._synced, file, waiters, perf_counter())
            if self._kernel is None or not file.begin_sync(self._kernel, synced):
                self._executor.submit(self._sync, file, synced)

    def _sync(self, file: OpenFile, synced: Done) -> None:
        """Sync `file`, in a thread."""
        error: PaxosBlockError | None = None
        try:
            self._step(file)
        except PaxosBlockError as failure:
            error = failure
        self._loop.call_soon_threadsafe(synced, error)

    def _synced(
        self, file: OpenFile, waiters: list[Done], begun_s: float, error: PaxosBlockError | None
    ) -> None:
        took_s, times = perf_counter() - begun_s, self.times
        times.counts[bisect_left(BOUNDS_S, took_s)] += 1
        times.sum_s += took_s
        self._idle += 1
        self._syncing.discard(file)
        if file in self._waiting:
            self._ready.append(file)
        # Before the waiters are told, which takes the loop's time: the disk works meanwhile.
        if self._ready:
            self._start()
        file.release()
        for done in waiters:
            done(error)
