"""Files of `Client`: io.RawIOBase on the outside, asyncio on another thread.

Small writes and reads stay on the caller's side and cross to the other thread once per chunk.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol

from paxosblock.api.namenode import FileStatus
from paxosblock.base.checksum import Buffer
from paxosblock.base.units import MIB
from paxosblock.client.blocking.background import OtherLoop, Running
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.errors import InvalidRequestError, PaxosBlockError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from paxosblock.client.writing.file_writer import AsyncFileWriter
    from paxosblock.client.writing.receipt import FlushReceipt

_log = logging.getLogger(__name__)

COPIED_AT_ONCE_BYTES: Final = 4 * MIB


class _HandedOver(NamedTuple):
    """A write for the other thread, started or not, and where the file stands before it."""

    data: bytes | memoryview
    start: int
    running: Running[int]


class Sink(Protocol):
    """A file on the other thread that is being written, such as an `AsyncFileWriter`."""

    chunk_size: int
    status: FileStatus

    def tell(self) -> int:
        """Return the length so far in bytes; after an error, what was taken."""

    async def write(self, data: Buffer) -> int:
        """Append `data`; return its length."""

    async def close(self) -> None:
        """Complete it."""

    async def abort(self) -> None:
        """Give it up."""


class SinkWriter(io.RawIOBase):
    """The side of the caller of a `Sink`.

    `write` may return while its chunk is still on its way to the other thread: an error of it is
    raised by the next call. Leaving `with` by an exception calls `abort`.
    """

    def __init__(self, owner: object, background: OtherLoop, file: Sink) -> None:
        """`owner` lives as long as the file."""
        self._owner = owner
        self._background = background
        self._file = file
        self._buffer = bytearray()
        self._handed_over: _HandedOver | None = None
        self._released = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {self.name!r} {state} at {self.tell()}>"

    @property
    def name(self) -> str:
        """Return the file's path."""
        return self._file.status.path

    def writable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> NoReturn:
        """Refused, as by any file that is open for writing only."""
        raise io.UnsupportedOperation(f"'{self.name}': is open for writing, not for reading")

    def tell(self) -> int:
        """Length of the file so far in bytes, flushed or not; after an error, what was taken."""
        given = self._handed_over
        return (given.start + len(given.data) if given else self._file.tell()) + len(self._buffer)

    def write(self, data: ReadableBuffer, /) -> int:
        """Append `data`; return its length.

        Raises: as `AsyncFileWriter.write`. Of data of at most one chunk nothing was taken then, as
        Python's own buffers expect, which write it again; of more, as much as `tell` says.
        """
        self._check_open()
        view = memoryview(data).cast("B")
        size, chunk_size = len(view), self._file.chunk_size
        if len(self._buffer) + size < chunk_size:
            self._buffer += view
            return size
        for whole, left in self._whole_chunks(view):
            self._hand_over(whole, left if len(left) < chunk_size else b"")
        return size

    def close(self) -> None:
        """Close the file for good; see `AsyncFileWriter.close` for what an error leaves behind."""
        if self.closed:
            return
        try:
            with contextlib.suppress(PaxosBlockError):
                self._wait()  # an error of before; what it left out is handed over again now
            self._settle()
            self._background.run(self._file.close)
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
                self._background.run(self._file.abort)
        finally:
            self._release()

    def let_go(self) -> Callable[[Sequence[bytes]], Coroutine[Any, Any, None]]:
        """Close this side at once, without waiting. What it returns runs on the loop: it writes
        what was left here, and then more, and closes the file, or raises as `close` does.
        """
        file, given, buffer = self._file, self._handed_over, bytes(self._buffer)
        self._release()

        async def finish(more: Sequence[bytes]) -> None:
            if given is not None:
                await given.running.ended()
                await file.write(given.data[file.tell() - given.start :])
            for piece in (buffer, *more):
                await file.write(piece)
            await file.close()

        return finish

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _release(self) -> None:
        self._released = True  # io.RawIOBase.close flushes; there is nothing left to flush
        self._buffer, self._handed_over = bytearray(), None
        super().close()

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
        chunk_size = self._file.chunk_size
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
        running = self._background.prepare(self._file.write, data)
        return _HandedOver(data, self._file.tell(), running)

    def _wait(self) -> None:
        """Neither an interrupt nor an error loses anything: the next call waits on, or hands over
        again what a write that failed did not take."""
        if (handed_over := self._handed_over) is None:
            return
        handed_over.running.start()
        handed_over.running.wait()
        refused = handed_over.data[self._file.tell() - handed_over.start :]
        self._handed_over = self._write_of(refused) if refused else None
        handed_over.running.result()

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidRequestError(f"'{self.name}': the file is closed")


class FileWriter(SinkWriter):
    """A file that this client writes; made by `Client.create`. See `AsyncFileWriter`.

    `write` may return while its chunk is still on its way to the other thread: an error of it is
    raised by the next call. `flush` is `hflush`. Leaving `with` by an exception calls `abort`.
    """

    _file: AsyncFileWriter

    def __del__(self) -> None:
        """Nothing is sent from a garbage collection: the file is left to its lease."""
        if not getattr(self, "_released", True):
            if lost := self.tell() - self._file.acknowledged:
                _log.warning("'%s' was never closed: %d bytes were not flushed", self.name, lost)
            self._release()

    @property
    def status(self) -> FileStatus:
        """Return the file as it was created, or as it was closed."""
        return self._file.status

    @property
    def fewest_replicas(self) -> int:
        """See `AsyncFileWriter.fewest_replicas`."""
        return self._file.fewest_replicas

    @property
    def shortfall(self) -> str:
        """See `AsyncFileWriter.shortfall`."""
        return self._file.shortfall

    def hflush(self) -> FlushReceipt:
        """Wait until every reader will see what was written (see `AsyncFileWriter.hflush`)."""
        self._settle()
        return self._background.run(self._file.hflush)

    def hsync(self) -> FlushReceipt:
        """Wait until what was written is on stable storage (see `AsyncFileWriter.hsync`)."""
        self._settle()
        return self._background.run(self._file.hsync)

    def flush(self) -> None:
        """`hflush`, under the name that Python's files have for it."""
        if not self._released:
            self.hflush()


class FileReader(io.RawIOBase):
    """A file as it was when it was opened; made by `Client.open`. See `AsyncFileReader`.

    While its length is `undecided`, `size` waits for it, and so does what needs it, for the
    client's `retry_for`; then it raises UnavailableError.

    Iterating gives lines, as with any Python file; `pieces` gives the bytes as they come.
    """

    def __init__(self, owner: object, background: OtherLoop, file: AsyncFileReader) -> None:
        """`owner` lives as long as the file."""
        self._owner = owner
        self._background = background
        self._file = file
        self._piece = memoryview(b"")
        self._piece_at = 0
        self._position = 0

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        least = "at least " if self.undecided else ""
        return (
            f"<FileReader {self.name!r} {state} at {self._position} of {least}{self.decided_size}>"
        )

    @property
    def name(self) -> str:
        """Return the file's path."""
        return self._file.path

    @property
    def status(self) -> FileStatus:
        """Return the file when it was opened."""
        return self._file.status

    @property
    def size(self) -> int:
        """Length of the file in bytes when it was opened.

        Raises: as `AsyncFileReader.decide`, for which it waits if it must.
        """
        return self._background.run(self._file.decide) if self.undecided else self._file.size

    @property
    def undecided(self) -> str:
        """Return why nobody can tell how long the file is, "" when its length is known."""
        return self._file.undecided

    @property
    def decided_size(self) -> int:
        """Return how many bytes can be read for sure: `size`, unless the length is `undecided`."""
        return self._file.decided_size

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
        self._position = self._file.seek(offset, whence)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next `size` bytes, fewer only at the end or at `decided_size`; without a size
        all that is left, never less."""
        self._check_open()
        everything = size is None or size < 0
        wanted = max(0, self.size - self._position) if everything else self._decided(size or 0)
        held = self._held(wanted)
        if len(held) == wanted:
            self._position += wanted
            return bytes(held)
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
                held = self._held(len(into) - done) or self._next(len(into) - done)
                if not held:
                    break
                into[done : done + len(held)] = held
                done += len(held)
                self._position = start + done
        except BaseException:
            self._position = start  # the caller got nothing, and reads it again
            raise
        return done

    def pread(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on, fewer only at the end; the position stays."""
        self._check_open()
        return self._background.run(self._file.pread, offset, size)

    def pieces(self) -> Iterator[memoryview]:
        """Yield the rest of the file as it was received, without a copy; a piece stays valid."""
        while (piece := self._held(sys.maxsize)) or (piece := self._next(sys.maxsize)):
            self._position += len(piece)
            yield piece

    def close(self) -> None:
        """Stop fetching."""
        if not self.closed:
            super().close()
            self._piece = memoryview(b"")
            if self._background.usable:
                self._background.run(self._file.close)

    def __del__(self) -> None:
        """Nothing is to be told to anybody."""

    def _decided(self, most: int) -> int:
        """Return how many of the next `most` bytes are decided; waits for the length if none is."""
        if most and self.undecided and self._position >= self.decided_size:
            self._background.run(self._file.decide_beyond, self._position)
        return max(0, min(most, self.decided_size - self._position))

    def _held(self, most: int) -> memoryview:
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
        if self._file.tell() != position:
            self._file.seek(position)
        return await self._file.next_piece()

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidRequestError(f"'{self.name}': the file is closed")
