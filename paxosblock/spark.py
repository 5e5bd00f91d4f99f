"""For programs that use PySpark: `paxosblock.spark.register(spark)`.

Needs the extra `paxosblock[spark]`, here and in the Python of every Spark worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paxosblock.client.spark.datasource import PaxosBlockDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from paxosblock.client.blocking.sync import Client

__all__ = ["PaxosBlockDataSource", "published_batch", "register"]


def register(spark: SparkSession) -> None:
    """Make the format `paxosblock` known to a session, and to writes from the calling thread.

    PySpark finds an installed `paxosblock` without this; it is needed where the package is only on
    PYTHONPATH. It is also needed in each thread that writes but has not made the session: there
    Spark 4 looks for Python data sources in the thread's active session, finds no session, and says
    DATA_SOURCE_NOT_FOUND.
    """
    from pyspark.sql.types import StructType

    spark.dataSource.register(PaxosBlockDataSource)
    spark.createDataFrame([], StructType())  # makes the session the thread's active one


def published_batch(fs: Client, query: StreamingQuery | str) -> int:
    """Return the number of the last micro-batch of a streaming query that readers see; -1 if there
    is none.

    This asks the cluster, so any program may call it, even while the query is down.
    `query.lastProgress` says what Spark has noted; this says what is there.

    Args:
        query: the query, or its id, which is also in `<checkpoint>/metadata`.

    Raises PaxosBlockError when the cluster does not answer.
    """
    from paxosblock.client.spark.streaming_sink import last_published

    return last_published(fs, query if isinstance(query, str) else query.id)
