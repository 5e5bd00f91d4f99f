"""The bases of files in `sync.py`: io.RawIOBase on the outside, asyncio on another thread.

Small writes and reads stay on the caller's side and cross to the other thread once per chunk.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar

from paxosblock.api.namenode import FileStatus
from paxosblock.api.transaction import Operation
from paxosblock.base.checksum import Buffer
from paxosblock.base.units import MIB
from paxosblock.client.blocking.loop_thread import BackgroundCall, OtherLoop
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.errors import InvalidRequestError, PaxosBlockError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

COPIED_AT_ONCE_BYTES: Final = 4 * MIB


class _HandedOver(NamedTuple):
    """A write for the other thread, started or not, and where the file stands before it."""

    data: bytes | memoryview
    start: int
    running: BackgroundCall[int]


class Sink(Protocol):
    """A file on the other thread that is being written, such as an `AsyncFileWriter`."""

    chunk_size: int
    status: FileStatus

    @property
    def acknowledged(self) -> int:
        """Bytes of the file that no failure can take away."""

    def tell(self) -> int:
        """Return the length so far in bytes; after an error, what was taken."""

    async def write(self, data: Buffer) -> int:
        """Append `data`; return its length."""

    async def flush(self) -> None:
        """Let readers see what was written, if they may see any of it."""

    async def close(self, *, then: Sequence[Operation] = ()) -> None:
        """Complete it, and do what `AsyncClient.transact` takes in the same step."""

    async def abort(self) -> None:
        """Give it up."""


class FileWriterBase(io.RawIOBase):
    """The side of the caller of a `Sink`."""

    def __init__(self, owner: object, background: OtherLoop, file: Sink) -> None:
        """`owner` lives as long as the file."""
        self._owner = owner
        self._background = background
        self._async = file
        self._buffer = bytearray()
        self._handed_over: _HandedOver | None = None
        self._released = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {self.name!r} {state} at {self.tell()}>"

    def __del__(self) -> None:
        """Nothing is sent from a garbage collection: the file is left to its lease."""
        if not getattr(self, "_released", True):
            if lost := self.tell() - self._async.acknowledged:
                _log.warning("'%s' was never closed: %d bytes were not flushed", self.name, lost)
            self._release()

    @property
    def name(self) -> str:
        """Return the file's path."""
        return self._async.status.path

    @property
    def status(self) -> FileStatus:
        """Return the file as it was created, or as it was closed."""
        return self._async.status

    def writable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> NoReturn:
        """Refused, as by any file that is open for writing only."""
        raise io.UnsupportedOperation(f"'{self.name}': is open for writing, not for reading")

    def tell(self) -> int:
        """Length of the file so far in bytes, flushed or not; after an error, what was taken."""
        given = self._handed_over
        return (given.start + len(given.data) if given else self._async.tell()) + len(self._buffer)

    def write(self, data: ReadableBuffer, /) -> int:
        """Append `data`; return its length.

        Raises:
            FencedError: another writer took the file over; what was not flushed has an unknown
                outcome.
            PaxosBlockError: the cluster cannot go on for now. Data of at most one chunk was not
                taken at all then, as Python's own buffers expect, which write it again; longer data
                was taken as far as `tell` says. Nothing is lost, and a later call tries again.
        """
        self._check_open()
        view = memoryview(data).cast("B")
        size, chunk_size = len(view), self._async.chunk_size
        if len(self._buffer) + size < chunk_size:
            self._buffer += view
            return size
        for whole, left in self._whole_chunks(view):
            self._hand_over(whole, left if len(left) < chunk_size else b"")
        return size

    def flush(self) -> None:
        """`hflush`, under the name that Python's files have for it."""
        if not self._released:
            self._run(self._async.flush)

    def close(self, *, then: Sequence[Operation] = ()) -> None:
        """Flush, and close the file for good.

        If it raises, the file is released all the same: nothing more is sent, and the NameNode
        closes it when the lease expires, with at least what was acknowledged.

        Args:
            then: what `Client.transact` takes, but no Truncate inside a chunk; it is done in the
                step that closes the file, or that step is not taken. So a file can get its name
                and its attributes as soon as it is complete:
                `close(then=[Rename("/tmp/f", "/f")])`.

        Raises: as `write`, and as `Client.transact`.
        """
        self.close_by(partial(self._async.close, then=then))

    def close_by(self, complete: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Flush, and let `complete` close the file on the other thread. Raises: as `close`."""
        if self.closed:
            return
        try:
            with contextlib.suppress(PaxosBlockError):
                self._wait()  # an error of before; what it left out is handed over again now
            self._settle()
            self._background.run(complete)
        except BaseException:
            self.abort()
            raise
        self._release()

    def abort(self) -> None:
        """Drop what was not flushed, keep what was acknowledged, close the file."""
        if self.closed:
            return
        try:
            if self._handed_over is not None:
                self._handed_over.running.cancel()
            if self._background.usable:
                self._background.run(self._async.abort)
        finally:
            self._release()

    def let_go(self) -> Callable[[Sequence[bytes]], Coroutine[Any, Any, None]]:
        """Close this side at once, without waiting. What it returns runs on the loop: it writes
        what was left here, and then more, or raises as `write` does.
        """
        file, given, buffer = self._async, self._handed_over, bytes(self._buffer)
        self._release()

        async def write_rest(more: Sequence[bytes]) -> None:
            if given is not None:
                await given.running.ended()
                await file.write(given.data[file.tell() - given.start :])
            for piece in (buffer, *more):
                await file.write(piece)

        return write_rest

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _release(self) -> None:
        self._released = True  # io.RawIOBase.close flushes; there is nothing left to flush
        self._buffer, self._handed_over = bytearray(), None
        super().close()

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]], /) -> T:
        self._settle()
        return self._background.run(call)

    def _settle(self) -> None:
        """Nothing is left on this side."""
        self._check_open()
        if self._buffer:
            self._hand_over(bytes(self._buffer), b"")
        self._wait()

    def _whole_chunks(self, view: memoryview) -> Iterator[tuple[bytes | memoryview, memoryview]]:
        """Return what can go of the buffer and `view`, and what is then left of `view`.

        Immutable bytes go by reference, others as copies of at most 4 MiB.
        """
        chunk_size = self._async.chunk_size
        if self._buffer:
            missing = chunk_size - len(self._buffer)
            first, view = b"".join((self._buffer, view[:missing])), view[missing:]
            yield first, view
        whole = len(view) - len(view) % chunk_size
        immutable = isinstance(view.obj, bytes)
        most = whole if immutable else COPIED_AT_ONCE_BYTES // chunk_size * chunk_size
        step = max(chunk_size, most)
        for begin in range(0, whole, step):
            end = min(begin + step, whole)
            piece = view[begin:end]
            yield piece if immutable else bytes(piece), view[end:]

    def _hand_over(self, data: bytes | memoryview, left: bytes | memoryview) -> None:
        """Give `data`, which begins with the buffer, to the other thread once it has dealt with
        what it got before; `left` is the new buffer.

        All of this is taken in the one step of the assignment, so that an interrupt finds it taken
        or not taken; from then on it is `_wait` that sees to it that it is written.
        """
        self._wait()
        handed_over, buffer = self._write_of(data), bytearray(left)
        self._handed_over, self._buffer = handed_over, buffer
        handed_over.running.start()

    def _write_of(self, data: bytes | memoryview) -> _HandedOver:
        running = self._background.prepare(self._async.write, data)
        return _HandedOver(data, self._async.tell(), running)

    def _wait(self) -> None:
        """Neither an interrupt nor an error loses anything: the next call waits on, or hands over
        again what a write that failed did not take."""
        if (handed_over := self._handed_over) is None:
            return
        handed_over.running.start()
        handed_over.running.wait()
        refused = handed_over.data[self._async.tell() - handed_over.start :]
        self._handed_over = self._write_of(refused) if refused else None
        handed_over.running.result()

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidRequestError(f"'{self.name}': the file is closed")


class FileReaderBase(io.RawIOBase):
    """The side of the caller of an `AsyncFileReader`."""

    def __init__(self, owner: object, background: OtherLoop, file: AsyncFileReader) -> None:
        """`owner` lives as long as the file."""
        self._owner = owner
        self._background = background
        self._async = file
        self._piece = memoryview(b"")
        self._piece_at = 0
        self._position = 0

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        least = "at least " if self._async.undecided else ""
        return (
            f"<{type(self).__name__} {self.name!r} {state} at {self._position} of "
            f"{least}{self._async.decided_size}>"
        )

    @property
    def name(self) -> str:
        """Return the file's path."""
        return self._async.path

    @property
    def status(self) -> FileStatus:
        """Return the file when it was opened."""
        return self._async.status

    @property
    def size(self) -> int:
        """Length of the file in bytes when it was opened.

        Raises: as `decide`, for which it waits if it must.
        """
        return self._run(self._async.decide) if self._async.undecided else self._async.size

    def readable(self) -> bool:
        """True."""
        return True

    def write(self, data: ReadableBuffer, /) -> NoReturn:
        """Refused, as by any file that is open for reading only."""
        raise io.UnsupportedOperation(f"'{self.name}': is open for reading, not for writing")

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Return where the next `read` begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to `offset` from the start, the position or the end; return the new position."""
        self._check_open()
        if whence == io.SEEK_CUR:
            offset, whence = offset + self._position, io.SEEK_SET
        elif whence == io.SEEK_END:
            offset, whence = offset + self.size, io.SEEK_SET
        self._position = self._async.seek(offset, whence)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next `size` bytes, fewer only at the end or at `decided_size`; without a size
        all that is left, never less."""
        self._check_open()
        everything = size is None or size < 0
        wanted = max(0, self.size - self._position) if everything else self._decided(size or 0)
        buffered = self._buffered(wanted)
        if len(buffered) == wanted:
            self._position += wanted
            return bytes(buffered)
        into = bytearray(wanted)
        self.readinto(into)
        return bytes(into)

    def readall(self) -> bytes:
        """Read all that is left."""
        return self.read()

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill `buffer` with the next bytes; return how many, fewer than fit only at the end or
        at `decided_size`."""
        self._check_open()
        into = memoryview(buffer).cast("B")
        into = into[: self._decided(len(into))]
        start, done = self._position, 0
        try:
            while done < len(into):
                buffered = self._buffered(len(into) - done) or self._next(len(into) - done)
                if not buffered:
                    break
                into[done : done + len(buffered)] = buffered
                done += len(buffered)
                self._position = start + done
        except BaseException:
            self._position = start  # the caller got nothing, and reads it again
            raise
        return done

    def next_piece(self) -> memoryview:
        """Return the next bytes as they were received, without a copy; empty at the end.

        A piece has at most 4 MiB (or one chunk, if that is more) and stays valid while it is held.
        """
        piece = self._buffered(sys.maxsize) or self._next(sys.maxsize)
        self._position += len(piece)
        return piece

    def pieces(self) -> Iterator[memoryview]:
        """Yield the rest of the file, piece by piece (see `next_piece`)."""
        return iter(self.next_piece, b"")

    def close(self) -> None:
        """Stop fetching."""
        if not self.closed:
            super().close()
            self._piece = memoryview(b"")
            if self._background.usable:
                self._background.run(self._async.close)

    def __del__(self) -> None:
        """Do nothing: a dropped reader loses no data."""

    def _decided(self, most: int) -> int:
        """Return how many of the next `most` bytes are decided; waits for the length if none is."""
        if most and self._async.undecided and self._position >= self._async.decided_size:
            self._background.run(self._async.decide, self._position)
        return max(0, min(most, self._async.decided_size - self._position))

    def _buffered(self, most: int) -> memoryview:
        """Return the next bytes, as far as they are here already."""
        begin = self._position - self._piece_at
        if not 0 <= begin < len(self._piece):
            return memoryview(b"")
        return self._piece[begin : begin + most]

    def _next(self, most: int) -> memoryview:
        """Fetch the piece at our position."""
        self._check_open()
        self._piece = self._background.run(self._piece_from, self._position)
        self._piece_at = self._position
        return self._piece[:most]

    async def _piece_from(self, position: int) -> memoryview:
        if self._async.tell() != position:
            self._async.seek(position)
        return await self._async.next_piece()

    def _run(
        self, call: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self._check_open()
        return self._background.run(call, *args, **kwargs)

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidRequestError(f"'{self.name}': the file is closed")
