"""The event loop that the processes of this package run on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:  # there is none for Windows and for some interpreters
    _new_loop = asyncio.new_event_loop
else:
    _new_loop = uvloop.new_event_loop

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of uvloop if it is here (docs/dependencies.md has the gain), else asyncio's."""
    return _new_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on the loop of `new_event_loop`."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
