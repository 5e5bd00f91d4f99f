"""The costs of 100,000,000 files and 1,000 DataNodes for NameNodes, from measured costs.

No machine here holds such a cluster. The costs are the figures of `benchmarks/results`, each of the
largest catalog that was measured, and the rest is arithmetic with the shipped settings, whose terms
are those of the case `model`. `tests/make_growth.py` makes docs/growth.md of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.cases.scale_model import REPLICATION, Scale
from benchmarks.record import OURS, Record
from benchmarks.stats import median
from benchmarks.suite import LEADER
from paxosblock.base.units import GIB, MIB
from paxosblock.config import DataNodeConfig, NameNodeConfig
from paxosblock.namenode.blocks.block_reports import REPORTED_PER_S
from paxosblock.namenode.blocks.replication.monitor import WALKED_PER_S_AT_FIRST

MANY, MORE = 10**6, 10**7
"""The two sizes of a catalog between which the cost of one more file is measured."""
WALKED: Final = 3 * 10**5
"""The blocks of the largest walk that was measured."""
REPLICAS_BYTES: Final = 342
"""Memory for what DataNodes report of a block of three replicas, of the leader alone: the resident
memory of `Replicas` from 200,000 blocks to 1,000,000, each noted at three of thirty storages."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One measured cost and the case that measured it."""

    what: str
    value: float
    unit: str
    case: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Costs of a NameNode that leads two others: microseconds of its one thread, and bytes."""

    file_bytes: Cost
    empty_bytes: Cost
    create_us: Cost
    stat_us: Cost
    report_us: Cost
    heartbeat_us: Cost
    copy_us: Cost
    walk_us: Cost
    list_us: Cost

    def __iter__(self) -> Iterator[Cost]:
        names = self.__dataclass_fields__
        return (getattr(self, name) for name in names)


def measured(records: Iterable[Record]) -> Measured:
    """Return the costs that these records show. Raises KeyError if they lack a figure."""
    found: dict[tuple[str, str, float | None], list[Record]] = {}
    for each in records:
        if each.side == OURS:
            found.setdefault((each.case, each.what, each.at), []).append(each)

    def value(case: str, what: str, at: float | None = None) -> float:
        return median([each.value for each in found[case, what, at]])

    def leader_us(case: str, what: str, at: float | None = None) -> float:
        return median([each.processor_s[LEADER] for each in found[case, what, at]]) * 1e6

    growth, grown = "namenode-growth-3", "memory beyond an empty one"
    many_mib, more_mib = (value(growth, grown, float(files)) for files in (MANY, MORE))
    file_bytes = (more_mib - many_mib) * MIB / (MORE - MANY)
    empty_bytes = many_mib * MIB - file_bytes * MANY
    create_us, stat_us = (leader_us(growth, what, float(MORE)) for what in WHATS)
    return Measured(
        Cost("memory of one more file", file_bytes, "bytes", growth),
        Cost("memory whatever the catalog", empty_bytes / MIB, "MiB", growth),
        Cost("a file made and closed", create_us, "us", growth),
        Cost("`stat` of any file", stat_us, "us", growth),
        Cost("a replica in a full report", leader_us("reports", "all reported", MANY), "us",
             "reports"),
        Cost("a heartbeat", value("model", "input: processor for a heartbeat"), "us", "model"),
        Cost("a copy", leader_us("healing", "small blocks come back"), "us", "healing"),
        Cost("a block in the walk over all", leader_us("sweep", "walk over all", WALKED), "us",
             "sweep"),
        Cost("a name in a list", leader_us("list-directory", "names", MANY), "us",
             "list-directory"),
    )  # fmt: skip


WHATS: Final = ("create and close", "stat")


@dataclass(frozen=True, slots=True)
class Shape:
    """A cluster: its files, each of one block, spread over so many groups of three NameNodes."""

    files: int
    datanodes: int
    groups: int

    @property
    def replicas(self) -> int:
        """Replicas of one group's files."""
        return self.files * REPLICATION // self.groups


@dataclass(frozen=True, slots=True)
class OnPaper:
    """The needs of one group's leader."""

    memory_gib: float
    heartbeats: float
    """The share of its thread, as below."""
    reports: float
    reported_again_s: float
    """Processor time for all reports after a fail-over, for which copies wait."""
    pass_s: float
    """The first walk over all blocks."""
    whole_again_s: float
    """From the loss of a DataNode until all blocks have all replicas again, at the soonest: a
    leader begins copies one by one, and all groups share the DataNodes' `copy_bandwidth`."""
    creates_per_s: float
    """Files made and closed in what heartbeats and reports leave, in all groups together."""
    listed_s: float
    """All names of one group, listed once."""


def on_paper(costs: Measured, shape: Shape) -> OnPaper:
    """Return what the leader of one group of `shape` would need."""
    namenode, datanode = NameNodeConfig(), DataNodeConfig()
    files = shape.files // shape.groups
    heartbeats = shape.datanodes / namenode.heartbeat_interval_s * costs.heartbeat_us.value / 1e6
    reports_s = shape.replicas * costs.report_us.value / 1e6
    every_s = max(datanode.block_report_interval_s, shape.replicas / REPORTED_PER_S)
    lost = shape.replicas // shape.datanodes
    scale = Scale(shape.datanodes, lost, namenode, datanode)
    begun_s = lost * costs.copy_us.value / 1e6
    copied_mib = lost * shape.groups * namenode.block_size / MIB
    mib_per_s = (shape.datanodes - 1) * datanode.copy_bandwidth_bytes_per_s / MIB
    left = max(0.0, 1 - heartbeats - reports_s / every_s)
    memory = costs.empty_bytes.value * MIB + files * (costs.file_bytes.value + REPLICAS_BYTES)
    return OnPaper(
        memory_gib=memory / GIB,
        heartbeats=heartbeats,
        reports=reports_s / every_s,
        reported_again_s=reports_s,
        pass_s=files / WALKED_PER_S_AT_FIRST,
        whole_again_s=scale.noticed_s + max(begun_s, copied_mib / mib_per_s),
        creates_per_s=left / costs.create_us.value * 1e6 * shape.groups,
        listed_s=files * costs.list_us.value / 1e6,
    )
