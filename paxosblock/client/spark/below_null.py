"""Values below a null: Spark leaves them null, also where the type says that they never are.

Variants and geometries are structs whose fields are never null. Of a null variant Spark's fields
are null all the same, which Arrow allows and a parquet file does not.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

_SOME: Final = {pa.binary(): b"", pa.int32(): 0}
"""For the types of such fields; others may be null in files (see `arrow_schema`). No scalars: for
the first one pyarrow imports pandas, a third of a second for each process that imports this."""


def is_strict(kind: pa.DataType) -> bool:
    """True if a struct in it has fields that are never null."""
    if kinds.is_map(kind):
        return is_strict(kind.item_type)
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return any(not field.nullable or is_strict(field.type) for field in fields)


def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; below a null, fields that are never null have some value."""
    if not any(map(is_strict, batch.schema.types)):
        return batch
    return pa.RecordBatch.from_arrays([_filled(each) for each in batch], schema=batch.schema)


def _filled(array: pa.Array) -> pa.Array:
    kind = array.type
    if not is_strict(kind):
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
