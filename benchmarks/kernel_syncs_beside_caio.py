"""Our `KernelSyncs` beside caio from PyPI: `fdatasync` from an event loop, many in flight at once.

    pip install caio
    python -m benchmarks.kernel_syncs_beside_caio FOLDER [--rounds 7] [--syncs 600]

Each sync follows a write of 500 bytes to a file of its own. As in a volume, the kernel has at most
`SYNCS_AT_ONCE` of them at a time, and the others wait. Both take turns, round after round, and the
medians are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from paxosblock.host.kernel_syncs import SYNCS_AT_ONCE, KernelSyncs

IN_FLIGHT: Final = (1, 8, 64)
_CHUNK: Final = bytes(500)

Sync = Callable[[int], Awaitable[Any]]


class Round(NamedTuple):
    """The figures of one round."""

    syncs_per_s: float
    median_us: float
    cpu_us: float
    """Processor time of this process for one sync."""


async def one_round(folder: str, sync: Sync, in_flight: int, syncs: int) -> Round:
    """Let `in_flight` tasks do so many `syncs` together."""
    waited: list[float] = []
    files = [os.open(f"{folder}/{number}", os.O_RDWR | os.O_CREAT) for number in range(in_flight)]

    async def work(file: int) -> None:
        for number in range(syncs // in_flight):
            os.pwrite(file, _CHUNK, number * len(_CHUNK))
            begun = time.perf_counter()
            await sync(file)
            waited.append(time.perf_counter() - begun)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(work, files))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    for file in files:
        os.close(file)
    count = len(waited)
    return Round(count / took, statistics.median(waited) * 1e6, cpu / count * 1e6)


async def ours(folder: str, in_flight: int, syncs: int) -> Round:
    """By our own calls of the kernel."""
    kernel, room = KernelSyncs(), asyncio.Semaphore(SYNCS_AT_ONCE)
    loop = asyncio.get_running_loop()

    async def sync(file: int) -> None:
        async with room:
            done: asyncio.Future[OSError | None] = loop.create_future()
            assert kernel.begin(file, done.set_result), "the kernel takes no sync here"
            error = await done
        if error is not None:
            raise error

    with contextlib.closing(kernel):
        return await one_round(folder, sync, in_flight, syncs)


async def caio(folder: str, in_flight: int, syncs: int) -> Round:
    """By the implementation of caio that asks the kernel."""
    context = importlib.import_module("caio.linux_aio_asyncio").AsyncioContext(SYNCS_AT_ONCE)
    room = asyncio.Semaphore(SYNCS_AT_ONCE)

    async def sync(file: int) -> None:
        async with room:
            await context.fdsync(file)

    try:
        return await one_round(folder, sync, in_flight, syncs)
    finally:
        context.close()


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--syncs", type=int, default=600)
    options = parser.parse_args()
    for in_flight in IN_FLIGHT:
        rounds: dict[str, list[Round]] = {"ours": [], "caio": []}
        for _ in range(options.rounds):
            for way in (ours, caio):
                with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                    found = asyncio.run(way(folder, in_flight, options.syncs))
                    rounds[way.__name__].append(found)
        for name, each in rounds.items():
            rate, wait, cpu = (statistics.median(column) for column in zip(*each, strict=True))
            figures = f"{rate:6.0f}/s, {wait:6.0f} us, processor {cpu:4.0f} us"
            sys.stdout.write(f"{in_flight:3} in flight, {name}: {figures}\n")


if __name__ == "__main__":
    main()
