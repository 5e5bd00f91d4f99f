"""A driver of Spark in a process of its own, which somebody else kills.

python -m tests.outside.committers.driver SETTINGS

`SETTINGS` is JSON. Each line of its input is a job as JSON; a line of its output says how it ended.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.outside.committers.jobs import ENDED, PARTS, READY, Job
from tests.spark.conftest import session_builder


def main(settings: str) -> None:
    """Do each job, until there are no more."""
    builder = session_builder("committers", Path(__file__).resolve().parents[3])
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    _say(READY)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        rows = spark.range(job.first, job.first + job.rows, 1, PARTS)
        writer = rows.write.mode(job.mode)
        try:
            if job.url.startswith("paxosblock:"):
                writer.format("paxosblock").save(job.url)
            else:
                writer.parquet(job.url)
        except (PySparkException, Py4JError) as error:
            _say(f"failed: {str(error).splitlines()[0]}")
        else:
            _say(ENDED)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
