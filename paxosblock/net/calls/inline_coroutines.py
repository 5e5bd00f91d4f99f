"""Coroutines that go on without a task: a call on the catalog waits once, for the journal.

A task costs as much as a tenth of such a call. A coroutine that runs like this may await futures,
locks and pauses; it must not ask for its task (`asyncio.current_task`, `asyncio.timeout`).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any


class InlineCoroutine:
    """A coroutine that was begun; each of its steps runs when what it waits for is over."""

    __slots__ = ("_context", "_coroutine", "_ended", "_waits_for")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        waits_for: Any,
        context: contextvars.Context,
        ended: Callable[[InlineCoroutine], None],
    ) -> None:
        """Go on with it in `context`; its first step yielded `waits_for`.

        `ended` is called after its last step, but not after `cancel`.
        """
        self._coroutine = coroutine
        self._context = context
        self._ended = ended
        self._wait(waits_for)

    def cancel(self) -> None:
        """End it where it waits."""
        if self._waits_for is not None:
            self._waits_for.remove_done_callback(self._advance)
        self._coroutine.close()

    def _wait(self, waits_for: Any) -> None:
        self._waits_for = waits_for
        if waits_for is None:  # a turn for others
            asyncio.get_running_loop().call_soon(self._advance, context=self._context)
        else:
            waits_for._asyncio_future_blocking = False  # as a task does when it takes a future
            waits_for.add_done_callback(self._advance, context=self._context)

    def _advance(self, _: object = None) -> None:
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration:
            self._ended(self)
        except BaseException:
            self._ended(self)
            raise
        else:
            self._wait(waits_for)
