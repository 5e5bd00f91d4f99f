"""Spreads work over the tasks of one Spark job."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeAlias, TypeVar

from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Sequence[Item]], Iterator[Result]]
Advance = Callable[[int], None]
"""Called with the amount that has been done since the last call."""
Watch = Callable[[int], AbstractContextManager[Advance]]
"""Called with the whole amount of work, and follows it: a progress bar, for example."""

Spark: TypeAlias = SparkSession | Callable[[], SparkSession]
"""A session, or a function that starts one, which is called only if there is work for a task."""

TASKS_PER_CORE: Final = 4
"""More tasks than cores, so that a slow one does not hold up the job at its end."""
LOOK_EVERY_S: Final = 0.2


@contextmanager
def nobody(_total: int) -> Iterator[Advance]:
    """Watch nothing."""
    yield lambda _more: None


def spread(
    spark: Spark,
    items: Sequence[Item],
    weight: Callable[[Item], int],
    work: Work[Item, Result],
    watch: Watch = nobody,
) -> list[Result]:
    """Run `work` on shares of `items` of about equal weight, and return all that it yields.

    A task that fails is repeated as Spark is configured to, with its whole share: `work` must bear
    that. `work`, the items and the results travel between processes. Results come in no order.

    Raises:
        Any error that Spark raises when a task has failed for the last time.
    """
    if not items:
        return []
    session = spark if isinstance(spark, SparkSession) else spark()
    context = session.sparkContext
    shares = share_out(items, weight, context.defaultParallelism * TASKS_PER_CORE)
    done = context.accumulator(0)

    def run(tasks: Iterable[tuple[list[Item], int]]) -> Iterator[Result]:
        for share, weighs in tasks:
            yield from work(share)
            done.add(weighs)

    job = context.parallelize(shares, len(shares)).mapPartitions(run)
    total = sum(weighs for _, weighs in shares)
    with ThreadPoolExecutor(1) as waiter, watch(total) as advance:
        results: Future[list[Result]] = waiter.submit(job.collect)
        seen = 0
        while wait_for([results], LOOK_EVERY_S).not_done:
            advance(done.value - seen)
            seen = done.value
        advance(done.value - seen)
    return results.result()


def share_out(
    items: Sequence[Item], weight: Callable[[Item], int], count: int
) -> list[tuple[list[Item], int]]:
    """Return at most `count` shares with their weights; the heaviest item goes first, into the
    lightest share.

    >>> share_out([5, 1, 3, 3], lambda item: item, 2)
    [([5, 1], 6), ([3, 3], 6)]
    """
    shares: list[list[Item]] = [[] for _ in range(min(count, len(items)))]
    # Equal weights take turns, by the number of items in a share.
    lightest = [(0, 0, number) for number in range(len(shares))]
    for item in sorted(items, key=weight, reverse=True):
        total, length, number = heapq.heappop(lightest)
        shares[number].append(item)
        heapq.heappush(lightest, (total + weight(item), length + 1, number))
    return [(share, sum(map(weight, share))) for share in shares]
