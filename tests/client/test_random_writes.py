"""Random lives of one writer: what it was told to be safe is there, whatever fails on the way.

Each seed is a story of writes, flushes, syncs and cancelled calls, while DataNodes hang up, refuse,
hang, die and are slow, and while answers of the NameNode are lost. In between the writer is idle:
then it ends by itself what failed, and who opens the file reads all that was acknowledged.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any, Final

import pytest

from paxosblock import WriteOptions
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import FencedError
from paxosblock.protocol.types import Reason
from tests.client.shipped import NAMENODE, ShippedCluster, ShippedDataNode, shipped_cluster
from tests.waiting import wait_until_async

ANSWERS = ("add_block", "finalize_block", "seal_block", "rebuild_block")
REFUSALS = (Reason.GAP, Reason.NO_SPACE, Reason.FENCED)
FAULTS = ("cut", "lose", "refuse", "refuse create", "slow", "hang", "kill", "silent")
SETTINGS: Final[dict[str, Any]] = {
    "retry_for_s": 60.0,
    "vote_timeout_s": 0.3,
    "hung_after_s": 0.2,
    "lease_interval_s": 0.02,
    "names": replace(NAMENODE, recovery_timeout_s=0.5),
}


class Life:
    """A file, what was given to its writer so far, and how much of it was acknowledged."""

    def __init__(
        self, seed: int, cluster: ShippedCluster, fs: AsyncClient, on_failure: str = "seal"
    ) -> None:
        self.on_failure = on_failure
        self.dice = random.Random(seed)
        self.cluster = cluster
        self.fs = fs
        self.given = bytearray()
        self.acknowledged = 0
        self.down: list[ShippedDataNode] = []

    async def run(self) -> None:
        chunk_size = self.dice.choice((1, 7, 64))
        self.out = await self.fs.create(
            "/a",
            chunk_size=chunk_size,
            block_size=chunk_size * self.dice.choice((1, 2, 5)),
            window=self.dice.choice((1, 2, 4)),
            durability=self.dice.choice(("disk", "memory")),
            options=WriteOptions(on_failure=self.on_failure),
        )
        for _ in range(25):
            await self.something_fails()
            if self.dice.random() < 0.12:
                await self.nothing_is_asked()
            try:
                async with asyncio.timeout(self.dice.choice((0.01, 0.3, 0.3))) as patience:
                    await self.something_is_asked(self.out)
            except TimeoutError:
                assert patience.expired(), "the writer itself goes on trying for longer"
            assert self.out.tell() == len(self.given)
            assert self.out.acknowledged >= self.acknowledged

    async def something_fails(self) -> None:
        node = self.dice.choice(self.cluster.nodes)
        match self.dice.choice((*FAULTS, *6 * ["heal"])):
            case "cut":
                node.wire.cut()
            case "lose":
                self.cluster.answers_lost.add(self.dice.choice(ANSWERS))
            case "refuse":
                for other in self.dice.sample(self.cluster.nodes, self.dice.randrange(1, 4)):
                    other.wire.faults.refuses_chunks = self.dice.choice(REFUSALS)
            case "refuse create":
                node.wire.faults.refuses_replicas = True
            case "slow":
                node.wire.votes_may_go.clear()
            case "hang":
                node.wire.hang()
            case "kill" if not self.down:
                self.down.append(node)
                await node.kill()
            case "silent":
                node.silent = True
            case _:
                await self.heal()

    async def heal(self) -> None:
        while self.down:
            await self.down.pop().start()
        self.cluster.answers_lost.clear()
        for node in self.cluster.nodes:
            node.silent = False
            node.wire.heal()

    async def nothing_is_asked(self) -> None:
        """Nothing fails any more, and no caller uses the writer: its own work comes to an end."""
        await self.heal()
        await wait_until_async(lambda: not self.fs._session.tending)
        async with await self.fs.open("/a") as file:
            content = await file.read()
        assert content == self.given[: len(content)]
        assert len(content) >= self.acknowledged

    async def something_is_asked(self, out: AsyncFileWriter) -> None:
        match self.dice.choice(("write", "write", "write", "hflush", "hsync")):
            case "write":
                data, before = self.dice.randbytes(self.dice.randrange(200)), out.tell()
                try:
                    await out.write(data)
                finally:
                    self.given += data[: out.tell() - before]
            case "hflush":
                self.note((await out.hflush()).size)
            case _:
                self.note((await out.hsync()).size)

    def note(self, length: int) -> None:
        assert length == len(self.given), "a flush acknowledges all that was given"
        self.acknowledged = length


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("on_failure", ["seal", "rebuild"])
async def test_a_file_ends_as_what_was_written_whatever_failed_on_the_way(
    seed: int, on_failure: str
) -> None:
    async with shipped_cluster(4, **SETTINGS) as (cluster, fs):
        life = Life(seed, cluster, fs, on_failure)
        await life.run()
        await life.heal()
        await life.out.close()
        assert await cluster.content("/a") == life.given


@pytest.mark.parametrize("seed", range(100, 104))
async def test_a_file_that_is_taken_over_keeps_all_that_was_acknowledged(seed: int) -> None:
    async with shipped_cluster(4, **SETTINGS) as (cluster, fs):
        life = Life(seed, cluster, fs)
        await life.run()
        await life.heal()
        assert await fs.take_over("/a") >= life.out.acknowledged
        kept = await cluster.content("/a")
        assert kept == life.given[: len(kept)]
        with pytest.raises(FencedError):
            await life.out.write(bytes(1000))
        await life.out.abort()
