"""Push-down: which row groups of a parquet file cannot hold a row that passes a filter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

COMPARABLE: Final = (int, str, bool, date, Decimal)
"""Types that parquet's statistics and Spark order alike. Floats are not among them: Spark puts NaN
above all numbers, and the statistics leave it out."""

_MOST_VALUES: Final = 1000


def may_match(filters: Sequence[Filter], group: pq.RowGroupMetaData) -> bool:
    """False when the statistics of a row group show that one of `filters` refuses all its rows."""
    chunks = [group.column(at) for at in range(group.num_columns)]
    statistics = {chunk.path_in_schema: chunk.statistics for chunk in chunks}
    return all(_may_match(each, statistics, group.num_rows) for each in filters)


def _may_match(wanted: Filter, statistics: dict[str, pq.Statistics | None], rows: int) -> bool:
    column: tuple[str, ...] = getattr(wanted, "attribute", ())
    known = statistics.get(column[0]) if len(column) == 1 and "." not in column[0] else None
    if known is None:
        return True
    only_nulls = known.has_null_count and known.null_count == rows
    match wanted:
        case IsNull():
            return not known.has_null_count or known.null_count > 0
        case IsNotNull():
            return not only_nulls
        case _ if known.has_min_max:
            return _in_range(wanted, known.min, known.max)
    return True


def _in_range(wanted: Filter, low: Any, high: Any) -> bool:
    def comparable(value: object) -> bool:
        return type(value) is type(low) and type(value) in COMPARABLE

    def between(value: Any) -> bool:
        return not comparable(value) or low <= value <= high

    match wanted:
        case EqualTo(value=value) | EqualNullSafe(value=value):
            return between(value)
        case In(value=values) if len(values) <= _MOST_VALUES:
            return any(map(between, values))
        case LessThan(value=value) if comparable(value):
            return bool(low < value)
        case LessThanOrEqual(value=value) if comparable(value):
            return bool(low <= value)
        case GreaterThan(value=value) if comparable(value):
            return bool(high > value)
        case GreaterThanOrEqual(value=value) if comparable(value):
            return bool(high >= value)
        case StringStartsWith(value=value) if comparable(value):
            return bool(low[: len(value)] <= value <= high[: len(value)])
    return True
