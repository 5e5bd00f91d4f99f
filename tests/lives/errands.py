"""Calls and commands that no writer, reader or background service of a life makes by itself."""

from __future__ import annotations

import random
from collections.abc import Awaitable
from typing import Final, Protocol

from paxosblock.api.care import LEAVING, LeavingRequest
from paxosblock.api.fsck_call import CHECK_FILES, CheckFiles
from paxosblock.api.lease_call import RECOVER_LEASE, RecoverLease
from paxosblock.api.namenode import GET_BLOCK, BlockRequest
from paxosblock.api.status import (
    CLUSTER_STATUS,
    EXPLAIN,
    SAFE_MODE,
    ClusterStatusRequest,
    SafeModeAction,
    SafeModeRequest,
)
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import PaxosBlockError
from tests.lives.cluster import BLOCK_BYTES
from tests.lives.users import File
from tests.lives.world import World
from tests.services.content import content, first_difference


class Errand(Protocol):
    """One of them, about a file, if there is any."""

    def __call__(
        self, fs: AsyncClient, *, rng: random.Random, file: File | None
    ) -> Awaitable[object]: ...


async def _make_directories(fs: AsyncClient, *, rng: random.Random, file: File | None) -> None:
    await fs.mkdirs(f"/directories/{rng.randrange(4)}/{rng.randrange(4)}")


async def _change_owner(fs: AsyncClient, *, rng: random.Random, file: File | None) -> None:
    """Change who may do what with a file, which may be open; nothing else of it changes."""
    if file is not None:
        await fs.set_permission(file.path, rng.choice((0o600, 0o640, 0o1777)))
        await fs.set_owner(file.path, rng.choice(("ann", "bob")), rng.choice((None, "staff")))
        await fs.set_attributes(file.path, {"user.origin": rng.choice((None, b"web-3"))})


async def _list(fs: AsyncClient, *, rng: random.Random, file: File | None) -> None:
    await fs.ls("/")


async def _remember(fs: AsyncClient, *, rng: random.Random, file: File | None) -> None:
    await fs.transaction_status("an application")


async def _look(fs: AsyncClient, *, rng: random.Random, file: File | None) -> None:
    """Look as `admin report`, `admin leaving`, `fsck` and `explain` do."""
    call = fs._session.namenodes.call
    await call(CLUSTER_STATUS, ClusterStatusRequest())
    await call(LEAVING, LeavingRequest())
    await call(CHECK_FILES, CheckFiles("/"))
    if file is not None and (found := await fs.locations(file.path)):
        block = rng.choice(found).block
        await call(EXPLAIN, BlockRequest(block))
        await call(GET_BLOCK, BlockRequest(block))
        await fs.get_attributes(file.path)


async def _recover_lease(fs: AsyncClient, *, rng: random.Random, file: File | None) -> None:
    """End the writing of a file, as `fs recover-lease` does, and give no member up."""
    if file is not None:
        await fs._session.namenodes.call(RECOVER_LEASE, RecoverLease(file.path))


async def _put_many(fs: AsyncClient, *, rng: random.Random, file: File | None) -> None:
    """Write small files together, over those that are there; each is whole, whatever fails."""
    folder = f"/many/{rng.randrange(3)}"
    wanted = {f"{folder}/{number}": rng.choice((0, 1, BLOCK_BYTES // 8)) for number in range(4)}
    try:
        await fs.put_many(
            {path: content(path, 0, size) for path, size in wanted.items()}, overwrite=True
        )
    finally:
        for each in await fs.ls(folder):
            async with fs.open(each.path) as opened:
                found = await opened.read()
            assert len(found) in {0, 1, BLOCK_BYTES // 8}, f"{each.path}: {len(found)} bytes"
            assert first_difference(each.path, 0, found) is None, each.path


ERRANDS: Final[tuple[Errand, ...]] = (
    _make_directories,
    _change_owner,
    _list,
    _remember,
    _look,
    _recover_lease,
    _put_many,
)


async def stay_in_safe_mode(fs: AsyncClient, world: World, seconds: float) -> None:
    """Let no name change for a while; a user who entered safe mode leaves it, whatever happens."""
    call = fs._session.namenodes.call
    await call(SAFE_MODE, SafeModeRequest(SafeModeAction.ENTER))
    await world.loop.pass_time(seconds)
    while True:
        try:
            await call(SAFE_MODE, SafeModeRequest(SafeModeAction.LEAVE))
        except PaxosBlockError:
            await world.loop.pass_time(0.5)
        else:
            return
