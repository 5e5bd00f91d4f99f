"""Fixtures of every test, and the shares of the processes that run the tests.

Kept nearly empty on purpose: a test shows what it needs.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from paxosblock.host.startup import collect_seldom
from paxosblock.local.node_process import Node
from tests import secure
from tests.fork_server import SERVER

TOGETHER: Final = ("tests/spark/", "tests/outside/", "tests/cli/")
"""Folders of which one process runs all: their tests share what takes long to start, a session of
Spark, of which two would not fit on a small machine, or a cluster."""
WAITS: Final = "tests/services/"
"""The folder of tests that wait for processes rather than compute."""

# An example that takes long says that this machine is busy, not that the code is wrong.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The switch `--secure`."""
    why = "run the tests of real processes on clusters with certificates and block tokens"
    parser.addoption("--secure", action="store_true", help=why)


def pytest_configure(config: pytest.Config) -> None:
    """Before a module makes the configuration of a client."""
    if hasattr(config, "workerinput") and config.args == ["tests"]:
        begin = config.workerinput["workerid"].removeprefix("gw")
        config.args[:] = _begun_at(int(begin) / config.workerinput["workercount"])
    if config.getoption("secure"):
        folder = tempfile.TemporaryDirectory(prefix="authority-")
        config.add_cleanup(folder.cleanup)
        secure.begin(Path(folder.name))


def _begun_at(share: float) -> list[str]:
    """Return what to collect, beginning at this share of it and going around.

    In a fresh checkout a process compiles each file for 30 ms, which others then only read: so
    each process of `pytest -n` begins where none of the others does.
    """
    tests = Path(__file__).parent
    files = sorted(tests.glob("**/test_*.py"))
    place = int(share * len(files))
    return [str(each) for each in (*files[place:], *files[:place])]


@pytest.fixture(scope="session", autouse=True)
def forked_nodes() -> Iterator[None]:
    """Nodes of a `LocalCluster` are forks of one process, which starts with the first of them."""
    spawn = Node.spawn
    Node.spawn = staticmethod(SERVER.spawn)
    yield
    Node.spawn = staticmethod(spawn)
    SERVER.close()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent


class FilesTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """One process runs all tests of a file, which may share a cluster, or of a whole folder."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def _scope(nodeid: str) -> str:
    """Return the tests that one process runs together: a folder or a file."""
    folders = (folder for folder in TOGETHER if nodeid.startswith(folder))
    return next(folders, _file(nodeid))


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesTogether:
    """The scheduler of `pytest -n`."""
    return FilesTogether(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest pieces first: none must begin when all others have ended. Then files that wait,
    between those that compute: while one process waits another has its processor."""
    if config.getoption("secure"):
        secure.choose(config, items)
    items.sort(key=lambda item: item.path.parts)  # each process collects in an order of its own
    places = {folder: float(place) for place, folder in enumerate(TOGETHER, -len(TOGETHER))}
    files = dict.fromkeys(_file(item.nodeid) for item in items)
    for waits in (True, False):
        alike = [file for file in files if file.startswith(WAITS) is waits]
        places |= {file: place / len(alike) for place, file in enumerate(alike)}
    items.sort(key=lambda item: places[_scope(item.nodeid)])


def pytest_collection_finish() -> None:
    """Keep what is imported and collected out of every later look for garbage: it stays."""
    gc.collect()
    collect_seldom()
