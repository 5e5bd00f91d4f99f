"""A timer of the highest priority, in a process of its own, beside what is measured.

    python -m benchmarks.late_timer    # a line on standard input: the longest delay since the last

What delays it delays everything: the host took the processors away (steal), or the kernel kept
them. So a turn of a node's loop of 40 ms beside a timer that was 16 ms late says 24 ms of the node.
A process without the right to real-time priority asks for the highest other one that it may have.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import Final, Self

EVERY_S: Final = 0.005
REAL_TIME: Final = 50
"""Of the priorities 1 to 99 that wait for no ordinary process."""
HIGHEST: Final = -20


class LateTimer:
    """The timer's process, for as long as the `with` block runs."""

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.late_timer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.take()  # what its start took does not count
        return self

    def take(self) -> float:
        """Return its longest delay since the last call, in seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.communicate()  # the end of its input ends it


def run() -> None:
    """Be late, and answer each line of standard input, until it ends."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REAL_TIME))
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    longest_s, due_s = 0.0, time.monotonic() + EVERY_S
    while True:
        asked, _, _ = select.select([0], [], [], max(0.0, due_s - time.monotonic()))
        now_s = time.monotonic()
        if now_s >= due_s:
            longest_s, due_s = max(longest_s, now_s - due_s), now_s + EVERY_S
        if asked:
            if not os.read(0, 1):
                return
            sys.stdout.write(f"{longest_s:.6f}\n")
            sys.stdout.flush()
            longest_s = 0.0


if __name__ == "__main__":
    run()
