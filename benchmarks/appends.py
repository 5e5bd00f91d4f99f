"""What does a log cost that grows by an append a line, and how fast is it read back?

    python -m benchmarks.appends [--count 2000] [--mib 64] [--rounds 5] [--only append,read]

A LocalCluster on loopback, three DataNodes, the client in this process.

*Append*: `--count` times append, write of 1 KiB, hflush and close of one file, one after the other;
of these the set-up alone, from the call of `append` to the first chunk sent; then what is left of
it: blocks, bytes in the NameNode's folder, files at the DataNodes, MiB/s read back. `--count
100000`, a line a second for a day, takes a while. *Read*: a file of `--mib` that was written in
chunks of 1 KiB, beside one that was written at once (chunks of 512 KiB), in turns.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.block_steps import Benchmarks, Watch, run_all
from benchmarks.stats import latencies, median, resident_mib, say
from paxosblock import AsyncClient, LocalCluster, loop
from paxosblock.bench.work import read_file
from paxosblock.config import ClientConfig
from paxosblock.units import KIB, MIB

LINE: Final = KIB
CHUNKS_UNDER_WAY: Final = 64
"""The window of the writer of small chunks, so that the file is there before long."""
READ_AT_LEAST: Final = 16 * MIB
"""A file that is shorter is read several times in a row, so that there is something to measure."""


async def bench_append(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """One append after the other to one file."""
    line, times, set_ups = os.urandom(LINE), list[float](), list[float]()
    async with AsyncClient(cluster.url) as fs:
        async with await fs.create("/log"):
            pass
        watch = Watch()
        try:
            for _ in range(options.count):
                begun = time.perf_counter()
                async with await fs.append("/log") as out:
                    await out.write(line)
                    await out.hflush()
                times.append(time.perf_counter() - begun)
                set_ups.append(watch.last_sent_s - begun)
        finally:
            watch.stop()
        say(latencies(f"append, hflush, close of 1 KiB, {options.count} times", times))
        say(latencies("  its set-up, to the first chunk sent", set_ups))
        tenth = max(1, options.count // 10)
        say(f"  p50 of the first tenth {median(times[:tenth]) * 1e3:.3f} ms, of the last tenth "
            f"{median(times[-tenth:]) * 1e3:.3f} ms")  # fmt: skip
        say(
            f"  then: {len(await fs.locations('/log'))} blocks; the NameNode's folder has "
            f"{sum(path.stat().st_size for path in files_of(cluster, 'namenode')) / KIB:.0f} KiB, "
            f"its process {resident_mib(cluster.namenode.pid or 'self'):.0f} MiB; "
            f"{sum(1 for _ in files_of(cluster, 'datanode'))} files at three DataNodes"
        )
        await write(fs, "/at-once", options.count * LINE)
        await compare(fs, "/log", "/at-once", options.count * LINE, options.rounds)


async def bench_read(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """Small chunks beside large ones."""
    size = options.mib * MIB
    small = ClientConfig(chunk_size_bytes=LINE, window=CHUNKS_UNDER_WAY)
    async with AsyncClient(cluster.url, config=small) as fs:
        await write(fs, "/small", size)
    async with AsyncClient(cluster.url) as fs:
        await write(fs, "/large", size)
        await compare(fs, "/small", "/large", size, options.rounds)


async def write(fs: AsyncClient, path: str, size: int) -> None:
    """A file of `size` bytes."""
    piece = os.urandom(min(MIB, size))
    async with await fs.create(path, durability="memory", overwrite=True) as out:
        for start in range(0, size, len(piece)):
            await out.write(piece[: size - start])


async def compare(fs: AsyncClient, path: str, other: str, size: int, rounds: int) -> None:
    """Say how fast `path` is read, beside a file that was written at once."""
    repeats = max(1, READ_AT_LEAST // size)
    ours, bare = list[float](), list[float]()
    for _ in range(rounds):
        for each, speeds in ((path, ours), (other, bare)):
            speeds += [median([await read_file(fs, each) for _ in range(repeats)])]
    say(
        f"read of a file in chunks of 1 KiB {median(ours):7.0f} MiB/s, of one written at once "
        f"{median(bare):7.0f} MiB/s, ratio {median(ours) / median(bare):.2f}   (rounds: "
        + " ".join(f"{mine:.0f}/{theirs:.0f}" for mine, theirs in zip(ours, bare, strict=True))
        + ")"
    )


def files_of(cluster: LocalCluster, role: str) -> Iterator[Path]:
    """The files in the folders of all nodes of a role; of DataNodes, those of replicas."""
    for folder in cluster.path.glob(f"{role}*"):
        for path in folder.rglob("*" if role == "namenode" else "blk_*"):
            if path.is_file():
                yield path


BENCHMARKS: Benchmarks = {
    "append": bench_append,
    "read": bench_read,
}


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(BENCHMARKS))
    loop.run(run_all(BENCHMARKS, parser.parse_args()))


if __name__ == "__main__":
    main()
