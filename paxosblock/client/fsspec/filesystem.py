"""`PaxosBlockFileSystem`: the names, bytes and files of a cluster as fsspec wants them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, Final

from fsspec.asyn import sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.utils import isfilelike

from paxosblock.api.transaction import Marker
from paxosblock.base.settings import did_you_mean
from paxosblock.base.units import MIB
from paxosblock.client.fsspec.appending import Addition
from paxosblock.client.fsspec.files import (
    AsyncReadFile,
    AsyncWriteFile,
    CachedFile,
    CompressedFile,
    ReadFile,
    TextFile,
    WriteFile,
)
from paxosblock.client.fsspec.names import NameVerbs
from paxosblock.client.fsspec.staging import Publish, StagedFile, publish
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import ConfigError, InvalidRequestError

PIECE_BYTES: Final = 2 * MIB
"""Bytes of a local file that are read at once."""
MOST_RANGES: Final = 16
"""Ranges that are read side by side."""

_MODES: Final = {"overwrite": Publish.REPLACE, "create": Publish.CREATE}
_TEXT_OPTIONS: Final = ("encoding", "errors", "newline")
_TUNING: Final = (
    *("replication", "durability", "chunk_size", "window"),
    *("on_failure", "replace_on_failure", "best_effort"),
)


class PaxosBlockFileSystem(NameVerbs):
    """A cluster as an fsspec file system: `fsspec.filesystem("paxosblock", namenodes=...)`.

    A file appears under its name when it was written completely and closed; what was there before
    is replaced in the same step. It does not appear when its `with` block is left by an exception.
    `with fs.transaction` does the same for many files at once. `mv` and `rm` are one step each,
    for whole trees as well. Listings are not cached.

    Errors are those of `paxosblock.errors`, which are also the built-in ones (FileNotFoundError,
    FileExistsError, IsADirectoryError, ConnectionError, ...).
    """

    # -- files ----------------------------------------------------------------------------------

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: dict[str, Any] | None = None,
        compression: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Open a file; see `_open` for our own arguments.

        Raises:
            FileNotFoundError, IsADirectoryError: there is no file to read.
            FileExistsError: the mode is "x", and the file is there.
        """
        binary = "b" in mode
        if "r" in mode:
            return super().open(path, mode, block_size, cache_options, compression, **kwargs)
        text = {name: kwargs.pop(name) for name in _TEXT_OPTIONS if name in kwargs}
        mode = mode.replace("t", "").replace("b", "") + "b"
        file = super().open(path, mode, block_size, cache_options, **kwargs)
        if not file.autocommit:
            # The transaction keeps what it will publish, not the file, which may be dropped
            # meanwhile.
            self.transaction.files[-1] = file.staged
        kind = get_compression(path, compression)
        if kind is not None:
            file = CompressedFile(compr[kind](file, mode=mode[0]), file)
        return file if binary else TextFile(file, **text)

    def _open(  # noqa: PLR0917 - fsspec's own signature
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        cache_type: str = "none",
        size: int | None = None,
        **tuning: Any,
    ) -> CachedFile | WriteFile:
        """Open a file to read, or to write.

        Args:
            block_size: of a new file: bytes per block; of one being read: for fsspec's caches.
            cache_type: one of fsspec's caches; "none" reads ahead by itself.
            size: not used: the file knows it.
            tuning: of a file to write: `replication`, `durability`, `chunk_size`, `window`,
                `on_failure`, `replace_on_failure`, `best_effort`. Options of other file systems
                are ignored, as these ignore each other's.

        Raises ConfigError: an option that is misspelt, or one of these for a file to read.
        """
        runner = self.runner
        tuning = _ours(mode, tuning)
        if mode == "rb":
            reader = runner.run(self._reader, path)
            if cache_type == "none":
                return ReadFile(self, reader, block_size)
            return CachedFile(self, reader, block_size, cache_type, cache_options)
        staged = runner.run(
            self._stage, path, _how(mode), alone=autocommit, block_size=block_size, **tuning
        )
        return WriteFile(self, staged, mode, autocommit=autocommit)

    async def open_async(
        self, path: str, mode: str = "rb", **kwargs: Any
    ) -> AsyncReadFile | AsyncWriteFile:
        """Open a file on the event loop: `async with await fs.open_async(path) as f`.

        Arguments and errors: as `_open`.
        """
        if mode == "rb":
            return AsyncReadFile(self, await self._reader(path))
        staged = await self._stage(path, _how(mode), alone=not self._intrans, **kwargs)
        if self._intrans:
            self.transaction.files.append(staged)
        return AsyncWriteFile(self, staged, mode, autocommit=not self._intrans)

    async def _reader(self, path: str) -> AsyncFileReader:
        """Open a file of decided length: users of fsspec take the size of a file for all of it.

        Raises: as `AsyncClient.open` and `AsyncFileReader.decide`.
        """
        reader = await (await self._client()).open(self.own_path(path))
        await reader.decide()
        return reader

    async def _stage(self, path: str, how: Publish, **tuning: Any) -> StagedFile:
        return await (await self._staging()).create(self.own_path(path), how, **tuning)

    @asynccontextmanager
    async def _writing(
        self, path: str, how: Publish = Publish.REPLACE, **tuning: Any
    ) -> AsyncIterator[AsyncFileWriter | Addition]:
        """Write a file; it is published at the end of the block, or of the transaction."""
        staged = await self._stage(path, how, **tuning)
        try:
            yield staged.writer
            await staged.area.renew()
            await staged.writer.close()
        except BaseException:
            await staged.discard()
            raise
        if self._intrans:
            self.transaction.files.append(staged)
        else:
            await publish([staged])

    # -- bytes ----------------------------------------------------------------------------------

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """Return the bytes from `start` up to but not including `end`; negative numbers count from
        the end.
        """
        async with await self._reader(path) as reader:
            return await _slice(reader, start, end)

    async def _cat_ranges(  # noqa: PLR0917 - fsspec's own signature
        self,
        paths: list[str],
        starts: int | Sequence[int | None] | None,
        ends: int | Sequence[int | None] | None,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[bytes | BaseException]:
        """Read many ranges side by side; each file is opened once.

        `max_gap` makes no difference: a connection is kept for all of them.
        """
        every = _each(starts, len(paths)), _each(ends, len(paths))
        readers = {path: asyncio.create_task(self._reader(path)) for path in dict.fromkeys(paths)}
        limit = asyncio.Semaphore(batch_size or self.batch_size or MOST_RANGES)

        async def fetch(path: str, start: int | None, end: int | None) -> bytes:
            async with limit:
                return await _slice(await readers[path], start, end)

        work = (fetch(*each) for each in zip(paths, *every, strict=True))
        found = await asyncio.gather(*work, return_exceptions=True)
        opened = await asyncio.gather(*readers.values(), return_exceptions=True)
        for reader in opened:
            if isinstance(reader, AsyncFileReader):
                await reader.close()
        for each in found:
            if isinstance(each, BaseException) and (
                on_error == "raise" or not isinstance(each, Exception)
            ):
                raise each
        return found

    async def _pipe_file(
        self, path: str, value: Any, mode: str = "overwrite", **tuning: Any
    ) -> None:
        """Write a whole file. Mode "create" raises FileExistsError when it is there."""
        async with self._writing(path, _mode(mode), **tuning) as out:
            await out.write(value)

    async def _touch(self, path: str, truncate: bool = True, **tuning: Any) -> None:
        """Make an empty file; without `truncate`, one that is there only counts as modified now."""
        if truncate and not tuning and not self._intrans:
            # One call instead of five: there is nothing to write.
            await (await self._client()).transact([Marker(self.own_path(path))])
            return
        how = Publish.REPLACE if truncate else Publish.APPEND
        async with self._writing(path, how, **tuning):
            pass

    touch = sync_wrapper(_touch)

    async def _cp_file(self, path1: str, path2: str, **tuning: Any) -> None:
        """Copy a file's bytes through this client; for a directory, only make the directory."""
        if await self._isdir(path1):
            await self._makedirs(path2, exist_ok=True)
            return
        async with await self._reader(path1) as reader, self._writing(path2, **tuning) as out:
            async for piece in reader:
                await out.write(piece)

    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        mode: str = "overwrite",
        callback: Callback = DEFAULT_CALLBACK,
        **tuning: Any,
    ) -> None:
        """Copy a local file here; for a directory, make only the directory itself."""
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        with await asyncio.to_thread(open, lpath, "rb") as file:
            callback.set_size(os.fstat(file.fileno()).st_size)
            async with self._writing(rpath, _mode(mode), **tuning) as out:
                while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                    await out.write(piece)
                    callback.relative_update(len(piece))

    async def _get_file(
        self, rpath: str, lpath: Any, callback: Callback = DEFAULT_CALLBACK, **kwargs: Any
    ) -> None:
        """Copy a file to a local one, which appears when it is complete, or into a file object; for
        a directory, make only the directory itself.
        """
        if isfilelike(lpath):
            await self._download(rpath, lpath, callback)
        elif await self._isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
        else:
            await self._get_whole(rpath, os.fspath(lpath), callback)

    async def _get_whole(self, rpath: str, lpath: str, callback: Callback) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        unfinished = f"{lpath}.{os.getpid()}.part"
        try:
            with await asyncio.to_thread(open, unfinished, "wb") as file:
                await self._download(rpath, file, callback)
            os.replace(unfinished, lpath)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise

    async def _download(self, rpath: str, file: IO[bytes], callback: Callback) -> None:
        async with await self._reader(rpath) as reader:
            callback.set_size(reader.size)
            async for piece in reader:
                await asyncio.to_thread(file.write, piece)
                callback.relative_update(len(piece))


def _ours(mode: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are ours. Raises ConfigError as `_open`."""
    for name in options:
        if name not in _TUNING and (meant := did_you_mean(name, ("block_size", *_TUNING))):
            raise ConfigError(f"open: unknown option {name!r}{meant}")
        if name in _TUNING and mode == "rb":
            raise ConfigError(f"open: option {name!r} has no effect on a file to read")
    return {name: value for name, value in options.items() if name in _TUNING}


def _how(mode: str) -> Publish:
    try:
        return Publish(mode)
    except ValueError:
        raise InvalidRequestError(f"mode {mode!r}: write 'rb', 'wb', 'ab' or 'xb'") from None


def _mode(mode: str) -> Publish:
    if mode not in _MODES:
        raise InvalidRequestError(f"mode {mode!r}: write 'overwrite' or 'create'")
    return _MODES[mode]


async def _slice(reader: AsyncFileReader, start: int | None, end: int | None) -> bytes:
    first, last, _ = slice(start, end).indices(reader.size)
    return await reader.pread(first, max(0, last - first))


def _each(limits: int | Sequence[int | None] | None, count: int) -> Sequence[int | None]:
    return [limits] * count if limits is None or isinstance(limits, int) else limits
