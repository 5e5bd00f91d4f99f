"""One end of a data stream: frames (wire.py) in and out of a socket, without copies.

`FrameConnection` is the same on both ends. It reads straight from the socket into one reused
buffer, header and payload side by side, so that a handler can write a received frame to disk with
one call. Payload checksums are the handler's business (`wire.verify_payload`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Callable
from typing import Final, Protocol, cast

from paxosblock.base.checksum import Buffer
from paxosblock.base.units import KIB, MIB
from paxosblock.errors import OutcomeUnknownError, PaxosBlockError
from paxosblock.host.logs import error_for_peer
from paxosblock.net.wire import (
    HEADER_BYTES,
    FrameKind,
    Header,
    decode_error,
    encode_error,
    verify_payload,
)

SOCKET_BUFFER_BYTES: Final = 4 * MIB
HIGH_WATER_BYTES: Final = 4 * MIB
SMALL_BUFFER_BYTES: Final = 64 * KIB
IDLE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class FrameHandler(Protocol):
    """The receiver of a connection's frames. All methods are called from the event loop."""

    def payload_buffer(self, header: Header) -> memoryview | None:
        """Return the buffer for this frame's payload; None for the connection's own buffer.

        A buffer must hold `header.payload_length` bytes. The frame then comes to
        `payload_received`, otherwise to `frame_received`. Empty payloads do not call this.
        """

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        """Handle a whole frame, header and payload; `frame` is valid during this call only.

        A `PaxosBlockError` raised here is sent to the peer, and the connection is closed.
        """

    def payload_received(
        self, connection: FrameConnection, header: Header, payload: memoryview
    ) -> None:
        """Handle `payload`, which the buffer from `payload_buffer` now holds."""

    def connection_lost(self, connection: FrameConnection, error: PaxosBlockError) -> None:
        """Note, as the last call, that no frame comes or goes any more, because of `error`."""


_PYTHON: Final = sys.version_info[:3]
WRITELINES_PAUSES: Final = not ((3, 12) <= _PYTHON < (3, 12, 9) or (3, 13) <= _PYTHON < (3, 13, 2))
"""False where asyncio's `writelines` never calls `pause_writing`, however much is unsent (CPython's
CVE-2024-12254): no sender would wait for a peer that does not read. There `write` does not copy."""


class FrameConnection(asyncio.BufferedProtocol):
    """One end of a data stream."""

    def __init__(
        self,
        handler: FrameHandler,
        peer: str,
        *,
        on_lost: Callable[[FrameConnection], None] | None = None,
    ) -> None:
        """`peer` is the other end's host:port; `drain` waits above `HIGH_WATER_BYTES` unsent."""
        self.peer = peer
        self.sent_bytes = 0
        """Bytes of the frames that `send` took."""
        self.received_bytes = 0
        """Bytes of frames, and of parts of one, that came from the peer."""
        self._handler = handler
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._error: PaxosBlockError | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self._view = memoryview(bytearray(SMALL_BUFFER_BYTES))
        self._start = 0  # of the frame that is being received
        self._end = 0  # of the bytes received so far
        self._limit = SMALL_BUFFER_BYTES  # read no further than this
        self._ahead = SMALL_BUFFER_BYTES  # bytes to read while the next frame's length is unknown
        self._header: Header | None = None
        self._sink: memoryview | None = None
        self._sunk = 0
        self._unsent: list[Buffer] = []
        """Frames of this turn of the event loop (`send_soon`)."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._reading_paused = False

    def __repr__(self) -> str:
        return f"<FrameConnection {self.peer}{' closed' if self.closed else ''}>"

    # -- sending --------------------------------------------------------------------------------

    def send(self, *buffers: Buffer) -> None:
        """Send the buffers one after the other; together they are whole frames.

        They are not copied: do not change their bytes until the peer has answered. Sending on a
        closed connection does nothing; `connection_lost` was called or will be.
        """
        if self._transport is not None and self._error is None:
            self.sent_bytes += sum(map(len, buffers))
            # Those of `send_soon` were sent before, and the peer takes frames in order.
            if self._unsent:
                self._flush()
            if WRITELINES_PAUSES:
                self._transport.writelines(buffers)
            else:
                for buffer in buffers:
                    self._transport.write(buffer)

    def send_soon(self, *buffers: Buffer) -> None:
        """As `send`, but together with all that is sent so in this turn of the event loop.

        Each sending costs a call of the system, and often a turn of the loop at the peer. The
        buffers are short: they are copied.
        """
        if self._transport is not None and self._error is None:
            self.sent_bytes += sum(map(len, buffers))
            if not self._unsent:
                asyncio.get_running_loop().call_soon(self._flush)
            self._unsent += buffers

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._transport is not None:
            self._transport.write(b"".join(unsent))

    def send_frame(self, header: Header, payload: Buffer = b"") -> None:
        """Send one frame; `header` has the length and checksum of `payload` (`Header.of`)."""
        if payload:
            self.send(header.pack(), payload)
        else:
            self.send(header.pack())

    def send_error(self, error: PaxosBlockError, request: int = 0) -> None:
        """Answer call `request` with an error; 0 is for the connection as a whole."""
        payload = encode_error(error)
        self.send_frame(Header.of(FrameKind.ERROR, payload, request=request), payload)

    async def drain(self) -> None:
        """Wait until less than the high-water mark is unsent.

        Raises:
            OutcomeUnknownError: the connection is lost; the bytes sent may have arrived.
        """
        if not self._writable.is_set():
            await self._writable.wait()
        if self._error is not None:
            raise OutcomeUnknownError(str(self._error), peer=self.peer)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- the connection's life ------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """True while less than the high-water mark is unsent."""
        return self._writable.is_set()

    @property
    def closed(self) -> bool:
        """True if no more frames can be sent."""
        return self._error is not None

    @property
    def error(self) -> PaxosBlockError | None:
        """The reason why the connection is closed; None while it is open."""
        return self._error

    @property
    def awaits_rest(self) -> bool:
        """True while only a part of a frame has come, and its rest would be read."""
        in_part = self._header is not None or self._start < self._end
        return in_part and not self._reading_paused

    @property
    def is_local(self) -> bool:
        """True if the peer has an address of this machine, as far as this end can tell."""
        transport = self._transport
        if transport is None:
            return False
        here, there = (transport.get_extra_info(name) for name in ("sockname", "peername"))
        return bool(here and there and here[0] == there[0])

    def pause_reading(self) -> None:
        """Stop reading from the socket; frames that were read already still come."""
        self._reading_paused = True
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        self._reading_paused = False
        if self._transport is not None and not self.closed:
            self._transport.resume_reading()

    def close(self, error: PaxosBlockError | None = None) -> None:
        """Close once everything is sent; with an error, tell the peer first."""
        if self._error is None and self._transport is not None:
            if error is not None:
                self.send_error(error)
            self._shut(error or OutcomeUnknownError(f"connection to {self.peer} was closed here"))

    def _shut(self, error: PaxosBlockError) -> None:
        self._error = error
        if self._transport is not None:
            # The transport sends what it has before it closes; it has no frames of `send_soon` yet.
            self._flush()
            self._transport.close()

    def abort(self, error: PaxosBlockError | None = None) -> None:
        """Close at once, because of `error`; what is unsent is lost."""
        if self._transport is not None:
            self._error = (
                self._error
                or error
                or OutcomeUnknownError(f"connection to {self.peer} was aborted here")
            )
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the handler's `connection_lost` was called."""
        await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        sock = self._transport.get_extra_info("socket")
        tune_socket(sock)
        _pace_nothing_on_this_machine(sock)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._error is None:
            reason = f"lost: {exc}" if exc else "closed by the peer"
            self._error = OutcomeUnknownError(f"connection to {self.peer} {reason}", peer=self.peer)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._transport = None
        # Wake `drain`, which then raises: no `resume_writing` comes any more.
        self._writable.set()
        self._closed.set()
        if self._on_lost is not None:
            self._on_lost(self)
        self._handler.connection_lost(self, self._error)

    # -- receiving ------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._sink is not None:
            return self._sink[self._sunk :]
        return self._view[self._end : self._limit]

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes
        try:
            if self._sink is None:
                self._end += nbytes
            else:
                self._sunk += nbytes
            self._deliver()
        except Exception as error:  # the peer is told of our own mistakes, too
            self.close(error_for_peer(error, f"a frame from {self.peer}", _log))

    def discard_payload(self) -> None:
        """Release the buffer from `payload_buffer` at once; the rest of the payload is dropped."""
        if self._sink is not None:
            # The rest still comes, and must be taken in: the next header is found behind it.
            self._sink = memoryview(bytearray(len(self._sink)))

    def _deliver(self) -> None:
        """Hand over every frame that is complete, then make room for the next read."""
        while self._error is None:
            header = self._header
            if header is None:
                if self._end - self._start < HEADER_BYTES:
                    break
                header = self._header = Header.unpack(self._view, self._start)
                if header.payload_length:
                    sink = self._handler.payload_buffer(header)
                    if sink is not None:
                        self._begin_sink(header, sink)
            deliver = self._deliver_buffered if self._sink is None else self._deliver_sunk
            if not deliver(header):
                break
        self._make_room()

    def _deliver_buffered(self, header: Header) -> bool:
        stop = self._start + HEADER_BYTES + header.payload_length
        if stop > self._end:
            return False
        frame = self._view[self._start : stop]
        self._start = stop
        self._header = None
        # Frames come in runs: expect another like this one. Reading a large frame exactly makes
        # the next one start at the buffer's front, and nothing has to be moved.
        self._busy = large = len(frame) > SMALL_BUFFER_BYTES
        self._ahead = len(frame) if large else SMALL_BUFFER_BYTES
        if header.kind is FrameKind.ERROR and header.request == 0:
            verify_payload(header, frame[HEADER_BYTES:])
            self._shut(decode_error(frame[HEADER_BYTES:]))
            return False
        self._handler.frame_received(self, header, frame)
        return True

    def _deliver_sunk(self, header: Header) -> bool:
        assert self._sink is not None
        if self._sunk < header.payload_length:
            return False
        payload, self._sink, self._header = self._sink, None, None
        # The next payload, too, is read into its own buffer, unless copying it costs less.
        large = len(payload) > SMALL_BUFFER_BYTES
        self._ahead = HEADER_BYTES if large else SMALL_BUFFER_BYTES
        self._handler.payload_received(self, header, payload)
        return True

    def _begin_sink(self, header: Header, sink: memoryview) -> None:
        """Copy into the payload's buffer `sink` the part that our buffer already has."""
        assert len(sink) >= header.payload_length
        begin = self._start + HEADER_BYTES
        self._sunk = min(self._end - begin, header.payload_length)
        self._start = begin + self._sunk
        sink[: self._sunk] = self._view[begin : self._start]
        self._sink = sink[: header.payload_length]

    def _make_room(self) -> None:
        """Choose how much the next read may take, and make room for it."""
        if self._sink is not None:
            return
        held = self._end - self._start
        header = self._header
        wanted = self._ahead if header is None else HEADER_BYTES + header.payload_length
        if not held and wanted <= len(self._view):
            self._start = self._end = 0
        elif not held or header is None or self._start + wanted > len(self._view):
            self._move_to_front(held, wanted)
        small = wanted <= SMALL_BUFFER_BYTES and self._ahead != HEADER_BYTES
        self._limit = len(self._view) if small else self._start + wanted

    def _move_to_front(self, held: int, wanted: int) -> None:
        old = self._view
        if wanted > len(old):
            self._view = memoryview(bytearray(wanted))
            self._watch_idleness()
        if held:
            self._view[:held] = old[self._start : self._end]
        self._start, self._end = 0, held

    def _watch_idleness(self) -> None:
        if self._idle_timer is None:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(IDLE_SECONDS, self._shrink_if_idle)

    def _shrink_if_idle(self) -> None:
        """Give a large buffer back: a node has many connections, and most of them are quiet."""
        self._idle_timer = None
        if self._busy or self._header is not None or self._start < self._end:
            self._busy = False
            self._watch_idleness()
        elif not self.closed:
            self._view = memoryview(bytearray(SMALL_BUFFER_BYTES))
            self._start = self._end = 0
            self._limit = self._ahead = SMALL_BUFFER_BYTES


def tune_socket(sock: socket.socket) -> None:
    """Set large buffers, which carry large chunks 2-3x faster, and let no small frame wait for an
    ack."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _pace_nothing_on_this_machine(sock: socket.socket) -> None:
    """Take `reno` where both ends are this machine: BBR, if that is the system's choice, spreads
    bytes over time for routers that are not there, and such a stream carries a third less."""
    # The peer may have left already; another system, or kernel, may have no such choice.
    with contextlib.suppress(OSError, AttributeError):
        if sock.getpeername()[0] == sock.getsockname()[0]:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
