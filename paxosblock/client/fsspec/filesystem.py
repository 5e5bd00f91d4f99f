"""`PaxosBlockFileSystem`: the names, bytes and files of a cluster as fsspec wants them."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from glob import has_magic
from typing import IO, Any, Final

from fsspec.asyn import AsyncFileSystem, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.spec import make_instance
from fsspec.transaction import Transaction
from fsspec.utils import isfilelike

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.ownership import AclStatus
from paxosblock.api.transaction import (
    AssertAbsent,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
)
from paxosblock.base.acl_entries import AclEntry
from paxosblock.base.paths import STAGING
from paxosblock.base.replacement import WriteOptions
from paxosblock.base.settings import did_you_mean
from paxosblock.base.units import MIB, parse_duration
from paxosblock.client.append_mode import Addition
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.blocking.loop_thread import OtherLoop
from paxosblock.client.fsspec.info import Info, info_of, ukey_of
from paxosblock.client.fsspec.open_files import (
    AsyncReadFile,
    AsyncWriteFile,
    CachedFile,
    CompressedFile,
    ReadFile,
    TextFile,
    WriteFile,
)
from paxosblock.client.fsspec.shared_client import Connection
from paxosblock.client.fsspec.small_puts import SmallPuts
from paxosblock.client.fsspec.storage_options import TOKEN, config_of, options_of_url, path_of_url
from paxosblock.client.names.own_hosts import OwnHosts, is_url
from paxosblock.client.names.url import NAMENODES_VARIABLE, SCHEME, cluster_addresses
from paxosblock.client.names.walk import base_name, join
from paxosblock.client.publishing import Publish, StagedFile, StagingArea, discard, publish
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.reading.locations import BlockLocation
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import (
    ConfigError,
    InvalidRequestError,
    IsDirectoryError,
    NotDirectoryError,
    NotFoundError,
)

PIECE_BYTES: Final = 2 * MIB
"""Bytes of a local file that are read at once."""
MOST_RANGES: Final = 16
"""Ranges that are read side by side."""

_MODES: Final = {"overwrite": Publish.REPLACE, "create": Publish.CREATE}
_TEXT_OPTIONS: Final = ("encoding", "errors", "newline")
_POLICY: Final = ("on_failure", "replace_on_failure", "best_effort")
_TUNING: Final = ("replication", "durability", "chunk_size", "window", *_POLICY)
_OF_PUT: Final = ("recursive", "callback", "batch_size", "maxdepth")
_MISSING: Final = (NotFoundError, NotDirectoryError)


class PaxosBlockTransaction(Transaction):
    """`with fs.transaction`: all files that were written in it appear at once, or none.

    It publishes in one replicated transaction; fsspec's own class goes file by file.
    """

    fs: Any

    def complete(self, commit: bool = True) -> None:
        """End the transaction.

        Args:
            commit: publish; otherwise give all files up.

        Raises:
            InvalidRequestError: a file is still open; nothing was published.
            PaxosBlockError: a file or directory at a target forbids it; nothing was published. An
                unknown outcome is that of all files together.
        """
        fs = self.fs
        staged = [_staged(file) for file in self.files]
        staged = [file for file in staged if not file.discarded]
        self.files.clear()
        # In any case, as instances are shared by the whole process.
        fs._intrans, fs._transaction, self.fs = False, None, None
        if not commit:
            fs.runner.run(discard, staged)
            return
        unfinished = [file.target for file in staged if not file.writer.closed]
        if unfinished:
            fs.runner.run(discard, staged)
            raise InvalidRequestError(
                f"nothing was published: '{unfinished[0]}' is open at the end of the transaction"
            )
        fs.runner.run(publish, staged)


def _staged(file: StagedFile | WriteFile | AsyncWriteFile) -> StagedFile:
    return file if isinstance(file, StagedFile) else file.staged


class _Environment:
    """The cluster that the environment names, which is part of the key of cached instances."""

    def __get__(self, instance: object, owner: type) -> str:
        return os.environ.get(NAMENODES_VARIABLE, "")


class _StripProtocol:
    """fsspec's `_strip_protocol(path)`: it returns the path in a URL that a user wrote.

    Called on the class, it can only return the path. An instance also refuses a URL of another
    cluster, whose path would otherwise be taken for one of its own.
    """

    def __get__(self, fs: PaxosBlockFileSystem | None, owner: type) -> Callable[[Any], Any]:
        return functools.partial(_stripped, path_of_url if fs is None else fs.own_path)


def _stripped(path_of: Callable[[str], str], path: Any) -> Any:
    if isinstance(path, list | tuple):
        return [_stripped(path_of, each) for each in path]
    return path_of(os.fspath(path))


class PaxosBlockFileSystem(AsyncFileSystem):
    """A cluster as an fsspec file system: `fsspec.filesystem("paxosblock", namenodes=...)`.

    A file appears under its name when it was written completely and closed; what was there before
    is replaced in the same step. It does not appear when its `with` block is left by an exception.
    `with fs.transaction` does the same for many files at once. `mv` and `rm` are one step each,
    for whole trees as well. Listings are not cached.

    Errors are those of `paxosblock.errors`, which are also the built-in ones (FileNotFoundError,
    FileExistsError, IsADirectoryError, ConnectionError, ...).
    """

    protocol = "paxosblock"
    root_marker = "/"
    transaction_type = PaxosBlockTransaction
    environment = _Environment()
    _strip_protocol = _StripProtocol()
    _extra_tokenize_attributes = ("environment",)

    def __init__(
        self,
        namenodes: str | Iterable[str] | None = None,
        *,
        staging_ttl: str | int = "1d",
        asynchronous: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        batch_size: int | None = None,
        **settings: Any,
    ) -> None:
        """Make a file system that is not connected yet.

        Args:
            namenodes: `host:port[,host:port]`, as in a URL; None takes PAXOSBLOCK_NAMENODES.
            staging_ttl: how long unpublished files stay after a program was killed.
            asynchronous, loop, batch_size: as for any asynchronous file system of fsspec.
            settings: of the client, as `Client` takes them: `replication`, `block_size`,
                `durability`, `chunk_size`, `window`, `retry_for_s`, `token`, ...

        Raises:
            ConfigError: no cluster is named, an option is unknown, or a value makes no sense.
        """
        self.namenodes = cluster_addresses(namenodes)
        self._own_hosts = OwnHosts(self.namenodes)
        self._config = config_of(settings)
        self._ttl_s = parse_duration(str(staging_ttl))
        self._connection: Connection | None = None
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it by its arguments; the copy reaches the same cluster whatever its environment
        says.
        """
        options = {**self.storage_options, "namenodes": ",".join(self.namenodes)}
        return make_instance, (type(self), (), options)

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        """Return it as JSON shows it, without a token: who makes another one of that brings a
        `token_file`, or the token, by themselves."""
        shown = super().to_dict(include_password=include_password)
        return {name: value for name, value in shown.items() if name != TOKEN}

    def __eq__(self, other: object) -> bool:
        """True if both reach the same cluster with the same options, however it was named."""
        return type(other) is type(self) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((type(self), self.namenodes))

    def own_path(self, written: str) -> str:
        """Return the path in a URL, or a plain path as it is.

        Raises:
            InvalidRequestError: a URL of another cluster.
        """
        return path_of_url(self._own_hosts.path(written) if is_url(written) else written)

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        return options_of_url(path)

    def unstrip_protocol(self, name: str) -> str:
        """Return the full URL of a path, which any program can open."""
        return f"{SCHEME}{','.join(self.namenodes)}{self.own_path(name)}"

    @property
    def fsid(self) -> str:
        """Return the cluster, by its NameNodes."""
        return f"paxosblock-{','.join(sorted(self.namenodes))}"

    @property
    def runner(self) -> OtherLoop:
        """Runs coroutines on fsspec's event loop, for the synchronous files.

        Raises:
            RuntimeError: this process was forked since the file system was made.
            InvalidRequestError: the file system is an asynchronous one.
        """
        if self.loop is None:
            raise InvalidRequestError("an asynchronous file system: use open_async")
        return OtherLoop(self.loop)

    async def _connected(self) -> Connection:
        connection = self._connection
        if connection is None or connection.loop is not asyncio.get_running_loop():
            connection = Connection(self.namenodes, self._config, self._ttl_s)
            connection.close_at_end_of(self)
            self._connection = connection
        return connection

    async def aclose(self) -> None:
        """Close all connections and give up unpublished files; later uses open new ones."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    close = sync_wrapper(aclose)

    async def _client(self) -> AsyncClient:
        return (await self._connected()).client

    async def _staging(self) -> StagingArea:
        return (await self._connected()).staging

    # -- facts ----------------------------------------------------------------------------------

    async def _info(self, path: str, **kwargs: Any) -> Info:
        """`name`, `size`, `type`, `created`, `mtime` and more; see `info_of`."""
        return info_of(await self._status(path))

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self.own_path(path)
        entries = await (await self._client()).ls(path)
        infos = [info_of(entry) for entry in entries if entry.path != STAGING]
        return infos if detail else [info["name"] for info in infos]

    async def _exists(self, path: str, **kwargs: Any) -> bool:
        return await (await self._client()).exists(self.own_path(path))

    async def _isfile(self, path: str) -> bool:
        return await self._kind(path) is Kind.FILE

    async def _isdir(self, path: str) -> bool:
        return await self._kind(path) is Kind.DIRECTORY

    async def _walk(
        self,
        path: str,
        maxdepth: int | None = None,
        *,
        on_error: str | Callable[[Exception], None] = "omit",
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Leave out a directory that is gone; but raise if no NameNode answers."""
        heard = _raise_unless_missing if on_error == "omit" else on_error
        async for found in super()._walk(path, maxdepth, on_error=heard, **kwargs):
            yield found

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **kwargs: Any
    ) -> Any:
        found = await super()._find(path, maxdepth, withdirs, **kwargs)
        if isinstance(found, dict) and {} in found.values():
            return {name: await self._info(name) for name in found}  # `path` is a file
        return found

    async def _du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Sizes in bytes, from the listings alone."""
        found = await self._find(path, maxdepth, withdirs, detail=True, **kwargs)
        sizes = {name: info["size"] for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    async def _created(self, path: str) -> datetime:
        """Return when the file or directory was made."""
        return datetime.fromtimestamp((await self._status(path)).created_s, UTC)

    async def _modified(self, path: str) -> datetime:
        """Return when its content last changed."""
        return datetime.fromtimestamp((await self._status(path)).modified_s, UTC)

    async def _ukey(self, path: str) -> str:
        """Return a value that differs when the content may differ."""
        return ukey_of(await self._status(path))

    async def _checksum(self, path: str) -> int:
        """Return `ukey` as a number, as fsspec does; it is not made from the bytes."""
        return int(await self._ukey(path), 16)

    async def _locations(
        self, path: str, offset: int = 0, size: int | None = None
    ) -> list[BlockLocation]:
        """List the blocks of a file and the DataNodes of each; see `AsyncClient.locations`."""
        return await (await self._client()).locations(self.own_path(path), offset, size)

    # -- changes --------------------------------------------------------------------------------

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Make a directory. Raises FileExistsError if it is there, FileNotFoundError if its parent
        is not, unless `create_parents`."""
        path = self.own_path(path)
        if create_parents:
            await (await self._client()).transact([AssertAbsent(path), MakeDirectory(path)])
        else:
            await (await self._client()).mkdirs(path, parents=False)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a directory and its parents. Raises FileExistsError if it is there, unless
        `exist_ok`."""
        if exist_ok:
            await (await self._client()).mkdirs(self.own_path(path))
        else:
            await self._mkdir(path)

    async def _rmdir(self, path: str) -> None:
        """Delete an empty directory. Raises OSError when it is not empty, or no directory."""
        status = await self._status(path)
        if status.kind is not Kind.DIRECTORY:
            raise NotDirectoryError(f"'{status.path}' is no directory", path=status.path)
        await (await self._client()).delete(status.path)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        await self._delete([await self._status(path)], recursive=False)

    async def _rm(
        self,
        path: str | list[str],
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Delete files, and directories when `recursive`: all of them in one step.

        Raises:
            FileNotFoundError, IsADirectoryError: one is not there, or is a directory without
                `recursive`; nothing was deleted.
        """
        if maxdepth is not None and recursive:
            paths = reversed(await self._expand_path(path, recursive=True, maxdepth=maxdepth))
            operations: list[Operation] = [Delete(each) for each in paths]
            await (await self._client()).transact(operations)
            return
        paths = await self._named(path)
        found = await asyncio.gather(*(self._status(each) for each in paths))
        await self._delete(found, recursive)

    async def _delete(self, found: Iterable[FileStatus], recursive: bool) -> None:
        for each in found:
            if each.kind is Kind.DIRECTORY and not recursive:
                raise IsDirectoryError(f"'{each.path}' is a directory", path=each.path)
        operations: list[Operation] = [Delete(each.path, recursive) for each in found]
        await (await self._client()).transact(operations)

    async def _mv(
        self,
        path1: str | list[str],
        path2: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Move files or directories, in one step and without copying a byte.

        Files that are at the new places are replaced. A single source goes into `path2` when that
        is a directory, or to it when not; several always go into it.

        Raises:
            FileNotFoundError, FileExistsError: no source, or a directory is at the new place;
                nothing was moved.
        """
        sources = await self._named(path1)
        targets = await self._targets(sources, path2)
        operations: list[Operation] = []
        for source, target in zip(sources, targets, strict=True):
            parent = target.rpartition("/")[0]
            if source != target:
                operations += [MakeDirectory(parent)] if parent else []
                operations.append(Rename(source, target, overwrite=True))
        if operations:
            await (await self._client()).transact(operations)

    async def _targets(self, sources: list[str], path2: str | list[str]) -> list[str]:
        if not isinstance(path2, str):
            return [self.own_path(each) for each in path2]
        into = len(sources) > 1 or path2.endswith("/") or await self._isdir(path2)
        path2 = self.own_path(path2)
        if not into:
            return [path2]
        return [join(path2, base_name(each)) for each in sources]

    async def _set_replication(self, path: str, replication: int) -> None:
        """Set how many replicas a file has; the name is the one that fsspec's WebHDFS has."""
        await (await self._client()).set_replication(self.own_path(path), replication)

    async def _truncate(self, path: str, size: int) -> None:
        """Cut a file to its first `size` bytes; fsspec itself has no name for that."""
        await (await self._client()).truncate(self.own_path(path), size)

    async def _chmod(self, path: str, mode: int | str) -> None:
        """Change permission bits, as fsspec's local and WebHDFS file systems do; a text is octal.

        Raises:
            ValueError: the text is no octal number.
        """
        bits = int(mode, 8) if isinstance(mode, str) else mode
        await (await self._client()).set_permission(self.own_path(path), bits)

    async def _chown(self, path: str, owner: str | None = None, group: str | None = None) -> None:
        """Change the owner, the group, or both; the name is the one that fsspec's WebHDFS has."""
        await (await self._client()).set_owner(self.own_path(path), owner, group)

    # fsspec has no names for access control lists; these are HDFS's.

    async def _get_acl_status(self, path: str) -> AclStatus:
        return await (await self._client()).get_acl_status(self.own_path(path))

    async def _set_acl(self, path: str, entries: str | Iterable[AclEntry]) -> None:
        await (await self._client()).set_acl(self.own_path(path), entries)

    async def _modify_acl_entries(self, path: str, entries: str | Iterable[AclEntry]) -> None:
        await (await self._client()).modify_acl_entries(self.own_path(path), entries)

    async def _remove_acl_entries(self, path: str, entries: str | Iterable[AclEntry]) -> None:
        await (await self._client()).remove_acl_entries(self.own_path(path), entries)

    async def _remove_default_acl(self, path: str) -> None:
        await (await self._client()).remove_default_acl(self.own_path(path))

    async def _remove_acl(self, path: str) -> None:
        await (await self._client()).remove_acl(self.own_path(path))

    # fsspec derives synchronous names only for its own list of verbs.
    created = sync_wrapper(_created)
    modified = sync_wrapper(_modified)
    ukey = sync_wrapper(_ukey)
    checksum = sync_wrapper(_checksum)
    locations = sync_wrapper(_locations)
    rmdir = sync_wrapper(_rmdir)
    mv = sync_wrapper(_mv)
    set_replication = sync_wrapper(_set_replication)
    truncate = sync_wrapper(_truncate)
    chmod = sync_wrapper(_chmod)
    chown = sync_wrapper(_chown)
    get_acl_status = sync_wrapper(_get_acl_status)
    set_acl = sync_wrapper(_set_acl)
    modify_acl_entries = sync_wrapper(_modify_acl_entries)
    remove_acl_entries = sync_wrapper(_remove_acl_entries)
    remove_default_acl = sync_wrapper(_remove_default_acl)
    remove_acl = sync_wrapper(_remove_acl)

    async def _status(self, path: str) -> FileStatus:
        return await (await self._client()).stat(self.own_path(path))

    async def _named(self, path: str | list[str]) -> list[str]:
        """Return the paths; one that names nothing may be a pattern."""
        if isinstance(path, str):
            path = self.own_path(path)
            literal = not has_magic(path) or await self._exists(path)
            return [path] if literal else await self._globbed(path)
        return [name for each in path for name in await self._named(each)]

    async def _globbed(self, pattern: str) -> list[str]:
        found: list[str] = await self._glob(pattern)
        if not found:
            raise NotFoundError(f"'{pattern}' matches nothing", path=pattern)
        return found

    async def _kind(self, path: str) -> Kind | None:
        try:
            return (await self._status(path)).kind
        except _MISSING:
            return None

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
    ) -> ReadFile | CachedFile | WriteFile:
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
        options = WriteOptions(**{name: tuning.pop(name, None) for name in _POLICY})
        staging = await self._staging()
        return await staging.create(self.own_path(path), how, options=options, **tuning)

    @asynccontextmanager
    async def _writing(
        self, path: str, how: Publish = Publish.REPLACE, **tuning: Any
    ) -> AsyncIterator[AsyncFileWriter | Addition]:
        """Write a file; it is published at the end of the block, or of the transaction."""
        staged = await self._stage(path, how, **tuning)
        try:
            yield staged.writer
        except BaseException:
            await staged.discard()
            raise
        await staged.complete(publishes=not self._intrans)
        if self._intrans:
            self.transaction.files.append(staged)

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

    async def _pipe(
        self, path: Any, value: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> None:
        """Write whole files. Those of a dict, outside of a transaction, are written and published
        many at a time (`Client.put_many`)."""
        if isinstance(path, str) or self._intrans:
            await super()._pipe(path, value, batch_size, **kwargs)
            return
        overwrite = _mode(kwargs.pop("mode", "overwrite")) is Publish.REPLACE
        options = WriteOptions(**{name: kwargs.pop(name, None) for name in _POLICY})
        named = {self.own_path(name): content for name, content in path.items()}
        client = await self._client()
        await client.put_many(named, overwrite=overwrite, options=options, **kwargs)

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
            async for piece in reader.pieces():
                await out.write(piece)

    async def _put(self, *args: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Copy local files and directories here. Small files, outside of a transaction, are written
        and published many at a time."""
        if self._intrans:
            await super()._put(*args, mode=mode, **kwargs)
            return
        how = {name: each for name, each in kwargs.items() if name not in _OF_PUT}
        how["options"] = WriteOptions(**{name: how.pop(name, None) for name in _POLICY})
        overwrite = _mode(mode) is Publish.REPLACE
        small_puts = SmallPuts(await self._client(), overwrite=overwrite, **how)
        try:
            await super()._put(*args, mode=mode, small_puts=small_puts, **kwargs)
        finally:
            await small_puts.close()

    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        mode: str = "overwrite",
        callback: Callback = DEFAULT_CALLBACK,
        small_puts: SmallPuts | None = None,
        **tuning: Any,
    ) -> None:
        """Copy a local file here; for a directory, make only the directory itself."""
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        if small_puts is not None:
            size = os.stat(lpath).st_size
            if await small_puts.put(lpath, self.own_path(rpath), size):
                callback.set_size(size)
                callback.relative_update(size)
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
            async for piece in reader.pieces():
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


def _raise_unless_missing(error: Exception) -> None:
    if not isinstance(error, _MISSING):
        raise error
