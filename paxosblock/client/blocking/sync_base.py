"""The base of `Client` and `DataNode` (`sync.py`): an event loop on a thread of its own."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any, ParamSpec, Self, TypeVar

from paxosblock.api.namenode import BlockMember
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.block_verbs import AsyncDataNode
from paxosblock.client.blocking.background import BackgroundLoop
from paxosblock.config import ClientConfig

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound="ClientBase")

_INHERITED: list[object] = []
"""Objects that a forked process must not clean up."""


class ClientBase:
    """An `AsyncClient` on a thread of its own, a new one after a fork."""

    def __init__(
        self,
        cluster: str | Iterable[str] | None = None,
        config: ClientConfig | None = None,
        **settings: object,
    ) -> None:
        """Nothing is connected yet. Arguments and errors: as `AsyncClient`."""
        self._client = AsyncClient(cluster, config, **settings)
        self._background = BackgroundLoop()
        self._end = weakref.finalize(self, _stop, self._background, self._client)

    def __repr__(self) -> str:
        return f"<Client paxosblock://{','.join(self._client.addresses)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Let Spark, dask and ray send it: the copy has the same cluster and settings, connections
        of its own, and as `host` the machine where it arrives, unless another name was given."""
        here = self.config.host == ClientConfig().host
        return _arrived, (type(self), self._client.addresses, self.config, here)

    @property
    def config(self) -> ClientConfig:
        """Return the settings in use."""
        return self._client.config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; also done when the program ends."""
        _stop(self._background, self._client)
        self._end.detach()  # not before: an interrupt must not leave what nobody ends any more

    def while_waiting(self, tell: Callable[[float], None] | None) -> None:
        """Have `tell` called now and then while a call of this client or of its files waits, on the
        thread that waits, with how long this call took so far, in seconds. None: no more."""
        self._background.while_waiting = tell

    def retry_for(self, seconds: float) -> None:
        """Let calls of this client and of its files try for this long from now on (`retry_for`)."""
        self._client.retry_for(seconds)

    @property
    def _fs(self) -> AsyncClient:
        """Return the client behind this one, a new one after a fork."""
        if self._background.forked:
            # Sockets and loop are shared with the parent: leave them alone, for ever.
            _INHERITED.append((self._background, self._client))
            self._end.detach()
            self._client = AsyncClient(self._client.addresses, self._client.config)
            self._background = BackgroundLoop()
            self._end = weakref.finalize(self, _stop, self._background, self._client)
        return self._client

    def _run(
        self, call: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._background.run(call, *args, **kwargs)

    def _iterate(self, pieces: AsyncIterator[T]) -> Iterator[T]:
        try:
            while True:
                try:
                    piece = self._run(_next, pieces)
                except StopAsyncIteration:
                    return
                yield piece
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None and self._background.usable:
                self._run(close)


class DataNodeBase:
    """An `AsyncDataNode` of a client on a thread of its own."""

    def __init__(
        self, owner: ClientBase, background: BackgroundLoop, datanode: AsyncDataNode
    ) -> None:
        """`owner` lives as long as this."""
        self._owner = owner
        self._fs = datanode
        self._run = background.run

    @property
    def member(self) -> BlockMember:
        """Return the storage, and where it is reached."""
        return self._fs.member


def _arrived(
    kind: type[K], addresses: tuple[str, ...], config: ClientConfig, of_its_machine: bool
) -> K:
    return kind(addresses, replace(config, host=ClientConfig().host) if of_its_machine else config)


async def _next(pieces: AsyncIterator[T]) -> T:
    return await anext(pieces)


def _stop(background: BackgroundLoop, client: AsyncClient) -> None:
    background.stop(client.close)
