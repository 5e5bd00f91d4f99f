"""From the Arrow types that files hold to Spark's, and batches in exactly the schema Spark asks."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as kinds
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from paxosblock.client.spark.arrow_types import TIME_ZONE
from paxosblock.client.spark.source_options import SparkOptions
from paxosblock.errors import InvalidRequestError

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}
"""Arrow types that Spark lacks, and the smallest of Spark's that holds all their values."""


def spark_schema(schema: pa.Schema, path: str) -> StructType:
    """Return the schema that Spark shows for a file; every column may be null.

    Raises:
        InvalidRequestError: Spark has no type for a column; names the file and the column.
    """
    return StructType([_field(column, path) for column in schema])


def _field(column: pa.Field, path: str) -> StructField:
    try:
        return StructField(column.name, from_arrow_type(_plain(column.type)))
    except PySparkException as error:
        raise InvalidRequestError(
            f"'{path}': column {column.name!r}: Spark has no type for {column.type}", path=path
        ) from error


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values without encodings, of types that Spark has."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if kinds.is_dictionary(kind) or kinds.is_run_end_encoded(kind):
        return _plain(kind.value_type)
    if kinds.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    if kinds.is_struct(kind):
        return pa.struct([_plain_field(kind.field(at)) for at in range(kind.num_fields)])
    if _is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if kinds.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale) if kind.precision <= 38 else kind
    return _WIDER.get(kind, kind)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain(field.type))


def _is_list(kind: pa.DataType) -> bool:
    return isinstance(
        kind,
        pa.ListType
        | pa.LargeListType
        | pa.FixedSizeListType
        | pa.ListViewType
        | pa.LargeListViewType,
    )


def batch_schema(schema: StructType) -> pa.Schema:
    """Return the exact Arrow schema that Spark expects of batches with this schema, also of nulls.

    Raises:
        InvalidRequestError: a type has no counterpart in Arrow.
    """
    try:
        return to_arrow_schema(schema, timezone=TIME_ZONE)
    except PySparkException as error:
        raise InvalidRequestError(f"the schema cannot be read: {error}") from error


def merge(known: StructType, found: StructType, path: str) -> StructType:
    """Return the columns of `known`, followed by those that only the file at `path` has.

    Raises InvalidRequestError when a column has another type there.
    """
    for field in found:
        if field.name in known.names and known[field.name].dataType != field.dataType:
            raise InvalidRequestError(
                f"'{path}': column {field.name!r} is {field.dataType.simpleString()}, in other "
                f"files {known[field.name].dataType.simpleString()}",
                path=path,
            )
    return StructType([*known, *(field for field in found if field.name not in known.names)])


def with_path_field(schema: StructType, options: SparkOptions) -> StructType:
    """`schema` and the column `pathColumn`. Raises InvalidRequestError when it is there already."""
    if not options.path_column:
        return schema
    if options.path_column in schema.names:
        raise InvalidRequestError(
            f"option 'pathColumn': the files have a column {options.path_column!r} themselves"
        )
    return StructType([*schema, StructField(options.path_column, StringType())])


def check_path_field(schema: StructType, options: SparkOptions) -> None:
    """Raise InvalidRequestError when `pathColumn` is not a string column of the schema."""
    name = options.path_column
    if name and (name not in schema.names or schema[name].dataType != StringType()):
        raise InvalidRequestError(f"option 'pathColumn': the schema has no string column {name!r}")


def without_path(target: pa.Schema, options: SparkOptions) -> pa.Schema:
    """Return the columns that are read from the files themselves."""
    at = target.get_field_index(options.path_column)
    return target if at < 0 else target.remove(at)


def with_path(batch: pa.RecordBatch, path: str, options: SparkOptions) -> pa.RecordBatch:
    """Return a batch of the file at `path`, with the column `pathColumn`."""
    name = options.path_column
    if not name:
        return batch
    if name in batch.schema.names:
        raise InvalidRequestError(
            f"'{path}': has a column {name!r} itself, which option 'pathColumn' names", path=path
        )
    return batch.append_column(name, pa.repeat(pa.scalar(path), batch.num_rows))


def check_readable(
    found: pa.Schema, target: pa.Schema, path: str, *, missing_is_null: bool
) -> None:
    """Raise what `conform` would for every batch of a file with the schema `found`."""
    if not missing_is_null:
        _check_columns(found.names, target.names, path)
    for column in (each for each in target if each.name in found.names):
        before = found.field(column.name).type
        try:
            pa.array([], before).cast(column.type)
        except pa.ArrowException as error:
            raise InvalidRequestError(
                f"'{path}': column {column.name!r} is {before}, which cannot be read as "
                f"{column.type}",
                path=path,
            ) from error


def conform(
    batch: pa.RecordBatch, target: pa.Schema, path: str, *, missing_is_null: bool
) -> pa.RecordBatch:
    """Return the columns of `target` in its order and types; never changes a value to make it fit.

    Args:
        missing_is_null: a column that is missing holds nulls instead of being an error.

    Raises:
        InvalidRequestError: a column is missing, a value does not fit its type, or a null is where
            the schema has none.
    """
    if batch.schema.equals(target):
        return batch
    if missing_is_null:
        batch = _with_missing(batch, target)
    _check_columns(batch.schema.names, target.names, path)
    chosen = batch.select(target.names)
    try:
        return chosen.cast(target)
    except ValueError as error:  # pa.ArrowInvalid is one too
        raise InvalidRequestError(
            f"'{path}': column {_unfit(chosen, target)!r}: {error}", path=path
        ) from error


def _with_missing(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    for column in target:
        if column.name not in batch.schema.names:
            nulls = pa.nulls(batch.num_rows, column.type)
            batch = batch.append_column(column.name, nulls)
    return batch


def _unfit(batch: pa.RecordBatch, target: pa.Schema) -> str:
    """Return the first column that cannot be cast."""
    for column in target:
        try:
            batch.select([column.name]).cast(pa.schema([column]))
        except ValueError:
            return str(column.name)
    raise AssertionError("a batch can be cast when each of its columns can")


def _check_columns(found: Sequence[str], wanted: Sequence[str], path: str) -> None:
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InvalidRequestError(
            f"'{path}': has no column {missing[0]!r}; it has {', '.join(map(repr, found))}",
            path=path,
        )
