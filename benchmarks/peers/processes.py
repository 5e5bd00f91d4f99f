"""Servers and loads of peers, as processes of their own that end with the benchmark."""

from __future__ import annotations

import abc
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Self

from paxosblock.errors import UnavailableError
from paxosblock.host.process import Child, ProcessId, identify, spawn
from paxosblock.local.cluster_folder import last_words
from paxosblock.local.node_process import wait_until

START_TIMEOUT_S: Final = 120.0
ANSWER_TIMEOUT_S: Final = 300.0
"""For one command of a load; the longest waits for HDFS to give up a DataNode that hangs."""
_END_TIMEOUT_S: Final = 10.0

Answer = dict[str, Any]


class Server:
    """One server process of a peer, which may be ended in any way that a machine can."""

    def __init__(self, name: str, folder: Path, command: Sequence[str]) -> None:
        """`folder` is made; the process runs in it and its output goes to a file there."""
        self.name = name
        self._folder = folder
        self._command = command
        self._child: Child | None = None
        self._process: ProcessId | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """Its number; it must run."""
        assert self._process is not None, f"{self.name} was started"
        return self._process.pid

    @property
    def log(self) -> Path:
        """Return the file of its output."""
        return self._folder / "output"

    def start(self) -> None:
        """Start the process; raises StorageError when it cannot be run."""
        guard = [sys.executable, "-m", "benchmarks.peers.guard"]
        self._child = spawn(
            [*guard, str(os.getpid()), os.fspath(self._folder), *self._command], self.log
        )
        self._process = identify(self._child.pid)

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready`; raises UnavailableError: it ended, DeadlineError: it was too late."""

        def answers() -> bool:
            if self._process is None or not self._process.alive:
                raise UnavailableError(f"{self.name} did not start: {self._reason()}")
            return ready()

        wait_until(answers, START_TIMEOUT_S, f"{self.name} is not ready, see {self.log}")

    def _reason(self) -> str:
        """Return the last line of its output that is none of a trace of calls."""
        lines = last_words(self.log).splitlines()
        plain = [line for line in lines if line.strip() and not line.startswith(("\t", " "))]
        return plain[-1] if plain else "it said nothing"

    def wait_listening(self, port: int) -> None:
        """Wait until something listens at the port; raises as `wait_ready`."""
        self.wait_ready(lambda: listening(port))

    def kill(self) -> None:
        """SIGKILL; returns when it has ended. Without effect on one that does not run."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_END_TIMEOUT_S)
            self._process = None
        if self._child is not None:
            self._child.exit_code(wait=True)
            self._child = None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, when it runs."""
        if self._process is not None:
            self._process.send(number)


class Load:
    """The process that makes the load on a peer, one command after the other."""

    def __init__(self, name: str, folder: Path, command: Sequence[str]) -> None:
        self.name = name
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "output"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(command),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Wait until it takes commands; raises as `ask`."""
        self._answer("start", START_TIMEOUT_S)

    def ask(self, command: str, **options: object) -> Answer:
        """Return what the load measured.

        Raises:
            UnavailableError: it failed, and how; or it ended, or said nothing in time.
        """
        words = [command, *(f"{name}={value}" for name, value in options.items())]
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # then there is no answer, either
            self._process.stdin.write(" ".join(words).encode() + b"\n")
            self._process.stdin.flush()
        return self._answer(" ".join(words), ANSWER_TIMEOUT_S)

    def _answer(self, command: str, timeout_s: float) -> Answer:
        assert self._process.stdout is not None
        watch = threading.Timer(timeout_s, self._process.kill)
        watch.start()
        line = self._process.stdout.readline()
        watch.cancel()
        if not line:
            raise UnavailableError(f"the load on {self.name} ended at '{command}', see {self._log}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise UnavailableError(f"{self.name}: '{command}': {answer['error']}")
        return answer

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class Peer(abc.ABC):
    """A cluster of a peer: its servers, and the load on it. A context manager, which ends all
    of them. Making one raises SkipError when it cannot be had here."""

    name: str
    version: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: list[Server] = []
        self.load: Load | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abc.abstractmethod
    def start(self) -> None:
        """Start all of it, and return when it serves."""

    def launch(self, name: str, command: Sequence[str]) -> Server:
        """Start a server in a folder of its name. It runs until this cluster is closed."""
        server = Server(name, self.folder / name, command)
        self.servers.append(server)
        server.start()
        return server

    def launch_load(self, command: Sequence[str]) -> None:
        """Start the load, and wait until it is connected."""
        self.load = Load(self.name, self.folder / "client", command)
        self.load.wait_ready()

    def close(self) -> None:
        """Kill the load and all servers."""
        if self.load is not None:
            self.load.close()
        for server in self.servers:
            server.kill()

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a record says about this side."""
        return {"side": f"{self.name} {self.version}"}

    def ask(self, command: str, **options: object) -> Answer:
        """See `Load.ask`."""
        assert self.load is not None, f"{self.name} was started"
        return self.load.ask(command, **options)

    def named(self, name: str) -> Server:
        """Return the server of this name."""
        return next(server for server in self.servers if server.name == name)

    def pids(self) -> dict[str, list[int]]:
        """Return the processes whose time counts, by role."""
        assert self.load is not None, f"{self.name} was started"
        roles: dict[str, list[int]] = {}
        for server in self.servers:
            roles.setdefault(server.name.rpartition("-")[0], []).append(server.pid)
        many = {f"{role}s" if len(pids) > 1 else role: pids for role, pids in roles.items()}
        return {**many, "client": [self.load.pid]}


def listening(port: int) -> bool:
    """True if something accepts connections at this port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nothing listens at: all of them differ."""
    with contextlib.ExitStack() as held:
        return [_hold(held) for _ in range(count)]


def _hold(held: contextlib.ExitStack) -> int:
    holder = held.enter_context(socket.socket())
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return port
