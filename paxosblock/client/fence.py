"""What a writer was told that says that the file has another writer now, or none."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from paxosblock.errors import FencedError, LeaseError, NotFoundError

T = TypeVar("T")


class Fence:
    """Up once the file is not ours any more; it never comes down."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._error: FencedError | None = None

    @property
    def is_up(self) -> bool:
        """True once somebody told so."""
        return self._error is not None

    def check(self) -> None:
        """Raises FencedError once the file is not ours any more."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # else each raise would add to the one before

    def lease_lost(self) -> None:
        """The NameNode knows no lease of the writer."""
        if self._error is None:
            self._error = self._fenced("its lease is gone: somebody took it over")

    async def guard(self, request: Awaitable[T]) -> T:
        """The result of `request`; what tells that the file has another writer is remembered.

        Raises:
            FencedError: it said so, in whatever words.
            Others: as `request`.
        """
        try:
            return await request
        except (FencedError, LeaseError) as error:
            self._error = self._fenced(str(error))
            raise self._error from error
        except NotFoundError as error:
            self._error = self._fenced("was deleted")
            raise self._error from error

    def _fenced(self, why: str) -> FencedError:
        ours = f"'{self._path}': "  # which what the NameNode says begins with, too
        return FencedError(
            f"{ours}{why.removeprefix(ours)}; what was not flushed has an unknown outcome",
            path=self._path,
        )
