"""`spark.readStream.format("paxosblock")`: a file that grows, or a directory that does."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from paxosblock.api.namenode import Kind
from paxosblock.client.spark.formats_read import is_cut_by_lines
from paxosblock.client.spark.growing_folder import GrowingReader
from paxosblock.client.spark.listing import base_of
from paxosblock.client.spark.source import check_schema
from paxosblock.client.spark.source_options import FileFormat, SparkOptions
from paxosblock.client.spark.tail import TailReader
from paxosblock.client.spark.target import client_of
from paxosblock.errors import ConfigError


def make_stream_reader(schema: StructType, options: SparkOptions) -> DataSourceStreamReader:
    """Make the reader of one query: it reads the records of a file, or the files of a directory or
    a pattern.

    Raises:
        NotFoundError: there is nothing at the path.
        ConfigError: the options do not go together, or a file of the format cannot grow.
        InvalidRequestError: the format lacks such a schema.
    """
    check_schema(schema, options)
    if options.max_bytes_per_trigger and options.max_files_per_trigger:
        raise ConfigError("options 'maxBytesPerTrigger' and 'maxFilesPerTrigger': take one of them")
    base, names = base_of(options.path)
    with client_of(options) as fs:
        kind = fs.stat(base).kind
    if names or kind is Kind.DIRECTORY:
        return GrowingReader(schema, options)
    _check_tail(options)
    return TailReader(schema, options)


def _check_tail(options: SparkOptions) -> None:
    is_arrow = options.file_format is FileFormat.ARROW
    if not is_arrow and not is_cut_by_lines(options.path, options):
        raise ConfigError(
            f"'{options.path}': a file can grow as plain text, as csv without multiLine, or as "
            "Arrow streams; of other formats stream the directory"
        )
    if options.max_files_per_trigger:
        raise ConfigError(
            f"option 'maxFilesPerTrigger' has no effect: '{options.path}' is one file"
        )
