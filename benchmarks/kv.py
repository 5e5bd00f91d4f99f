"""How many transactions per second does the NameNode's store commit, and how long does one take?

    python -m benchmarks.kv [--folder DIR] [--seconds 3] [--clients 1 64 256] [--keys 200000]

Each client commits 100-byte values with a compare-and-set on its own key, one after the other, and
waits for `fdatasync`. The bare limit beside it is one thread that appends a record of the same
length and calls `fdatasync`, in the same folder. `--keys` first fills a store and flushes it under
load: the memory beyond an empty process is reported, the time of a restart, and the longest pause
of the event loop. `--keys 5000000` shows what the catalog of some millions of files takes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

from benchmarks.stats import machine, percentile, say
from paxosblock.namenode.kv.engine import SingleMemberStore
from paxosblock.namenode.kv.folder import Limits
from paxosblock.namenode.kv.interface import Committed, Expect, Transaction
from paxosblock.units import MIB

VALUE = bytes(100)


def describe(label: str, seconds: float, latencies: list[float]) -> str:
    """Rate and percentiles, as one line."""
    p50, p99 = (percentile(latencies, fraction) * 1000 for fraction in (0.5, 0.99))
    rate = len(latencies) / seconds
    return f"{label:<28} {rate:>9,.0f} /s   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms"


def bare_limit(folder: Path, seconds: float) -> list[float]:
    """Append and sync records in one thread; return each one's duration in seconds."""
    latencies = []
    file = os.open(folder / "limit", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        os.write(file, VALUE + bytes(60))
        os.fdatasync(file)
        latencies.append(time.perf_counter() - begun)
    os.close(file)
    return latencies


async def client(
    store: SingleMemberStore, key: bytes, end: float, revision: int, latencies: list[float]
) -> None:
    """Change one key again and again until `end`."""
    while (begun := time.perf_counter()) < end:
        result = await store.commit(Transaction((Expect(key, revision),), ((key, VALUE),)))
        assert isinstance(result, Committed), "each client has its own key"
        revision = result.revision
        latencies.append(time.perf_counter() - begun)


async def measure(store: SingleMemberStore, clients: int, seconds: float) -> str:
    """Let so many clients change a key each; a line of the table."""
    latencies: list[float] = []
    keys = [b"bench/%d" % number for number in range(clients)]
    begun = time.perf_counter()
    await asyncio.gather(
        *(
            client(store, key, begun + seconds, store.view().get(key).revision, latencies)
            for key in keys
        )
    )
    return describe(f"{clients} client(s)", time.perf_counter() - begun, latencies)


async def longest_pause(work: Awaitable[object]) -> float:
    """Await `work`; return the longest delay, in seconds, of a task that asks for 1 ms."""
    task = asyncio.ensure_future(work)
    worst = 0.0
    while not task.done():
        begun = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - begun - 0.001)
    await task
    return worst


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def large_store(folder: Path, keys: int, seconds: float) -> None:
    """Fill a store, restart it, and let it flush while clients go on."""
    empty = resident_bytes()
    store = SingleMemberStore(folder)
    await store.start()

    async def fill() -> None:
        for first in range(0, keys, 1000):
            puts = tuple((b"file/%08d" % number, VALUE) for number in range(first, first + 1000))
            await store.commit(Transaction(puts=puts))

    begun = time.perf_counter()
    filling = await longest_pause(fill())
    took = time.perf_counter() - begun
    filled = resident_bytes() - empty
    quiet = await longest_pause(measure(store, 16, seconds))
    await store.close()

    store = SingleMemberStore(folder, limits=Limits(flush_bytes=1))
    begun = time.perf_counter()
    await store.start()
    restart = time.perf_counter() - begun
    busy = await longest_pause(measure(store, 16, seconds))
    await store.close()
    say(f"{keys} keys: filled in {took:.1f} s, {filled / MIB:.0f} MiB; restart {restart:.2f} s")
    say(f"longest pause of the loop: {filling * 1000:.1f} ms while it is filled; with 16 clients")
    say(f"    {quiet * 1000:.1f} ms without flushes, {busy * 1000:.1f} ms with one after another")


async def run(options: argparse.Namespace) -> None:
    """Ask all questions, in a folder that vanishes."""
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="kv-bench-") as name:
        folder = Path(name)
        limit = bare_limit(folder, options.seconds)
        say(describe("bare write + fdatasync", sum(limit), limit))
        for clients in options.clients:
            store = SingleMemberStore(folder / f"store-{clients}")
            await store.start()
            say(await measure(store, clients, options.seconds))
            await store.close()
        if options.keys:
            await large_store(folder / "large", options.keys, options.seconds)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where to write (default: the temporary one)")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64, 256])
    parser.add_argument("--keys", type=int, default=200_000)
    options = parser.parse_args()
    say(f"{machine()}, values of {len(VALUE)} bytes")
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
