"""Lets the status page of a NameNode open files, in its process, with the reader of clients.

It is here, as roles do not know each other. The reader, and all that a client is made of, is
imported when the first file is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from paxosblock.net.calls.own_calls import OwnCalls
    from paxosblock.net.port.access import Access
    from paxosblock.page.contents import FileBytes

READER: Final = "paxosblock.cli.page_reader"


class PageContents:
    """Opens files for `CALLER`, as the NameNode's page needs it."""

    def __init__(self, calls: OwnCalls, access: Access) -> None:
        """`calls` has those of this NameNode, which shows DataNodes what `access` has."""
        self._calls = calls
        self._access = access

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[FileBytes]:
        """Open a file for a block. Raises as `AsyncClient.open`."""
        await asyncio.to_thread(import_module, READER)
        from paxosblock.cli.page_reader import opened

        async with opened(self._calls, self._access, path) as file:
            yield file
