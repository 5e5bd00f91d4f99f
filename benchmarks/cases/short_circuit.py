"""How much of a file's own speed has a client that reads it from the file that a DataNode lent?"""

from __future__ import annotations

import asyncio
import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.suite import Bench, case
from benchmarks.work import AS_SHIPPED, SHIPPED, read_file, write_file
from paxosblock.base.checksum import crc32c
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.local.node_process import wait_until
from paxosblock.net.wire import HEADER_BYTES

PATH: Final = "/bench/short-circuit"
PIECE_BYTES: Final = 4 * KIB
RECORD_BYTES: Final = SHIPPED.chunk_size + HEADER_BYTES


@case("short-circuit", room_bytes=4 * GIB)
async def short_circuit(bench: Bench) -> None:
    """How fast is a file read by its own bytes, by a lent file, and by the DataNode's stream?"""
    cluster, total = await bench.cluster(), bench.size(GIB, 8 * MIB)
    async with (
        AsyncClient(cluster.url, short_circuit=True) as lent,
        AsyncClient(cluster.url, short_circuit=False) as stream,
    ):
        await write_file(lent, PATH, total, "memory")
        sides = (("lent", lent), ("by the stream", stream))
        for _, fs in sides:
            await read_file(fs, PATH)
        volume = cluster.datanodes[0].volumes[0]
        # A majority has ended the block, and this one perhaps not yet.
        there = partial(_block_files, volume)
        await asyncio.to_thread(wait_until, lambda: bool(there()), 30.0, "a block is not whole")
        files = there()
        for number in bench.rounds:
            own = await bench.bare(_read_itself, files)
            for side, fs in sides:
                async with bench.measured(cluster) as spent:
                    await read_file(fs, PATH)
                bench.emit(
                    f"read, 1 stream, {side}",
                    total / MIB / spent.elapsed_s,
                    "MiB/s",
                    number,
                    limit=own,
                    processor_s=spent.per(total / GIB),
                    per="GiB",
                    **AS_SHIPPED,
                )
            own_s = await bench.bare(_read_pieces_itself, files, bench.seconds)
            for side, fs in sides:
                times_s = await _read_pieces(fs, total, bench.seconds)
                what = f"pread of {PIECE_BYTES // KIB} KiB, {side}"
                bench.emit_times(what, times_s, number, limit_s=own_s, **AS_SHIPPED)
        await lent.delete(PATH)


def _block_files(volume: Path) -> list[Path]:
    """Return the block files of whole blocks, or the only one there is; or none."""
    files = sorted(
        (each for each in (volume / "current").iterdir() if each.suffix != ".meta"),
        key=lambda each: each.stat().st_size,
    )
    largest = files[-1].stat().st_size if files else 0
    return [each for each in files if each.stat().st_size == largest]


def _read_itself(files: list[Path]) -> float:
    """Read files as a program would that has nothing else to do: each record into the same buffer,
    and its checksum. Return MiB/s."""
    into, count = memoryview(bytearray(8 * RECORD_BYTES)), 0
    begun_s = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as file:
            position = 0
            while size := os.preadv(file.fileno(), [into], position):
                position += size
                for start in range(0, size, RECORD_BYTES):
                    crc32c(into[start + HEADER_BYTES : min(start + RECORD_BYTES, size)])
                    count += min(RECORD_BYTES, size - start) - HEADER_BYTES
    return count / MIB / (time.perf_counter() - begun_s)


def _read_pieces_itself(files: list[Path], seconds: float) -> list[float]:
    """Return the seconds that reading and checking the chunk of a random piece takes."""
    into, times_s = memoryview(bytearray(RECORD_BYTES)), list[float]()
    with files[0].open("rb", buffering=0) as file:
        chunks = max(1, files[0].stat().st_size // RECORD_BYTES)
        end_s = time.perf_counter() + seconds
        while (begun_s := time.perf_counter()) < end_s:
            os.preadv(file.fileno(), [into], random.randrange(chunks) * RECORD_BYTES)
            crc32c(into[HEADER_BYTES:])
            bytes(into[HEADER_BYTES : HEADER_BYTES + PIECE_BYTES])
            times_s.append(time.perf_counter() - begun_s)
    return times_s


async def _read_pieces(fs: AsyncClient, total: int, seconds: float) -> list[float]:
    times_s: list[float] = []
    async with await fs.open(PATH) as file:
        end_s = time.perf_counter() + seconds
        while (begun_s := time.perf_counter()) < end_s:
            await file.pread(random.randrange(total - PIECE_BYTES), PIECE_BYTES)
            times_s.append(time.perf_counter() - begun_s)
    return times_s
