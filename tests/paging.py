"""Directories that change while they are being listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from paxosblock import AsyncClient, Client
from paxosblock.api.methods import Method
from paxosblock.api.namenode import LIST
from paxosblock.api.transaction import Operation


@contextmanager
def changed_between_pages(
    fs: Client | AsyncClient, *between: Sequence[Operation]
) -> Iterator[None]:
    """The client lists two names at a time; after the first page of each listing the next
    transaction comes, as long as there are any."""
    client = fs if isinstance(fs, AsyncClient) else fs._async
    namenodes = client._session.namenodes
    ask, left, waiting = namenodes.call, [*between], False

    async def call(method: Method[Any, Any], request: Any, **how: Any) -> Any:
        nonlocal waiting
        if method is not LIST:
            return await ask(method, request, **how)
        due, waiting = waiting and left, not request.after
        if due:
            await client.transact(left.pop(0))
        return await ask(method, replace(request, limit=2), **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(namenodes, "call", call)
        yield
