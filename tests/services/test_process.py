"""Processes are recognised by more than their number, and nodes of a test die with it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from paxosblock.errors import StorageError
from paxosblock.host.process import Child, ProcessId, identify, spawn
from tests.children import killed_at_the_end
from tests.waiting import wait_until

SLEEPER = (sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()")
WITHOUT_ITS_FIRST_THREAD = """
import ctypes, threading, time
def go_on():
    with open("/proc/self/stat") as stat:
        while stat.read().rpartition(") ")[2][0] != "Z":
            stat.seek(0)
    print("up", flush=True)
    threading.Event().wait()
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""
DYING_SLEEPER = """
import os, signal, sys
from paxosblock.host.process import die_with
die_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
signal.pause()
"""
PARENT = """
import os, signal, sys
from pathlib import Path
from paxosblock.host.process import spawn
spawn([sys.executable, "-c", sys.argv[1], str(os.getpid())], Path(sys.argv[2]))
signal.pause()
"""


def running(*command: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return killed_at_the_end(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    with running(*SLEEPER) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = identify(process.pid)
        assert found is not None
        yield found


def test_a_running_process_is_recognised(sleeper: ProcessId) -> None:
    assert sleeper.alive
    assert identify(sleeper.pid) == sleeper


def test_the_same_number_with_another_start_is_another_process(sleeper: ProcessId) -> None:
    for other in (replace(sleeper, started=sleeper.started + 1), replace(sleeper, boot="another")):
        assert not other.alive
        assert not other.send(signal.SIGKILL)
        assert other.wait(0)
    assert sleeper.alive


def test_a_process_that_only_waits_to_be_reaped_has_ended(sleeper: ProcessId) -> None:
    assert sleeper.send(signal.SIGKILL)
    assert sleeper.wait(10)
    assert Path(f"/proc/{sleeper.pid}/stat").exists()
    assert not sleeper.alive
    assert not sleeper.send(signal.SIGTERM)


def test_a_process_has_not_ended_while_one_of_its_threads_holds_its_files() -> None:
    with running(sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        found = identify(process.pid)
        assert found is not None
        assert not found.wait(0)


def test_waiting_for_a_process_that_goes_on_ends_in_time(sleeper: ProcessId) -> None:
    assert not sleeper.wait(0.05)


def test_a_number_that_nobody_has_is_no_process() -> None:
    nobody = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert identify(nobody) is None
    assert not ProcessId(nobody, 1, "").send(signal.SIGKILL)
    assert ProcessId(nobody, 1, "").wait(0)


def test_a_command_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"^cannot start /no/such/command: .*No such file"):
        spawn(["/no/such/command"], tmp_path / "log")


def test_what_a_child_says_may_be_read_by_its_owner_and_his_group_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = os.umask(0o022)
    try:
        assert spawn([sys.executable, "-c", "print('up')"], log).exit_code(wait=True) == 0
    finally:
        os.umask(before)
    assert log.read_text() == "up\n"
    assert stat.S_IMODE(log.stat().st_mode) == 0o640


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children: list[Child] = []
    log = tmp_path / "log"
    command = [sys.executable, "-c", DYING_SLEEPER, str(os.getpid())]
    thread = threading.Thread(target=lambda: children.append(spawn(command, log)))
    thread.start()
    thread.join()
    (child,) = children
    try:
        wait_until(log.read_text, what="the child to be up")
        assert child.exit_code() is None
    finally:
        os.kill(child.pid, signal.SIGKILL)
    assert child.exit_code(wait=True) == -signal.SIGKILL
    assert child.exit_code() == -signal.SIGKILL


@pytest.mark.parametrize("paused", [False, True])
def test_a_child_dies_when_its_parent_is_killed(tmp_path: Path, paused: bool) -> None:
    log = tmp_path / "log"
    with running(sys.executable, "-c", PARENT, DYING_SLEEPER, str(log)) as parent:
        wait_until(lambda: log.exists() and log.read_text(), what="the child to be up")
        child = identify(int(log.read_text()))
        assert child is not None
        if paused:
            child.send(signal.SIGSTOP)
        parent.kill()
        assert child.wait(10)


def test_a_child_whose_parent_ended_before_it_asked_ends_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DYING_SLEEPER, "1"]
    assert spawn(command, tmp_path / "log").exit_code(wait=True) == 1
    assert (tmp_path / "log").read_text() == ""
