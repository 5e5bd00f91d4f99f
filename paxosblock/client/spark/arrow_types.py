"""Schemas: Spark's as Arrow's, the same for every session, and batches made to fit them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from paxosblock.errors import InvalidRequestError

TIME_ZONE = "UTC"
"""The time zone of every timestamp in a file, whatever time zone the session shows them in."""

_SOME: Final = {pa.binary(): b"", pa.int32(): 0}
"""For the types of such fields; others may be null in files (see `arrow_schema`). No scalars: for
the first one pyarrow imports pandas, a third of a second for each process that imports this."""


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of files with a DataFrame's rows: every column may be null, as in all
    files that Spark writes, so that rows appended later may have nulls where there are none now.

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
    except (PySparkException, ValueError) as error:  # the latter for maps with keys of type void
        raise InvalidRequestError(
            f"column {field.name!r}: type {field.dataType.simpleString()} has no Arrow type"
        ) from error


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with exactly `schema`: Spark's own has the session's time zone, and columns
    that are never null. It copies no value."""
    batch = _filled_batch(batch)
    return batch if batch.schema.equals(schema) else batch.cast(schema)


def columns(schema: pa.Schema) -> dict[str, str]:
    """Return the names and Spark types of the columns of a file, in order, for comparing and for
    messages.

    It says nothing about nulls: a file with nulls and one without have the same columns.
    """
    return {field.name: _spark_name(field.type) for field in schema}


def _spark_name(kind: pa.DataType) -> str:
    try:
        return from_arrow_type(kind).simpleString()
    except PySparkException:
        return f"{kind} (no Spark type)"


# -- values below a null ---------------------------------------------------------------------------

# Spark leaves them null, also where the type says that they never are. Variants and geometries are
# structs whose fields are never null. Spark's fields of a null variant are null all the same, which
# Arrow allows and a parquet file does not.


def _is_strict(kind: pa.DataType) -> bool:
    """True if a struct in it has fields that are never null."""
    if kinds.is_map(kind):
        return _is_strict(kind.item_type)
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return any(not field.nullable or _is_strict(field.type) for field in fields)


def _filled_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows; below a null, fields that are never null have some value."""
    if not any(map(_is_strict, batch.schema.types)):
        return batch
    return pa.RecordBatch.from_arrays([_filled(each) for each in batch], schema=batch.schema)


def _filled(array: pa.Array) -> pa.Array:
    kind = array.type
    if not _is_strict(kind):
        return array
    if kinds.is_struct(kind):
        valid = array.is_valid()
        fields = [_field(array.field(at), kind.field(at), valid) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=pc.invert(valid))
    if kinds.is_map(kind):
        pair = [kind.key_field, kind.item_field]
        below = pa.StructArray.from_arrays([array.keys, _filled(array.items)], fields=pair)
    else:
        below = _filled(array.values)
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], children=[below], offset=array.offset
    )


def _field(values: pa.Array, field: pa.Field, valid: pa.BooleanArray) -> pa.Array:
    values = _filled(values)
    if field.nullable or not values.null_count or field.type not in _SOME:
        return values
    return pc.if_else(valid, values, pa.scalar(_SOME[field.type], field.type))
