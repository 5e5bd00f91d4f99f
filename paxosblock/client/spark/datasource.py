"""The data source as PySpark sees it: it chooses the class for each use.

Importing this loads nothing beside PySpark (see `pyspark_paxosblock`); every method imports its
modules, in the short-lived process in which Spark calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from paxosblock.client.spark.short_errors import short_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from paxosblock.client.spark.source_options import SparkOptions, Use


class PaxosBlockDataSource(DataSource):
    """`format("paxosblock")`: files of a cluster for `read`, `write`, `readStream`, `writeStream`.

    A wrong option raises a ConfigError on the driver, before any task starts.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that users give to `format`."""
        return "paxosblock"

    @short_errors
    def schema(self) -> StructType:
        """Return the schema of the files at `path` when the user names none; for both reads."""
        from paxosblock.client.spark.source import infer_schema
        from paxosblock.client.spark.source_options import Use

        return infer_schema(self._options(Use.READS))

    @short_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader for `spark.read`."""
        from paxosblock.client.spark.source import make_reader
        from paxosblock.client.spark.source_options import Use

        return make_reader(schema, self._options(Use.READ))

    @short_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader for `spark.readStream`."""
        from paxosblock.client.spark.source_options import Use
        from paxosblock.client.spark.streaming_source import make_stream_reader

        return make_stream_reader(schema, self._options(Use.STREAM_READ))

    @short_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Make the writer for `df.write`."""
        from paxosblock.client.spark.sink import make_writer
        from paxosblock.client.spark.source_options import Use

        return make_writer(schema, self._options(Use.WRITE), overwrite=overwrite)

    @short_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """Make the writer for `df.writeStream`."""
        from paxosblock.client.spark.source_options import Use
        from paxosblock.client.spark.streaming_sink import make_stream_writer

        return make_stream_writer(schema, self._options(Use.STREAM_WRITE), overwrite=overwrite)

    def _options(self, use: Use) -> SparkOptions:
        from paxosblock.client.spark.source_options import parse_options

        return parse_options(self.options, use)
