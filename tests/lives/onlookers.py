"""Those who watch all names, while everything else goes on, and go on elsewhere now and then.

What must hold: each hears of each change once, in order, and all hear the same, whichever NameNodes
answer them; what they know from a list and the changes since is what is there in the end.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from paxosblock.api.watching import ChangeKind, NameChange
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import GapError, PaxosBlockError
from tests.lives.users import PATIENCE_S, until_done
from tests.namenode.names_model import Known, Names, WatchedNames, names_in

if TYPE_CHECKING:
    from tests.lives.life import Life

COUNT: Final = 3
END: Final = "/all-has-happened"

Told = dict[int, tuple[NameChange, ...]]
"""The changes of each revision."""


class Onlooker:
    """One who watches; what he knows, and was told since he last listed."""

    def __init__(self) -> None:
        self.listed: Names = {}
        self.names: WatchedNames | None = None
        """None until he has listed."""
        self.began = 0
        self.told: Told = {}
        self._moment: list[NameChange] = []

    def begin(self) -> None:
        """Know nothing."""
        self.listed, self.names, self.told, self._moment = {}, None, {}, []

    def go_on(self) -> int | None:
        """Return the revision behind which to go on; a moment may not have been told wholly."""
        self._moment = []
        return None if self.names is None else self.names.revision

    def hear(self, change: NameChange) -> None:
        """Take what he is told. Raises AssertionError: it cannot be."""
        if change.kind is ChangeKind.GAP:
            self.begin()
        elif change.kind is ChangeKind.LISTED:
            assert self.names is None, "nothing is listed among changes"
            self.began = change.revision
            size = None if change.is_directory else change.size
            self.listed[change.path] = Known(change.file_id, change.is_directory, size)
        else:
            if self.names is None:
                self.names = WatchedNames("/", self.listed, self.began)
            if self._moment and self._moment[0].revision != change.revision:
                self.know()
            self._moment.append(change)

    def know(self) -> None:
        """Apply the changes of a moment, which has been told wholly."""
        if self._moment and self.names is not None:
            self.names.take(self._moment, _from_elsewhere)
            self.told[self._moment[0].revision] = tuple(self._moment)
            self._moment = []


def _from_elsewhere(revision: int, path: str) -> NoReturn:
    raise AssertionError(f"{path} came from outside of everything at {revision}")


class Onlookers:
    """All who watch in one life."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} onlookers")
        self._all = [Onlooker() for _ in range(COUNT)]
        self._host = life.world.new_host()

    def start(self) -> None:
        """Let them begin, each in a process of its own."""
        for each in self._all:
            rng = random.Random(self.rng.random())
            self.life.world.new_host().run(self._watch(each, rng))

    async def _watch(self, onlooker: Onlooker, rng: random.Random) -> None:
        counts, loop = self.life.counts, self.life.loop
        while onlooker in self._all:
            try:
                async with self.life.cluster.new_client() as fs:
                    async with asyncio.timeout(rng.uniform(1, 30)):
                        await self._hear(onlooker, fs)
            except TimeoutError:
                counts["watchers that went on elsewhere"] += 1
            except GapError:
                counts["gaps of watchers"] += 1
                onlooker.begin()
            except PaxosBlockError as error:
                counts[f"watchers {type(error).__name__}"] += 1
                await loop.pass_time(0.5)
            except AssertionError as error:
                self.life.world.mistake(f"a watcher heard wrongly: {error}")
                onlooker.begin()

    async def _hear(self, onlooker: Onlooker, fs: AsyncClient) -> None:
        after = onlooker.go_on()
        if after is None:
            onlooker.begin()
        async for change in fs.watch("/", after=after, listed=after is None):
            onlooker.hear(change)
            self.life.counts["changes that watchers heard"] += 1
            if change.path == END:
                onlooker.know()
                return

    async def end(self) -> None:
        """Wait until all know that nothing more happens, and compare what they know."""
        await self._host.ask(self._say_the_end())
        end_s = self.life.loop.now + PATIENCE_S
        while any(END not in self._known(each) for each in self._all):
            if self.life.loop.now > end_s:
                self.life.world.mistake("a watcher does not hear the end")
                break
            await self.life.loop.pass_time(0.5)
        onlookers, self._all = self._all, []
        view = self.life.cluster.namenodes.catalog()
        assert view is not None, "a NameNode is there in the quiet"
        there = names_in(view)
        for each in onlookers:
            if (known := self._known(each)) != there:
                strange = dict(known.items() ^ there.items())
                self.life.world.mistake(f"a watcher knows other names: {strange}")
            self._compare(each, onlookers)

    def _known(self, onlooker: Onlooker) -> Names:
        known = onlooker.listed if onlooker.names is None else onlooker.names.names
        return {path: each for path, each in known.items() if path != "/"}

    def _compare(self, onlooker: Onlooker, others: list[Onlooker]) -> None:
        """Let one know whether another one was told something else of the time of both."""
        for other in others:
            since = max(onlooker.began, other.began)
            one, two = (_behind(each.told, since) for each in (onlooker, other))
            self.life.counts["moments that several watchers heard of"] += len(one)
            if one != two:
                strange = sorted(one.keys() ^ two.keys())
                self.life.world.mistake(f"two watchers heard different things: {strange}")

    async def _say_the_end(self) -> None:
        async with self.life.cluster.new_client() as fs:
            await until_done(self.life.world, partial(fs.mkdirs, END))


def _behind(told: Told, since: int) -> Told:
    return {revision: each for revision, each in told.items() if revision > since}
