"""Measures what changes of names cost that come at once, in a NameNode's part of a call: catalog,
replicated log and RocksDB, no socket. `python -m tests.namenode.cost_of_changes FOLDER [ROUNDS]`

Changes that come while another one is being committed share an edit, so one after the other, as
`cost_of_rights` makes them, tells nothing of what a group costs. Figures are processor time of one
change, the least and the fourth part of all rounds: other work on the machine only adds. In a
folder on a tmpfs no disk decides how large a group gets.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import process_time
from typing import Final

from paxosblock.api.methods import Once
from paxosblock.api.namenode import DeletePath, Deletion, FileStatus, MakeDirectories, RenamePath
from paxosblock.host.loop import run
from paxosblock.host.startup import collect_seldom
from paxosblock.namenode.catalog import namespace
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.draft import in_one
from paxosblock.namenode.raft.store import ReplicatedStore

CALLERS: Final = 64
ADDRESS: Final = "127.0.0.1:1"
"""The name of the only member; nobody listens there."""

Change = Callable[[int, int], Awaitable[object]]
"""Makes one: the number of its caller, and of its round."""


class NamesOfCallers:
    """Changes of names of one catalog, each caller's in a directory of its own."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._mkdirs = in_one(namespace.make_directories)
        self._rename = in_one(namespace.rename)

    async def mkdirs(self, caller: int, number: int) -> None:
        """Make a directory."""
        once = Once(f"made-{caller}", number)
        request = MakeDirectories(f"/names/{caller}/{number}", once=once)
        await self._catalog.decide(FileStatus, self._mkdirs, request, 3, once=once)

    async def rename(self, caller: int, number: int) -> None:
        """Move the first directory there, or back."""
        ways = [f"/names/{caller}/0", f"/names/{caller}/moved"]
        source, destination = ways if number % 2 == 0 else ways[::-1]
        once = Once(f"moved-{caller}", number)
        request = RenamePath(source, destination, once=once)
        await self._catalog.decide(FileStatus, self._rename, request, once=once)

    async def delete(self, caller: int, number: int) -> None:
        """Delete one of the others."""
        once = Once(f"gone-{caller}", number)
        request = DeletePath(f"/names/{caller}/{number + 1}", once=once)
        await self._catalog.decide(Deletion, namespace.delete, request, once=once)


async def measure(change: Change, rounds: int) -> tuple[float, float]:
    """Return the least and the fourth part of what one change of each round took, in seconds."""
    taken: list[float] = []
    for number in range(rounds):
        begun_s = process_time()
        await asyncio.gather(*(change(caller, number) for caller in range(CALLERS)))
        taken.append((process_time() - begun_s) / CALLERS)
    taken.sort()
    return taken[0], taken[len(taken) // 4]


async def main(folder: Path, rounds: int) -> None:
    """Print a line for each kind of change."""
    store = ReplicatedStore(folder, ADDRESS, [ADDRESS])
    await store.start()
    await store.wait_leadership()
    catalog = Catalog(store)
    await catalog.start(1, "cost")
    collect_seldom()
    changes = NamesOfCallers(catalog)
    kinds = {"mkdirs": changes.mkdirs, "rename": changes.rename, "delete": changes.delete}
    for name, change in kinds.items():
        least_s, fourth_s = await measure(change, rounds)
        sys.stdout.write(f"{name}: {least_s * 1e6:.1f} us, {fourth_s * 1e6:.1f} us\n")
    await store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as made:
        run(main(Path(made), int(sys.argv[2]) if len(sys.argv) > 2 else 120))
