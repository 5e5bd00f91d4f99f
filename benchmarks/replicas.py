"""How long does a DataNode with very many replicas take until it serves, and what do they take?

    python -m benchmarks.replicas [--replicas 10000 100000] [--rounds 3] [--folder DIR]

A volume of finalized replicas of 4 KiB, and a DataNode as a process, whose NameNode nobody runs.
Shown are the time from its start to its first answer, the processor time until then, and the memory
for a replica, each without what a DataNode with an empty volume takes. The files were read before:
what a cold disk adds is not in it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.stats import machine, median, processor_seconds, resident_mib, say
from paxosblock.checksum import crc32c
from paxosblock.datanode.file_store import make_folders
from paxosblock.datanode.identity import give_identity
from paxosblock.datanode.layout import CURRENT, data_name, meta_name
from paxosblock.datanode.meta import describe
from paxosblock.disk import OsDisk
from paxosblock.net import control
from paxosblock.net.wire import FrameKind, Header
from paxosblock.process import boot_id
from paxosblock.protocol.log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Registers,
    ReplicaState,
)
from paxosblock.units import KIB, MIB

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


def fill(volume: Path, count: int) -> None:
    """Make a volume with so many replicas."""
    disk = OsDisk()
    disk.make_folder(volume)
    give_identity(disk, volume, NODE)
    make_folders(disk, volume)
    for block in map(BlockId, range(FIRST, FIRST + count)):
        header = Header.of(FrameKind.CHUNK, PAYLOAD, block=block, index=ChunkIndex(0))
        data = volume / CURRENT / data_name(block, FIRST_GENERATION, 0)
        data.write_bytes(header.pack() + PAYLOAD)
        metadata = describe(Replica(block, REGISTERS, LOG), boot_id(), 0)
        (volume / CURRENT / meta_name(block)).write_bytes(metadata.encode())


@dataclass(frozen=True, slots=True)
class Start:
    """What a DataNode took until it served."""

    elapsed_s: float
    processor_s: float
    memory_mib: float


@contextmanager
def started(volume: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A DataNode on this volume, for the length of a `with`."""
    command = [sys.executable, "-m", "paxosblock", "datanode", "--id", NODE, "--path", str(volume)]
    command += ["--listen", "127.0.0.1:0", "--namenodes", NOBODY]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure(volume: Path) -> Start:
    """Start a DataNode and wait until it answers."""
    address = volume / "address"
    address.unlink(missing_ok=True)
    begun = time.perf_counter()
    with started(volume) as process:
        while not (address.exists() and control.healthy(address.read_text().strip())):
            if process.poll() is not None:
                raise SystemExit(f"the DataNode on {volume} ended with {process.returncode}")
            time.sleep(0.005)
        elapsed_s = time.perf_counter() - begun
        return Start(elapsed_s, processor_seconds(process.pid), resident_mib(process.pid))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--replicas", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where; default: a temporary one")
    options = parser.parse_args()
    say(machine())
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for count in (0, *options.replicas):
            fill(Path(folder) / str(count), count)
        for count in options.replicas:
            pairs = [
                (measure(Path(folder) / str(count)), measure(Path(folder) / "0"))
                for _ in range(options.rounds)
            ]
            elapsed, processor, memory = (
                median([getattr(many, field) - getattr(none, field) for many, none in pairs])
                for field in ("elapsed_s", "processor_s", "memory_mib")
            )
            say(
                f"{count:>9} replicas  {elapsed:7.2f} s  processor {processor:7.2f} s, "
                f"{processor / count * 1e6:5.1f} us and {memory * MIB / count:6.0f} bytes each"
            )


if __name__ == "__main__":
    main()
