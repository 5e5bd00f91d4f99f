"""What does it cost to tell watchers of a change, and when do they hear of it?

The watchers of `/` ask the NameNode that leads on a few connections, as those of as many client
processes would. A directory is made; when all have heard of it, the next one. The load generator
takes its share of the same processors, so what the last of many watchers waits for is mostly the
work of all of them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from benchmarks.call_load import Connection, connect
from benchmarks.cases.namenodes import longest_turn_s
from benchmarks.suite import Bench, case
from paxosblock.api.namenode import MKDIRS, MakeDirectories
from paxosblock.api.watching import POLL_MAX_S, WATCH, WatchNames
from paxosblock.base import paths

WATCHERS: Final = (0, 1, 100, 1000)
CONNECTIONS: Final = 20
FOLDER: Final = "/bench-watch"
TURN_GOAL_MS: Final = 20.0


@dataclass(slots=True)
class Watchers:
    """Watchers of the root, and who of them has heard of a change at a path."""

    count: int
    path: str = ""
    """The change of which they are to hear next."""
    begun_s: float = 0.0
    delays_s: list[float] = field(default_factory=list)
    all_heard: asyncio.Event = field(default_factory=asyncio.Event)
    _left: int = 0

    def expect(self, path: str) -> None:
        """Wait for a change, which begins at this moment."""
        self.path, self._left, self.begun_s = path, self.count, time.perf_counter()
        self.all_heard.clear()
        if not self.count:
            self.all_heard.set()

    async def watch(self, connection: Connection, after: int) -> None:
        """Hear of all changes behind a revision, without end."""
        while True:
            answer = await connection.call(WATCH, WatchNames(paths.ROOT, after, 0, POLL_MAX_S))
            after = answer.revision
            if any(each.path == self.path for each in answer.changes):
                self.delays_s.append(time.perf_counter() - self.begun_s)
                self._left -= 1
                if not self._left:
                    self.all_heard.set()


@case("watch")
async def watch(bench: Bench) -> None:
    """What does it cost to tell watchers of a change, and when do they hear of it?"""
    cluster = await bench.cluster()
    leader = await asyncio.to_thread(cluster.wait_leader)
    for number in bench.rounds:
        for count in bench.sizes(WATCHERS, WATCHERS[-1], 3):
            at, watchers = (float(count), "watchers"), Watchers(count)
            links = [await connect(leader.address) for _ in range(CONNECTIONS)]
            begun = await links[0].call(WATCH, WatchNames(paths.ROOT))
            watching = [
                asyncio.create_task(watchers.watch(links[each % CONNECTIONS], begun.revision))
                for each in range(count)
            ]
            await asyncio.to_thread(longest_turn_s, leader)
            async with bench.measured(cluster) as spent:
                times_s = await _change(watchers, links[0], f"{FOLDER}/{number}", bench.seconds)
            turn_s = await asyncio.to_thread(longest_turn_s, leader)
            for each in watching:
                each.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            for link in links:
                link.close()
            used = spent.per(len(times_s))
            bench.emit_times("a change", times_s, number, at=at, processor_s=used)
            if count:
                what = "until a watcher has heard of it"
                bench.emit_times(what, watchers.delays_s, number, at=at)
            what = "longest turn of the NameNode's loop"
            bench.emit(what, turn_s * 1e3, "ms", number, at=at, goal=TURN_GOAL_MS)


async def _change(
    watchers: Watchers, connection: Connection, folder: str, seconds: float
) -> list[float]:
    """Make directories one after the other, each when all have heard of the one before; return
    what each call took."""
    times_s, begun_s = list[float](), time.perf_counter()
    while not times_s or time.perf_counter() - begun_s < seconds:
        watchers.expect(f"{folder}/{watchers.count}-{len(times_s)}")
        await connection.call(MKDIRS, MakeDirectories(watchers.path, True))
        times_s.append(time.perf_counter() - watchers.begun_s)
        await watchers.all_heard.wait()
    return times_s
