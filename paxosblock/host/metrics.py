"""The counts of a node, for `GET /metrics` in Prometheus' text format.

Only servers import this module: `prometheus_client` takes longer to import than a short command
runs. The instruments are prometheus_client's own; asking one to count costs less than 1 us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from paxosblock.base.durations import BOUNDS_S, Durations

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""The content type of what `NodeMetrics.render` returns."""


PAGES_TOGETHER: Final = 20.0
"""Pages of metrics that are rendered for requests in quick succession; after them it is one a
second."""
_AT_MOST: Final = (*map(str, BOUNDS_S), "+Inf")
"""The bounds of a histogram as they are written."""
Values = Callable[[], Iterable[tuple[Sequence[str], float]]]
"""Yields numbers, each with the values of its labels."""
Lengths = tuple[Sequence[str], Durations]
"""Durations, with the values of their labels."""


class NodeMetrics:
    """The instruments of one node, apart from those of other nodes in the same process.

    `role` ("namenode", "datanode") starts every name: `paxosblock_datanode_chunks_total`. Names end
    in their unit (`_bytes`, `_seconds`); a counter gets its `_total` by itself. Creating the same
    name twice raises ValueError.
    """

    def __init__(self, role: str) -> None:
        self._namespace = f"paxosblock_{role}"
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._page = b""
        self._pages, self._paged_s = PAGES_TOGETHER, time.monotonic()

    def counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter:
        """Return a number that only grows; with `labels`, one for each value of `.labels(...)`."""
        return Counter(name, about, labels, namespace=self._namespace, registry=self._registry)

    def gauge(self, name: str, about: str) -> Gauge:
        """Return a number that goes up and down."""
        return Gauge(name, about, namespace=self._namespace, registry=self._registry)

    def observe(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A gauge that calls `value` whenever it is read: for what the node knows anyway."""
        self.gauge(name, about).set_function(value)

    def tally(self, name: str, about: str, labels: Sequence[str], values: Values) -> None:
        """A counter that calls `values` whenever it is read: for what is counted very often."""
        self._add(CounterMetricFamily, name, about, labels, values)

    def levels(self, name: str, about: str, labels: Sequence[str], values: Values) -> None:
        """Gauges that call `values` whenever they are read, one for each value of the labels."""
        self._add(GaugeMetricFamily, name, about, labels, values)

    def histogram(
        self, name: str, about: str, labels: Sequence[str], values: Callable[[], Iterable[Lengths]]
    ) -> None:
        """A histogram of durations for each value of the labels, as they are when it is read."""
        self._registry.register(
            _HistogramCollector(f"{self._namespace}_{name}_seconds", about, labels, values)
        )

    def _add(
        self,
        kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
        name: str,
        about: str,
        labels: Sequence[str],
        values: Values,
    ) -> None:
        self._registry.register(
            _FamilyCollector(f"{self._namespace}_{name}", about, labels, values, kind)
        )

    def render(self) -> bytes:
        """Return every instrument as it is now."""
        return generate_latest(self._registry)

    def page(self) -> bytes:
        """Return the body of `GET /metrics` with `CONTENT_TYPE`.

        A caller that asks more than `PAGES_TOGETHER` times, and then more than once a second, gets
        a page that is a second old at most, and costs no more than a copy of it.
        """
        now_s = time.monotonic()
        self._pages = min(PAGES_TOGETHER, self._pages + now_s - self._paged_s)
        self._paged_s = now_s
        if self._pages >= 1 or not self._page:
            self._pages -= 1
            self._page = self.render()
        return self._page


def labelled(label: str, pages: Mapping[str, bytes]) -> bytes:
    """Return one page of the pages of several processes, all with the same instruments: each number
    has a label, whose value says from which page it is.
    """
    families: dict[str, list[str]] = {}
    for value, page in pages.items():
        family: list[str] = []
        for line in page.decode().splitlines():
            if line.startswith("# HELP "):
                family = families.setdefault(line, [])
            elif line.startswith("#"):
                if not family:
                    family.append(line)  # its type
            else:
                name, braced, rest = line.partition("{")
                if not braced:
                    name, _, rest = line.partition(" ")
                    rest = f"}} {rest}"
                own = f'{label}="{value}"' + ("," if braced else "")
                family.append(f"{name}{{{own}{rest}")
    lines = [line for about, family in families.items() for line in (about, *family)]
    return "".join(f"{line}\n" for line in lines).encode()


@dataclass(frozen=True)
class _FamilyCollector(Collector):
    name: str
    about: str
    labels: Sequence[str]
    values: Values
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        family = self.kind(self.name, self.about, labels=self.labels)
        for of, value in self.values():
            family.add_metric(of, value)
        yield family


@dataclass(frozen=True)
class _HistogramCollector(Collector):
    name: str
    about: str
    labels: Sequence[str]
    values: Callable[[], Iterable[Lengths]]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self.name, self.about, labels=self.labels)
        for of, durations in self.values():
            up_to = zip(_AT_MOST, accumulate(durations.counts), strict=True)
            family.add_metric(of, list(up_to), durations.sum_s)
        yield family
