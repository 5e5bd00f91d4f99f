"""What do a block's end, the next block's beginning, a file's close and a take-over cost?

    python -m benchmarks.block_steps [--only step,close,takeover] [--blocks 20] [--files 200]

A LocalCluster on loopback, three DataNodes, the client in this process.

*Step*: a file of `--blocks` blocks of 64 MiB is written without a pause; for each step from a block
to the next one, how long is it from the last vote for the one to the first chunk sent in the
other, and to the first vote for that? *Close*: create, one write of 1 KiB and close, and of these
the close alone. *Take-over*: a client that wrote 1, 16 or 128 MiB of an open block says no more,
and another one takes the file over; how long does that take, until the file is closed?
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from typing import Final

from benchmarks.stats import latencies, machine, say
from paxosblock import AsyncClient, LocalCluster, loop
from paxosblock.client.block_writer import BlockWriter
from paxosblock.client.chunks import Chunk
from paxosblock.net.wire import Header
from paxosblock.protocol.types import BlockId, StorageId
from paxosblock.units import KIB, MIB

STEP_BLOCK_BYTES: Final = 64 * MIB
TAKEN_OVER_MIB: Final = (1, 16, 128)


class Watch:
    """Notes when the chunks of each block are sent, and when all members have voted for them."""

    def __init__(self) -> None:
        """Looks on from here until `stop`."""
        self.sent: dict[BlockId, list[float]] = {}
        self.voted: dict[BlockId, list[float]] = {}
        self.last_sent_s = 0.0
        self._send, self._on_vote = BlockWriter.send, BlockWriter.on_vote
        watch = self

        def send(block: BlockWriter, chunk: Chunk) -> None:
            watch.last_sent_s = time.perf_counter()
            watch.sent.setdefault(block.block, []).append(watch.last_sent_s)
            watch._send(block, chunk)

        def on_vote(block: BlockWriter, storage: StorageId, header: Header) -> None:
            before = block.acknowledged_bytes
            watch._on_vote(block, storage, header)
            if block.acknowledged_bytes > before:
                watch.voted.setdefault(block.block, []).append(time.perf_counter())

        self._patch(send, on_vote)

    def stop(self) -> None:
        """Look away."""
        self._patch(self._send, self._on_vote)

    @staticmethod
    def _patch(send: Callable[..., None], on_vote: Callable[..., None]) -> None:
        BlockWriter.send = send  # type: ignore[method-assign]  # to look on, for this run
        BlockWriter.on_vote = on_vote  # type: ignore[method-assign]  # the same

    def steps(self) -> tuple[list[float], list[float]]:
        """Seconds from the last vote for a block to the first chunk and to the first vote of the
        next one, for each step."""
        blocks = sorted(self.sent, key=lambda block: self.sent[block][0])
        pairs = list(itertools.pairwise(blocks))
        still = [self.sent[after][0] - self.voted[before][-1] for before, after in pairs]
        heard = [self.voted[after][0] - self.voted[before][-1] for before, after in pairs]
        return still, heard


async def bench_step(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """The step from block to block, at both durabilities."""
    piece = os.urandom(MIB)
    async with AsyncClient(cluster.url) as fs:
        for durability in ("memory", "disk"):
            watch = Watch()
            try:
                async with await fs.create(
                    "/step", durability=durability, block_size=STEP_BLOCK_BYTES, overwrite=True
                ) as out:
                    for _ in range(options.blocks * STEP_BLOCK_BYTES // MIB):
                        await out.write(piece)
            finally:
                watch.stop()
            still, heard = watch.steps()
            say(latencies(f"step, durability {durability}: last vote to first chunk", still))
            say(latencies("  to the first vote", heard))


async def bench_close(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """A small file, from its creation to its close."""
    piece = os.urandom(KIB)
    async with AsyncClient(cluster.url) as fs:
        for durability in ("memory", "disk"):
            whole, closes = [], []
            for number in range(options.files):
                begun = time.perf_counter()
                out = await fs.create(f"/close/{durability}/{number}", durability=durability)
                await out.write(piece)
                await out.hflush()
                flushed = time.perf_counter()
                await out.close()
                closes.append(time.perf_counter() - flushed)
                whole.append(time.perf_counter() - begun)
            say(latencies(f"small file, durability {durability}: its close", closes))
            say(latencies("  create, write of 1 KiB, hflush, close", whole))


async def bench_takeover(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """Take-over of a file whose writer is gone, for lengths of its open block."""
    async with AsyncClient(cluster.url) as fs:
        for mib in TAKEN_OVER_MIB:
            rounds = max(5, options.rounds // 4) if mib == max(TAKEN_OVER_MIB) else options.rounds
            times = [await abandon_and_take_over(cluster, fs, mib) for _ in range(rounds)]
            say(latencies(f"take-over of an abandoned file, {mib} MiB, {rounds} times", times))


async def abandon_and_take_over(cluster: LocalCluster, fs: AsyncClient, mib: int) -> float:
    """Seconds that the take-over takes."""
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


Benchmarks = dict[str, Callable[[LocalCluster, argparse.Namespace], Awaitable[None]]]

BENCHMARKS: Benchmarks = {
    "step": bench_step,
    "close": bench_close,
    "takeover": bench_takeover,
}


async def run_all(benchmarks: Benchmarks, options: argparse.Namespace) -> None:
    """Start a cluster and run those that `--only` names."""
    say(machine())
    with LocalCluster(datanodes=3) as cluster:
        for name in options.only.split(","):
            await benchmarks[name](cluster, options)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(BENCHMARKS))
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=40)
    loop.run(run_all(BENCHMARKS, parser.parse_args()))


if __name__ == "__main__":
    main()
