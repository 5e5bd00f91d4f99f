"""Nodes and commands for tests, forked from one process that has imported all that they need.

They are processes of their own as ever: with a pid, a session and signals, and they can be killed.
Only the half second of a processor in which each would import the same modules is spent once for
all that a test process starts, and so is the interpreter's own end. The server has one thread, so
a fork copies nothing that is half done. It ends with the test process, and its nodes with it.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, AnyStr, Final, NoReturn

from paxosblock.host.process import Child, spawn
from paxosblock.host.startup import quick_imports
from tests.secure import secure_clients

READ_BY_NEW_PROGRAMS: Final = ("PYTHON", "LD_", "MALLOC_")
"""Beginnings of the names of variables that a process heeds only when it starts."""
REPOSITORY: Final = Path(__file__).parent.parent
DIE_WITH: Final = "--die-with"
SHOWN: Final = "a node of paxosblock"
"""The end of each fork's command line, as `ps` shows it, and by which a test knows a node."""
FORKED: Final = (
    "paxosblock",
    "tests.gateway.few_joined",
    "tests.raft.member_process",
    "tests.services.chaos.appenders",
    "tests.services.chaos.application",
    "tests.services.faulty_node",
    "tests.services.flooding",
    "tests.services.partitions",
    "tests.services.planted_namenode",
    "tests.services.rebooted_node",
    "tests.services.rogue_datanode",
)
"""Programs that run a node, perhaps with a fault, or a client. What such a program changes must be
what the node finds when it calls, not when it imports: that has happened."""
SCRIPT: Final = "-c"
IMPORTED: Final = (
    "paxosblock.cli.main",
    "paxosblock.cli.node_commands",
    "paxosblock.datanode.datanode_server",
    "paxosblock.gateway.gateway_server",
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
    """Run `python -m MODULE ARGUMENTS`, or `python -c SCRIPT ARGUMENTS`, as it would run for the
    one who asks. The descriptors that it gets follow."""

    module: str
    script: str
    arguments: list[str]
    descriptors: list[int]
    """The numbers of the descriptors."""
    folder: str
    environment: dict[str, str]
    interruptible: bool
    """Ctrl-C ends it. What runs in the background of a shell ignores that."""

    def run(self) -> None:
        """Be this program."""
        if self.module:
            sys.argv[1:] = self.arguments
            runpy.run_module(self.module, run_name="__main__", alter_sys=True)
            return
        sys.argv[:] = [SCRIPT, *self.arguments]
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(self.script, "<string>", "exec"), vars(main))


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
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        try:
            pid = self.fork(command, {1: out, 2: out}, os.getcwd(), os.environ)
        finally:
            os.close(out)
        return spawn(command, log) if pid is None else Child(pid, self.waitpid)

    def fork(
        self,
        command: Sequence[str],
        descriptors: Mapping[int, int],
        folder: str,
        environment: Mapping[str, str],
    ) -> int | None:
        """Run a command in a fork that has these descriptors of ours under these numbers. Return
        its pid; None if it cannot be forked."""
        match command:
            case [sys.executable, "-m", module, *arguments] if module in self._forked:
                script = ""
            case [sys.executable, "-c", script, *arguments]:
                module = ""
            case _:
                return None
        with self._lock:
            self._server = server = self._server or _Server()
            if not server.heeds_the_same(environment):
                return None
            if DIE_WITH in arguments:  # its parent is the server
                arguments[arguments.index(DIE_WITH) + 1] = str(server.pid)
            order = Order(
                module,
                script,
                arguments,
                [*descriptors],
                folder,
                dict(environment),
                signal.getsignal(signal.SIGINT) is not signal.SIG_IGN,
            )
            return server.fork(order, [*descriptors.values()])

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        """As `os.waitpid` would be of the parent."""
        assert self._server is not None
        with self._lock:
            return self._server.waitpid(Question(pid, options))

    def close(self) -> None:
        """End it, and with it the nodes that still run."""
        if self._server is not None:
            self._server.close()


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
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.pid = self._process.pid
        self._environment = dict(os.environ)

    def heeds_the_same(self, environment: Mapping[str, str]) -> bool:
        """True if a new program with these variables would start as the server has."""
        names = self._environment.keys() | environment.keys()
        heeded = [name for name in names if name.startswith(READ_BY_NEW_PROGRAMS)]
        return all(self._environment.get(name) == environment.get(name) for name in heeded)

    def fork(self, order: Order, descriptors: list[int]) -> int:
        self._connection.send(order)
        with _socket_of(self._connection) as line:
            socket.send_fds(line, [b"."], descriptors)
        pid: int = self._connection.recv()
        return pid

    def waitpid(self, question: Question) -> tuple[int, int]:
        self._connection.send(question)
        found: tuple[int, int] = self._connection.recv()
        return found

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


def _socket_of(connection: Connection) -> socket.socket:
    return socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM)


def serve(connection: Connection) -> Order | None:
    """Fork and wait as the test process says; return None when it has ended, and in a fork, which
    has its descriptors, the order."""
    while True:
        try:
            asked: Order | Question = connection.recv()
        except EOFError:
            return None
        if isinstance(asked, Question):
            connection.send(os.waitpid(asked.pid, asked.options))
            continue
        with _socket_of(connection) as line:
            _, descriptors, _, _ = socket.recv_fds(line, 1, len(asked.descriptors))
        if pid := os.fork():
            connection.send(pid)
        else:
            connection.close()
            for number, given in zip(asked.descriptors, descriptors, strict=True):
                os.dup2(given, number)
        for given in descriptors:
            os.close(given)
        if not pid:
            return asked


def become(order: Order) -> NoReturn:
    """Turn this fork into the program of an order."""
    os.setsid()
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    interrupted = signal.default_int_handler if order.interruptible else signal.SIG_IGN
    signal.signal(signal.SIGINT, interrupted)
    secure_clients()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests by nohup ignores it
    try:
        order.run()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        leave(end.code or 0)
    leave(0)


def leave(code: int) -> NoReturn:
    """End as a program does, but for what the interpreter would still do: to take apart all that
    was imported takes as long as the start that was saved."""
    threading._shutdown()  # type: ignore[attr-defined]  # as forks of `multiprocessing` end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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


SERVER: Final = ForkServer()
"""That of this test process."""


class Program(subprocess.Popen[AnyStr]):
    """A `subprocess.Popen` that is forked, if it is a program that can be.

    For what tests ask of a program that runs, not of how it starts or how its interpreter ends. Its
    session is its own.
    """

    _forked = False

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        """As of `Popen`, which passes by position what it was given, and its pipes."""
        folder, environment, pipes = more[4], more[5], more[9:15]
        ours = dict(enumerate((pipes[0], pipes[3], pipes[5])))
        pid = SERVER.fork(
            args,
            {number: number if given == -1 else given for number, given in ours.items()},
            os.getcwd() if folder is None else os.fspath(folder),
            os.environ if environment is None else environment,
        )
        if pid is None:
            super()._execute_child(args, *more)  # type: ignore[misc]  # no stub has it
            return
        self.pid, self._forked, self._child_created = pid, True, True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # no stub has it

    def _try_wait(self, options: int) -> tuple[int, int]:
        if not self._forked:
            ended: tuple[int, int] = super()._try_wait(options)  # type: ignore[misc]  # no stub has it
            return ended
        if not options & os.WNOHANG:  # the server, which would wait, has others to fork meanwhile
            end = os.pidfd_open(self.pid)
            select.select([end], [], [])
            os.close(end)
        return SERVER.waitpid(self.pid, os.WNOHANG)

    def _internal_poll(self, *more: Any, **named: Any) -> int | None:
        if not self._forked:
            found: int | None = super()._internal_poll(*more, **named)  # type: ignore[misc]  # no stub has it
            return found
        lock: Lock = self._waitpid_lock  # type: ignore[attr-defined]  # no stub has it
        if self.returncode is None and lock.acquire(blocking=False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]  # no stub has it
            finally:
                lock.release()
        code: int | None = self.returncode
        return code


def ended(
    command: Sequence[str | os.PathLike[str]], **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` that captures text, in a `Program` of a minute at most."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with Program[str](command, **options) as program:
        try:
            out, err = program.communicate(timeout=60)
        except BaseException:
            program.kill()
            raise
        return subprocess.CompletedProcess(command, program.returncode, out, err)
