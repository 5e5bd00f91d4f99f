"""For programs that use PySpark: `paxosblock.spark.register(spark)`.

Needs the extra `paxosblock[spark]`, here and in the Python of every Spark worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paxosblock.client.spark.datasource import PaxosBlockDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PaxosBlockDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Make the format `paxosblock` known to a session.

    An installed `paxosblock` is found by PySpark without this; where it is only on PYTHONPATH, this
    is needed.
    """
    spark.dataSource.register(PaxosBlockDataSource)
