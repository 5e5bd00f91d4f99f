"""A record: one figure of one round, with everything needed to compare it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from paxosblock.base.encoding import json_decoder
from paxosblock.errors import ConfigError

OURS: Final = "paxosblock"


class Host(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine of a run, where its nodes wrote, and the versions of what ran."""

    machine: str
    cores: int
    memory_bytes: int
    kernel: str
    folder_device: str
    file_system: str
    mount_options: str
    load: float
    """The load average as the run began: on a quiet machine below one."""
    date: str
    versions: dict[str, str]
    python_build: str = ""
    """The build of the Python that all processes of ours ran; records of before do not say."""


class Record(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One figure.

    `case`, `what` and `unit` say what was measured, `side` in which system, `at` at which point of
    a growth curve; records that agree in all of these are rounds of the same figure.
    """

    case: str
    what: str
    value: float
    unit: str
    """Such as "MiB/s", "/s", "ms p50"."""
    round: int
    """The rounds are counted from 1."""
    host: Host
    side: str = OURS
    """The system: ours, or the name of a peer that does the same work in the same run."""
    at: float | None = None
    """The place on the horizontal axis, such as the number of files."""
    at_unit: str = ""
    limit: float | None = None
    """The bare limit that was measured in the same round, in the same unit."""
    ratio: float | None = None
    """`value` / `limit`."""
    goal: float | None = None
    """The goal, in the same unit."""
    processor_s: dict[str, float] = {}
    """Seconds of processor of each role, for each `per`."""
    per: str = ""
    """The unit of work, such as "GiB", "call", "block"."""
    durability: str = ""
    """"disk": acknowledged means synced; "memory": acknowledged means received by every replica;
    of peers as they call it."""
    replicas: int | None = None
    chunk_bytes: int | None = None
    window: int | None = None
    clients: int | None = None
    settings: dict[str, str] = {}
    """Everything else that differed from the shipped settings, or that a reader must know."""

    def __post_init__(self) -> None:
        assert self.case, "a record says of which case it is"
        assert self.round >= 1, "rounds are counted from 1"
        assert (self.at is None) == (not self.at_unit), "a place on an axis has a unit"
        assert bool(self.processor_s) == bool(self.per), "processor time is for something"

    @property
    def key(self) -> tuple[str, str, str, str, float | None]:
        """The fields in which rounds of the same figure agree."""
        return (self.case, self.what, self.unit, self.side, self.at)


Key = tuple[str, str, str, str, float | None]


def encode(record: Record) -> bytes:
    """Return the record as one line of JSON."""
    return msgspec.json.encode(record) + b"\n"


def read_records(paths: Iterable[Path]) -> list[Record]:
    """Return the records of files of JSON lines, in their order.

    Raises:
        ConfigError: a line is no record; the message names file and line.
        OSError: a file cannot be read.
    """
    return [record for path in paths for record in _read(path)]


def _read(path: Path) -> Iterator[Record]:
    decoder = json_decoder(Record)
    found = False
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"'{path}': line {number} is no record of a benchmark: {error}"
            ) from error
        found = True
    if not found:
        raise ConfigError(f"'{path}': holds no record; `paxosblock bench --output` writes some")


def rounds_of(records: Iterable[Record]) -> Mapping[Key, list[Record]]:
    """Return the records by figure, in the order in which each came first."""
    found: dict[Key, list[Record]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record)
    return found
