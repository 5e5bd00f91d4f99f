"""Processes that tests start themselves."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from typing import AnyStr


@contextlib.contextmanager
def killed_at_the_end(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """The process, which does not outlive the block: one that hangs fails its own test only."""
    with process:
        try:
            yield process
        finally:
            process.kill()
