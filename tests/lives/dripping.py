"""A writer who writes a byte at a time, for longer than a backup is old when it is brought back.

Whoever learns what became of a restored block meets a writer at work on that very block only if he
wrote it when the backup was made, and still does: all other writers need a few seconds of a block.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from paxosblock import WriteOptions
from paxosblock.base.replacement import OnFailure
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import PaxosBlockError
from tests.lives.seams import ended
from tests.services.content import content, first_difference

if TYPE_CHECKING:
    from tests.lives.life import Life

PATH: Final = "/drip"
EVERY_S: Final = 0.3
"""Seconds from one byte to the next: its block lasts for two minutes, and between two bytes it
counts as one at which a writer is at work (`pairs.LINGERS_S`)."""


class Drip:
    """He and his file, in the life of one seed that has a restore."""

    def __init__(self, life: Life) -> None:
        self.acknowledged = 0
        self._life = life
        self._host = life.world.new_host()
        self._over = False
        self._running = self._host.run(self._write())

    async def _write(self) -> None:
        async with self._life.cluster.new_client() as fs:
            while not self._over and not await self._begun(fs):
                await self._life.loop.pass_time(0.5)

    async def _begun(self, fs: AsyncClient) -> bool:
        """Write until he is refused; False if that is so at once."""
        try:
            out = await fs.create(PATH, options=WriteOptions(on_failure=OnFailure.REBUILD))
        except PaxosBlockError:
            return False
        try:
            while not self._over:
                at = out.tell()
                await out.write(content(PATH, at, at + 1))
                self.acknowledged = (await out.hflush()).size
                await self._life.loop.pass_time(EVERY_S)
        except PaxosBlockError as error:
            self._life.counts[f"drip ended by {type(error).__name__}"] += 1
        out._closed = True  # nobody is there to be warned of it
        return True

    async def end(self, at_least: int) -> None:
        """Read the file, which has `at_least` what was acknowledged before the backup."""
        self._over = True
        await asyncio.wait((self._running,))
        await self._host.ask(self._read(at_least))

    async def _read(self, at_least: int) -> None:
        async with self._life.cluster.new_client() as fs:
            data = await ended(self._life, fs, PATH)
        if at_least and data is None:
            self._life.world.mistake(f"{PATH} is not found")
        elif data is not None and (
            first_difference(PATH, 0, data) is not None or len(data) < at_least
        ):
            self._life.world.mistake(
                f"{PATH} has {len(data)} bytes, and not all are right; {at_least} were acknowledged"
                " before the backup"
            )
