"""Clients of a cluster whose NameNodes fail, and the history of what they were told.

    python -m tests.services.histories --seed 7 --seconds 120

Several clients make, delete and look at a few names through the shipped RPC, while NameNodes are
killed, stopped and continued, restarted. Afterwards the history of each name is searched for an
order that explains every answer (`tests/raft/linearizability.py`). A call whose outcome stayed
unknown may have happened at any later time, or never. Each fault has names of its own, so that no
history grows too long to be searched.

Clients take snapshots, too, each a look at all names at once, and read the past at revisions and
times, while watchers hear of everything: one order of all changes must explain all of that
(`tests/services/one_order.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Final, TypeVar

from paxosblock import LocalCluster
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    CREATE,
    DELETE,
    LIST,
    MKDIRS,
    STAT,
    CreatedFile,
    CreateFile,
    DeletePath,
    FileStatus,
    ListDirectory,
    MakeDirectories,
    PathRequest,
)
from paxosblock.api.snapshot_calls import (
    CREATE_SNAPSHOT,
    LIST_SNAPSHOTS,
    CreateSnapshot,
    ListSnapshots,
)
from paxosblock.client import AsyncClient
from paxosblock.client.names.as_of import as_of
from paxosblock.client.session.namenodes import NameNodes
from paxosblock.errors import ExistsError, NotFoundError, Outcome, PaxosBlockError
from paxosblock.local.node_process import Node
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.protocol.types import Durability, WriterId
from tests import secure
from tests.raft.linearizability import ABSENT, Operation, is_linearizable
from tests.services.one_order import Heard, Ids, Look, mistakes
from tests.waiting import wait_until_async

CLIENTS: Final = 6
WATCHERS: Final = 3
TOP: Final = "/h"
END: Final = f"{TOP}/end"
"""The directory that is made last."""
DIRECTORIES: Final = ("d0", "d1", "d2")
FILES: Final = ("f0", "f1")
NAMES: Final = (*DIRECTORIES, *FILES)
RPC_TIMEOUT_S: Final = 1.0
RETRY_FOR_S: Final = 4.0
STEPS: Final = 5
"""So many operations each client finishes during a fault, and again after it."""

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass
class History:
    """The operations on each path, and what may be told of them as a whole."""

    operations: defaultdict[str, list[Operation]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    looks: list[Look] = field(default_factory=list)
    taken: dict[str, Ids] = field(default_factory=dict)
    """By name: the first look at each snapshot."""
    changed: list[str] = field(default_factory=list)
    """Snapshots that showed something else later."""
    heard: list[Heard] = field(default_factory=list)

    def look(self, look: Look) -> None:
        """Note what a folder had at one moment."""
        self.looks.append(look)
        self.counts[look.how] += 1

    def look_at_snapshot(self, folder: str, name: str, ids: Ids) -> None:
        """Note what a snapshot shows."""
        self.look(Look(folder, ids, None, "snapshot"))
        if self.taken.setdefault(name, ids) != ids:
            self.changed.append(f"snapshot {name} of {folder} showed {self.taken[name]}, now {ids}")

    def mistakes(self) -> list[str]:
        """Tell what no order of all changes explains, once the watchers have heard the end."""
        return [*self.changed, *mistakes(self.heard, self.looks)]

    def add(self, path: str, operation: Operation) -> None:
        self.operations[path].append(operation)
        self.counts[operation.kind if operation.answered is not None else "unknown"] += 1

    def violations(self, folders: Iterable[str] = ("",)) -> list[str]:
        """The paths (of all, or of some folders) whose history no order explains."""
        below = tuple(f"{folder}/" for folder in folders)
        return [
            path
            for path, each in self.operations.items()
            if path.startswith(below) and not is_linearizable(each)
        ]


class Client:
    """Calls one thing after the other; whoever of the NameNodes it begins with.

    What it writes is the owner's name, so that a later look tells whose the name is.
    """

    def __init__(self, name: str, addresses: Sequence[str], seed: int, history: History) -> None:
        self.name = name
        self.finished = 0
        self._addresses = addresses
        self._random = random.Random(f"{seed}/{name}")
        self._history = history
        self._rpc = RpcClient()
        self._changes = self._namenodes()
        self._number = 0

    async def run(self, folder: Callable[[], str], stop: asyncio.Event) -> None:
        """Work below the folder that is the present one, until `stop`."""
        async with self._rpc:
            while not stop.is_set():
                await self._step(folder())
                self.finished += 1

    async def look_at(self, folders: Sequence[str]) -> None:
        """See what became of calls whose outcome is unknown."""
        async with self._rpc:
            for folder in folders:
                await self._list(folder)
                await self._look_at_snapshots(folder)

    async def _step(self, folder: str) -> None:
        match self._random.choice(
            ("look", "look", "list", "directory", "file", "delete", "snapshot", "past", "time")
        ):
            case "look":
                await self._look(f"{folder}/{self._random.choice(NAMES)}")
            case "list":
                await self._list(folder)
            case "directory":
                await self._make_directory(f"{folder}/{self._random.choice(DIRECTORIES)}")
            case "file":
                await self._create(f"{folder}/{self._random.choice(FILES)}")
            case "delete":
                await self._delete(f"{folder}/{self._random.choice(NAMES)}")
            case "snapshot":
                await self._take_snapshot(folder)
            case "past":
                earlier = [each.revision for each in self._history.looks if each.folder == folder]
                if known := [revision for revision in earlier if revision is not None]:
                    await self._list_past(folder, f"@{self._random.choice(known)}")
            case "time":
                await self._list_past(folder, time.time())

    async def _look(self, path: str) -> None:
        called = time.monotonic()
        try:
            owner = (await self._call(STAT, PathRequest(path))).owner
        except NotFoundError:
            owner = ABSENT
        except PaxosBlockError:
            return
        self._history.add(path, Operation("read", owner, called, time.monotonic()))

    async def _list(self, folder: str) -> None:
        called = time.monotonic()
        try:
            listing = await self._call(LIST, ListDirectory(folder))
        except PaxosBlockError:
            return
        self._saw(folder, listing.entries, called, time.monotonic())
        self._history.look(Look(folder, _ids(listing.entries), listing.revision, "list"))

    def _saw(
        self, folder: str, entries: Iterable[FileStatus], called: float, answered: float
    ) -> None:
        """Note a look at every name at once."""
        owners = {entry.name: entry.owner for entry in entries}
        for name in NAMES:
            seen = Operation("read", owners.get(name, ABSENT), called, answered)
            self._history.add(f"{folder}/{name}", seen)

    async def _take_snapshot(self, folder: str) -> None:
        """Look at every name at once, at the moment of a snapshot."""
        name, called = self._new_owner(), time.monotonic()
        try:
            request = CreateSnapshot(folder, name)
            path = (await self._changes.call_once(CREATE_SNAPSHOT, request)).path
            answered = time.monotonic()
            entries = (await self._call(LIST, ListDirectory(path))).entries
        except PaxosBlockError:
            return
        self._saw(folder, entries, called, answered)
        self._history.look_at_snapshot(folder, name, _ids(entries))

    async def _look_at_snapshots(self, folder: str) -> None:
        """Look again at what all snapshots of a folder show."""
        shown = await self._call(LIST_SNAPSHOTS, ListSnapshots(folder))
        for each in shown.snapshots:
            entries = (await self._call(LIST, ListDirectory(each.path))).entries
            self._history.look_at_snapshot(folder, each.name, _ids(entries))

    async def _list_past(self, folder: str, at: str | float) -> None:
        """Look at every name at a revision that somebody saw, or at a time."""
        try:
            then = (await self._call(STAT, PathRequest(as_of("/", at)))).path
            listing = await self._call(LIST, ListDirectory(f"{then}{folder}"))
        except PaxosBlockError:  # the window has not begun, or the folder was not there
            return
        revision = int(then.rpartition("@")[2])
        how = "past" if isinstance(at, str) else "time"
        self._history.look(Look(folder, _ids(listing.entries), revision, how))

    async def _make_directory(self, path: str) -> None:
        """With `parents` one that is there is fine, and says whose it is."""
        owner = self._new_owner()
        if self._random.random() < 0.5:
            await self._swap(path, owner, self._mkdirs(path, owner, parents=False))
            return
        called = time.monotonic()
        try:
            found = (await self._mkdirs(path, owner, parents=True)).owner
        except PaxosBlockError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._history.add(path, Operation("ensure", owner, called, None))
            return
        done = Operation("ensure", owner, called, time.monotonic(), expected=found)
        self._history.add(path, done)

    async def _mkdirs(self, path: str, owner: str, *, parents: bool) -> FileStatus:
        request = MakeDirectories(path, parents, owner=owner)
        return await self._changes.call_once(MKDIRS, request)

    async def _create(self, path: str) -> None:
        owner = self._new_owner()
        request = CreateFile(
            path, WriterId(owner), False, 1, 1 << 20, Durability.MEMORY, owner=owner
        )
        call = self._changes.call_once(CREATE, request)
        await self._swap(path, owner, call)

    async def _swap(self, path: str, owner: str, call: Awaitable[FileStatus | CreatedFile]) -> None:
        """Something that succeeds where nothing is."""
        called = time.monotonic()
        made: bool | None = True
        try:
            await call
        except ExistsError:
            made = False
        except PaxosBlockError as error:
            if error.outcome is not Outcome.UNKNOWN:
                return
            made = None
        answered = None if made is None else time.monotonic()
        self._history.add(path, Operation("swap", owner, called, answered, swapped=made))

    async def _delete(self, path: str) -> None:
        called = time.monotonic()
        try:
            existed = await self._unlink(path)
        except PaxosBlockError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._history.add(path, Operation("delete", ABSENT, called, None))
            return
        done = Operation("delete", ABSENT, called, time.monotonic(), swapped=existed)
        self._history.add(path, done)

    async def _unlink(self, path: str) -> bool:
        request = DeletePath(path)
        call = self._changes.call_once(DELETE, request)
        return (await call).existed

    async def _call(self, method: Method[Q, A], request: Q) -> A:
        """Look, beginning with any NameNode: none may answer from an old state."""
        return await self._namenodes().call(method, request)

    def _namenodes(self) -> NameNodes:
        order = self._random.sample(self._addresses, len(self._addresses))
        return NameNodes(order, self._rpc, timeout_s=RPC_TIMEOUT_S, retry_for_s=RETRY_FOR_S)

    def _new_owner(self) -> str:
        self._number += 1
        return f"{self.name}-{self._number}"


def _ids(entries: Iterable[FileStatus]) -> Ids:
    return {entry.name: entry.file_id for entry in entries}


Fault = Callable[["Campaign"], Awaitable[None]]
Faults = Callable[["Campaign"], Fault | None]
"""Tells the next one; None: it was the last."""


class Campaign:
    """Clients that work, and faults one after the other; `run` returns the history."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self.cluster = cluster
        self.history = History()
        self.random = random.Random(seed)
        self.faults: Counter[str] = Counter()
        self.clients = [
            Client(f"c{number}", cluster.addresses, seed, self.history) for number in range(CLIENTS)
        ]
        self._round = 0

    @property
    def folder(self) -> str:
        """Return the folder in which clients work at present."""
        return f"/h/{self._round}"

    @property
    def left(self) -> list[str]:
        """The folders in which no call is under way any more: since then all made progress."""
        return [f"/h/{number}" for number in range(1, self._round - 1)]

    async def run(self, faults: Faults) -> History:
        """Let one fault after the other happen, until there is none."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as watchers:
            await self._begin_to_watch(watchers)
            await self._begin_round()
            try:
                await self._work(faults, stop)
                observer = Client("observer", self.cluster.addresses, 0, self.history)
                await observer.look_at([f"/h/{number}" for number in range(1, self._round + 1)])
            finally:  # behind the last look, so that watchers hear of all that was seen
                await self._make(END)
        return self.history

    async def _work(self, faults: Faults, stop: asyncio.Event) -> None:
        """Let the clients work, until the last fault is over."""
        async with asyncio.TaskGroup() as tasks:
            for client in self.clients:
                tasks.create_task(client.run(lambda: self.folder, stop))
            try:
                while (fault := faults(self)) is not None:
                    await self.progress()
                    self.faults[fault.__name__] += 1
                    await fault(self)
                    await self.progress()
                    await self._begin_round()
            finally:
                stop.set()

    async def progress(self) -> None:
        """Wait until each client has finished something that it began after now."""
        goals = [client.finished + STEPS for client in self.clients]

        def reached() -> bool:
            pairs = zip(self.clients, goals, strict=True)
            return all(client.finished >= goal for client, goal in pairs)

        await wait_until_async(reached, 60, "progress of every client")

    async def leader(self) -> Node:
        return await asyncio.to_thread(self.cluster.wait_leader)

    async def _begin_to_watch(self, tasks: asyncio.TaskGroup) -> None:
        """Let watchers hear of everything, from before there is anything."""
        async with AsyncClient(self.cluster.addresses) as fs:
            pages = [page async for page in fs.pages("/")]
        for _ in range(WATCHERS):
            heard = Heard(TOP, pages[0].revision)
            self.history.heard.append(heard)
            tasks.create_task(self._watch(heard))

    async def _watch(self, heard: Heard) -> None:
        order = self.random.sample(self.cluster.addresses, len(self.cluster.addresses))
        async with AsyncClient(order, rpc_timeout_s=RPC_TIMEOUT_S, retry_for_s=60) as fs:
            async for change in fs.watch(heard.path, after=heard.since):
                heard.changes.append(change)
                if change.path == END:
                    return

    async def _begin_round(self) -> None:
        await self._make(f"{TOP}/{self._round + 1}")
        self._round += 1

    async def _make(self, path: str) -> None:
        async with RpcClient() as rpc:
            namenodes = NameNodes(
                self.cluster.addresses, rpc, timeout_s=RPC_TIMEOUT_S, retry_for_s=60
            )
            await namenodes.call(MKDIRS, MakeDirectories(path))


async def a_leader_is_killed(campaign: Campaign) -> None:
    victim = await campaign.leader()
    await asyncio.to_thread(victim.kill)
    await campaign.progress()
    await asyncio.to_thread(victim.start)


async def a_leader_hangs(campaign: Campaign) -> None:
    victim = await campaign.leader()
    victim.pause()
    try:
        await campaign.progress()
    finally:
        victim.resume()


async def a_leader_closes(campaign: Campaign) -> None:
    victim = await campaign.leader()
    assert await asyncio.to_thread(victim.stop)
    await campaign.progress()
    await asyncio.to_thread(victim.start)


async def a_follower_is_killed(campaign: Campaign) -> None:
    leader = await campaign.leader()
    victim = campaign.random.choice([n for n in campaign.cluster.namenodes if n is not leader])
    await asyncio.to_thread(victim.kill)
    await campaign.progress()
    await asyncio.to_thread(victim.start)


async def all_are_killed(campaign: Campaign) -> None:
    for node in campaign.cluster.namenodes:
        await asyncio.to_thread(node.kill)
    for node in campaign.cluster.namenodes:
        await asyncio.to_thread(node.start)


FAULTS: Final[tuple[Fault, ...]] = (
    a_leader_is_killed,
    a_leader_hangs,
    a_leader_closes,
    a_follower_is_killed,
    all_are_killed,
)


def in_turn(faults: Sequence[Fault]) -> Faults:
    """These faults, once each."""
    left = iter(faults)
    return lambda _: next(left, None)


def until_noticed(fault: Fault, most: int) -> Faults:
    """The same one until no order explains a history, so often at most."""
    left = repeat(fault, most)
    return lambda campaign: None if campaign.history.violations(campaign.left) else next(left, None)


def for_seconds(seconds: float, seed: int) -> Faults:
    """Faults at random for so long from the first one on."""
    chosen, ends = random.Random(seed), list[float]()

    def choose(_: Campaign) -> Fault | None:
        ends.append(time.monotonic() + seconds)
        return chosen.choice(FAULTS) if time.monotonic() < ends[0] else None

    return choose


def run(
    seed: int,
    faults: Faults,
    path: Path | None = None,
    kind: type[LocalCluster] = LocalCluster,
) -> Campaign:
    """Start a cluster of three NameNodes and run a campaign on it."""
    with kind(1, 3, path, settings={"namenode": {"history": "1h"}}) as cluster:
        campaign = Campaign(cluster, seed)
        asyncio.run(campaign.run(faults))
    return campaign


def main() -> int:
    """Run one campaign and print what it did; 1 if a history cannot be explained."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    secure.add_switch(parser)
    options = parser.parse_args()
    with secure.as_told(options):
        campaign = run(options.seed, for_seconds(options.seconds, options.seed))
    violations = campaign.history.violations() + campaign.history.mistakes()
    sys.stdout.write(
        f"seed {options.seed}: faults {dict(campaign.faults)}, "
        f"calls {dict(campaign.history.counts)}, not linearizable: {violations or 'none'}\n"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
