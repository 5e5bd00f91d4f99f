"""A Spark program of its own process, for a test that kills it: a stream of text files to a path.

python -m tests.spark.driver INPUT CHECKPOINT URL LAYOUT FAULT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.spark.conftest import spark_session
from tests.spark.faulty import DRIVER_GROUP


def main(folder: str, checkpoint: str, url: str, layout: str, fault: str) -> None:
    """Ends by the fault, or when all of the input is written."""
    os.setsid()  # the fault kills this process group, the driver and its JVM
    os.environ[DRIVER_GROUP] = str(os.getpgid(0))
    spark = spark_session("driver", Path(__file__).resolve().parents[2])
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(folder).repartition(2)
    writer = rows.writeStream.format("faulty").option("fault", fault)
    writer = writer.option("layout", layout).option("fileFormat", "text")
    writer = writer.option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(url).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
