"""Files of the file system: fsspec's classes on the outside, our streams inside.

Neither reading nor writing holds more than the client's windows in memory, however large a file or
its blocks are.
"""

from __future__ import annotations

import asyncio
import io
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from fsspec.asyn import AbstractAsyncStreamedFile
from fsspec.spec import AbstractBufferedFile

from paxosblock.base.checksum import Buffer
from paxosblock.base.units import KIB
from paxosblock.client.blocking.loop_thread import OtherLoop
from paxosblock.client.blocking.sync import FileReader
from paxosblock.client.blocking.sync_files import FileWriterBase
from paxosblock.client.fsspec.dropping import (
    abandon,
    error_of_block,
    error_under_way,
    release,
    run_on,
    tell_closed,
    tell_lost,
    wait_for,
    watch,
)
from paxosblock.client.fsspec.info import Info, info_of
from paxosblock.client.publishing import StagedFile, publish
from paxosblock.client.reading.file_reader import AsyncFileReader

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LINE_BUFFER_BYTES: Final = 64 * KIB


class FileSystem(Protocol):
    """The file system of a file, as far as the file uses it."""

    @property
    def runner(self) -> OtherLoop:
        """Runs coroutines where the connection of the file system lives."""


class ReadFile(io.BufferedReader, AbstractBufferedFile):
    """A file being read, as it was when it was opened; it is fetched ahead of a sequential reader.

    Python's own reader over ours: fsspec's caches would fetch one range at a time. What fsspec adds
    to a file (`info`, `size`, `fs`, `readuntil`, pickling) comes from its class.
    """

    cache = None
    autocommit = True

    def __init__(self, fs: FileSystem, reader: AsyncFileReader, block_size: int | None) -> None:
        # Not fsspec's own constructor: it makes a cache, and sets `closed`, which Python's has.
        super().__init__(FileReader(fs, fs.runner, reader), LINE_BUFFER_BYTES)
        self.fs = fs
        self.path = reader.path
        self.size = reader.size
        self.blocksize = block_size or self.DEFAULT_BLOCK_SIZE
        self.kwargs: dict[str, Any] = {}
        self._details = details_of(reader)

    @property
    def mode(self) -> str:
        """The mode in which it is open; Python's buffer would ask ours, which has none."""
        return "rb"

    @property
    def loc(self) -> int:
        """The position, under fsspec's name."""
        return self.tell()

    def read(self, size: int | None = -1, /) -> bytes:
        """Read the next `size` bytes, fewer only at the end; without a size all the rest."""
        # A known size: Python reads "the rest" through `readall`, which holds it twice.
        known = size is not None and size >= 0
        return super().read(size if known else max(0, self.size - self.tell()))

    def __reduce_ex__(self, _: Any) -> Any:
        """Travel by name and position: Python's own buffers refuse to be pickled."""
        return AbstractBufferedFile.__reduce__(self)

    def __del__(self) -> None:
        """Do nothing: a dropped reader loses no data."""


class CachedFile(AbstractBufferedFile):
    """A file being read through one of fsspec's caches (`cache_type`)."""

    def __init__(
        self,
        fs: FileSystem,
        reader: AsyncFileReader,
        block_size: int | None,
        cache_type: str,
        cache_options: dict[str, Any] | None,
    ) -> None:
        self._reader = FileReader(fs, fs.runner, reader)
        self._details = details_of(reader)
        super().__init__(
            fs,
            reader.path,
            "rb",
            block_size,
            cache_type=cache_type,
            cache_options=cache_options,
            size=reader.size,
        )

    def close(self) -> None:
        """Stop fetching."""
        super().close()
        self._reader.close()

    def __del__(self) -> None:
        """Do nothing: a dropped reader loses no data."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._reader.pread(start, end - start)


class WriteFile(AbstractBufferedFile):
    """A file being written: no reader sees it before `close`, which publishes all of it.

    Leaving `with` by an exception publishes nothing, and the file that had the name before is still
    there. That holds for a `with` of the file's own, and for those of fsspec, pandas, pyarrow or
    `contextlib` that close it without mentioning the exception that ends them; then a warning says
    so. A `close` in an `except` or `finally` clause publishes it, as one would expect of the log
    of a failure, and so does a `with` block of the file's own that ends well there. A file that is
    dropped without `close`, or is still open when the program ends, is published then, unless an
    exception is under way or a write failed: then a warning says what is lost. Within
    `with fs.transaction` files are published together, at the end of it.
    """

    closed: bool

    def __init__(self, fs: FileSystem, staged: StagedFile, mode: str, *, autocommit: bool) -> None:
        self.staged = staged
        self._runner = fs.runner
        self._stream = FileWriterBase(fs, self._runner, staged.writer)
        self._error_before = sys.exception()
        self._given_up = False
        self._write_error = ""  # not the exception, whose frames refer to this file
        self._rest: list[bytes] | None = None  # came since it was dropped: what wrappers still held
        super().__init__(fs, staged.target, mode, autocommit=autocommit)
        self.blocksize = staged.writer.status.block_size
        self.loc = staged.offset
        watch(self, self._stream, staged.writer)

    def write(self, data: ReadableBuffer) -> int:
        """Append `data`; return its length. Raises: as `AsyncFileWriter.write`."""
        if self._given_up or (self.staged.discarded and not self.closed):
            # A compressor or text wrapper that is closed after this writes what it still holds.
            return memoryview(data).nbytes
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if self._rest is not None:
            self._rest.append(bytes(data))
            return len(self._rest[-1])
        try:
            size = self._stream.write(data)
        except BaseException as error:
            self._write_error = repr(error)
            raise
        self.loc += size
        return size

    def flush(self, force: bool = False) -> None:
        """Nothing to do: no reader can see the file before it is closed."""
        if self.closed:
            raise ValueError("Flush on closed file")

    def close(self) -> None:
        """Complete the file and publish it, or leave that to the transaction; give it up, with a
        warning, where it is closed by a `with` block that an exception ends which came after the
        file was opened.

        Raises:
            PaxosBlockError: it cannot be completed or published; nothing is left of it, and the
                file that had the name before is still there.
        """
        if self.closed:
            return
        if self._rest is not None:
            self._finish_on_loop(self._rest)
            return
        try:
            error = error_of_block(self._error_before)
            if error is not None and not self.staged.discarded:
                tell_closed(self.path, error)
                self.discard()
            if self.staged.discarded:
                return
            # Not by `complete`: an interrupt here must also cancel the write that is under way.
            self._runner.run(self.staged.area.renew)
            if self.autocommit:
                self._stream.close_by(partial(publish, [self.staged]))
            else:
                self._stream.close()
        except BaseException:
            self.discard()
            raise
        finally:
            self.closed = True
            release(self)

    def commit(self) -> None:
        """Publish the file, which is complete."""
        self.fs.runner.run(publish, [self.staged])

    def discard(self) -> None:
        """Give the file up, published nowhere."""
        if self.staged.discarded:
            return
        if self._rest is not None and not self.closed:
            self._lose("it was dropped without close(), and a layer above it failed")
            return
        self._stream.abort()
        self.fs.runner.run(self.staged.discard)

    def disregard_error(self) -> None:
        """Publish in spite of the exception that is being handled here, because a block inside it
        ends well.
        """
        self._error_before = sys.exception()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.disregard_error()
        elif not self.closed:
            self.discard()
        self.close()

    def __del__(self) -> None:
        """Publish it, or report that it is lost; see `paxosblock.client.fsspec.dropping`."""
        if self.dropped():
            self.close()

    def dropped(self) -> bool:
        """Return True if this file, which the program did not close, should be completed: wrappers
        then write the bytes that they still hold, and close it. Otherwise give it up here, with a
        warning.
        """
        if self.closed:
            return False
        if self._runner.forked or self.staged.discarded:
            # Another process goes on with it; or the program gave it up on purpose.
            self._give_up()
        elif why := self._why_lost():
            self._lose(why)
        else:
            self._rest = []
        return not self.closed

    def _lose(self, why: str) -> None:
        self._give_up()
        tell_lost(self.path, why)

    def _why_lost(self) -> str:
        if self._write_error:
            return f"it was dropped without close(), after a write failed: {self._write_error}"
        if (error := error_under_way(self._error_before)) is not None:
            return f"it was dropped without close() while {error!r} was under way"
        if not self._runner.running:
            return "it was dropped without close() after its event loop had ended"
        return ""

    def _give_up(self) -> None:
        """Close it here, without waiting; the cluster removes its bytes by itself if need be."""
        self.closed = self._given_up = True
        self._stream.let_go()
        release(self)
        if self._runner.running and not self.staged.discarded:
            run_on(self._runner, self.path, self.staged.discard)
        else:
            abandon(self.staged.writer)

    def _finish_on_loop(self, rest: list[bytes]) -> None:
        """Complete and publish it on the event loop; wait for that on any other thread."""
        self.closed = True
        release(self)
        write_rest = partial(self._stream.let_go(), rest)
        complete = partial(self.staged.complete, write_rest, publishes=self.autocommit)
        wait_for(self._runner, self.path, run_on(self._runner, self.path, complete))


class CompressedFile(io.RawIOBase):
    """A file written through a compressor: closing it closes both, and so does an exception."""

    def __init__(self, compressor: Any, file: WriteFile) -> None:
        """`compressor` is one of `fsspec.compression`, and writes to `file`."""
        self._compressor = compressor
        self._file = file
        watch(self, compressor, file)

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        """Compress and append `data`; return its length before."""
        self._compressor.write(data)
        return memoryview(data).nbytes

    def close(self) -> None:
        """Write what the compressor still holds, and close the file."""
        if not self.closed:
            super().close()
            try:
                self._compressor.close()
            except BaseException:
                self._file.discard()
                raise
            finally:
                self._file.close()
                release(self)

    def discard(self) -> None:
        """Give the file up, published nowhere."""
        self._file.discard()

    def dropped(self) -> bool:
        """As `WriteFile.dropped`."""
        return not self.closed and self._file.dropped()

    def disregard_error(self) -> None:
        """As `WriteFile.disregard_error`."""
        self._file.disregard_error()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.disregard_error()
        else:
            self.discard()
        self.close()

    def __del__(self) -> None:
        """As for the file below, with what the compressor still holds."""
        if self.dropped():
            self.close()
        release(self)


class TextFile(io.TextIOWrapper):
    """Text on top of a file being written; it passes on that the block raised."""

    def __init__(self, file: Any, **options: Any) -> None:
        """`file`: a `WriteFile` or `CompressedFile`; `options`: of `io.TextIOWrapper`."""
        super().__init__(file, **options)
        self._file = file
        watch(self, file)

    def close(self) -> None:
        """Encode and write the rest, and close the file."""
        try:
            super().close()
        finally:
            release(self)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._file.disregard_error()
        else:
            self._file.discard()
        self.close()

    def __del__(self) -> None:
        """As for the file below, with what was not encoded yet."""
        if not self.closed and self._file.dropped():
            self.close()
        release(self)


class AsyncReadFile(AbstractAsyncStreamedFile):
    """A file being read on the event loop: `async with await fs.open_async(path) as f`."""

    def __init__(self, fs: FileSystem, reader: AsyncFileReader) -> None:
        self._reader = reader
        self._details = details_of(reader)
        super().__init__(fs, reader.path, "rb", cache_type="none", size=reader.size)

    async def read(self, length: int | None = -1) -> bytes:
        """Read the next `length` bytes, fewer only at the end; without a length all the rest."""
        self._reader.seek(self.loc)
        data = await self._reader.read(-1 if length is None else length)
        self.loc += len(data)
        return data

    async def close(self) -> None:
        """Stop fetching."""
        await self._reader.close()
        self.closed = True

    def __del__(self) -> None:
        """Do nothing: a dropped reader loses no data."""


class AsyncWriteFile(AbstractAsyncStreamedFile):
    """A file being written on the event loop; as `WriteFile`."""

    closed: bool

    def __init__(self, fs: FileSystem, staged: StagedFile, mode: str, *, autocommit: bool) -> None:
        super().__init__(fs, staged.target, mode, autocommit=autocommit)
        self.staged = staged
        self.loc = staged.offset
        self._error_before = sys.exception()
        self._loop = OtherLoop(asyncio.get_running_loop())
        watch(self, staged.writer)

    async def write(self, data: Buffer) -> int:
        """Append `data`; return its length. Raises: as `AsyncFileWriter.write`."""
        size = await self.staged.writer.write(data)
        self.loc += size
        return size

    async def flush(self, force: bool = False) -> None:
        """Nothing to do: no reader can see the file before it is closed."""

    async def close(self) -> None:
        """Complete the file and publish it. Raises: as `WriteFile.close`."""
        if self.closed:
            return
        self.closed = True
        release(self)
        error = error_of_block(self._error_before)
        if error is not None and not self.staged.discarded:
            tell_closed(self.path, error)
            await self.discard()
        if self.staged.discarded:
            return
        await self.staged.complete(publishes=self.autocommit)

    async def discard(self) -> None:
        """Give the file up, published nowhere."""
        if not self.staged.discarded:
            await self.staged.discard()

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._error_before = sys.exception()
        elif not self.closed:
            await self.discard()
        await self.close()

    def __del__(self) -> None:
        """Report it lost: a thread that drops it cannot wait for the event loop."""
        if self.closed:
            return
        self.closed = True
        release(self)
        if self._loop.forked or self.staged.discarded:
            abandon(self.staged.writer)
            return
        if self._loop.running:
            run_on(self._loop, self.path, self.staged.discard)
        else:
            abandon(self.staged.writer)
        tell_lost(self.path, "it was dropped without 'await close()'")


def details_of(reader: AsyncFileReader) -> Info:
    """Return the `info` of a file as it was when it was opened: its size counts bytes being
    written.
    """
    return {**info_of(reader.status), "size": reader.size}
