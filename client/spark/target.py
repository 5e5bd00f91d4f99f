"""What is checked on the driver before a task starts: is there a place for these rows?"""

from __future__ import annotations

from typing import IO, Final, cast

import pyarrow as pa
import pyarrow.parquet as pq

from paxosblock.client.spark.arrow_types import columns
from paxosblock.client.spark.formats_write import format_of
from paxosblock.client.spark.options import FileFormat, Layout, Options
from paxosblock.client.sync import Client
from paxosblock.errors import (
    InvalidRequestError,
    IsDirectoryError,
    NotDirectoryError,
    NotFoundError,
)
from paxosblock.namenode_api import FileStatus, Kind

_WITH_SCHEMA: Final = frozenset({FileFormat.PARQUET, FileFormat.ARROW})


def client_of(options: Options) -> Client:
    """A client of the cluster that the options name, for one process's part of a job."""
    return Client(options.namenodes, options.client_config)


def check_target(fs: Client, options: Options, schema: pa.Schema, *, overwrite: bool) -> None:
    """Refuse a path where rows of this schema cannot be added (or put instead, with `overwrite`).

    Of a directory, the first visible file is looked at: it stands for the others.

    Raises:
        NotDirectoryError, IsDirectoryError: a file stands where a directory is meant, or a
            directory where a file is.
        InvalidRequestError: the root; or files of another format or with other columns are there.
        PaxosBlockError: the cluster does not answer.
    """
    path, is_file = options.path, options.layout is Layout.APPEND
    if path == "/":
        raise InvalidRequestError("'/': rows go into a directory of their own, not into the root")
    try:
        status = fs.stat(path)
    except NotFoundError:
        return
    if is_file and status.kind is Kind.DIRECTORY:
        raise IsDirectoryError(
            f"'{path}': the layout 'append' writes one file; this is a directory"
        )
    if not is_file and status.kind is Kind.FILE:
        raise NotDirectoryError(f"'{path}': rows go into a directory; this is a file")
    existing = status if is_file else None if overwrite else _first_visible(fs, path)
    if existing is not None and existing.length:
        _check_same(fs, existing, options, schema)


def _first_visible(fs: Client, directory: str) -> FileStatus | None:
    for entry in fs.scan(directory):
        if entry.kind is Kind.FILE and not _name(entry).startswith(("_", ".")):
            return entry
    return None


def _check_same(fs: Client, existing: FileStatus, options: Options, schema: pa.Schema) -> None:
    wanted = options.file_format
    found = format_of(_name(existing))
    if found not in {None, wanted}:
        raise InvalidRequestError(
            f"'{existing.path}' is there: {wanted.value} files cannot be added to "
            f"{found.value if found else 'others'}"
        )
    if wanted not in _WITH_SCHEMA:
        return
    there, new = columns(_schema_of(fs, existing, wanted)), columns(schema)
    if there != new or list(there) != list(new):
        raise InvalidRequestError(
            f"the columns differ from those of '{existing.path}': {_difference(there, new)}"
        )


def _schema_of(fs: Client, existing: FileStatus, file_format: FileFormat) -> pa.Schema:
    with fs.open(existing.path) as file:
        source = pa.PythonFile(cast("IO[bytes]", file), mode="r")
        try:
            if file_format is FileFormat.PARQUET:
                return pq.read_schema(source)
            return pa.ipc.open_stream(source).schema
        except pa.ArrowException as error:
            raise InvalidRequestError(
                f"'{existing.path}' is there and is no {file_format.value} file: {error}"
            ) from error


def _difference(there: dict[str, str], new: dict[str, str]) -> str:
    """The first column that differs."""
    for name in [*new, *there]:
        if name not in there:
            return f"{name!r} is not there"
        if name not in new:
            return f"{name!r} is missing in the new rows"
        if there[name] != new[name]:
            return f"{name!r} is {there[name]} there and {new[name]} in the new rows"
    return f"they stand in the order {', '.join(there)} there"


def _name(status: FileStatus) -> str:
    return status.path.rpartition("/")[2]
