"""The common part of the streams of a file and of a directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from paxosblock.client.blocking.sync import Client
from paxosblock.client.spark.source import read_planned
from paxosblock.client.spark.source_options import SparkOptions
from paxosblock.client.spark.target import client_of

WAIT_S: Final = 1.0
"""Seconds that a question for the latest offset may wait for news. Spark asks again at once, and
cannot end the query meanwhile."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark keeps one of these on the driver, which plans; each task has another, which reads what
    the first one planned.
    """

    def __init__(self, schema: StructType, options: SparkOptions) -> None:
        self._schema = schema
        self._options = options
        self._client: Client | None = None
        self._goal: int | None = None
        """The end up to which `availableNow` reads; None if there is none."""

    @property
    def _fs(self) -> Client:
        """The client, made when it is first used: an object that was not used can be pickled."""
        if self._client is None:
            self._client = client_of(self._options)
        return self._client

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the batches of its splits, in a task."""
        return read_planned(partition, self._schema, self._options)

    def stop(self) -> None:
        """Disconnect from the cluster."""
        if self._client is not None:
            self._client.close()
