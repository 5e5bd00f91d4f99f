"""Cases: registers them, runs them one after the other, and gives each the means to measure."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import tempfile
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks import host
from benchmarks.interpreter import this_build
from benchmarks.record import OURS, Host, Record
from benchmarks.stats import percentile
from paxosblock.base.settings import did_you_mean
from paxosblock.base.units import GIB, MIB, format_size
from paxosblock.errors import ConfigError, Outcome, PaxosBlockError, StorageError
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.cluster_folder import Settings

T = TypeVar("T")

QUIET_WITHIN_S: Final = 15.0
RESTLESS: Final = 10
"""After so many waits in vain another program uses the disk for good: later waits are short."""
HARDLY_S: Final = 1.0
SMALL_ROOM_BYTES: Final = 256 * MIB
TOUCHED_BYTES: Final = GIB
PERCENTILES: Final = {"p50": 0.5, "p99": 0.99}

LEADER, FOLLOWER, DATANODE, CLIENT = "NameNode", "follower", "DataNodes", "client"
"""The roles whose processor time is told: the NameNode that leads, one of those that follow it on
average, all DataNodes together, and this process."""


class SkipError(PaxosBlockError):
    """A case cannot run here, and the message says what it lacks: not a failure."""

    outcome = Outcome.NEVER


Run = Callable[["Bench"], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One question, and the function that answers it."""

    name: str
    question: str
    run: Run
    usual: bool
    room_bytes: int


CASES: Final[dict[str, Case]] = {}
"""All cases, by name, in the order of registration. `catalog.load` fills it."""


def case(name: str, *, usual: bool = True, room_bytes: int = GIB) -> Callable[[Run], Run]:
    """Register a coroutine function as a case; the first line of its docstring is its question.

    Args:
        usual: True if a run that names no cases includes it.
        room_bytes: the most bytes that its nodes and the limit write at the usual size.
    """

    def register(run: Run) -> Run:
        assert name not in CASES, f"two cases are called {name}"
        question = (run.__doc__ or "").partition("\n")[0]
        assert question, f"{name} says what it asks"
        CASES[name] = Case(name, question, run, usual, room_bytes)
        return run

    return register


@dataclass(frozen=True, slots=True)
class Options:
    """The bounds of a run."""

    rounds: int = 3
    seconds: float = 2.0
    """Duration of each measurement whose length is free."""
    most: int | None = None
    """The last point of growth curves; None: one that a usual run reaches in time."""
    small: bool = False
    """True if each case is as small as it can be, only to see that it runs."""
    folder: Path | None = None
    """The folder where nodes and limits write; None: the temporary folder."""


@dataclass(slots=True)
class Spent:
    """The seconds that something took, and the processor seconds of each role meanwhile."""

    elapsed_s: float = 0.0
    processor_s: dict[str, float] = field(default_factory=dict)

    def per(self, count: float) -> dict[str, float]:
        """Return the processor seconds of each role, divided by `count`."""
        return {role: round(used / count, 9) for role, used in self.processor_s.items() if used}


class Bench:
    """The means of a case."""

    def __init__(
        self,
        name: str,
        options: Options,
        machine: Host,
        clusters: Clusters,
        take: Callable[[Record], None],
    ) -> None:
        self.case = name
        self.options = options
        self.host = machine
        self.folder = clusters.folder
        """The case may write here; it is removed after the run."""
        self._clusters = clusters
        self._take = take
        self.emitted = 0

    @property
    def rounds(self) -> range:
        """Return the numbers of the rounds, from 1."""
        return range(1, (1 if self.options.small else self.options.rounds) + 1)

    @property
    def seconds(self) -> float:
        """The duration of a measurement whose length is free."""
        return 0.1 if self.options.small else self.options.seconds

    def size(self, usual: int, small: int) -> int:
        """Return `usual`, or `small` in a run that only sees that cases run."""
        return small if self.options.small else usual

    def some(self, all_of_them: Sequence[T]) -> Sequence[T]:
        """Return all of them, or only the first in a run that only sees that cases run."""
        return all_of_them[:1] if self.options.small else all_of_them

    def sizes(self, all_of_them: Sequence[int], usual_most: int, small: int) -> tuple[int, ...]:
        """Return the points of a growth curve up to `--max`, or up to `usual_most`."""
        if self.options.small:
            return (small,)
        most = self.options.most or usual_most
        return tuple(size for size in all_of_them if size <= most) or (most,)

    async def cluster(
        self,
        datanodes: int = 3,
        namenodes: int = 1,
        settings: Settings | None = None,
        *,
        kind: type[LocalCluster] = LocalCluster,
        fresh: bool = False,
    ) -> LocalCluster:
        """Return a running cluster, which the suite ends: that of the case before if it is of the
        same kind and whole, and `fresh` is not asked for; otherwise a new one. A run that only sees
        that cases run ignores `fresh`."""
        return await asyncio.to_thread(
            self._clusters.get,
            kind,
            datanodes,
            namenodes,
            settings or {},
            fresh and not self.options.small,
        )

    async def quiet(self) -> None:
        """Sync, wait until the disk is quiet, and touch memory (`host.touch_memory`); every side
        of every round begins with it, ours, peers and limits."""
        if self.options.small:
            return
        within_s = QUIET_WITHIN_S if self._clusters.restless < RESTLESS else HARDLY_S
        if not await host.quiet(within_s):
            self._clusters.restless += 1
            host.progress(f"{self.case}: the disk was not quiet within {within_s:g} s")
        await asyncio.to_thread(host.touch_memory, TOUCHED_BYTES)

    async def bare(self, measure: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return the result of `measure`, a bare limit, in a thread once the disk is quiet."""
        await self.quiet()
        return await asyncio.to_thread(measure, *args, **kwargs)

    @contextlib.asynccontextmanager
    async def measured(self, cluster: LocalCluster | None = None) -> AsyncIterator[Spent]:
        """Wait until the disk is quiet; then measure the time of the block, and the processor time
        of this process and of the nodes, none of which may be started in it."""
        pids = await asyncio.to_thread(_pids, cluster)
        await self.quiet()
        spent, before, begun_s = Spent(), _used(pids), time.perf_counter()
        yield spent
        spent.elapsed_s = time.perf_counter() - begun_s
        after = _used(pids)
        spent.processor_s = {role: after[role] - before[role] for role in pids}

    def emit(
        self,
        what: str,
        value: float,
        unit: str,
        number: int = 1,
        *,
        side: str = OURS,
        at: tuple[float, str] | None = None,
        limit: float | None = None,
        goal: float | None = None,
        processor_s: Mapping[str, float] | None = None,
        per: str = "call",
        durability: str = "",
        replicas: int | None = None,
        chunk_bytes: int | None = None,
        window: int | None = None,
        clients: int | None = None,
        **settings: object,
    ) -> None:
        """Emit the figure of round `number`; see `Record`. `at` is a point and its unit."""
        place, at_unit = at if at is not None else (None, "")
        self._take(
            Record(
                case=self.case,
                what=what,
                value=_short(value),
                unit=unit,
                round=number,
                host=self.host,
                side=side,
                at=place,
                at_unit=at_unit,
                limit=None if limit is None else _short(limit),
                ratio=_short(value / limit) if limit else None,
                goal=goal,
                processor_s=dict(processor_s or {}),
                per=per if processor_s else "",
                durability=durability,
                replicas=replicas,
                chunk_bytes=chunk_bytes,
                window=window,
                clients=clients,
                settings={name: str(each) for name, each in settings.items()},
            )
        )
        self.emitted += 1

    def emit_times(
        self,
        what: str,
        times_s: Sequence[float],
        number: int = 1,
        *,
        limit_s: Sequence[float] | None = None,
        goals_ms: Mapping[str, float] | None = None,
        **facts: Any,
    ) -> None:
        """Emit p50 and p99 of durations, in ms, each beside that of the limit."""
        goals = goals_ms or {}
        for name, share in PERCENTILES.items():
            limit = percentile(limit_s, share) * 1e3 if limit_s else None
            value = percentile(times_s, share) * 1e3
            goal = goals.get(name)
            self.emit(what, value, f"ms {name}", number, limit=limit, goal=goal, **facts)
            facts.pop("processor_s", None)  # once is enough


def _short(value: float) -> float:
    """Return the value with six digits: no measurement has more."""
    return float(f"{value:.6g}")


def _pids(cluster: LocalCluster | None) -> dict[str, list[int | None]]:
    """Return the processes of each role; None is this one."""
    if cluster is None:
        return {CLIENT: [None]}
    leader = cluster.wait_leader()
    pids: dict[str, list[int | None]] = {
        LEADER: [leader.pid],
        DATANODE: [node.pid for node in cluster.datanodes],
        CLIENT: [None],
    }
    if followers := [node.pid for node in cluster.namenodes if node is not leader]:
        pids[FOLLOWER] = list(followers)
    return pids


def _used(pids: Mapping[str, list[int | None]]) -> dict[str, float]:
    used = {role: sum(map(host.processor_s, those)) for role, those in pids.items()}
    if FOLLOWER in used:
        used[FOLLOWER] /= len(pids[FOLLOWER])
    return used


class Clusters:
    """The one way in which cases get a cluster, kept from case to case while it suits them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key: object = None
        self._kept: LocalCluster | None = None
        self._started = 0
        self.restless = 0
        """Number of waits for a quiet disk in vain."""

    def get(
        self,
        kind: type[LocalCluster],
        datanodes: int,
        namenodes: int,
        settings: Settings,
        fresh: bool,
    ) -> LocalCluster:
        """See `Bench.cluster`."""
        key = (kind, datanodes, namenodes, json.dumps(settings, sort_keys=True))
        kept = self._kept
        if kept is None or fresh or key != self._key or not all(node.alive for node in kept.nodes):
            self.drop()
            self._started += 1
            path = self.folder / f"cluster-{self._started}"
            kept = kind(datanodes, namenodes, path=path, settings=settings)
            kept.start()
            self._kept, self._key = kept, None if fresh else key
        return kept

    def drop(self) -> None:
        """End the cluster and remove its folder."""
        if self._kept is not None:
            self._kept.close()
            shutil.rmtree(self._kept.path, ignore_errors=True)
            self._kept = None


def chosen(names: Sequence[str]) -> list[Case]:
    """Return the cases of these names, or the usual ones when there is none.

    Raises:
        ConfigError: there is no case of a name.
    """
    for name in names:
        if name not in CASES:
            near = did_you_mean(name, CASES) or "; `paxosblock bench --list` shows all"
            raise ConfigError(f"'{name}': no such case{near}")
    return [CASES[name] for name in names] or [each for each in CASES.values() if each.usual]


async def run_cases(
    cases: Iterable[Case], options: Options, take: Callable[[Record], None]
) -> list[str]:
    """Run the cases one after the other and give each record to `take`, as soon as it is there.

    Return the names of those that failed, after their errors went to standard error.

    Raises:
        StorageError: there is no room for one of the cases, before anything was run.
        OSError: `options.folder` is no folder that one can write to.
    """
    cases, failed = list(cases), list[str]()
    with (
        _without_logs(),
        tempfile.TemporaryDirectory(dir=options.folder, prefix="paxosblock-bench-") as name,
    ):
        folder = Path(name)
        check_room(cases, options, folder)
        machine = await asyncio.to_thread(host.describe, folder)
        for line in filter(None, (f"{this_build()}; load {machine.load:g}", this_build().hint)):
            host.progress(line)
        clusters = Clusters(folder)
        try:
            for each in cases:
                host.progress(f"{each.name}: {each.question}")
                bench = Bench(each.name, options, machine, clusters, take)
                if not await _run_one(each, bench):
                    failed.append(each.name)
                    await asyncio.to_thread(clusters.drop)
        finally:
            clusters.drop()
    return failed


@contextmanager
def _without_logs() -> Iterator[None]:
    """Log nothing of nodes that fail meanwhile: they are killed on purpose."""
    log = logging.getLogger("paxosblock")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


async def _run_one(case: Case, bench: Bench) -> bool:
    begun_s = time.perf_counter()
    try:
        await case.run(bench)
    except SkipError as reason:
        host.progress(f"{case.name}: skipped: {reason}")
        return True
    except (PaxosBlockError, TimeoutError, OSError) as error:
        host.progress(f"{case.name}: stopped: {str(error) or type(error).__name__}")
        return False
    assert bench.emitted, f"{case.name} measured something"
    took_s = time.perf_counter() - begun_s
    host.progress(f"{case.name}: {bench.emitted} figures in {took_s:.0f} s")
    return True


def check_room(cases: Iterable[Case], options: Options, folder: Path) -> None:
    """Raise StorageError if the file system of `folder` has no room for one of the cases."""
    free = shutil.disk_usage(folder).free
    for each in cases:
        needed = SMALL_ROOM_BYTES if options.small else each.room_bytes
        if needed > free:
            raise StorageError(
                f"'{folder.parent}': {each.name} needs {format_size(needed)}, and "
                f"{free / GIB:.1f} GiB are free there; name another folder with --folder"
            )
