"""What every test may use, who runs what where two processes share the tests, and what is measured.

Kept nearly empty on purpose: a test shows what it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from coverage import Coverage
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"
MEASURED: Final = re.compile(r"tests/(protocol|scripts|format|datanode|namenode)/")
TOO_LONG: Final = re.compile(r"crash|runtest|process|explor|planted|full_disk", re.IGNORECASE)
"""What takes long, which tracing doubles, or runs in processes of its own."""

# An example that takes long says that this machine is busy, not that the code is wrong.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent


class FilesTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """One process runs all tests of a file, which may share a cluster, and one process all tests
    with Spark: they share a session, and two of those would not fit on a small machine.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SPARK if nodeid.startswith(SPARK) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether:
    """The scheduler of `pytest -n`."""
    return FilesTogether(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark first: the longest piece of work must not begin when all others have ended."""
    items.sort(key=lambda item: not item.nodeid.startswith(SPARK))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """With --cov, the floor of pyproject.toml is for what the quick tests of protocol, DataNode and
    NameNode reach: the others run untraced, as fast as without it.
    """
    tracing = Coverage.current()
    if tracing is None or (MEASURED.match(item.nodeid) and not TOO_LONG.search(item.nodeid)):
        return (yield)
    tracing.stop()
    try:
        return (yield)
    finally:
        tracing.start()
