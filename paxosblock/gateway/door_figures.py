"""The figures of one door: requests by status, how long they took, and their bytes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Final

from paxosblock.api.insight import DoorStatus
from paxosblock.base.durations import Durations
from paxosblock.gateway.exchange import Answer, Exchange, StreamedBody, Traffic
from paxosblock.host.metrics import NodeMetrics

Answering = Callable[[Exchange], Awaitable[Answer]]
MOST: Final = 0.99
"""The share of requests whose longest time is told."""


class DoorFigures:
    """Counts what one door answers. `address` is where it listens, "" before it does."""

    def __init__(self, door: str) -> None:
        self.door = door
        self.address = ""
        self.statuses: Counter[int] = Counter()
        self.refused = 0
        self.failed = 0
        self.durations = Durations()
        self.traffic = Traffic()

    def counting(self, answer: Answering) -> Answering:
        """Return what answers the same, and is counted. The time ends where the answer begins."""

        async def counted(exchange: Exchange) -> Answer:
            began_s = time.perf_counter()
            exchange.traffic = self.traffic
            made = await answer(exchange)
            self.durations.note(time.perf_counter() - began_s)
            self._count(int(made.status), failed=made.failed)
            if isinstance(made.body, StreamedBody):
                made.body.traffic = self.traffic
            else:
                self.traffic.sent_bytes += len(made.body)
            return made

        return counted

    @property
    def status(self) -> DoorStatus:
        """Return the figures as they are."""
        return DoorStatus(
            self.door,
            self.address,
            self.statuses.total(),
            self.refused,
            self.failed,
            self.durations.within_s(MOST),
            self.traffic.received_bytes,
            self.traffic.sent_bytes,
        )

    def _count(self, status: int, *, failed: bool) -> None:
        self.statuses[status] += 1
        if failed or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.failed += 1
        elif status >= HTTPStatus.BAD_REQUEST:
            self.refused += 1


def add_to(metrics: NodeMetrics, doors: Iterable[DoorFigures]) -> None:
    """Show the figures on `/metrics`, by door."""
    kept: Sequence[DoorFigures] = tuple(doors)
    metrics.tally(
        "requests",
        "Requests answered, by door and status.",
        ("door", "status"),
        lambda: (
            ((each.door, str(status)), count)
            for each in kept
            for status, count in each.statuses.items()
        ),
    )
    metrics.tally(
        "failures",
        "Requests that the gateway or its cluster failed, by door: answers of 5xx, and those of"
        " WebHDFS that say so with 403, as HDFS does.",
        ("door",),
        lambda: (((each.door,), each.failed) for each in kept),
    )
    metrics.histogram(
        "request",
        "From the head of a request to the head of its answer, by door.",
        ("door",),
        lambda: (((each.door,), each.durations) for each in kept),
    )
    metrics.tally(
        "received_bytes",
        "Bytes that came with requests, by door.",
        ("door",),
        lambda: (((each.door,), each.traffic.received_bytes) for each in kept),
    )
    metrics.tally(
        "sent_bytes",
        "Bytes that went with answers, by door.",
        ("door",),
        lambda: (((each.door,), each.traffic.sent_bytes) for each in kept),
    )
