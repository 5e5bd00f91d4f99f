"""A node that is forked differs from one that is started only by the time that it takes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock.host.process import Child, identify, spawn
from tests.children import killed_at_the_end
from tests.fork_server import REPOSITORY, ForkServer
from tests.waiting import wait_until

SAYS = """
import json, os, sys
from paxosblock.base.jitter import JITTER
who = [os.getpid(), os.getppid(), os.getsid(0), JITTER.random()]
print(json.dumps([__name__, sys.argv[1:], os.getcwd(), os.environ.get("SAID"), *who]))
sys.exit(int(sys.argv[1]))
"""
DIES = """
import os, signal, sys
from paxosblock.host.process import die_with
die_with(int(sys.argv[2]))
print(os.getpid(), flush=True)
signal.pause()
"""
PARENT = """
import os, signal, sys
from pathlib import Path
from tests.fork_server import ForkServer
os.chdir(sys.argv[1])
server = ForkServer(["dies"])
server.spawn([sys.executable, "-m", "dies", "--die-with", str(os.getpid())], Path("log"))
signal.pause()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(["says", "dies"])
    yield server
    server.close()


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m says` and `python -m dies`, in the folder that is the current one."""
    (tmp_path / "says.py").write_text(SAYS)
    (tmp_path / "dies.py").write_text(DIES)
    monkeypatch.chdir(tmp_path)


def said(log: Path) -> list[object]:
    found: list[object] = json.loads(log.read_text())
    return found


def run(server: ForkServer, log: Path, code: int = 0) -> tuple[Child, list[object]]:
    child = server.spawn([sys.executable, "-m", "says", str(code), "more"], log)
    assert child.exit_code(wait=True) == code
    return child, said(log)


def test_its_log_is_as_private_as_that_of_one_that_is_started(
    server: ForkServer, tmp_path: Path
) -> None:
    """Whatever the user lets others read: a node's log names files."""
    before = os.umask(0)
    try:
        for number, begin in enumerate((server.spawn, spawn)):
            log = tmp_path / f"log-{number}"
            child = begin([sys.executable, "-m", "says", "0"], log)
            assert child.exit_code(wait=True) == 0
            assert stat.S_IMODE(log.stat().st_mode) == 0o640
    finally:
        os.umask(before)


def test_it_is_a_process_of_its_own_with_what_its_starter_has(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAID", "now")
    child, (name, arguments, folder, variable, pid, parent, session, _) = run(
        server, tmp_path / "log", code=7
    )
    assert (name, arguments, variable) == ("__main__", ["7", "more"], "now")
    assert folder == str(tmp_path)
    assert pid == session == child.pid
    assert parent != os.getpid()


def test_two_do_not_draw_the_same_at_random(server: ForkServer, tmp_path: Path) -> None:
    draws = {run(server, tmp_path / str(number))[1][-1] for number in range(3)}
    assert len(draws) == 3


def test_one_whose_variables_only_a_new_program_heeds_is_started(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(server, tmp_path / "log")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    _, told = run(server, tmp_path / "other")
    assert told[5] == os.getpid(), "it is a child of this process"


def test_it_is_killed_and_says_so(server: ForkServer, tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = server.spawn([sys.executable, "-m", "dies", "--die-with", str(os.getpid())], log)
    wait_until(lambda: log.exists() and log.read_text(), what="it to be up")
    assert child.exit_code() is None
    os.kill(child.pid, signal.SIGKILL)
    assert child.exit_code(wait=True) == -signal.SIGKILL


def test_it_does_not_outlive_the_process_that_asked_for_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with killed_at_the_end(subprocess.Popen(command, cwd=REPOSITORY)) as parent:
        wait_until(lambda: log.exists() and log.read_text(), what="the node to be up")
        node = identify(int(log.read_text()))
        assert node is not None
        parent.kill()
        assert node.wait(10)
