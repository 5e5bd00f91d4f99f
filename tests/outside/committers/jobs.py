"""Jobs that a driver of Spark does, and the driver as a process that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.make_api import REPOSITORY

READY: Final = "ready"
ENDED: Final = "ended"
PARTS: Final = 4
"""Tasks, and files, of a job."""


@dataclass(frozen=True, slots=True)
class Job:
    """One that writes `rows` numbers from `first` on to a table, by Spark's mode `mode`."""

    url: str
    mode: str
    first: int
    rows: int

    @property
    def ids(self) -> range:
        """Return the numbers."""
        return range(self.first, self.first + self.rows)


class Driver:
    """A running driver."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, job: Job) -> bool:
        """Do a job; False if the driver was killed before it could tell the end.

        Raises:
            AssertionError: the job failed.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(job)) + "\n")
            self._process.stdin.flush()
            self.hear(ENDED)
        except (BrokenPipeError, EOFError):
            return False
        return True

    def hear(self, wanted: str) -> None:
        """Wait for a line. Raises EOFError: the driver has ended."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.strip() == wanted:
                return
            assert not line.startswith("failed"), line
        raise EOFError

    def kill(self) -> None:
        """Kill it and its JVM, which are one group of processes."""
        os.killpg(self._process.pid, signal.SIGKILL)


@contextlib.contextmanager
def driver(settings: Mapping[str, str], log: Path) -> Iterator[Driver]:
    """Start one that is ready for jobs; it ends with the block."""
    command = [sys.executable, "-m", "tests.outside.committers.driver", json.dumps(dict(settings))]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=REPOSITORY,
            start_new_session=True,
        )
    with process:
        running = Driver(process)
        try:
            running.hear(READY)
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):
                running.kill()
