"""Measures what capabilities cost of files of 4 KiB, as a share of the processor time of a whole
operation: client, NameNode and three DataNodes in one process.
`python -m tests.ways.cost_of_capabilities [ROUNDS]`

Two clusters, with block tokens and without, take turns. That other work on the machine makes one
operation dearer than the next hides a few per cent, so the parts that sign and check are timed
where they run, too.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from paxosblock.client.async_client import AsyncClient
from paxosblock.datanode.own_keys import OwnKeys
from paxosblock.datanode.stream_rights import StreamRights
from paxosblock.namenode.blocks.block_views import BlockViews
from paxosblock.namenode.blocks.datanodes import DataNodes
from tests.ways.ways import cluster

ROUNDS: Final = 300
BYTES: Final = bytes(4096)
PARTS: Final = (
    (BlockViews, "_signed"),
    (DataNodes, "signed"),
    (StreamRights, "admit_known"),
    (OwnKeys, "check"),
)
"""The functions in which NameNodes sign and DataNodes check; one in another counts once."""


class Clock:
    """The seconds that the parts took since they were taken last."""

    def __init__(self) -> None:
        self._spent_s, self._inside = 0.0, False
        for owner, name in PARTS:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def take(self) -> float:
        """Return the seconds since it was called before."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def _timed(self, part: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(part)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return part(*args, **kwargs)
            self._inside, begun_s = True, time.perf_counter()
            try:
                return part(*args, **kwargs)
            finally:
                self._spent_s += time.perf_counter() - begun_s
                self._inside = False

        return timed


async def _write(fs: AsyncClient, number: int) -> None:
    async with await fs.create(f"/file-{number}") as out:
        await out.write(BYTES)


async def _read(fs: AsyncClient, number: int) -> None:
    async with await fs.open(f"/file-{number}") as file:
        assert len(await file.read()) == len(BYTES)


STEPS: Final = {"create, write, close": _write, "open, read": _read}


async def measure(rounds: int) -> None:
    """Print a line for each operation."""
    with tempfile.TemporaryDirectory() as folder:
        plain, signed = Path(folder) / "plain", Path(folder) / "signed"
        async with cluster(plain) as without, cluster(signed, block_tokens=True) as having:
            clock, spent = Clock(), defaultdict[tuple[str, str], list[float]](list)
            sides = {"without": without, "with": having}
            for number in range(rounds):
                gc.collect()
                for side, fs in sides.items():
                    for name, step in STEPS.items():
                        clock.take()
                        spent[name, side].append(await _processor_s(step(fs, number)))
                        spent[name, f"parts {side}"].append(clock.take())
                sides = dict(reversed(sides.items()))
    for name in STEPS:
        bare_s, whole_s = (median(spent[name, side]) for side in ("without", "with"))
        parts_s = median(spent[name, "parts with"])
        sys.stdout.write(
            f"{name}: {bare_s * 1e6:.0f} us without block tokens, {whole_s * 1e6:.0f} us with them"
            f" ({whole_s / bare_s - 1:+.1%}); their parts {parts_s * 1e6:.0f} us"
            f" ({parts_s / bare_s:.1%})\n"
        )


async def _processor_s(step: Awaitable[None]) -> float:
    begun_s = time.process_time()
    await step
    return time.process_time() - begun_s


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
