"""Parts that all cases with peers share: they start peers, measure them as ours, and end them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from benchmarks import host
from benchmarks.peers.processes import Answer, Peer
from benchmarks.suite import Bench, SkipError, Spent

P = TypeVar("P", bound=Peer)

WARM_S: Final = 10
"""Each side warms up for at least this time, in a round that is not told: a JVM compiles what
it runs often, and makes twice as many small files a second behind ten seconds as behind two."""


def seconds_of(bench: Bench, number: int) -> float:
    """Return how long to measure in the round of this number; 0 is the one to warm up."""
    return bench.seconds if number else max(bench.seconds, bench.size(WARM_S, 0))


@contextlib.asynccontextmanager
async def peer(bench: Bench, kind: type[P]) -> AsyncIterator[P]:
    """Start a peer, and end it with the block. Raises SkipError if it is not available here."""
    with (
        tempfile.TemporaryDirectory(dir=bench.folder, prefix=f"{kind.name}-") as folder,
        await asyncio.to_thread(kind, Path(folder)) as made,
    ):
        await asyncio.to_thread(made.start)
        yield made


@contextlib.asynccontextmanager
async def peers(bench: Bench, kinds: Sequence[type[Peer]]) -> AsyncIterator[list[Peer]]:
    """Start the peers that are available, print why others are not, and end them with the block.

    Raises:
        SkipError: none of them is available.
    """
    async with contextlib.AsyncExitStack() as started:
        found = []
        for kind in kinds:
            try:
                found.append(await started.enter_async_context(peer(bench, kind)))
            except SkipError as reason:
                host.progress(f"{bench.case}: without {kind.name}: {reason}")
        if not found:
            raise SkipError("none of its peers can be had here")
        yield found


async def ask(bench: Bench, of: Peer, command: str, **options: object) -> tuple[Answer, Spent]:
    """Return the measurements of a peer's load, begun once the disk is quiet, and the processor
    time of its load and of its servers."""
    await bench.quiet()
    pids, before = of.pids(), used(of)
    answer = await asyncio.to_thread(of.ask, command, **options)
    after = used(of)
    spent = {role: after[role] - before[role] for role in pids}
    return answer, Spent(float(answer["seconds"]), spent)


def used(of: Peer) -> dict[str, float]:
    """Return the processor seconds of each role, up to now."""
    return {role: sum(map(host.processor_s, pids)) for role, pids in of.pids().items()}


class Named(Protocol):
    """A side of a comparison: a peer, or ours."""

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a record says about it."""
        ...


def emit_answer(
    bench: Bench, what: str, of: Named, number: int, told: tuple[Answer, Spent], **facts: Any
) -> None:
    """Emit rate, p50 and p99 of what a load has measured."""
    answer, spent = told
    count = max(1, int(answer["count"]))
    facts = {**of.facts, **facts}
    rate = count / answer["seconds"]
    bench.emit(what, rate, "/s", number, processor_s=spent.per(count), **facts)
    for name in ("p50", "p99"):
        bench.emit(what, answer[f"{name}_ms"], f"ms {name}", number, **facts)


@dataclass(slots=True)
class Acts:
    """The acts of clients of ours: the seconds of each, and of all of them together."""

    times_s: list[float]
    elapsed_s: float


async def clients(count: int, seconds: float, act: Callable[[int, int], Awaitable[bool]]) -> Acts:
    """Let `count` clients act, each once and then again until the seconds are over.

    `act(client, number)` returns False when there is nothing left to do for the client.
    """
    times: list[float] = []
    begun = time.perf_counter()

    async def client(mine: int) -> None:
        for number in itertools.count():
            called = time.perf_counter()
            if (number and called - begun >= seconds) or not await act(mine, number):
                break
            times.append(time.perf_counter() - called)

    await asyncio.gather(*(client(each) for each in range(count)))
    return Acts(times, time.perf_counter() - begun)


def emit_acts(bench: Bench, what: str, number: int, acts: Acts, spent: Spent, **facts: Any) -> None:
    """Emit rate, p50 and p99 of what clients of ours did."""
    count = max(1, len(acts.times_s))
    bench.emit(what, count / acts.elapsed_s, "/s", number, processor_s=spent.per(count), **facts)
    bench.emit_times(what, acts.times_s, number, **facts)
