"""Nodes for tests, forked from one process that has imported all that a node needs.

They are processes of their own as ever: with a pid, a session and signals, and they can be killed.
Only the half second of a processor in which each would import the same modules is spent once for
all nodes that a test process starts. The server has one thread, so a fork copies nothing that is
half done. It ends with the test process, and its nodes with it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Final

from paxosblock.host.process import Child, spawn
from paxosblock.host.startup import quick_imports

READ_BY_NEW_PROGRAMS: Final = ("PYTHON", "LD_", "MALLOC_")
"""Beginnings of the names of variables that a process heeds only when it starts."""
REPOSITORY: Final = Path(__file__).parent.parent
DIE_WITH: Final = "--die-with"
SHOWN: Final = "a node of paxosblock"
"""The end of each fork's command line, as `ps` shows it, and by which a test knows a node."""
FORKED: Final = (
    "paxosblock",
    "tests.services.faulty_node",
    "tests.services.partitions",
    "tests.services.planted_namenode",
    "tests.services.rebooted_node",
    "tests.services.rogue_datanode",
)
"""Programs that run a node, perhaps with a fault. What such a program changes must be what the node
finds when it calls, not when it imports: that has happened."""
IMPORTED: Final = (
    "paxosblock.cli.main",
    "paxosblock.cli.node_commands",
    "paxosblock.datanode.datanode_server",
    "paxosblock.host.kernel_syncs",
    "paxosblock.host.loop",
    "paxosblock.namenode.raft.birth",
    "paxosblock.namenode.raft.http_transport",
    "paxosblock.namenode.raft.report",
    "paxosblock.namenode.raft.seed",
    "paxosblock.namenode.namenode_server",
)


@dataclass(frozen=True, slots=True)
class Order:
    """Run `python -m MODULE ARGUMENTS` as it would run for the one who asks."""

    module: str
    arguments: list[str]
    log: str
    folder: str
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of an `os.waitpid`."""

    pid: int
    options: int


class ForkServer:
    """The server as its test process sees it, from any of its threads. It starts when needed."""

    def __init__(self, forked: Collection[str] = FORKED) -> None:
        """`forked` are the modules that need not be started."""
        self._forked = forked
        self._lock = Lock()
        self._server: _Server | None = None

    def spawn(self, command: Sequence[str], log: Path) -> Child:
        """As `process.spawn`, to which what cannot be forked is left."""
        match command:
            case [sys.executable, "-m", module, *arguments] if module in self._forked:
                with self._lock:
                    self._server = server = self._server or _Server()
                    if not server.heeds_the_same():
                        return spawn(command, log)
                    if DIE_WITH in arguments:  # its parent is the server
                        arguments[arguments.index(DIE_WITH) + 1] = str(server.pid)
                    order = Order(module, arguments, str(log), os.getcwd(), dict(os.environ))
                    return Child(server.fork(order), self._waitpid)
            case _:
                return spawn(command, log)

    def close(self) -> None:
        """End it, and with it the nodes that still run."""
        if self._server is not None:
            self._server.close()

    def _waitpid(self, pid: int, options: int) -> tuple[int, int]:
        assert self._server is not None
        with self._lock:
            return self._server.waitpid(Question(pid, options))


class _Server:
    """One that runs."""

    def __init__(self) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        program = f"from {__name__} import run; run({theirs.fileno()})"
        command = [sys.executable, "-c", program, SHOWN]
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.pid = self._process.pid
        self._environment = dict(os.environ)

    def heeds_the_same(self) -> bool:
        """True if a new program would start as the server has."""
        names = self._environment.keys() | os.environ.keys()
        heeded = [name for name in names if name.startswith(READ_BY_NEW_PROGRAMS)]
        return all(self._environment.get(name) == os.environ.get(name) for name in heeded)

    def fork(self, order: Order) -> int:
        self._connection.send(order)
        pid: int = self._connection.recv()
        return pid

    def waitpid(self, question: Question) -> tuple[int, int]:
        self._connection.send(question)
        found: tuple[int, int] = self._connection.recv()
        return found

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


def serve(connection: Connection) -> Order | None:
    """Fork and wait as the test process says; return None when it has ended, and in a node its
    order."""
    while True:
        try:
            asked: Order | Question = connection.recv()
        except EOFError:
            return None
        if isinstance(asked, Question):
            connection.send(os.waitpid(asked.pid, asked.options))
        elif (pid := os.fork()) == 0:
            connection.close()
            return asked
        else:
            connection.send(pid)


def become(order: Order) -> None:
    """Turn this fork into the program of an order."""
    os.setsid()
    os.chdir(order.folder)
    log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(order.environment)
    sys.argv[1:] = order.arguments
    runpy.run_module(order.module, run_name="__main__", alter_sys=True)


def import_nodes() -> None:
    """Import all that a node would, and leave it out of each one's collections of garbage."""
    with quick_imports():
        for name in IMPORTED:
            import_module(name)
    gc.freeze()


def run(descriptor: int) -> None:
    """Be the server, and in each fork its node."""
    import_nodes()
    if (order := serve(Connection(descriptor))) is not None:
        become(order)
