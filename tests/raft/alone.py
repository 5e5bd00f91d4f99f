"""A group of one member: what a cluster's only NameNode runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from paxosblock.host.disk import Disk
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.table import Tables
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.memory_table import MEMORY

ADDRESS = "a:1"


def alone(
    folder: Path,
    disk: Disk | None = None,
    limits: Limits | None = None,
    tables: Tables | None = None,
) -> ReplicatedStore:
    """The store of the only member, not started. On a given disk all files are written through
    that."""
    return ReplicatedStore(
        folder,
        ADDRESS,
        [ADDRESS],
        options=Options(limits=limits or Limits()),
        disk=disk,
        tables=tables or (MEMORY if disk else ROCKS),
    )


@asynccontextmanager
async def opened(
    folder: Path,
    disk: Disk | None = None,
    limits: Limits | None = None,
    tables: Tables | None = None,
) -> AsyncIterator[ReplicatedStore]:
    """The same, which leads; it is closed at the end."""
    store = alone(folder, disk, limits, tables)
    try:
        await store.start()
        await store.wait_leadership()
        yield store
    finally:
        await store.close()
