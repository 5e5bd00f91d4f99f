"""The counts of a node, for `GET /metrics` in Prometheus' text format.

Only servers import this module: `prometheus_client` takes longer to import than a short command
runs. The instruments are prometheus_client's own; asking one to count costs less than 1 us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
"""The content type of what `NodeMetrics.render` returns."""


Values = Callable[[], Iterable[tuple[Sequence[str], float]]]
"""Yields numbers, each with the values of its labels."""


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

    def counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter:
        """Return a number that only grows; with `labels`, one for each value of `.labels(...)`."""
        return Counter(name, about, labels, namespace=self._namespace, registry=self._registry)

    def gauge(self, name: str, about: str) -> Gauge:
        """Return a number that goes up and down."""
        return Gauge(name, about, namespace=self._namespace, registry=self._registry)

    def observe(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A gauge that calls `value` whenever somebody looks: for what the node knows anyway."""
        self.gauge(name, about).set_function(value)

    def tally(self, name: str, about: str, labels: Sequence[str], values: Values) -> None:
        """A counter that calls `values` whenever somebody looks: for what is counted very often."""
        self._registry.register(_Tally(f"{self._namespace}_{name}", about, labels, values))

    def render(self) -> bytes:
        """Return every instrument, as the body of `GET /metrics` with `CONTENT_TYPE`."""
        return generate_latest(self._registry)


@dataclass(frozen=True)
class _Tally(Collector):
    name: str
    about: str
    labels: Sequence[str]
    values: Values

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(self.name, self.about, labels=self.labels)
        for of, value in self.values():
            family.add_metric(of, value)
        yield family
