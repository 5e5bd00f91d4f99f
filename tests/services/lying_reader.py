"""A real DataNode that gives readers other bytes, with checksums that fit them.

    python -m tests.services.lying_reader SWITCH datanode --id ... (as `python -m paxosblock`)

It is honest until the file SWITCH names one of `LIES`, or `OLDER`. Once a lie has left, SWITCH.told
exists. A block that it is asked for while SWITCH is "remember" it remembers, for the lies that
serve old or other chunks.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from paxosblock.api.datanode import Run
from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.cli.main import main
from paxosblock.datanode import replica_reads
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.protocol.chunk_log import entry, read_entries
from paxosblock.protocol.types import BlockId

REMEMBER: Final = "remember"
OLDER: Final = "what was remembered of the same block and index"

Chunks = list[bytes]
Lie = Callable[[Chunks, Chunks], Chunks]
"""Makes other chunks of those that are asked for, and of those that are remembered."""


def _flipped(chunk: bytes) -> bytes:
    return bytes([chunk[0] ^ 1]) + chunk[1:]


LIES: Final[dict[str, Lie]] = {
    "a flipped bit": lambda chunks, _: [_flipped(chunks[0]), *chunks[1:]],
    "bytes of its own": lambda chunks, _: [bytes(len(each)) for each in chunks],
    "chunks that were swapped": lambda chunks, _: [*chunks[1::-1], *chunks[2:]],
    "the first chunk again": lambda chunks, _: [chunks[0]] * len(chunks),
    "chunks of another block": lambda chunks, other: other[: len(chunks)],
}


def lying(framed: Callable[..., Bulk], switch: Path) -> Callable[..., Bulk]:
    """`replica_reads._framed` with a tongue."""
    remembered: Chunks = []
    older: dict[tuple[BlockId, int], bytes] = {}

    def spoiled(block: BlockId, run: Run, parts: list[Buffer]) -> Bulk:
        name = switch.read_text() if switch.exists() else ""
        if not name:
            return framed(block, run, parts)
        data = b"".join(parts)
        ends = [run.offset, *(end for end, _ in read_entries(run.names))]
        chunks = [data[a - run.offset : b - run.offset] for a, b in itertools.pairwise(ends)]
        if name == REMEMBER:
            remembered[:] = chunks
            older.update({(block, run.first + at): each for at, each in enumerate(chunks)})
            return framed(block, run, parts)
        if name == OLDER:
            told = [older.get((block, run.first + at), each) for at, each in enumerate(chunks)]
        else:
            told = LIES[name](chunks, remembered)
        at = itertools.accumulate((len(each) for each in told), initial=run.offset)
        names = [entry(end, crc32c(each)) for end, each in zip([*at][1:], told, strict=True)]
        switch.with_suffix(".told").touch()
        return framed(block, replace(run, names=b"".join(names)), [b"".join(told)])

    return spoiled


if __name__ == "__main__":
    spoiled = lying(replica_reads._framed, Path(sys.argv.pop(1)))
    replica_reads._framed = spoiled
    main()
