"""PySpark's data source `paxosblock`; `paxosblock.spark.register` or a wheel make it known."""
