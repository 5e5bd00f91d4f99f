"""Hidden files: those that were not published."""

from __future__ import annotations

from paxosblock.base.paths import STAGING
from paxosblock.client.fsspec import PaxosBlockFileSystem


def staged(fs: PaxosBlockFileSystem) -> list[str]:
    """The hidden names of all clients."""
    return [path for path in fs.find(STAGING) if not fs.isdir(path)]
