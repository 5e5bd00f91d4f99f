"""The content of the cluster after a job, read by the client and pyarrow: without Spark."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from paxosblock import Client
from paxosblock.client.names.url import parse_url
from paxosblock.client.spark.attempts import TEMPORARY

MOST_LINES = 6
"""Of an error as PySpark shows it: its own words, our message, and what frames them."""


@dataclass(frozen=True)
class Place:
    """A directory, or a file, that jobs write to."""

    url: str
    fs: Client

    def __truediv__(self, name: str) -> Place:
        return Place(f"{self.url}/{name}", self.fs)

    @property
    def path(self) -> str:
        """The path in the cluster."""
        return parse_url(self.url).path

    def content(self) -> bytes:
        """All bytes of the file."""
        with self.fs.open(self.path) as file:
            return file.read()

    def names(self) -> list[str]:
        """Everything below the directory, as paths relative to it."""
        found = self.fs.glob(f"{self.path}/**/*")
        return [entry.path.removeprefix(f"{self.path}/") for entry in found]

    def leftovers(self) -> list[str]:
        """Return what is still there of jobs' work."""
        return [name for name in self.names() if TEMPORARY in name]

    def files(self) -> list[Place]:
        """The files that every reader of the ecosystem takes, in order."""
        names = (entry.name for entry in self.fs.ls(self.path))
        return [self / name for name in names if not name.startswith("_")]

    def parquet(self) -> pa.Table:
        """The rows of all parquet files of the directory."""
        return pa.concat_tables(pq.read_table(io.BytesIO(each.content())) for each in self.files())

    def ids(self) -> Counter[int]:
        """Return how often each value of the column `id` is in the directory's parquet files."""
        return Counter(self.parquet().column("id").to_pylist())

    def arrow(self) -> pa.Table:
        """The rows of all Arrow streams in the file, one behind the other."""
        source, tables = io.BytesIO(self.content()), []
        while source.tell() < len(source.getvalue()):
            tables.append(pa.ipc.open_stream(source).read_all())
        return pa.concat_tables(tables)

    def lines(self) -> Counter[str]:
        """Return how often each line is in the file."""
        return Counter(self.content().decode().splitlines())
