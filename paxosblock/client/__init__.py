"""The client: files as a user sees them, and the proposer of every chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paxosblock.base.lazy import lazy_names

if TYPE_CHECKING:
    from paxosblock.client.async_client import AsyncClient
    from paxosblock.client.blocking.sync import Client
    from paxosblock.client.writing.receipt import FlushReceipt

__all__ = ["AsyncClient", "Client", "FlushReceipt"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AsyncClient": "paxosblock.client.async_client",
        "Client": "paxosblock.client.blocking.sync",
        "FlushReceipt": "paxosblock.client.writing.receipt",
    },
)
