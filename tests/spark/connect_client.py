"""A program that reaches Spark only by Spark Connect: a batch from a thread, a stream, an error.

python -m tests.spark.connect_client URL CHECKPOINT
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession


def main(url: str, checkpoint: str) -> None:
    """Prints what it read."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    with ThreadPoolExecutor(1) as pool:
        rows = spark.range(5).write.format("paxosblock").mode("append")
        pool.submit(rows.save, f"{url}/batch").result()
    stream = spark.readStream.format("paxosblock").load(f"{url}/batch")
    query = stream.writeStream.format("paxosblock").option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start(f"{url}/stream").awaitTermination()
    found = spark.read.format("paxosblock").load([f"{url}/batch", f"{url}/stream"]).collect()
    said = [f"session: {type(spark).__module__}", f"ids: {sorted(row.id for row in found)}"]
    try:
        spark.read.format("paxosblock").load(f"{url}/nothing").count()
    except AnalysisException as error:
        said += [line for line in str(error).splitlines() if "NotFoundError" in line]
    sys.stdout.write("\n".join(said))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
