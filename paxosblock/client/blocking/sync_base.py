"""The bases of the classes in `sync.py`: an event loop on a thread of its own."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any, Generic, ParamSpec, Self, TypeVar

from paxosblock.client.async_client import AsyncClient
from paxosblock.client.blocking.loop_thread import STOP_WITHIN_S, BackgroundLoop
from paxosblock.config import ClientConfig

P = ParamSpec("P")
M = TypeVar("M")
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
        self._thread = _Thread(AsyncClient(cluster, config, **settings))
        self._within_s: float | None = None

    def __repr__(self) -> str:
        return f"<Client paxosblock://{','.join(self._thread.client.addresses)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Let Spark, dask and ray send it: the copy has the same cluster and settings, connections
        of its own, and as `host` the machine where it arrives, unless another name was given."""
        here = self.config.host == ClientConfig().host
        return _arrived, (type(self), self._thread.client.addresses, self.config, here)

    @property
    def config(self) -> ClientConfig:
        """Return the settings in use."""
        return self._async.config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; also done when the program ends."""
        self._thread.close()

    def within(self, seconds: float) -> Self:
        """Return this client with another time-out: `fs.within(5).stat(path)`.

        Its calls, and those of files that are opened by it, try for so many seconds in place of the
        setting `retry_for_s`; then they raise. It has the same connections: to close one closes
        both.
        """
        same = object.__new__(type(self))  # copy() goes by `__reduce__`: that client has its own
        same._thread, same._within_s = self._thread, seconds
        return same

    def while_waiting(
        self, tell: Callable[[float], None] | None, ends_within_s: float = STOP_WITHIN_S
    ) -> None:
        """Have `tell` called now and then while a call of this client or of its files waits, on the
        thread that waits, with how long this call took so far, in seconds. None: no more.

        A call that is interrupted has `ends_within_s` to take back what it has begun.
        """
        self._background.while_waiting = tell
        self._background.ends_within_s = ends_within_s

    @property
    def _async(self) -> AsyncClient:
        client = self._thread.alive
        return client if self._within_s is None else client.within(self._within_s)

    @property
    def _background(self) -> BackgroundLoop:
        return self._thread.loop

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


class _Thread:
    """A client and the thread with its event loop; it ends when its last reference is gone."""

    def __init__(self, client: AsyncClient) -> None:
        self._begin(client)

    def _begin(self, client: AsyncClient) -> None:
        self.client, self.loop = client, BackgroundLoop()
        self._end = weakref.finalize(self, _stop, self.loop, client)

    @property
    def alive(self) -> AsyncClient:
        """Return the client, a new one on a new thread after a fork."""
        if self.loop.forked:
            # Sockets and loop are shared with the parent: leave them alone, for ever.
            _INHERITED.append((self.loop, self.client))
            self._end.detach()
            self._begin(AsyncClient(self.client.addresses, self.client.config))
        return self.client

    def close(self) -> None:
        """Close all connections."""
        _stop(self.loop, self.client)
        self._end.detach()  # not before: an interrupt must not leave a thread that never ends


class Mirror(Generic[M]):
    """The caller's side of an object that lives on the other thread."""

    def __init__(self, owner: object, background: BackgroundLoop, there: M) -> None:
        """`owner` lives as long as this."""
        self._owner = owner
        self._background = background
        self._async = there

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "", 1)

    def _run(
        self, call: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return self._background.run(call, *args, **kwargs)


def _arrived(
    kind: type[K], addresses: tuple[str, ...], config: ClientConfig, of_its_machine: bool
) -> K:
    return kind(addresses, replace(config, host=ClientConfig().host) if of_its_machine else config)


async def _next(pieces: AsyncIterator[T]) -> T:
    return await anext(pieces)


def _stop(background: BackgroundLoop, client: AsyncClient) -> None:
    background.stop(client.close)
