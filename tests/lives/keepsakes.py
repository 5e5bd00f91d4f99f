"""Somebody who takes snapshots of everything, while all else goes on, and reads them again.

What must hold: a snapshot shows a file that nothing changed while it was taken as it was; each file
in it has the same bytes for as long as the snapshot is there, whatever becomes of the file; and
after the last snapshot nothing stays that no name leads to (`Checker.unfinished`).
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import NotFoundError
from tests.lives.users import patiently, until_done

if TYPE_CHECKING:
    from tests.lives.life import Life

KEPT: Final = 3
"""Snapshots at a time."""

Files = dict[str, bytes]
"""By name below the root."""


class Keepsakes:
    """The snapshots of the root, each with what it showed when it was read first."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} snapshots")
        self._host = life.world.new_host()
        self._made = 0
        self._seen: dict[str, Files] = {}

    async def run(self, until_s: float) -> None:
        """Take snapshots, read them and end them now and then."""
        await self._host.ask(self._run(until_s))

    async def end(self) -> None:
        """Read all that are left, and end them."""
        await self._host.ask(self._end())

    async def _run(self, until_s: float) -> None:
        loop = self.life.loop
        async with self.life.cluster.new_client() as fs:
            while loop.now < until_s:
                await loop.pass_time(self.rng.choice((0.5, 3.0, 6.0)) * self.rng.random() * 2)
                step = self.rng.choice((self._take, self._take, self._read, self._drop))
                async with patiently(self.life.world, self.life.counts, "snapshots", step.__name__):
                    await step(fs)

    async def _take(self, fs: AsyncClient) -> None:
        if len(self._seen) == KEPT:
            await self._drop(fs)
        name = f"s{self._made}"
        self._made += 1
        self._seen[name] = {}
        before = {each.path: each for each in await fs.ls("/") if each.kind is Kind.FILE}
        sample = self.rng.sample(sorted(before), min(2, len(before)))
        now = {path: await bytes_of(fs, path) for path in sample if not before[path].open}
        await fs.create_snapshot("/", name)
        self.life._happens("snapshot", name)
        after = {each.path: each for each in await fs.ls("/")}
        for path, data in now.items():
            if data is not None and same(before[path], after.get(path)):
                self.life.counts["files that nothing changed as a snapshot was taken"] += 1
                self._compare(f"/.snapshot/{name}{path}", await self._shown(fs, name, path), data)
        await self._look(fs, name)

    async def _read(self, fs: AsyncClient) -> None:
        if self._seen:
            await self._look(fs, self.rng.choice(sorted(self._seen)))

    async def _drop(self, fs: AsyncClient) -> None:
        if self._seen:
            name = self.rng.choice(sorted(self._seen))
            await self._look(fs, name)
            del self._seen[name]
            await fs.delete_snapshot("/", name)
            self.life.counts["snapshots deleted"] += 1

    async def _look(self, fs: AsyncClient, name: str) -> None:
        """Read each file of a snapshot; what was read of it before is there still."""
        try:
            entries = await fs.ls(f"/.snapshot/{name}")
        except NotFoundError:
            return  # it was not taken, or its end was not heard of
        seen = self._seen[name]
        listed = {each.path.rpartition("/")[2] for each in entries if each.kind is Kind.FILE}
        for gone in seen.keys() - listed:
            self.life.world.mistake(f"/.snapshot/{name}/{gone} is gone")
        for file in sorted(listed):
            data = await self._shown(fs, name, f"/{file}")
            if file in seen:
                self._compare(f"/.snapshot/{name}/{file}", data, seen[file])
            elif data is not None:
                seen[file] = data
            self.life.counts["files of snapshots read"] += 1

    async def _shown(self, fs: AsyncClient, name: str, path: str) -> bytes | None:
        return await bytes_of(fs, f"/.snapshot/{name}{path}")

    def _compare(self, path: str, found: bytes | None, wanted: bytes) -> None:
        if found != wanted:
            has = "nothing" if found is None else f"{len(found)} bytes"
            self.life.world.mistake(f"{path} has {has}, not the {len(wanted)} bytes of then")

    async def _end(self) -> None:
        async with self.life.cluster.new_client() as fs:
            for name in sorted(self._seen):
                await until_done(self.life.world, partial(self._look, fs, name))
                await until_done(self.life.world, partial(fs.delete_snapshot, "/", name))
                self.life.counts["snapshots deleted"] += 1
            for each in await fs.list_snapshots("/"):  # whose end was not heard of
                await until_done(self.life.world, partial(fs.delete_snapshot, "/", each.name))


async def bytes_of(fs: AsyncClient, path: str) -> bytes | None:
    """Return all bytes of a file; None if there is none."""
    try:
        async with await fs.open(path) as opened:
            return await opened.read()
    except NotFoundError:
        return None


def same(before: FileStatus, after: FileStatus | None) -> bool:
    """True if nothing changed a closed file between two looks."""
    return after is not None and (
        (before.file_id, before.size, before.modified_s, after.open)
        == (after.file_id, after.size, after.modified_s, before.open)
    )
