"""The node's side of a data stream: `GET /stream` becomes a `FrameConnection` (`stream.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from paxosblock.errors import DeadlineError, PaxosBlockError, UnavailableError
from paxosblock.net.message_frames import NAME_BYTES_MAX, new_name
from paxosblock.net.port import upgrade_server
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.admission import Rank, Slot
from paxosblock.net.port.caller import CALLER, REQUEST_ID, REQUEST_NAME
from paxosblock.net.port.doorkeeper import Doorkeeper
from paxosblock.net.port.http_server import STALL_S
from paxosblock.net.port.refusals import Refusal, Refusals
from paxosblock.net.port.upgrade import STREAM, close_ends
from paxosblock.net.streams.connection import FrameConnection, FrameHandler

MakeHandler = Callable[[web.Request], FrameHandler]


def upgrade_handler(
    app: web.Application,
    make_handler: MakeHandler,
    *,
    stall_s: float = STALL_S,
    refusals: Refusals | None = None,
    access: Access = OPEN,
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return the handler of `GET /stream`, for `add_without_token(app, STREAM.path, ...)`.

    `make_handler` makes the `FrameHandler` of a new connection, whose caller is in `CALLER` then,
    and its name for the logs in `REQUEST_ID`; a
    `PaxosBlockError` that it raises refuses the connection. `access` has the secret that both ends
    prove. When `app` shuts down, the open streams are closed.

    A connection on which no first frame, or not the rest of a frame, comes for `stall_s` is closed
    and counted in `refusals`; any other may be silent.
    """
    connections: dict[FrameConnection, Slot] = {}
    refused = refusals or Refusals()
    watch = _StallWatch(stall_s, refused)

    def lost(connection: FrameConnection) -> None:
        connections.pop(connection).release()
        watch.end(connection)

    async def answer(request: web.Request) -> web.StreamResponse:
        if not upgrade_server.asks_for(STREAM, request):
            return upgrade_server.unknown_protocol(STREAM)
        try:
            caller = await upgrade_server.connected_caller_of(request, access, refused)
            CALLER.set(caller)
            REQUEST_ID.set(request.headers.get(REQUEST_NAME, "")[:NAME_BYTES_MAX] or new_name())
            has_token = caller.token is not None
            doorkeeper = Doorkeeper.of(access, request, refused, stays=True, has_token=has_token)
            handler = make_handler(request)
        except PaxosBlockError as error:
            return upgrade_server.refusal(error)
        transport = request.transport
        if transport is not None:
            connection = FrameConnection(handler, upgrade_server.peer_of(transport), on_lost=lost)
            slot = upgrade_server.take_over(request, transport, STREAM, connection, doorkeeper)
            connections[connection] = slot
            slot.holder = _Unused(connection)
            watch.begin(connection)
        return web.Response(status=101)  # only the access log sees it: the connection is gone

    async def close_all(_app: web.Application) -> None:
        await close_ends(tuple(connections))

    app.on_shutdown.append(close_all)
    return answer


class _Unused:
    """The holder of a stream's slot, which it may have to give up before the first frame."""

    def __init__(self, connection: FrameConnection) -> None:
        self._connection = connection
        self._since_s = asyncio.get_running_loop().time()

    @property
    def idle(self) -> bool:
        return self._connection.received_bytes == 0

    @property
    def idle_rank(self) -> tuple[Rank, float]:
        return Rank.UNUSED, self._since_s

    def dismiss(self) -> None:
        self._connection.close(UnavailableError("the node needs the connection for others"))


class _StallWatch:
    """Looks every `stall_s` for streams whose peer has begun a frame and does not go on."""

    def __init__(self, stall_s: float, refusals: Refusals) -> None:
        self._stall_s, self._refusals = stall_s, refusals
        self._received: dict[FrameConnection, int | None] = {}  # at the last look
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: FrameConnection) -> None:
        self._received[connection] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._stall_s, self._check_progress)

    def end(self, connection: FrameConnection) -> None:
        del self._received[connection]
        if not self._received and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_progress(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._stall_s, self._check_progress)
        for connection, before in self._received.items():
            now = connection.received_bytes
            due = now == 0 or connection.awaits_rest
            if due and now == before:
                self._give_up(connection)
            self._received[connection] = now

    def _give_up(self, connection: FrameConnection) -> None:
        why = Refusal.BODY_STALLED if connection.received_bytes else Refusal.NO_HEAD
        self._refusals.count(why, connection.peer)
        connection.abort(DeadlineError(f"{connection.peer} did not send the rest of a frame"))
