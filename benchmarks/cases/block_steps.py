"""What do a block's end, the next block's beginning, a file's close and a take-over cost?"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.suite import Bench, case
from benchmarks.work import DURABILITIES
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.client.writing.block_writer import BlockWriter
from paxosblock.client.writing.chunks import Chunk
from paxosblock.local.cluster import LocalCluster
from paxosblock.protocol.messages import Vote
from paxosblock.protocol.types import BlockId

TAKEN_OVER_MIB: Final = (1, 4, 16, 64, 128)


class Watch:
    """Notes when the chunks of each block are sent, and when all members have voted for them."""

    def __init__(self) -> None:
        """Begin to watch, until `stop`."""
        self.sent: dict[BlockId, list[float]] = {}
        self.voted: dict[BlockId, list[float]] = {}
        self.last_sent_s = 0.0
        self._send, self._on_vote = BlockWriter.send, BlockWriter.on_vote
        watch = self

        def send(block: BlockWriter, chunk: Chunk) -> None:
            watch.last_sent_s = time.perf_counter()
            watch.sent.setdefault(block.block, []).append(watch.last_sent_s)
            watch._send(block, chunk)

        def on_vote(block: BlockWriter, vote: Vote) -> None:
            before = block.acknowledged_bytes
            watch._on_vote(block, vote)
            if block.acknowledged_bytes > before:
                watch.voted.setdefault(block.block, []).append(time.perf_counter())

        self._patch(send, on_vote)

    def stop(self) -> None:
        """Stop watching."""
        self._patch(self._send, self._on_vote)

    @staticmethod
    def _patch(send: Callable[..., None], on_vote: Callable[..., None]) -> None:
        BlockWriter.send = send  # type: ignore[method-assign]  # to look on, for this run
        BlockWriter.on_vote = on_vote  # type: ignore[method-assign]  # the same

    def steps(self) -> tuple[list[float], list[float]]:
        """Return the seconds from the last vote for a block to the first chunk, and to the first
        vote, of the next block, for each step."""
        blocks = sorted(self.sent, key=lambda block: self.sent[block][0])
        pairs = list(itertools.pairwise(blocks))
        still = [self.sent[after][0] - self.voted[before][-1] for before, after in pairs]
        heard = [self.voted[after][0] - self.voted[before][-1] for before, after in pairs]
        return still, heard


@case("steps", room_bytes=6 * GIB)
async def steps(bench: Bench) -> None:
    """For how long does a writer that never pauses stand still between two blocks?

    From the last vote for the one to the first chunk sent in the other, and to its first vote.
    """
    cluster, block_bytes = await bench.cluster(), bench.size(64 * MIB, MIB)
    piece = os.urandom(min(MIB, block_bytes))
    async with AsyncClient(cluster.url) as fs:
        for durability in DURABILITIES:
            for number in bench.rounds:
                await bench.quiet()
                watch = Watch()
                try:
                    async with fs.create(
                        "/step", durability=durability, block_size=block_bytes, overwrite=True
                    ) as out:
                        for _ in range(bench.size(8, 2) * block_bytes // len(piece)):
                            await out.write(piece)
                finally:
                    watch.stop()
                still, heard = watch.steps()
                facts: dict[str, Any] = {"durability": durability, "replicas": 3}
                what = f"last vote to first chunk, durability {durability}"
                bench.emit_times(what, still, number, goals_ms={"p50": 5}, **facts)
                what = f"last vote to the first vote, durability {durability}"
                bench.emit_times(what, heard, number, **facts)
        await fs.delete("/step")


@case("close")
async def close(bench: Bench) -> None:
    """How long do the close of a small file and its whole life take?"""
    cluster, piece = await bench.cluster(), os.urandom(KIB)
    async with AsyncClient(cluster.url) as fs:
        for durability in DURABILITIES:
            for number in bench.rounds:
                whole, closes = list[float](), list[float]()
                async with bench.measured(cluster) as spent:
                    for each in range(bench.size(100, 3)):
                        begun = time.perf_counter()
                        path = f"/close/{durability}/{number}/{each}"
                        out = await fs.create(path, durability=durability)
                        await out.write(piece)
                        await out.hflush()
                        flushed = time.perf_counter()
                        await out.close()
                        closes.append(time.perf_counter() - flushed)
                        whole.append(time.perf_counter() - begun)
                facts: dict[str, Any] = {"durability": durability, "replicas": 3}
                bench.emit_times(f"close, durability {durability}", closes, number, **facts)
                what = f"create, write of 1 KiB, hflush, close, durability {durability}"
                used = spent.per(len(whole))
                bench.emit_times(what, whole, number, processor_s=used, **facts)
        await fs.delete("/close", recursive=True)


@case("recovery", room_bytes=4 * GIB)
async def recovery(bench: Bench) -> None:
    """How long does the take-over of a file take, by the length of its open block?"""
    cluster = await bench.cluster()
    async with AsyncClient(cluster.url) as fs:
        for mib in bench.some(TAKEN_OVER_MIB):
            for number in bench.rounds:
                await bench.quiet()
                count = bench.size(5, 1)
                times = [await abandon_and_take_over(cluster, fs, mib) for _ in range(count)]
                at = (float(mib), "MiB in the open block")
                goals = {"p99": 100.0}
                bench.emit_times("take-over", times, number, at=at, goals_ms=goals, replicas=3)
        await fs.delete("/abandoned")


async def abandon_and_take_over(cluster: LocalCluster, fs: AsyncClient, mib: int) -> float:
    """Return the seconds that the take-over takes."""
    piece = os.urandom(MIB)
    async with AsyncClient(cluster.url) as writing:
        out = await writing.create(
            "/abandoned", block_size=2 * max(TAKEN_OVER_MIB) * MIB, overwrite=True
        )
        for _ in range(mib):
            await out.write(piece)
        await out.hflush()
        begun = time.perf_counter()
        length = await fs.take_over("/abandoned")
        taken_s = time.perf_counter() - begun
        assert length == mib * MIB, "nothing that was acknowledged is lost"
        await out.abort()
    return taken_s
