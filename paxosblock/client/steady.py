"""Directories of several pages, which may change between two of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from paxosblock.api.namenode import Listing

TRIES: Final = 10
"""How often a directory is listed until no name in it changed meanwhile."""


def of_one_state(pages: Iterable[Listing]) -> bool:
    """Whether the pages show a directory as it was at one time."""
    return len({(page.directory, page.changed) for page in pages}) == 1
