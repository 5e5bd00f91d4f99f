"""Files that `async with fs.open(path)` opens, and `await fs.open(path)` as well."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar


class _ClosableFile(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, kind: Any, error: Any, traceback: Any, /) -> None: ...


P = ParamSpec("P")
F = TypeVar("F", bound=_ClosableFile)


class Opening(Coroutine[Any, Any, F]):
    """The coroutine that opens a file, which `async with` awaits and enters in one step."""

    def __init__(self, coroutine: Coroutine[Any, Any, F]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, F]:
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """As a coroutine does."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """As a coroutine does."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """As a coroutine does."""
        self._coroutine.close()

    async def __aenter__(self) -> F:
        self._file = await self._coroutine
        return await self._file.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._file.__aexit__(kind, error, traceback)


def opening(open_file: Callable[P, Coroutine[Any, Any, F]]) -> Callable[P, Opening[F]]:
    """Let what `open_file` returns be entered at once, without an `await` of its own."""

    @functools.wraps(open_file)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Opening[F]:
        return Opening(open_file(*args, **kwargs))

    return wrapped
