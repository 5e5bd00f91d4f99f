"""The HTTP of a node: aiohttp's, with a time-out for heads, and without tracebacks for bytes that
are not HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from paxosblock.base.units import KIB
from paxosblock.net.port.admission import Rank, Slot
from paxosblock.net.port.refusals import Refusal, Refusals
from paxosblock.net.port.unread import UnreadWatch

STALL_S: Final = 10.0
"""Seconds for which a peer may send or read nothing of what is under way."""
_STRANGE: Final = (HttpProcessingError, RequestPayloadError, ConnectionResetError)
"""Errors that peers cause: they are no defect of ours, so they get no traceback."""
REFUSED_S: Final = 1.0
"""Seconds for which the rest of a refused request is read, so that its caller sees the refusal."""


class HeadWatch:
    """Closes connections that wait too long for the head of a request."""

    def __init__(self, timeout_s: float, refusals: Refusals) -> None:
        """Start without connections."""
        self.refusals = refusals
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._due_s: dict[HttpConnection, float] = {}  # in the order of time: all wait as long
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: HttpConnection) -> None:
        """Wait for its head from now on, unless it waits already."""
        if connection not in self._due_s:
            self._due_s[connection] = self._loop.time() + self._timeout_s
            if self._timer is None:
                self._timer = self._loop.call_later(self._timeout_s, self._close_late)

    def end(self, connection: HttpConnection) -> None:
        """Note that the head came, or that the connection no longer waits."""
        self._due_s.pop(connection, None)

    def close(self) -> None:
        """Stop watching."""
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

    HEAD_BYTES_MAX: ClassVar = 16 * KIB
    """Bytes of a head that may have come before its end: the memory of one that proved nothing
    yet."""
    BOUNDS: ClassVar[Mapping[str, Any]] = {
        "max_line_size": 4096,
        "max_field_size": 4096,
        "max_headers": 64,
    }
    """The bounds of aiohttp's parser, which also reads heads ahead while a request is answered."""

    __slots__ = (
        "_handed_over",
        "_head_bytes",
        "_heads",
        "_unread",
        "_used_s",
        "reads_body",
        "slot",
    )

    def __init__(
        self, server: web.Server, heads: HeadWatch, slot: Slot, stall_s: float = STALL_S
    ) -> None:
        """`server` has the handler of its requests; an answer that its peer does not read for
        `stall_s` is given up."""
        loop = asyncio.get_running_loop()
        quiet: dict[str, Any] = {"access_log": None}  # as aiohttp itself does; it has no type
        super().__init__(
            server,
            loop=loop,
            auto_decompress=False,
            lingering_time=REFUSED_S,
            **self.BOUNDS,
            **quiet,
        )
        self.slot = slot
        self.reads_body = False
        """True while it waits for the rest of a body, and nothing is done for it."""
        self._unread = UnreadWatch(stall_s, self._give_up_unread)
        self._head_bytes = 0
        self._heads = heads
        self._handed_over = False
        self._used_s = loop.time()
        slot.holder = self

    # -- for the admission ------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """True while it waits for its next request, or the rest of one, or reads a refused one."""
        return self.reads_body or not (self._request_in_progress or self._messages)

    @property
    def idle_rank(self) -> tuple[Rank, float]:
        """Ranks connections that never had a request first, then those that wait longest."""
        if not self._request_count:
            return Rank.UNUSED, self._used_s
        return Rank.HALF if self.reads_body else Rank.USED, self._used_s

    def dismiss(self) -> None:
        """Close it, even if its peer does not read what was answered, or is not answered yet."""
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.begin(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.end()

    def _give_up_unread(self) -> None:
        self._heads.refusals.count(Refusal.ANSWER_UNREAD, self.slot.address)
        self.dismiss()

    # -- its life ---------------------------------------------------------------------------------

    def hand_over(self) -> Slot:
        """Return the slot; the next owner of the connection must release it."""
        self._handed_over = True
        self.slot.holder = None
        return self.slot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._heads.begin(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        # Between requests its task may read the rest of a refused body: no more of that comes.
        idle_task = None if self._request_in_progress else self._task_handler
        super().connection_lost(exc)
        if idle_task is not None:
            idle_task.cancel()
        self._heads.end(self)
        self._unread.end()
        if not self._handed_over:
            self.slot.release()

    def data_received(self, data: bytes) -> None:
        before = self._request_count
        super().data_received(data)
        self._used_s = self._loop.time()
        if self._request_count > before:
            self._heads.end(self)
            self._head_bytes = 0
            self._forget_what_was_refused()
        elif self._waiter is not None and not self._waiter.done():
            self._heads.begin(self)
            self._head_bytes += len(data)
            if self._head_bytes > self.HEAD_BYTES_MAX:
                self._heads.refusals.count(Refusal.MALFORMED, self.slot.address)
                self.dismiss()

    def _forget_what_was_refused(self) -> None:
        """Let go of the bytes of a head that is no HTTP: its error has a frame, which has the error
        and the bytes, and as much as 256 KiB stayed until the garbage was collected."""
        for message, _ in self._messages:
            error = getattr(message, "exc", None)
            while isinstance(error, BaseException):
                error.__traceback__ = None
                error = error.__context__

    # -- what is no HTTP --------------------------------------------------------------------------

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """As aiohttp's; count bytes that are no HTTP."""
        if isinstance(exc, HttpProcessingError):
            self._heads.refusals.count(Refusal.MALFORMED, self.slot.address)
        return super().handle_error(request, status, exc, message)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log only our own defects.

        Outside of a handler none is left when the connection is gone: aiohttp, which reads the rest
        of a refused request, takes it for a defect of the program that no more can come.
        """
        gone = self.transport is None and args[:1] == ("Unhandled exception",)
        if not gone and not isinstance(kw.get("exc_info"), _STRANGE):
            super().log_exception(*args, **kw)


def slot_of(request: web.BaseRequest) -> Slot:
    """Return the slot of the connection on which a request came."""
    connection = request.protocol
    return connection.slot if isinstance(connection, HttpConnection) else Slot(None, "")
