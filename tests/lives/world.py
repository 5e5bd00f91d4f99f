"""One process for all: virtual time, virtual threads, and chance from the seed alone.

Whatever draws at random or names something for ever (`uuid4`, `os.urandom`, a generator without a
seed) draws from the seed while a world lasts, so that the same seed lives the same way.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

from paxosblock.base.jitter import JITTER
from paxosblock.client.reading import block_reader
from paxosblock.client.session import lent_files, shared_session, transport
from paxosblock.client.writing import next_block
from paxosblock.datanode.store import file_store
from paxosblock.datanode.volumes import volume
from paxosblock.errors import PaxosBlockError
from paxosblock.host import kernel_syncs as syncs
from paxosblock.host.kernel_syncs import Done
from paxosblock.namenode.kv.table import Changes as TableChanges
from paxosblock.net.streams import connection, stream_calls
from tests.disks.simulated import SimulatedDisk
from tests.disks.simulated_syncs import SimulatedSyncs
from tests.lives.lending import Lent
from tests.lives.network import Network, SimulatedRpc
from tests.memory_table import MemoryTable
from tests.raft.virtual_time import DeadlockError, Host, VirtualTimeLoop, running_host, spread

BEGAN_S = 1e9
"""By the wall clock."""
SLOWEST_DISK_S = 0.004
CLEAN_UP_ROUNDS = 200
SPARE_BYTES = 1 << 12
"""Of a volume, in the size of the blocks that are written here."""


HASH_SEED = "PYTHONHASHSEED"

Changes = tuple[tuple[ModuleType | type, str, object], ...]
"""Modules or classes, each with a name in it and what that means instead."""


def keep_order_of_sets() -> None:
    """Begin the program anew unless sets have the same order in each run of it."""
    if HASH_SEED not in os.environ:
        os.environ[HASH_SEED] = "0"
        os.execv(sys.executable, sys.orig_argv)


class VirtualExecutor(Executor):
    """Stands for a pool of threads: what it is given is done later, one after the other."""

    def __init__(self, _max_workers: int = 1, **_names: str) -> None:
        self._loop = asyncio.get_running_loop()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        assert not kwargs
        self._loop.run_in_executor(self, fn, *args)
        return Future()  # no caller looks: what is submitted tells the loop itself

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """There is no thread to end."""


class VirtualLock:
    """A lock that a sync by the kernel holds until it ends: a thread that waits for it is no thread
    here, so the sync ends for it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._held = False

    def acquire(self, *, blocking: bool = True) -> bool:
        while self._held and blocking:
            self._world.let_a_sync_end()
        taken, self._held = not self._held, True
        return taken

    def release(self) -> None:
        self._held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class World:
    """Time, network, processes; and what went wrong that no life may show."""

    def __init__(self, seed: int, loop: VirtualTimeLoop) -> None:
        self.rng = random.Random(seed)
        self.loop = loop
        self.network = Network(loop, random.Random(self.rng.random()))
        self.pairs = self.network.promises.pairs
        self.hosts: list[Host] = []
        self.applied: list[Callable[[MemoryTable, Iterable[bytes]], None]] = []
        """They are told when a NameNode has applied an entry of the log, which wrote these keys."""
        self.mistakes: list[str] = []
        self.trace: list[str] = []
        self.lent = Lent()
        """The files of replicas that DataNodes lend: readers read them whenever they may."""
        self._syncs: dict[Host, list[SimulatedSyncs]] = {}
        self.wall_ahead_s = 0.0
        """Seconds by which the clocks on the walls are ahead; those of `monotonic` never are."""
        self.own_wall_ahead_s: dict[Host, float] = {}
        """The same of some processes, beside that of all."""
        disk_rng = random.Random(self.rng.random())
        loop.disk_delay = lambda: spread(disk_rng, 0.0001, SLOWEST_DISK_S)

    def new_host(self) -> Host:
        """Return a fresh process; the clocks of all go as fast."""
        host = Host(self.loop, random.Random(self.rng.random()), 1.0)
        self.hosts.append(host)
        return host

    def kernel_syncs(self, disk: SimulatedDisk) -> SimulatedSyncs:
        """Return the syncs of the running process, which end whether it stands still or not."""
        host = running_host()
        assert host is not None, "a disk of no process"

        def later(end: Callable[[], None]) -> None:
            self.loop.in_world(self.loop.disk_delay(), end)

        def tell(done: Done, error: OSError | None) -> None:
            host.call(syncs, done, error)

        syncs = SimulatedSyncs(disk, later, tell)
        self._syncs.setdefault(host, []).append(syncs)
        return syncs

    def let_a_sync_end(self) -> None:
        """A thread of the running process waits for one. Raises DeadlockError: there is none."""
        host = running_host()
        syncs = self._syncs.get(host, []) if host is not None else []
        if not any(each.end_one() for each in syncs):
            raise DeadlockError("a thread waits for nothing")

    def begin(self, host: Host, process: Coroutine[Any, Any, None]) -> None:
        """Begin the work of a process; an error that no test foresaw is a mistake."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.mistake(f"a process ended by {error!r}")

        host.run(process).add_done_callback(ended)

    def wall_s(self) -> float:
        """Return what the clock on the wall of this process shows, in seconds since 1970."""
        host = running_host()
        own_s = self.own_wall_ahead_s.get(host, 0.0) if host is not None else 0.0
        return BEGAN_S + self.loop.now + self.wall_ahead_s + own_s

    def note(self, what: str) -> None:
        """Write down what happens, with its time."""
        self.trace.append(f"{self.loop.now:9.3f} {what}")

    def mistake(self, what: str) -> None:
        """Note what must not happen."""
        self.mistakes.append(what)
        self.note(f"VIOLATED {what}")


@contextmanager
def new_world(seed: int) -> Iterator[World]:
    """A world for the length of a `with`; what still runs at its end is cancelled."""
    loop = VirtualTimeLoop()
    asyncio.set_event_loop(loop)
    world = World(seed, loop)
    with _without_collection(), _drawn_from(seed), _simulated(world), _heard(world):
        try:
            yield world
        finally:
            _end(world)
            asyncio.set_event_loop(None)
            loop.close()
    del world, loop
    gc.collect()  # its disks, a hundred megabytes, in processes that hold each other


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: that is a tenth of the time of a life, for 35 MB of memory."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _end(world: World) -> None:
    for host in world.hosts:
        host.resume()  # into their end: killed ones, too
    loop = world.loop
    for _ in range(CLEAN_UP_ROUNDS):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        try:
            loop.run_until_complete(asyncio.wait(tasks, timeout=0.01))
        except DeadlockError:
            break
    loop.lost.clear()


@contextmanager
def _simulated(world: World) -> Iterator[None]:
    """Put what is simulated where sockets, threads and clocks are."""

    def kernel_syncs(disk: SimulatedDisk) -> SimulatedSyncs:
        return world.kernel_syncs(disk)

    write = MemoryTable.write

    def written(table: MemoryTable, index: int, keys: TableChanges, term: int = 0) -> None:
        write(table, index, keys, term)
        for each in world.applied:
            each(table, keys)

    changes: Changes = (
        (MemoryTable, "write", written),
        (volume, "ThreadPoolExecutor", VirtualExecutor),
        (SimulatedDisk, "kernel_syncs", kernel_syncs),
        (syncs, "threading", SimpleNamespace(Lock=lambda: VirtualLock(world))),
        (next_block, "AHEAD_FROM_BYTES", 0),  # blocks are small here
        (file_store, "SPARE_BYTES", SPARE_BYTES),
        (file_store, "SPARE_PIECE_BYTES", SPARE_BYTES),
        (stream_calls, "connect", world.network.connect),
        (transport, "connect", world.network.connect),
        (connection.FrameConnection, "is_local", True),
        (block_reader, "BORROW_BYTES", 0),  # files are small here
        (lent_files, "take_file", world.lent.take),
        (shared_session, "RpcClient", lambda _access: SimulatedRpc(world.network)),
        (time, "monotonic", lambda: world.loop.now),
        (time, "time", world.wall_s),
        (time, "time_ns", lambda: int(world.wall_s() * 1e9)),
        *world.pairs.changes(),
    )
    with changed(changes):
        yield


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    """Let everything that is drawn at random follow from the seed."""
    rng, generator = random.Random(f"world {seed}"), random.Random

    class Seeded(generator):  # type: ignore[misc, valid-type]  # the class as it is without us
        def __init__(self, seed: Any = None) -> None:
            super().__init__(rng.random() if seed is None else seed)

    before = JITTER.getstate()
    JITTER.seed(seed)
    changes: Changes = (
        (uuid, "uuid4", lambda: uuid.UUID(int=rng.getrandbits(128), version=4)),
        (os, "urandom", rng.randbytes),
        (secrets, "randbelow", rng.randrange),
        (random, "Random", Seeded),
    )
    try:
        with changed(changes):
            yield
    finally:
        JITTER.setstate(before)


@contextmanager
def changed(changes: Changes) -> Iterator[None]:
    """Let names of modules and classes mean something else for the length of a `with`."""
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    for module, name, value in changes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class _Ear(logging.Handler):
    """Hears the mistakes that nodes log and go on after."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, PaxosBlockError):
            self._world.mistake(f"{record.name}: {record.getMessage()}: {error!r}")


@contextmanager
def _heard(world: World) -> Iterator[None]:
    logger, ear = logging.getLogger("paxosblock"), _Ear(world)
    before = logger.level, logger.propagate
    logger.addHandler(ear)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(ear)
        logger.setLevel(before[0])
        logger.propagate = before[1]
