"""The worked example of docs/spark.md, as it stands there."""

from __future__ import annotations

import runpy
from pathlib import Path

from pyspark.sql import SparkSession


def test_four_ways_of_counting_agree_after_a_datanode_was_killed(
    spark: SparkSession, repository: Path
) -> None:
    example = runpy.run_path(str(repository / "examples" / "streaming.py"))
    counts = example["run"](spark)
    text, *others = counts.values()
    assert sum(text.values()) > 10_000
    assert len(others) == 3
    assert all(other == text for other in others)
