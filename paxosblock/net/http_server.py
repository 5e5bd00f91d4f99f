"""The HTTP of a node: aiohttp's, with a time-out for heads, and quiet about what is not HTTP."""

from __future__ import annotations

import asyncio
import functools
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from paxosblock.net.admission import Slot
from paxosblock.net.refusals import Refusal, Refusals

_STRANGE: Final = (HttpProcessingError, RequestPayloadError, ConnectionResetError)
"""Errors that peers cause: no mistake of ours, so no traceback."""


class HeadWatch:
    """The connections that wait for the head of a request, closed when it comes too late."""

    def __init__(self, timeout_s: float, refusals: Refusals) -> None:
        """Nothing is awaited yet."""
        self.refusals = refusals
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._due_s: dict[HttpConnection, float] = {}  # in the order of time: all wait as long
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: HttpConnection) -> None:
        """Wait for its head from now on, unless that is so already."""
        if connection not in self._due_s:
            self._due_s[connection] = self._loop.time() + self._timeout_s
            if self._timer is None:
                self._timer = self._loop.call_later(self._timeout_s, self._close_late)

    def end(self, connection: HttpConnection) -> None:
        """Note that it came, or that nobody waits any more."""
        self._due_s.pop(connection, None)

    def close(self) -> None:
        """Watch no longer."""
        self._due_s.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _close_late(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        while self._due_s:
            connection, due_s = next(iter(self._due_s.items()))
            if due_s > now_s:
                self._timer = self._loop.call_at(due_s, self._close_late)
                return
            del self._due_s[connection]
            self.refusals.count(Refusal.NO_HEAD, connection.slot.address)
            connection.dismiss()


class HttpConnection(RequestHandler):
    """One connection of a client, with a slot."""

    __slots__ = ("_handed_over", "_heads", "_used_s", "slot")

    def __init__(self, server: web.Server, heads: HeadWatch, slot: Slot) -> None:
        """`server` has the handler of its requests."""
        loop = asyncio.get_running_loop()
        quiet: dict[str, Any] = {"access_log": None}  # as aiohttp itself does; it has no type
        super().__init__(server, loop=loop, auto_decompress=False, **quiet)
        self.slot = slot
        self._heads = heads
        self._handed_over = False
        self._used_s = loop.time()
        if slot.spare:
            self._request_factory = functools.partial(_the_last, self._request_factory)
        else:
            slot.holder = self

    # -- for the admission ------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True while it waits for a next request."""
        return self._waiter is not None and not self._waiter.done()

    @property
    def idle_rank(self) -> tuple[bool, float]:
        """First those on which no request ever came, then those that wait longest."""
        return self._request_count > 0, self._used_s

    def dismiss(self) -> None:
        """Close it."""
        self.force_close()

    # -- its life ---------------------------------------------------------------------------------

    def hand_over(self) -> Slot:
        """Return the slot, which whoever goes on with the connection must release."""
        self._handed_over = True
        self.slot.holder = None
        return self.slot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._heads.begin(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        # Between requests its task may read the rest of a body that was refused: no more comes.
        idle_task = None if self._request_in_progress else self._task_handler
        super().connection_lost(exc)
        if idle_task is not None:
            idle_task.cancel()
        self._heads.end(self)
        if not self._handed_over:
            self.slot.release()

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        super().data_received(data)
        self._used_s = self._loop.time()
        if self._request_count > before:
            self._heads.end(self)
        elif self.idle:
            self._heads.begin(self)

    # -- what is no HTTP --------------------------------------------------------------------------

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """As aiohttp's; what is no HTTP is counted."""
        if isinstance(exc, HttpProcessingError):
            self._heads.refusals.count(Refusal.MALFORMED, self.slot.address)
        return super().handle_error(request, status, exc, message)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log mistakes of ours only."""
        if not isinstance(kw.get("exc_info"), _STRANGE):
            super().log_exception(*args, **kw)


def _the_last(make: Any, message: RawRequestMessage, *rest: Any) -> web.BaseRequest:
    """Make a request after whose answer the connection is closed."""
    request: web.BaseRequest = make(message._replace(should_close=True), *rest)
    return request
