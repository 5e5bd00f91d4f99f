"""Schemas: Spark's as Arrow's, the same for every session, and batches made to fit them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from paxosblock.client.spark.below_null import filled
from paxosblock.errors import InvalidRequestError

TIME_ZONE = "UTC"
"""Of every timestamp in a file, whatever time zone the session shows them in."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of files with the rows of a DataFrame: every column may be null, as in all
    files that Spark writes, so that what is appended later may have nulls where there are none now.

    Raises:
        InvalidRequestError: a column's type has no Arrow type; the message names the column.
    """
    return pa.schema([_arrow_field(_nullable(field)) for field in schema.fields])


def _nullable(field: StructField) -> StructField:
    return StructField(field.name, _with_nulls(field.dataType), True, field.metadata)


def _with_nulls(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return StructType([_nullable(field) for field in kind.fields])
        case ArrayType():
            return ArrayType(_with_nulls(kind.elementType))
        case MapType():
            return MapType(_with_nulls(kind.keyType), _with_nulls(kind.valueType))
        case _:
            return kind


def _arrow_field(field: StructField) -> pa.Field:
    try:
        return to_arrow_schema(
            StructType([field]),
            error_on_duplicated_field_names_in_struct=True,
            timezone=TIME_ZONE,
        ).field(0)
    except PySparkException as error:
        raise InvalidRequestError(
            f"column {field.name!r}: type {field.dataType.simpleString()} has no Arrow type"
        ) from error


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """`batch` with exactly `schema`: Spark's own has the session's time zone, and columns that are
    never null. No value is copied for that."""
    batch = filled(batch)
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def columns(schema: pa.Schema) -> dict[str, str]:
    """Names and Spark types of the columns of a file, in order, for comparing and for messages.

    Says nothing about nulls: a file with them and one without have the same columns.
    """
    return {field.name: _spark_name(field.type) for field in schema}


def _spark_name(kind: pa.DataType) -> str:
    try:
        return from_arrow_type(kind).simpleString()
    except PySparkException:
        return f"{kind} (no Spark type)"
