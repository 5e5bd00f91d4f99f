"""Makes PySpark find the data source `paxosblock` by itself.

PySpark imports every top-level module called `pyspark_*` and takes its `DefaultSource`. One such
module that cannot be imported hides them all, so this one, and what it imports, loads nothing
beside PySpark: the rest comes when the source is used.
"""

from paxosblock.client.spark.datasource import PaxosBlockDataSource as DefaultSource

__all__ = ["DefaultSource"]
