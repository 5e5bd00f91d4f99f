"""Processes that tests start themselves."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import AnyStr


@contextlib.contextmanager
def killed_at_the_end(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """The process, which does not outlive the block: one that hangs fails its own test only."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def memory_bytes(pid: int, which: str = "VmRSS") -> int:
    """Memory of a process: `VmRSS` what is in use, `VmHWM` the most that ever was."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{which}:")]
    return int(line.split()[1]) * 1024


def without_slow_steps(printed: str) -> str:
    """`-X dev` also tells what took a tenth of a second: on a busy machine anything may."""
    lines = printed.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("Executing <"))


def without_waiting(printed: str) -> str:
    """A command tells that it waits once that has taken two seconds, and on a busy machine anything
    may: this is the rest of its standard error."""
    lines = printed.splitlines(keepends=True)
    return "".join(line for line in lines if "waiting for the cluster at " not in line)
