"""What every test may use, and who runs what where two processes share the tests.

Kept nearly empty on purpose: a test shows what it needs.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark/"

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
