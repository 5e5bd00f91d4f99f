"""Directories that change while they are being listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from paxosblock import AsyncClient, Client
from paxosblock.api.namenode import Listing
from paxosblock.api.transaction import Operation


@contextmanager
def changed_between_pages(fs: Client, *between: Sequence[Operation]) -> Iterator[None]:
    """The client lists two names at a time; after the first page of each listing the next
    transaction comes, as long as there are any."""
    client: AsyncClient = fs._fs
    ask, left, waiting = client.page, [*between], False

    async def page(path: str, after: str = "", limit: int = 1000) -> Listing:
        nonlocal waiting
        due, waiting = waiting and left, not after
        if due:
            await client.transact(left.pop(0))
        return await ask(path, after, 2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "page", page)
        yield
