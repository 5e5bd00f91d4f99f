"""One real cluster for all tests of the command, and a way to run it in this process."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run
from tests.children import without_waiting
from tests.master_keys import write_masters
from tests.waiting import wait_until


@dataclass(frozen=True)
class Result:
    """The exit code of a command that ended, and its output."""

    code: int
    out: str
    err: str


Paxosblock = Callable[..., Result]
CtrlC = Callable[..., None]
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


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder for a cluster, which is stopped at the end."""
    path = tmp_path / "cluster"
    yield path
    if (path / "cluster.json").exists():
        LocalCluster.at(path).close()


@pytest.fixture
def ctrl_c() -> Iterator[CtrlC]:
    """Press Ctrl-C for a process that the test has started: `ctrl_c(process)`, or send another
    signal: `ctrl_c(process, signal.SIGTERM)`.

    What runs in the background of a shell without job control ignores it, and so does what that
    starts: not here.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def press(process: subprocess.Popen[Any], number: signal.Signals = signal.SIGINT) -> None:
        # Python does not hear a signal that comes on the last step before it waits for the system.
        wait_until(lambda: sleeps(process.pid), what="the process to wait for something")
        process.send_signal(number)

    yield press
    signal.signal(signal.SIGINT, before)


def sleeps(pid: int) -> bool:
    """True if the main thread of a process waits for something: proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One NameNode and three DataNodes, for all tests that only use files."""
    write_masters(master := tmp_path_factory.mktemp("master") / "key", 1)
    settings = {"namenode": {"master_key_file": str(master)}}
    with LocalCluster(datanodes=3, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def client(cluster: LocalCluster) -> Iterator[Client]:
    """A client of the shared cluster."""
    with Client(cluster.url) as client:
        yield client


@pytest.fixture
def fs(
    cluster: LocalCluster, paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> Paxosblock:
    """Run a verb of `paxosblock fs` on the shared cluster: `fs("ls", "/")`. What it says while it
    waits for that is left out: this depends on how busy the machine is."""

    def command(*arguments: str | os.PathLike[str]) -> Result:
        monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
        result = paxosblock("fs", *arguments)
        return replace(result, err=without_waiting(result.err))

    return command


@pytest.fixture
def folder(client: Client, request: pytest.FixtureRequest) -> str:
    """A new directory in the shared cluster, named after the test."""
    path = f"/{request.node.originalname}-{next(_numbers)}"
    client.mkdirs(path)
    return path
