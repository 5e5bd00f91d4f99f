"""PySpark learns of the data source: every other test here shows it, too, for none registers it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from paxosblock.client.spark.datasource import PaxosBlockDataSource
from paxosblock.spark import register
from pyspark_paxosblock import DefaultSource
from tests.spark.reading import Place

FOUND_BY_PKGUTIL = """
import pkgutil
print([found.name for found in pkgutil.iter_modules() if found.name.startswith("pyspark_")])
from pyspark_paxosblock import DefaultSource
print(DefaultSource.name())
import sys
print(sorted({"aiohttp", "msgspec", "pyarrow", "asyncio"} & set(sys.modules)))
"""


def said(folder: Path, program: str, path: str = "") -> list[str]:
    """Return what a program prints, run elsewhere with `path` before the installed packages."""
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return run.stdout.splitlines()


def test_an_editable_install_is_seen_by_pkgutil_and_loads_no_client(tmp_path: Path) -> None:
    assert said(tmp_path, FOUND_BY_PKGUTIL) == ["['pyspark_paxosblock']", "paxosblock", "[]"]


@pytest.mark.slow
def test_a_wheel_is_seen_by_pkgutil_and_loads_no_client(repository: Path, tmp_path: Path) -> None:
    # A build leaves files beside the sources, and takes those of an earlier one.
    unwanted = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(repository, tmp_path / "source", symlinks=True, ignore=unwanted)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    # No limit but the test's: pip fetches what builds the wheel, as fast as the index gives it.
    subprocess.run([*install, "--target", tmp_path / "site", tmp_path / "source"], check=True)
    from_wheel = f"import paxosblock; print(paxosblock.__file__)\n{FOUND_BY_PKGUTIL}"
    place, *found = said(tmp_path, from_wheel, os.fspath(tmp_path / "site"))
    assert place == os.fspath(tmp_path / "site" / "paxosblock" / "__init__.py")
    assert found[1:] == ["paxosblock", "[]"]
    assert "pyspark_paxosblock" in found[0]


def test_the_source_found_and_the_source_registered_are_one() -> None:
    assert DefaultSource is PaxosBlockDataSource


@pytest.mark.slow
def test_registering_it_once_more_changes_nothing(spark: SparkSession, table: Place) -> None:
    register(spark)
    spark.range(3).write.format("paxosblock").mode("append").save(table.url)
    assert sum(table.ids().values()) == 3


@pytest.mark.slow
def test_a_thread_that_registers_it_can_write(spark: SparkSession, table: Place) -> None:
    def write() -> None:
        register(spark)
        spark.range(3).write.format("paxosblock").mode("append").save(table.url)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    assert sum(table.ids().values()) == 3
