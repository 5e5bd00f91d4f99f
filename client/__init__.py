"""The client: files as a user sees them, and the proposer of every chunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paxosblock.lazy import lazy_names

if TYPE_CHECKING:
    from paxosblock.client.filesystem import AsyncClient
    from paxosblock.client.sync import Client

__all__ = ["AsyncClient", "Client"]

_lazy = lazy_names(
    __name__,
    {
        "AsyncClient": "paxosblock.client.filesystem",
        "Client": "paxosblock.client.sync",
    },
)


def __getattr__(name: str) -> object:
    return _lazy(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
