"""One invocation of the command: the cluster's address, the form of output, the failures."""

from __future__ import annotations

import errno
import os
import posixpath
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Timer
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from paxosblock.api.methods import Method
from paxosblock.base.modes import OF_DIRECTORIES, UMASK
from paxosblock.base.units import format_duration, parse_duration
from paxosblock.base.wording import visible
from paxosblock.client.names.url import (
    DEFAULT_PORT,
    NAMENODES_VARIABLE,
    SCHEME,
    cluster_addresses,
    parse_url,
)
from paxosblock.errors import Outcome, PaxosBlockError, QuotaExceededError
from paxosblock.host.user import claimed_user

if TYPE_CHECKING:
    from paxosblock.api.namenode import BlockView, MakeDirectories
    from paxosblock.client import Client
    from paxosblock.net.calls.control import BlockingNameNodes
    from paxosblock.net.port.access import Access

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")

_TRASH_VARIABLE: Final = "PAXOSBLOCK_CLIENT_TRASH_INTERVAL"
_UMASK_VARIABLE: Final = "PAXOSBLOCK_CLIENT_UMASK"
RETRY_FOR_VARIABLE: Final = "PAXOSBLOCK_CLIENT_RETRY_FOR"
DEFAULT_NAMENODES = f"127.0.0.1:{DEFAULT_PORT}"
DEFAULT_TIMEOUT_S: Final = 10.0
SILENT_FOR_S: Final = 2.0
"""Seconds after which a command that waits says what it waits for."""
IN_VAIN_S: Final = 0.5
"""Seconds for which a command that waited in vain once tries each later call: it may work."""

_PYTHON_AND_HERE: Final = (
    ("take_over ends that", "'paxosblock fs recover-lease' ends that"),
    ("overwrite=True replaces it", "replace it with -f"),
)
"""Words of errors for programs in Python, and the same for this command."""


class UserError(PaxosBlockError):
    """A request of the user that makes no sense; `path` is the argument that is wrong."""

    outcome = Outcome.NEVER

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"'{path}': {reason}", path=path)


@dataclass
class Invocation:
    """The options of this command line, the cluster it talks to, and what went wrong so far."""

    namenodes: str | None = None
    timeout: float | None = None
    json: bool = False
    debug: bool = False
    verb: str = ""
    failures: int = 0
    at: str = ""
    """A time in the past: the verb reads what was there then. "": what is there now."""
    _by_url: bool = False
    _settled: bool = False
    """True once a path was taken or the NameNodes were chosen: a URL after that changes nothing."""
    _said_waiting: bool = False
    _in_vain: bool = False
    _open: ExitStack = field(default_factory=ExitStack)
    serves: bool = False
    """True if this process is a node: its log must show the origin of an unexpected error."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """host:port of the NameNodes: the flag, else the environment, else the default."""
        chosen = self.namenodes or os.environ.get(NAMENODES_VARIABLE) or DEFAULT_NAMENODES
        return cluster_addresses(chosen)

    @property
    def timeout_s(self) -> float:
        """Return the seconds to wait without progress: the flag, else the client's setting in the
        environment, else ten seconds. 0: nothing is asked twice."""
        if self.timeout is not None:
            return self.timeout
        written = os.environ.get(RETRY_FOR_VARIABLE)
        return parse_duration(written) if written else DEFAULT_TIMEOUT_S

    def path(self, written: str) -> str:
        """Return the absolute path in what a user wrote, plain or a URL (which names the cluster);
        a relative one begins at the user's home.

        A command works in one cluster, so that no path is taken for one of another: the first path
        settles it, and so does the first question or byte that goes to a cluster.

        Raises:
            UserError: there is nothing in it.
            ConfigError: a URL that is none.
            InvalidRequestError: it is in another cluster than --namenodes or a path before said.
        """
        path = written
        if written.startswith(SCHEME):
            url = parse_url(written)
            self._enter(written, url.namenodes)
            path = url.path
        elif self._by_url and (usual := os.environ.get(NAMENODES_VARIABLE)):
            self._check_own(written, cluster_addresses(usual))
        self._settled = True
        if not path:
            raise UserError(written, "an empty path")
        if not path.startswith("/"):
            path = posixpath.normpath(posixpath.join(self.home, path))
        return path.rstrip("/") or "/"

    @property
    def home(self) -> str:
        """Return the directory in which relative paths begin."""
        return f"/user/{self.access.user or claimed_user()}"

    def _enter(self, url: str, namenodes: tuple[str, ...]) -> None:
        """Work in the cluster that `url` names, unless another one was settled before."""
        if self.namenodes or self._settled:
            self._check_own(url, namenodes)
        else:
            self.namenodes, self._by_url = ",".join(namenodes), True

    def _check_own(self, source: str, namenodes: tuple[str, ...]) -> None:
        from paxosblock.client.names.own_hosts import OwnHosts

        OwnHosts(self.addresses).check(source, namenodes)

    def blocks(self, path: str) -> Iterator[BlockView]:
        """Yield the blocks of a file, a page at a time.

        Raises:
            NotFoundError, IsDirectoryError: there is no file at `path`, or no more.
        """
        from paxosblock.api.file_pages import GET_FILE, GetFile

        view = self.call(GET_FILE, GetFile(path, only_shows=True))
        yield from view.blocks
        while view.next_place is not None:
            request = GetFile(path, view.next_place, file_id=view.status.file_id, only_shows=True)
            view = self.call(GET_FILE, request)
            yield from view.blocks

    def call(self, method: Method[Q, A], request: Q) -> A:
        """Ask the NameNodes, without importing the whole client."""
        with self._said_when_slow():
            return self._namenodes.call(method, request)

    def call_once(self, method: Method[Q, A], request: Q) -> A:
        """Ask for a change that is made once, however often it is sent: one with a `once`."""
        unnamed: Any = request
        with self._said_when_slow():
            return self._namenodes.call_once(
                method, lambda once: msgspec.structs.replace(unnamed, once=once)
            )

    @contextmanager
    def _said_when_slow(self) -> Iterator[None]:
        timer = Timer(SILENT_FOR_S, self.tell_waiting, (SILENT_FOR_S,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def tell_waiting(self, waited_s: float) -> None:
        """Say on standard error, once, what the command waits for, if that has taken two seconds
        already.
        """
        if waited_s >= SILENT_FOR_S and not self._said_waiting:
            self._said_waiting = True
            text = f"waiting for the cluster at {','.join(self.addresses)}"
            fact = {"verb": self.verb, "waiting": text, "timeout_s": self.timeout_s}
            line = f"{self.verb}: {text} (--timeout {format_duration(self.timeout_s)})"
            click.echo(msgspec.json.encode(fact) if self.json else line, err=True)

    def tell_missing(self, what: str) -> None:
        """Say on standard error what the command still waits for."""
        fact = {"verb": self.verb, "waiting": what}
        line = f"{self.verb}: waiting: {what}"
        click.echo(msgspec.json.encode(fact) if self.json else line, err=True)

    @cached_property
    def _namenodes(self) -> BlockingNameNodes:
        from paxosblock.net.calls.control import BlockingNameNodes

        self._settled = True
        retry_for_s = self.timeout_s
        timeout_s = retry_for_s or DEFAULT_TIMEOUT_S
        return BlockingNameNodes(self.addresses, timeout_s, retry_for_s, self.access)

    def check_environment(self) -> None:
        """Raise ConfigError for a variable of ours that does not exist."""
        usual = (NAMENODES_VARIABLE, RETRY_FOR_VARIABLE)
        if any(name.startswith("PAXOSBLOCK_") and name not in usual for name in os.environ):
            # Without the import of all settings otherwise: a command must start fast.
            from paxosblock.config import check_variables

            check_variables(os.environ)

    @cached_property
    def access(self) -> Access:
        """Return what this command and the cluster's nodes prove to each other."""
        from paxosblock.net.port.access import OPEN, Access

        proving = ("_ACCESS_FILE", "_CLIENT_USER", "_TLS_CERT", "_TLS_CA", "_TOKEN_FILE")
        if not any(name.endswith(proving) for name in os.environ):
            return OPEN  # without the import of all settings: a command must start fast
        from paxosblock.config import ClientConfig, load_config

        return Access.of_client(load_config(ClientConfig))

    def new_directory(self, path: str, *, parents: bool) -> MakeDirectories:
        """Return the request for a directory, with the umask that the environment sets."""
        from paxosblock.api.namenode import MakeDirectories, Unmasked

        umask = UMASK
        if _UMASK_VARIABLE in os.environ:
            from paxosblock.config import ClientConfig, load_config

            umask = load_config(ClientConfig).umask
        unmasked = Unmasked(OF_DIRECTORIES, umask)
        return MakeDirectories(path, parents, OF_DIRECTORIES & ~umask, unmasked=unmasked)

    @property
    def trash_interval_s(self) -> float:
        """Return for how long the trash keeps what is deleted, in seconds; 0: there is none."""
        if _TRASH_VARIABLE not in os.environ:
            return 0.0
        from paxosblock.config import ClientConfig, load_config

        return load_config(ClientConfig).trash_interval_s

    @property
    def client(self) -> Client:
        """Return a client of the cluster, for bytes, until `close`. It tries as long as the command
        does now. What it logs is shown with --debug only.
        """
        return self._client.within(self._patience_s())

    @cached_property
    def _client(self) -> Client:
        """It is made when it is first asked for: a verb has taken the paths by then, which may be
        URLs that name the cluster.
        """
        from paxosblock.client import Client
        from paxosblock.config import ClientConfig, load_config

        self._settled = True
        usual, retry_for_s = load_config(ClientConfig), self.timeout_s
        rpc_timeout_s = min(usual.rpc_timeout_s, retry_for_s or usual.rpc_timeout_s)
        config = replace(usual, retry_for_s=retry_for_s, rpc_timeout_s=rpc_timeout_s)
        self._open.enter_context(_logs_shown(self.debug))
        client = self._open.enter_context(Client(self.addresses, config))
        client.while_waiting(self.tell_waiting)
        return client

    def close(self) -> None:
        """Close the client, if bytes were asked for."""
        self._open.close()

    def failed(self, error: BaseException) -> None:
        """Note an error. If it used up the command's patience, later calls are tried just once: a
        command waits for the cluster once, not for each path.
        """
        if isinstance(error, PaxosBlockError) and error.retriable:
            self._in_vain = True
            self._namenodes.retry_for(self._patience_s())

    def _went_on(self) -> None:
        if self._in_vain:
            self._in_vain = False
            self._namenodes.retry_for(self._patience_s())

    def _patience_s(self) -> float:
        return min(IN_VAIN_S, self.timeout_s) if self._in_vain else self.timeout_s

    def say(self, text: str, fact: object = None) -> None:
        """Print a line for people; for machines print the fact behind it, if there is one."""
        if not self.json:
            # click removes bytes that look like colours from a pipe, unless it is told not to.
            click.echo(visible(text) if sys.stdout.isatty() else text, color=True)
        elif fact is not None:
            self.tell(fact)

    def tell(self, fact: object) -> None:
        """Print a line of JSON, with --json only."""
        if self.json:
            click.echo(msgspec.json.encode(fact))

    def warn(self, path: str, text: str) -> None:
        """Print a line on standard error about something that was done, though not as asked."""
        fact = {"verb": self.verb, "path": _printable(path), "warning": text}
        line = msgspec.json.encode(fact) if self.json else visible(f"{self.verb}: '{path}': {text}")
        click.echo(line, err=True)

    def for_each(self, items: Iterable[T], action: Callable[[T], None]) -> None:
        """Do it for every argument; report one that fails, and go on with the others."""
        for item in items:
            failures = self.failures
            try:
                action(item)
            except BrokenPipeError:
                raise
            except (PaxosBlockError, OSError) as error:
                self.failed(error)
                self.tell_failure(error, item if isinstance(item, str) else None)
            if self.failures == failures:
                self._went_on()

    def tell_failure(self, error: PaxosBlockError | OSError, path: str | None = None) -> None:
        """Print a line on standard error; the run ends with exit code 1."""
        self.failures += 1
        about = _printable(path_of(error) or path)
        named = f"'{about}'" if about and not isinstance(error, QuotaExceededError) else ""
        if self.debug:
            traceback.print_exception(error, file=sys.stderr)
        if self.json:
            fact: dict[str, object]
            fact = {"verb": self.verb, "path": about, "reason": reason_of(error, path)}
            fact |= {"error": type(error).__name__}
            if isinstance(error, PaxosBlockError):
                fact |= {"outcome": error.outcome.value, "retriable": error.retriable}
            click.echo(msgspec.json.encode(fact), err=True)
            return
        parts = [self.verb, named, reason_of(error, path)]
        click.echo(visible(": ".join(part for part in parts if part)), err=True)


def _printable(path: str | None) -> str | None:
    """Return a path as it can be printed: the name of a local file need not be Unicode text."""
    return None if path is None else path.encode(errors="backslashreplace").decode()


@contextmanager
def _logs_shown(wanted: bool) -> Iterator[None]:
    """Let the library log to standard error; even without a handler it would, from warnings on."""
    import logging

    logger = logging.getLogger("paxosblock")
    level = logger.level
    handler = logging.StreamHandler() if wanted else logging.NullHandler()
    if wanted:
        logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def path_of(error: PaxosBlockError | OSError) -> str | None:
    """Return the path that an error is about, if it says so."""
    named = error.details.get("path") if isinstance(error, PaxosBlockError) else error.filename
    return None if named is None else str(named)


def reason_of(error: PaxosBlockError | OSError, path: str | None = None) -> str:
    """Return the reason in one line, without the quoted path with which errors about one begin:
    the one that the error names, or else `path`."""
    if not isinstance(error, PaxosBlockError):
        if error.errno == errno.EBADF:
            return "standard input or output is closed"  # `>&-`; the files that we open are open
        return (error.strerror or str(error)).lower()
    about, text = path_of(error) or path or "", str(error)
    for written in (about, about.encode("unicode_escape").decode()):  # as a NameNode quotes it
        text = text.removeprefix(f"'{written}': ")
    for python, here in _PYTHON_AND_HERE:
        text = text.replace(python, here)
    return " ".join(text.split())
