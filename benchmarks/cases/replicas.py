"""How long does a DataNode with very many replicas take until it serves, and how much memory?

A volume of finalized replicas of 4 KiB, with files of their own or in the log of small ones, and a
DataNode as a process, whose NameNode does not run. It shows the time from the start to the first
answer, and to the moment at which every replica was read, when the volume can be reported; the
processor time until then; and the memory for a replica after that: each without that of a DataNode
with an empty volume. The files are in memory already, so a cold disk takes longer.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from msgspec.structs import replace

from benchmarks.host import processor_s, resident_bytes
from benchmarks.suite import DATANODE, Bench, case
from paxosblock.base.checksum import crc32c
from paxosblock.base.units import GIB, KIB
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.identity import begin_small, give_identity
from paxosblock.datanode.store.layout import CURRENT, data_name, make_folders, meta_name
from paxosblock.datanode.store.meta import describe
from paxosblock.errors import UnavailableError
from paxosblock.host.disk import FileHandle, OsDisk
from paxosblock.host.process import boot_id
from paxosblock.net.calls import control
from paxosblock.net.wire import FrameKind, Header
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.effects import AdoptLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    NO_GENERATION,
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Registers,
    ReplicaState,
)

NODE: Final = "many"
NOBODY: Final = "127.0.0.1:1"
"""An address at which no NameNode listens."""
FIRST: Final = 1 << 30
PAYLOAD: Final = bytes(4 * KIB)
LOG: Final = ChunkLog((ChunkName(ChunkIndex(0), len(PAYLOAD), crc32c(PAYLOAD)),))
REGISTERS: Final = Registers(
    max_generation=Generation(1),
    accepted_generation=Generation(1),
    epoch=FIRST_GENERATION,
    base_length=1,
    state=ReplicaState.FINALIZED,
    window=4,
    durability=Durability.DISK,
    finalized_generation=Generation(1),
    finalized_length=1,
)


def fill(volume: Path, there: int, count: int) -> None:
    """Bring a volume of replicas in files of their own from `there` of them to `count`."""
    if not there:
        _make(volume)
    folder = os.open(volume / CURRENT, os.O_PATH | os.O_DIRECTORY)
    for block in map(BlockId, range(FIRST + there, FIRST + count)):
        header = Header.of(FrameKind.CHUNK, PAYLOAD, block=block, index=ChunkIndex(0)).pack()
        _write_new(folder, data_name(block, FIRST_GENERATION, 0), header, len(PAYLOAD))
        metadata = describe(Replica(block, REGISTERS, LOG), boot_id(), 0).encode()
        _write_new(folder, meta_name(block), metadata)
    os.close(folder)


def _make(volume: Path) -> None:
    disk = OsDisk()
    disk.make_folder(volume)
    give_identity(disk, volume, NODE)
    make_folders(disk, volume)


def _write_new(folder: int, name: str, content: bytes, zeros: int = 0) -> None:
    """Make a file of this content and so many zeros: a hole, which is made sooner than bytes."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    os.write(file, content)
    if zeros:
        os.ftruncate(file, len(content) + zeros)
    os.close(file)


class NeverSynced(OsDisk):
    """A disk without syncs: nothing here must survive a power cut."""

    def sync(self, file: FileHandle) -> None:
        """Do nothing."""

    def sync_folder(self, folder: Path) -> None:
        """Do nothing."""


def fill_log(volume: Path, there: int, count: int) -> None:
    """Bring a volume of small replicas from `there` of them to `count`."""
    disk = NeverSynced()
    if not there:
        _make(volume)
        begin_small(disk, volume, give_identity(disk, volume, NODE))
    store = FileStore(disk, volume, boot_id())
    store.load()
    empty = replace(
        REGISTERS,
        max_generation=FIRST_GENERATION,
        accepted_generation=FIRST_GENERATION,
        base_length=0,
        state=ReplicaState.RBW,
        finalized_generation=NO_GENERATION,
        finalized_length=0,
    )
    for block in map(BlockId, range(FIRST + there, FIRST + count)):
        header = Header.of(FrameKind.CHUNK, PAYLOAD, block=block, index=ChunkIndex(0))
        place = store.create(Replica(block, empty, ChunkLog()), small=True)
        store.append(place, ChunkLog(), header.pack() + PAYLOAD)
        store.adopt(place, Replica(block, REGISTERS, LOG), AdoptLog(1, ()), None)
    for _ in store.small.log.records.whole:
        store.tidy()  # keeps one index, as a DataNode does with each heartbeat
    store.close()


@dataclass(frozen=True, slots=True)
class Start:
    """The costs of a DataNode until it served, and until it had read every replica."""

    elapsed_s: float
    processor_s: float
    read_s: float
    read_processor_s: float
    memory_bytes: int


@contextmanager
def started(volume: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a DataNode on this volume, for the length of a `with`."""
    command = [sys.executable, "-m", "paxosblock", "datanode", "--id", NODE, "--path", str(volume)]
    command += ["--listen", "127.0.0.1:0", "--namenodes", NOBODY]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure(volume: Path) -> Start:
    """Start a DataNode; wait until it answers, and until it has read every replica."""
    address = volume / "address"
    address.unlink(missing_ok=True)
    begun = time.perf_counter()
    with started(volume) as process:
        while not (address.exists() and control.healthy(address.read_text().strip())):
            if process.poll() is not None:
                raise UnavailableError(f"the DataNode ended with {process.returncode}")
            time.sleep(0.005)
        served = time.perf_counter() - begun, processor_s(process.pid)
        while not _has_read_all(address.read_text().strip()):
            time.sleep(0.05)
        read = time.perf_counter() - begun, processor_s(process.pid)
        return Start(*served, *read, resident_bytes(process.pid))


def _has_read_all(address: str) -> bool:
    with urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return b"\npaxosblock_datanode_volumes_unread 0.0\n" in answer.read()


COUNTS: Final = (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6)
USUAL: Final = 3 * 10**4
KINDS: Final = {"": fill, ", in the log": fill_log}


@case("datanode-growth", room_bytes=9 * GIB)
async def growth(bench: Bench) -> None:
    """How do start and memory of a DataNode grow with its replicas?"""
    empty = bench.folder / "no-replicas"
    await asyncio.to_thread(_make, empty)
    for what, more in KINDS.items():
        volume, there = bench.folder / more.__name__, 0
        for count in bench.sizes(COUNTS, USUAL, 100):
            await asyncio.to_thread(more, volume, there, count)
            there = count
            for number in bench.rounds:
                none = await bench.bare(measure, empty)
                many = await bench.bare(measure, volume)
                _tell(bench, what, (count, number), none, many)
        await asyncio.to_thread(shutil.rmtree, volume)


def _tell(bench: Bench, what: str, which: tuple[int, int], none: Start, many: Start) -> None:
    """Emit what a start costs with so many replicas in this round, beside one with none."""
    (count, number), at = which, (float(which[0]), "replicas")
    used_s = max(0.0, many.processor_s - none.processor_s)
    bench.emit(f"start to the first answer{what}", many.elapsed_s, "s", number, at=at,
               limit=none.elapsed_s, goal=10, processor_s={DATANODE: used_s / count},
               per="replica")  # fmt: skip
    used_s = max(0.0, many.read_processor_s - none.read_processor_s)
    bench.emit(f"start to the last replica read{what}", many.read_s, "s", number, at=at,
               limit=none.read_s, processor_s={DATANODE: used_s / count},
               per="replica")  # fmt: skip
    grown = max(0, many.memory_bytes - none.memory_bytes)
    bench.emit(f"memory of a replica{what}", grown / count, "bytes", number, at=at)
