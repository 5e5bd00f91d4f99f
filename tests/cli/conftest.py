"""One real cluster for all tests of the command, and a way to run it in this process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run


@dataclass(frozen=True)
class Result:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


Paxosblock = Callable[..., Result]
_numbers = itertools.count()


@pytest.fixture
def paxosblock(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Paxosblock:
    """Run the command in this process: `paxosblock("fs", "ls", "/")`."""
    monkeypatch.delenv("PAXOSBLOCK_NAMENODES", raising=False)

    def command(*arguments: str | os.PathLike[str]) -> Result:
        capfd.readouterr()
        code = run([os.fspath(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """One NameNode and three DataNodes, for all tests that only use files."""
    with LocalCluster(datanodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the shared cluster."""
    with Client(cluster.url) as client:
        yield client


@pytest.fixture
def fs(
    cluster: LocalCluster, paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> Paxosblock:
    """Run a verb of `paxosblock fs` on the shared cluster: `fs("ls", "/")`."""

    def command(*arguments: str | os.PathLike[str]) -> Result:
        monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
        return paxosblock("fs", *arguments)

    return command


@pytest.fixture
def folder(client: Client, request: pytest.FixtureRequest) -> str:
    """A new directory in the shared cluster, named after the test."""
    path = f"/{request.node.originalname}-{next(_numbers)}"
    client.mkdirs(path)
    return path
