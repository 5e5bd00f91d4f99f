"""Somebody who notes what is there at a moment, and looks back at it through the window of history;
and who removes a directory and brings it back.

What must hold: as long as the window has a revision, the names of then are there, and each file has
the bytes of then, whatever becomes of it; and what was removed behind such a revision comes back as
it was. The window moves on with the clocks of NameNodes, which jump: a moment that it has no longer
is forgotten.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import NotFoundError
from tests.lives.keepsakes import bytes_of, same
from tests.lives.users import patiently, until_done
from tests.services.content import content

if TYPE_CHECKING:
    from tests.lives.life import Life

HISTORY_S: Final = 20.0
"""Length of the window: what it shows must be gone before the end of the quiet."""
NOTED: Final = 6
"""Moments that are remembered at a time."""
FOLDER: Final = "/memories"
SIZES: Final = {"none": 0, "some": 100, "more": 1300}
"""Files of a directory that is removed, and their bytes: none, a part of a block, three blocks."""

Names = dict[str, tuple[Kind, int]]
"""The kind and the id of each path."""


@dataclass(frozen=True, slots=True)
class _Moment:
    revision: int
    names: Names
    files: dict[str, bytes]
    """Some that nothing changed from then until they were read."""


class Memories:
    """Moments of the catalog that were seen, to be compared with what the window shows."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} history")
        self._host = life.world.new_host()
        self._moments: list[_Moment] = []
        self._made = 0

    async def run(self, until_s: float) -> None:
        """Note moments, look back at them, and undelete, now and then."""
        await self._host.ask(self._run(until_s))

    async def end(self) -> None:
        """Look back once more, and let nothing stay."""
        await self._host.ask(self._end())

    async def _run(self, until_s: float) -> None:
        loop = self.life.loop
        async with self.life.cluster.new_client() as fs:
            while loop.now < until_s:
                await loop.pass_time(self.rng.choice((0.5, 2.0)) * self.rng.random() * 2)
                step = self.rng.choice(
                    (self._note, self._look_back, self._look_back, self._undelete)
                )
                async with patiently(self.life.world, self.life.counts, "history", step.__name__):
                    await step(fs)

    async def _note(self, fs: AsyncClient) -> None:
        revision, before = await self._listed(fs)
        closed = sorted(path for path, each in before.items() if each.kind is Kind.FILE)
        sample = self.rng.sample(closed, min(3, len(closed)))
        read = {path: await bytes_of(fs, path) for path in sample if not before[path].open}
        _, after = await self._listed(fs)
        files = {
            path: data
            for path, data in read.items()
            if data is not None and same(before[path], after.get(path))
        }
        self._moments.append(_Moment(revision, _names(before.values()), files))
        del self._moments[:-NOTED]

    async def _look_back(self, fs: AsyncClient) -> None:
        if not self._moments:
            return
        moment = self.rng.choice(self._moments)
        at = f"@{moment.revision}"
        try:
            there = await fs.ls("/", at=at)
        except NotFoundError as error:
            self._forget(moment, error)
            return
        stem = f"/.snapshot/{at}"
        if (names := _names(there, stem)) != moment.names:
            self.life.world.mistake(f"{at} has {names}, not {moment.names}")
        for path, wanted in moment.files.items():
            found = await bytes_of(fs, f"{stem}{path}")
            if found != wanted and await self._has(fs, moment.revision):
                has = "nothing" if found is None else f"{len(found)} bytes"
                self.life.world.mistake(f"{path} {at} has {has}, not the {len(wanted)} of then")
            self.life.counts["files of the past read"] += 1
        self.life.counts["moments seen again"] += 1

    def _forget(self, moment: _Moment, error: NotFoundError) -> None:
        if "before the history" not in str(error):
            self.life.world.mistake(f"@{moment.revision} is not there: {error}")
        self._moments.remove(moment)
        self.life.counts["moments forgotten"] += 1

    async def _undelete(self, fs: AsyncClient) -> None:
        """Make a directory, remove it, and bring it back."""
        self._made += 1
        path = f"{FOLDER}/{self._made}"
        await fs.mkdirs(path)
        for name, size in SIZES.items():
            async with await fs.create(f"{path}/{name}") as out:
                await out.write(content(name, 0, size))
        before = _names(await fs.ls(path))
        revision, _ = await self._listed(fs)
        if not await self._has(fs, revision):
            return  # no window yet
        await fs.delete(path, recursive=True)
        await self.life.loop.pass_time(self.rng.choice((0.0, 3.0)) * self.rng.random())
        try:
            await fs.undelete(path)
        except NotFoundError as error:
            if await self._has(fs, revision):
                self.life.world.mistake(f"{path} does not come back: {error}")
            return
        if (after := _names(await fs.ls(path))) != before:
            self.life.world.mistake(f"{path} came back as {after}, not {before}")
        for name, size in SIZES.items():
            if await bytes_of(fs, f"{path}/{name}") != content(name, 0, size):
                self.life.world.mistake(f"{path}/{name} came back with other bytes")
        self.life.counts["directories undeleted"] += 1
        await fs.delete(path, recursive=True)

    async def _listed(self, fs: AsyncClient) -> tuple[int, dict[str, FileStatus]]:
        """Return what is in the root, and the revision at which."""
        found = [page async for page in fs.pages("/")]
        return found[-1].revision, {each.path: each for page in found for each in page.entries}

    async def _has(self, fs: AsyncClient, revision: int) -> bool:
        """True if the window has a revision."""
        try:
            await fs.stat("/", at=f"@{revision}")
        except NotFoundError:
            return False
        return True

    async def _end(self) -> None:
        async with self.life.cluster.new_client() as fs:
            for _ in range(len(self._moments)):
                await until_done(self.life.world, partial(self._look_back, fs))
            await until_done(self.life.world, partial(fs.delete, FOLDER, recursive=True))


def _names(entries: Iterable[FileStatus], stem: str = "") -> Names:
    return {each.path.removeprefix(stem): (each.kind, each.file_id) for each in entries}
