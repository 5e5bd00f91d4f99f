"""The frame of the file system: its cluster, the connection to it, its transactions."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from fsspec.asyn import AsyncFileSystem, sync_wrapper
from fsspec.spec import make_instance
from fsspec.transaction import Transaction

from paxosblock.base.units import parse_duration
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.blocking.background import STOP_WITHIN_S, OtherLoop
from paxosblock.client.fsspec.files import AsyncWriteFile, WriteFile
from paxosblock.client.fsspec.options import config_of, options_of_url, path_of_url
from paxosblock.client.fsspec.staging import StagedFile, StagingArea, discard, publish
from paxosblock.client.names.own_hosts import OwnHosts, is_url
from paxosblock.client.names.url import NAMENODES_VARIABLE, SCHEME, cluster_addresses
from paxosblock.config import ClientConfig
from paxosblock.errors import InvalidRequestError

_INHERITED: list[object] = []
"""Objects that a forked process must not clean up."""


class Connection:
    """A client and its staging area, on the event loop that made it; closed when it is done."""

    def __init__(self, addresses: tuple[str, ...], config: ClientConfig, ttl_s: float) -> None:
        """Must be made inside the running loop. `ttl_s`: see `StagingArea`."""
        self.loop = asyncio.get_running_loop()
        self.client = AsyncClient(addresses, config)
        self.staging = StagingArea(self.client, ttl_s)
        self._process = os.getpid()
        self._closed = False

    async def close(self) -> None:
        """Remove unpublished files and close all connections; once, on the loop's thread."""
        if self._closed:
            return
        if asyncio.get_running_loop() is not self.loop:
            if self.loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(self.close(), self.loop)
                await asyncio.wrap_future(closing)
            return
        self._closed = True
        try:
            await self.staging.close()
        finally:
            await self.client.close()

    def close_at_end_of(self, owner: object) -> None:
        """Close when `owner` is gone or the program ends, if the loop still runs then."""
        weakref.finalize(owner, self._end)

    def _end(self) -> None:
        if self._process != os.getpid():
            # Sockets and loop are shared with the parent: leave them alone, for ever.
            _INHERITED.append(self)
            return
        if self._closed or not self.loop.is_running() or sys.is_finalizing():
            return
        other = OtherLoop(self.loop)
        closing = other.prepare(self.close)
        closing.launch()
        if other.usable:  # the owner may be collected on the loop's own thread
            closing.wait(STOP_WITHIN_S)
            if not threading.main_thread().is_alive():
                closing.cancel()  # the program ends: asyncio would complain of a task that is left


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

    def __get__(self, fs: ClusterFileSystem | None, owner: type) -> Callable[[Any], Any]:
        return functools.partial(_stripped, path_of_url if fs is None else fs.own_path)


def _stripped(path_of: Callable[[str], str], path: Any) -> Any:
    if isinstance(path, list | tuple):
        return [_stripped(path_of, each) for each in path]
    return path_of(os.fspath(path))


class ClusterFileSystem(AsyncFileSystem):
    """A cluster by its URL or storage options, cached and pickled by them."""

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
            settings: of the client, as its configuration file has them: `replication`,
                `block_size`, `durability`, `chunk_size`, `window`, `retry_for`, ...

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
