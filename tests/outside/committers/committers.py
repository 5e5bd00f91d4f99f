"""Ways by which Spark makes a table of what its tasks wrote, and what each promises here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from benchmarks.spark_s3a import COMMITTERS as OF_S3A
from benchmarks.spark_s3a import settings_of_committer


class Door(StrEnum):
    """The door through which a job writes."""

    WEBHDFS = "webhdfs"
    S3A = "s3a"
    OWN = "paxosblock"


@dataclass(frozen=True, slots=True)
class Committer:
    """One of them, and the settings of Spark that choose it."""

    door: Door
    settings: Mapping[str, str] = field(default_factory=dict)
    at_once: bool = False
    """All of a job is seen or nothing of it, and a table that is replaced is there all the time."""
    adopts: bool = False
    """A job that adds to a table publishes what tasks of a dead one had committed, too."""


COMMITTERS: Final[Mapping[str, Committer]] = {
    "webhdfs": Committer(Door.WEBHDFS, adopts=True),
    "webhdfs-2": Committer(
        Door.WEBHDFS, {"spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2"}
    ),
    **{
        f"s3a-{name}": Committer(Door.S3A, settings_of_committer(name), adopts=name == "file")
        for name in OF_S3A
    },
    "paxosblock": Committer(Door.OWN, at_once=True),
}
