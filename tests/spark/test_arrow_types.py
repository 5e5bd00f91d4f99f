"""Spark's schemas as Arrow's, and batches made to fit: no cluster and no session is needed."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from paxosblock.client.spark.arrow_types import arrow_schema, columns, fit
from paxosblock.errors import InvalidRequestError


def one(kind: DataType, *, nullable: bool = False) -> StructType:
    return StructType([StructField("a", kind, nullable)])


def test_files_may_have_nulls_everywhere_but_in_keys() -> None:
    inner = StructType([StructField("b", ArrayType(IntegerType(), False), False)])
    [field] = arrow_schema(one(MapType(StringType(), inner, False)))
    assert field.nullable
    assert field.type.item_field.nullable
    assert not field.type.key_field.nullable
    listed = field.type.item_type.field("b")
    assert listed.nullable
    assert listed.type.value_field.nullable


def test_timestamps_are_in_utc() -> None:
    assert arrow_schema(one(TimestampType())).types == [pa.timestamp("us", "UTC")]


def test_a_type_without_an_arrow_type_is_refused_by_its_column() -> None:
    with pytest.raises(InvalidRequestError, match="column 'a': type interval year to month has no"):
        arrow_schema(one(YearMonthIntervalType()))


def test_a_map_with_keys_of_type_void_is_refused_by_its_column() -> None:
    with pytest.raises(InvalidRequestError, match=r"column 'a': type map<void,void> has no Arrow"):
        arrow_schema(one(MapType(NullType(), NullType())))


def test_two_fields_of_one_name_in_a_struct_are_refused() -> None:
    twice = StructType([StructField("b", IntegerType()), StructField("b", StringType())])
    with pytest.raises(InvalidRequestError, match="column 'a'"):
        arrow_schema(one(twice))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.array([1, None], pa.timestamp("us", "Asia/Tokyo")), pa.timestamp("us", "UTC")),
        (pa.array(["x", None], pa.large_string()), pa.string()),
        (pa.array([b"x", None], pa.large_binary()), pa.binary()),
    ],
)
def test_a_batch_is_made_to_fit_and_keeps_its_values(given: pa.Array, wanted: pa.DataType) -> None:
    batch = pa.record_batch([given], pa.schema([pa.field("a", given.type)]))
    fitted = fit(batch, pa.schema([("a", wanted)]))
    assert fitted.schema.types == [wanted]
    assert fitted.column(0).equals(given.cast(wanted))


def test_a_batch_that_fits_is_taken_as_it_is() -> None:
    batch = pa.record_batch({"a": pa.array([1])})
    assert fit(batch, batch.schema) is batch


STRICT = pa.struct([pa.field("value", pa.binary(), False), pa.field("size", pa.int32(), False)])


def strict_rows() -> pa.Array:
    """Three structs as Spark hands them out: of the null in the middle the fields are null, too."""
    validity = pa.py_buffer(bytes([0b101]))
    fields = [pa.array([b"x", None, b"z"]), pa.array([1, None, 3], pa.int32())]
    return pa.Array.from_buffers(STRICT, 3, [validity], children=fields)


def below_a_list(rows: pa.Array) -> pa.Array:
    offsets = pa.array([0, 2, 2, 3], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.list_(rows.type), 3, [None, offsets], children=[rows])


@pytest.mark.parametrize(
    "array",
    [
        strict_rows(),
        strict_rows().slice(1),
        below_a_list(strict_rows()),
        below_a_list(below_a_list(strict_rows())).slice(1, 1),
        pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array([*"abc"]), strict_rows()),
        pa.StructArray.from_arrays([strict_rows()], ["a"], mask=pa.array([True, False, True])),
    ],
)
def test_below_a_null_a_field_that_is_never_null_has_some_value(array: pa.Array) -> None:
    schema = pa.schema([("a", array.type)])
    given = pa.schema([pa.field("a", array.type, nullable=False)])  # so that it is cast, too
    fitted = fit(pa.record_batch([array], given), schema)
    fitted.validate(full=True)
    out = io.BytesIO()
    with pq.ParquetWriter(out, schema) as writer:
        writer.write_batch(fitted)
    assert pq.read_table(out)["a"].to_pylist() == array.to_pylist()


def test_a_struct_whose_fields_spark_calls_never_null_is_cast_to_one_that_may_have_them() -> None:
    inner = pa.struct([pa.field("text", pa.string(), False), pa.field("size", pa.int32(), False)])
    fields = [pa.array(["x", None]), pa.array([1, None], pa.int32())]
    array = pa.Array.from_buffers(inner, 2, [pa.py_buffer(bytes([1]))], children=fields)
    wanted = pa.schema([("a", pa.struct([("text", pa.string()), ("size", pa.int32())]))])
    fitted = fit(pa.record_batch([array], ["a"]), wanted)
    assert fitted.to_pylist() == [{"a": {"text": "x", "size": 1}}, {"a": None}]


def test_columns_that_are_never_null_cost_no_copy() -> None:
    values = pa.array([1, 2])
    batch = pa.record_batch([values], pa.schema([pa.field("a", pa.int64(), nullable=False)]))
    fitted = fit(batch, pa.schema([pa.field("a", pa.int64())]))
    assert fitted.column(0).buffers()[1].address == values.buffers()[1].address


def test_columns_are_told_as_spark_names_them() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.list_(pa.string()), "c": pa.uint8()})
    assert list(columns(schema).values()) == ["bigint", "array<string>", "uint8 (no Spark type)"]
