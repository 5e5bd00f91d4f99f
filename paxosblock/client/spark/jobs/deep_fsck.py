"""Job: read every replica of every block below a path, and say what a person should do.

The NameNode's own check knows only the DataNodes' reports. This one reads the bytes: it finds
replicas that have rotted since, while there is another one to mend them from.
"""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from paxosblock.api.namenode import NO_BLOCK, FileStatus, Kind
from paxosblock.api.user_tokens import TokenRight
from paxosblock.base.units import GIB, MIB
from paxosblock.client.blocking.sync import Client
from paxosblock.client.check import BlockCheck, ReplicaCheck, ReplicaHealth
from paxosblock.client.reading.locations import BlockLocation
from paxosblock.client.spark.job_token import LONG_JOB_S, JobToken, job_token
from paxosblock.client.spark.jobs.spread import Spark, Watch, nobody, spread
from paxosblock.config import ClientConfig, load_config
from paxosblock.errors import NotFoundError, PaxosBlockError

UNIT_BYTES: Final = GIB
"""Bytes of a file that one task checks; several tasks check a longer one."""
LEAST_WEIGHT: Final = MIB
"""The least cost of a file, however short it is."""


class BlockHealth(enum.Enum):
    """The state of a block that is not healthy."""

    SHORT = "short of replicas"
    """Every replica that is there is sound, and there are fewer than the file asks for."""
    IMPAIRED = "impaired"
    """Some replica is not sound, and others are."""
    LOST = "lost"
    """No sound replica was found."""
    UNKNOWN = "not checked"


@dataclass(frozen=True, slots=True)
class Unit:
    """The blocks of a file that begin from `start` on and before `end`, in bytes."""

    path: str
    start: int
    end: int
    replication: int

    @property
    def weight(self) -> int:
        """Bytes to read, approximately."""
        return max((self.end - self.start) * self.replication, LEAST_WEIGHT)


@dataclass(frozen=True, slots=True)
class UnhealthyBlock:
    """A block that is not healthy. `replicas` are those that are not sound."""

    path: str
    block: int
    offset: int
    verdict: BlockHealth
    sound: int
    wanted: int
    replicas: tuple[ReplicaCheck, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings of a task in one unit."""

    blocks: int
    replicas: int
    bytes_read: int
    findings: tuple[UnhealthyBlock, ...]


@dataclass(frozen=True, slots=True)
class FsckReport:
    """The report of `fsck` on `path`. `being_written` are files whose last block is not decided;
    their other blocks were checked. `seconds` are those of the whole job, with Spark's start if it
    had to.
    """

    path: str
    files: int
    blocks: int
    replicas: int
    bytes_read: int
    seconds: float
    findings: tuple[UnhealthyBlock, ...]
    being_written: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """True if there is nothing to do."""
        return not self.findings

    def count(self, verdict: BlockHealth) -> int:
        """Return the blocks in this state."""
        return Counter(finding.verdict for finding in self.findings)[verdict]


def fsck(
    spark: Spark,
    namenodes: Sequence[str],
    path: str,
    watch: Watch = nobody,
    *,
    config: ClientConfig | None = None,
) -> FsckReport:
    """Read all replicas below `path` of the cluster at `namenodes` ("host:port" each).

    `watch` is told approximately how many bytes of replicas there are to read, and how many have
    been read. Without `config` the environment configures the driver, as it does tasks; as who
    proves who they are, it gets tasks a token.

    Raises:
        NotFoundError: `path` is not there.
        UnavailableError: no NameNode answers.
    """
    begin = time.monotonic()
    config = config or load_config(ClientConfig)
    with Client(namenodes, config) as fs:
        token = job_token(fs, config, TokenRight.READ, LONG_JOB_S)
        files = [entry for entry in fs.walk(path) if entry.kind is Kind.FILE]
    units = [unit for file in files for unit in units_of(file)]
    work = partial(check_units, tuple(namenodes), token)
    results = spread(spark, units, lambda unit: unit.weight, work, watch)
    return FsckReport(
        path=path,
        files=len(files),
        blocks=sum(result.blocks for result in results),
        replicas=sum(result.replicas for result in results),
        bytes_read=sum(result.bytes_read for result in results),
        seconds=time.monotonic() - begin,
        findings=tuple(
            sorted(
                (finding for result in results for finding in result.findings),
                key=lambda finding: (finding.path, finding.offset),
            )
        ),
        being_written=tuple(file.path for file in files if file.open),
    )


def units_of(file: FileStatus) -> list[Unit]:
    """Cut a file in pieces for several tasks."""
    starts = range(0, max(file.size, 1), UNIT_BYTES)
    return [
        Unit(file.path, start, min(start + UNIT_BYTES, max(file.size, 1)), file.replication)
        for start in starts
    ]


def check_units(
    namenodes: Sequence[str], token: JobToken, units: Sequence[Unit]
) -> Iterator[Checked]:
    """Check the units of one task."""
    with token.client(namenodes) as fs:
        for unit in units:
            yield _check_unit(fs, unit)


def _check_unit(fs: Client, unit: Unit) -> Checked:
    try:
        places = _places(fs, unit)
    except PaxosBlockError as error:
        return Checked(0, 0, 0, (_unread(unit, NO_BLOCK, unit.start, error),))
    checks: list[tuple[int, BlockCheck]] = []
    findings: list[UnhealthyBlock] = []
    for place in places:
        try:
            checks.append((place.offset, fs.blocks.check(place.block)))
        except PaxosBlockError as error:
            if place in _places(fs, unit):  # and not of a file that was deleted meanwhile
                findings.append(_unread(unit, place.block, place.offset, error))
    findings += filter(None, (judge(unit, offset, check) for offset, check in checks))
    return Checked(
        blocks=len(places),
        replicas=sum(len(check.replicas) for _, check in checks),
        bytes_read=sum(check.sound_count * check.record.size_bytes for _, check in checks),
        findings=tuple(findings),
    )


def _places(fs: Client, unit: Unit) -> list[BlockLocation]:
    """Return the decided blocks of a unit that have bytes; none when the file is gone."""
    try:
        found = fs.locations(unit.path, unit.start, unit.end - unit.start)
    except NotFoundError:
        return []
    return [
        place
        for place in found
        if place.finalized and place.size and unit.start <= place.offset < unit.end
    ]


def _unread(unit: Unit, block: int, offset: int, error: PaxosBlockError) -> UnhealthyBlock:
    return UnhealthyBlock(
        unit.path, block, offset, BlockHealth.UNKNOWN, 0, unit.replication, detail=str(error)
    )


def judge(unit: Unit, offset: int, check: BlockCheck) -> UnhealthyBlock | None:
    """Return the finding about a block; None if it is healthy."""
    bad = tuple(each for each in check.replicas if each.health is not ReplicaHealth.SOUND)
    if not check.sound_count:
        verdict = BlockHealth.LOST
    elif bad:
        verdict = BlockHealth.IMPAIRED
    elif check.sound_count < unit.replication:
        verdict = BlockHealth.SHORT
    else:
        return None
    sound = check.sound_count
    return UnhealthyBlock(
        unit.path, check.record.block, offset, verdict, sound, unit.replication, bad
    )
