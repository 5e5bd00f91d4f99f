"""Gives a range of a file out, piece by piece as the DataNodes send it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.errors import NotFoundError, TruncatedError, UnavailableError
from paxosblock.gateway.exchange import Answer

TRIES: Final = 5
"""Times that a file may be replaced between two steps of one request before it is refused."""


class ReplacedError(Exception):
    """The file that was opened went, or was cut, before its first bytes came."""


async def asked_again_if_replaced(
    stack: contextlib.AsyncExitStack,
    ask: Callable[[contextlib.AsyncExitStack], Awaitable[Answer]],
) -> Answer:
    """Return what `ask` answers, which is asked again where it raises ReplacedError.

    What it puts on the stack that it is given is given back before it is asked again, and goes to
    `stack` in the end.

    Raises:
        UnavailableError: it raised that each of `TRIES` times.
        Others: as `ask`.
    """
    for _ in range(TRIES):
        async with contextlib.AsyncExitStack() as own:
            try:
                answer = await ask(own)
            except ReplacedError:
                continue
            await stack.enter_async_context(own.pop_all())
            return answer
    raise UnavailableError("the file is being replaced all the time; try again")


async def begun(reader: AsyncFileReader, start: int, length: int) -> AsyncIterator[memoryview]:
    """Return `length` bytes from `start` on, at least one, which the file must have, when the first
    of them have come: until then it can still be told that the file is gone.

    Raises:
        ReplacedError: it is.
        Others: as `pieces_of`, which the iterator does later, too.
    """
    pieces = pieces_of(reader, start, length)
    try:
        first = await anext(pieces)
    except (NotFoundError, TruncatedError) as error:
        raise ReplacedError from error
    return _following(first, pieces)


async def _following(
    piece: memoryview, rest: AsyncGenerator[memoryview]
) -> AsyncIterator[memoryview]:
    yield piece
    del piece  # its buffer is used again
    async for piece in rest:
        yield piece
        del piece


async def pieces_of(reader: AsyncFileReader, start: int, length: int) -> AsyncGenerator[memoryview]:
    """Yield `length` bytes from `start` on, which the file must have.

    Raises: as `AsyncFileReader.read`, in the middle, too.
    """
    reader.seek(start)
    left = length
    while left:
        piece = (await reader.next_piece())[:left]
        assert piece, "the file was so long when it was opened"
        left -= len(piece)
        yield piece
        del piece  # its buffer is used again
