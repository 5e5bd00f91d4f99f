"""Those who set quotas, fill directories up to them and move things from one to another, while
everything else goes on.

What must hold: each counter has what a count finds, whoever led meanwhile; nobody makes a name that
a quota refuses; and after the last one is cleared nothing is refused any more.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Final

from paxosblock.api.quota import CHECK_QUOTAS, NO_QUOTA, CheckQuotas
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import QuotaExceededError
from tests.lives.cluster import BLOCK_BYTES
from tests.lives.users import patiently, until_done

if TYPE_CHECKING:
    from tests.lives.life import Life

TOP: Final = "/ledgers"
LEDGERS: Final = (f"{TOP}/a", f"{TOP}/b", TOP)
CLERKS: Final = 2
NAMES_MAX: Final = 12
SPACE_MAX: Final = 12 * BLOCK_BYTES


class Clerks:
    """All of them in one life, each in a process of its own."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.rng = random.Random(f"{life.seed} clerks")
        self._hosts = [life.world.new_host() for _ in range(CLERKS)]

    async def run(self, until_s: float) -> None:
        """Let them work."""
        rngs = [random.Random(self.rng.random()) for _ in self._hosts]
        work = (
            host.ask(self._work(rng, until_s)) for host, rng in zip(self._hosts, rngs, strict=True)
        )
        await asyncio.gather(*work)

    async def _work(self, rng: random.Random, until_s: float) -> None:
        counts, loop = self.life.counts, self.life.loop
        steps = (self._limit, self._clear, *3 * (self._make, self._write), self._move, self._remove)
        async with self.life.cluster.new_client() as fs:
            while loop.now < until_s:
                await loop.pass_time(rng.uniform(0.05, 1.5))
                step = rng.choice(steps)
                async with patiently(self.life.world, counts, "clerks", step.__name__):
                    try:
                        await step(fs, rng)
                    except QuotaExceededError:
                        counts["times that a quota refused"] += 1
                    else:
                        counts[f"clerks {step.__name__}"] += 1

    async def _limit(self, fs: AsyncClient, rng: random.Random) -> None:
        path = rng.choice(LEDGERS)
        await fs.mkdirs(path)
        if rng.random() < 0.7:
            await fs.set_quota(path, names=rng.randint(1, NAMES_MAX))
        else:
            await fs.set_quota(path, space=rng.randrange(SPACE_MAX))

    async def _clear(self, fs: AsyncClient, rng: random.Random) -> None:
        await fs.set_quota(rng.choice(LEDGERS), names=NO_QUOTA, space=NO_QUOTA)

    async def _make(self, fs: AsyncClient, rng: random.Random) -> None:
        await fs.mkdirs(_some(rng))

    async def _write(self, fs: AsyncClient, rng: random.Random) -> None:
        async with await fs.create(f"{_some(rng)}.txt", overwrite=rng.random() < 0.5) as out:
            await out.write(bytes(rng.randrange(2 * BLOCK_BYTES)))

    async def _move(self, fs: AsyncClient, rng: random.Random) -> None:
        """Move what is there, which may be more than the other one has room for."""
        source = rng.choice((_some(rng), LEDGERS[0]))
        await fs.rename(source, f"{_some(rng)}-moved", overwrite=rng.random() < 0.5)

    async def _remove(self, fs: AsyncClient, rng: random.Random) -> None:
        await fs.delete(rng.choice((_some(rng), f"{_some(rng)}.txt", *LEDGERS)), recursive=True)

    # -- the end ----------------------------------------------------------------------------------

    async def end(self) -> None:
        """Count again; then clear all quotas, and all that they were for."""
        await self._hosts[0].ask(self._end())

    async def _end(self) -> None:
        async with self.life.cluster.new_client() as fs:
            for step in (
                partial(fs.mkdirs, TOP),
                partial(fs.set_quota, TOP, names=100),
                partial(self._count_again, fs),
                partial(fs.set_quota, TOP, names=1),
                partial(self._is_refused, fs),
                partial(fs.delete, TOP, recursive=True),
            ):
                await until_done(self.life.world, step)

    async def _count_again(self, fs: AsyncClient) -> None:
        """As `fsck --quota` does."""
        answer = await fs._session.namenodes.call(CHECK_QUOTAS, CheckQuotas("/"))
        for each in answer.checked:
            self.life.counts["quotas counted again"] += 1
            if not each.right:
                self.life.world.mistake(f"a count finds other than the quota: {each}")

    async def _is_refused(self, fs: AsyncClient) -> None:
        try:
            await fs.mkdirs(f"{TOP}/one-too-many")
        except QuotaExceededError:
            self.life.counts["times that a full directory refused"] += 1
        else:
            self.life.world.mistake("a full directory took a name")


def _some(rng: random.Random) -> str:
    """A path in one of the directories, which may have something."""
    return f"{rng.choice(LEDGERS)}/{rng.choice('pqrst')}"
