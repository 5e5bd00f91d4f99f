"""One Spark session and one cluster for all tests: both take seconds to start.

A test that kills NameNodes, or that must not meet other tests' work, starts a cluster of its own.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from paxosblock import Client, LocalCluster
from tests.master_keys import write_masters
from tests.spark.faulty import FaultySource
from tests.spark.reading import Place

_numbers = itertools.count()

DRIVER_MEMORY = "1g"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Halves the time of a session that lives for a minute."""


def session_builder(name: str, repository: Path) -> SparkSession.Builder:
    """For a session on two cores that gives each task three attempts.

    Python workers inherit the environment that the JVM starts with.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.fspath(repository)  # for functions that tests define
    return (
        SparkSession.builder.appName(name)
        .master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", DRIVER_MEMORY)
        .config("spark.driver.extraJavaOptions", QUICK_START)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", os.path.join(tempfile.gettempdir(), "spark-warehouse"))
    )


def spark_session(name: str, repository: Path) -> SparkSession:
    """Such a session, which knows the data source with faults, too."""
    session = session_builder(name, repository).getOrCreate()
    session.dataSource.register(FaultySource)
    return session


@pytest.fixture(scope="package")
def spark(repository: Path) -> Iterator[SparkSession]:
    """The session; it found the data source by itself."""
    at_interrupt = signal.getsignal(signal.SIGINT)  # Spark takes it; other tests come after these
    session = spark_session("tests", repository)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    signal.signal(signal.SIGINT, at_interrupt)


def pytest_itemcollected(item: pytest.Item) -> None:
    """More time than other tests: on a busy machine the start of Spark alone takes minutes, which
    counts as the first test's."""
    item.add_marker(pytest.mark.timeout(600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that was cut off by its time limit leaves an answer of the JVM unread, which the next
    test would take for its own: it gets another connection. (With that goes the JVM's thread, and
    with the thread the active session: after other failures streams need it.)"""
    cut_off = call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value)
    if cut_off and (gateway := SparkContext._gateway) is not None:
        connection = gateway._gateway_client.get_thread_connection()
        if connection is not None:
            connection.close()
    return (yield)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One NameNode and three DataNodes, all of them well whenever a test starts."""
    write_masters(master := tmp_path_factory.mktemp("master") / "key", 1)
    settings = {"namenode": {"master_key_file": str(master)}}
    with LocalCluster(datanodes=3, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def fs(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the shared cluster."""
    with Client(cluster.url) as client:
        yield client


@pytest.fixture
def folder(cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """URL of a directory for one test, named after it; it does not exist yet."""
    return f"{cluster.url}/{request.node.originalname}-{next(_numbers)}"


@pytest.fixture
def table(folder: str, fs: Client) -> Place:
    """The same directory, with ways to look into it."""
    return Place(folder, fs)
