"""How fast do NameNodes answer their users: through RPC, as processes?

A cluster on loopback, `fdatasync` on, default settings. The clients share one process, one
connection each, and ask one after the other (`call_load.py`). Beside the rates stands the processor
time of each process for one call: unlike a rate it says the same on a busy machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from benchmarks import limit
from benchmarks.call_load import run_load
from benchmarks.stats import counted
from benchmarks.suite import Bench, case
from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import (
    CREATE,
    DELETE,
    LIST,
    MKDIRS,
    RENAME,
    STAT,
    CreateFile,
    DeletePath,
    ListDirectory,
    MakeDirectories,
    PathRequest,
    RenamePath,
)
from paxosblock.base.units import GIB, MIB
from paxosblock.local.cluster import LocalCluster
from paxosblock.protocol.types import Durability, WriterId

CLIENTS: Final = (1, 64)
MESSAGE_BYTES: Final = 160
"""About the size of a small change in the journal, and of its request."""
BARE_CALLS: Final = 2000

Requests = Callable[[int], Iterator[Any]]


class Names:
    """Requests of clients, each about names of its own; they are named as a client's own are."""

    def __init__(self, run: str) -> None:
        """`run` distinguishes these clients from all others."""
        self._run = run
        self._made: dict[int, int] = {}

    def kinds(self) -> list[tuple[str, Method[Any, Any], Requests, bool]]:
        """Return the calls in an order in which each finds what it needs, each with True if it is a
        change."""
        return [
            ("mkdirs", MKDIRS, self.new_directories, True),
            ("create", CREATE, self.new_files, True),
            ("stat", STAT, self.known_paths, False),
            ("list", LIST, self.known_directories, False),
            ("rename", RENAME, self.moves, True),
            ("delete", DELETE, self.deletes, True),
        ]

    def new_directories(self, client: int) -> Iterator[MakeDirectories]:
        """Yield more and more directories, in one of the client's own."""
        for number in count():
            self._made[client] = number
            yield MakeDirectories(self._path(client, number), once=self._once("d", client, number))

    def new_files(self, client: int) -> Iterator[CreateFile]:
        """Yield creates, each by a writer of its own, as a client's are."""
        for number in count():
            once = self._once("f", client, number)
            writer, path = WriterId(f"{once.session}-{number}"), f"/{self._run}f/{client}/{number}"
            yield CreateFile(path, writer, False, 3, 128 * MIB, Durability.DISK, once=once)

    def known_paths(self, client: int) -> Iterator[PathRequest]:
        """Yield one path again and again."""
        return (PathRequest(self._path(client, 0)) for _ in count())

    def known_directories(self, client: int) -> Iterator[ListDirectory]:
        """Yield a directory without entries, again and again."""
        return (ListDirectory(self._path(client, 0)) for _ in count())

    def moves(self, client: int) -> Iterator[RenamePath]:
        """Yield renames there and back, which end where they began."""
        one, other = self._path(client, 0), f"/{self._run}/{client}/moved"
        for number in count():
            source, target = (one, other) if number % 2 == 0 else (other, one)
            yield RenamePath(source, target, once=self._once("r", client, number))

    def deletes(self, client: int) -> Iterator[DeletePath]:
        """Yield all directories but the first one, which may have been moved."""
        for number in range(1, self._made[client] + 1):
            yield DeletePath(self._path(client, number), once=self._once("x", client, number))

    def _path(self, client: int, number: int) -> str:
        return f"/{self._run}/{client}/{number}"

    def _once(self, kind: str, client: int, number: int) -> Once:
        return Once(f"{self._run}{kind}-{client}", number)


@case("calls", room_bytes=2 * GIB)
async def calls(bench: Bench) -> None:
    """How many calls a second does one NameNode answer, and at what cost?"""
    await _measure(bench, await bench.cluster())


@case("calls-3", room_bytes=4 * GIB)
async def calls_of_three(bench: Bench) -> None:
    """How many calls a second do three NameNodes answer, and at what cost?"""
    await _measure(bench, await bench.cluster(1, 3))


async def _measure(bench: Bench, cluster: LocalCluster) -> None:
    leader = await asyncio.to_thread(cluster.wait_leader)
    namenodes = len(cluster.namenodes)
    for number in bench.rounds:
        for clients in CLIENTS:
            bare = {
                sync: await _bare_calls(bench, clients, sync, namenodes) for sync in (False, True)
            }
            for name, method, requests, changes in Names(f"{number}-{clients}").kinds():
                async with bench.measured(cluster) as spent:
                    load = await run_load(
                        leader.address, method, requests, clients=clients, seconds=bench.seconds
                    )
                done = len(load.latencies)
                what = f"{name}, {counted(clients, 'client')}, {counted(namenodes, 'NameNode')}"
                bench.emit(
                    what,
                    load.rate,
                    "/s",
                    number,
                    limit=bare[changes],
                    processor_s=spent.per(done),
                    clients=clients,
                    durability="disk" if changes else "",
                )
                bench.emit_times(what, load.latencies, number, clients=clients)


async def _bare_calls(bench: Bench, clients: int, sync: bool, namenodes: int) -> float:
    """Return how many messages a second one bare sender has answered, `clients` of them under way:
    a change by every NameNode, each after a `pwrite` and an `fdatasync`; what only reads by one."""
    bare = await bench.bare(
        limit.measure_write_limit,
        MESSAGE_BYTES,
        clients,
        sync,
        bench.size(BARE_CALLS, 100) * MESSAGE_BYTES,
        namenodes if sync else 1,
        folder=bench.folder,
    )
    return bare.mib_per_s * MIB / MESSAGE_BYTES
