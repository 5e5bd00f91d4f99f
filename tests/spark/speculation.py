"""A Spark program of its own process that runs a task twice: a job whose slow attempt is late.

    python -m tests.spark.speculation MASTER URL REPORT

On a standalone master with executors on two hosts, the least that Spark speculates on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.conftest import session_builder
from tests.spark.faulty import FaultySource
from tests.waiting import wait_until

SPECULATE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.python.task.killTimeout": "60s",  # the loser is not killed before it has seen the end
}


def main(master: str, url: str, report: str) -> None:
    """Ends when the job has ended and its late attempt has reported."""
    repository = Path(__file__).resolve().parents[2]
    builder = session_builder("speculation", repository).master(master)
    builder = builder.config("spark.executorEnv.PYTHONPATH", f"{repository}")
    for name, value in SPECULATE.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(FaultySource)
    writer = spark.range(0, 1000, 1, numPartitions=2).write.format("faulty")
    writer.option("fault", f"late {report}").mode("append").save(url)
    wait_until(Path(report).exists, timeout_s=90)


if __name__ == "__main__":
    main(*sys.argv[1:])
