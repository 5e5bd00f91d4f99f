"""Spark Connect: the client is a process without a JVM, and the data source works as ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.reading import Place


@pytest.mark.slow
def test_spark_connect_reads_and_writes_without_registering(
    table: Place, repository: Path, tmp_path: Path
) -> None:
    here = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # No limit but the test's: the start of Spark alone takes minutes on a busy machine.
    run = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_client", table.url, tmp_path / "checkpoint"],
        cwd=repository,
        env=os.environ | here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    session, ids, error = run.stdout.splitlines()
    assert session == "session: pyspark.sql.connect.session"
    assert ids == f"ids: {sorted([*range(5), *range(5)])}"
    assert error.endswith("/nothing': no such file or directory")
    assert sum((table / "stream").ids().values()) == 5
