"""A gateway as a process of its own, and requests to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from paxosblock import Client, LocalCluster
from paxosblock.host.process import Child
from paxosblock.host.user import current_user
from paxosblock.local.node_process import Node
from tests.waiting import wait_until

S3: tuple[str, ...] = ("--s3-listen", "127.0.0.1:0")
"""The options of a gateway that answers programs of S3."""
TIMEOUT_S = 60.0
"""Seconds after which a request of a test fails."""


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def exception(self) -> str:
        """The simple name of the class of a refusal."""
        return str(self.json["RemoteException"]["exception"])

    @property
    def message(self) -> str:
        return str(self.json["RemoteException"]["message"])


class RunningGateway:
    """A gateway that serves, and its process."""

    def __init__(self, child: Child, folder: Path) -> None:
        self._child = child
        self._folder = folder
        self.address = ""
        self.tls: ssl.SSLContext | None = None
        """Those whom a program believes, where it speaks TLS."""

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()

    def wait_ready(self) -> None:
        """Wait until it listens."""
        file = self._folder / "address"

        def listens() -> bool:
            assert self._child.exit_code() is None, self.log
            return file.exists()

        wait_until(listens, what="a gateway")
        self.address = file.read_text().strip()

    @property
    def s3_url(self) -> str:
        """Return where it answers programs of S3, if it does."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://{(self._folder / 's3-address').read_text().strip()}"

    def kill(self) -> None:
        """End it as a crash does."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        return self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> int:
        if (code := self._child.exit_code()) is not None:
            return code
        os.kill(self._child.pid, number)
        code = self._child.exit_code(wait=True)
        assert code is not None
        return code

    # -- requests ---------------------------------------------------------------------------------

    def url(self, path: str, op: str, *, user: str = "", **parameters: Any) -> str:
        """Return the target of a request, as this user unless another is named."""
        parameters = {"op": op, "user.name": user or current_user()} | parameters
        return f"/webhdfs/v1{quote(path)}?{urlencode(parameters)}"

    def ask(
        self,
        method: str,
        path: str,
        op: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        *,
        user: str = "",
        **parameters: Any,
    ) -> Reply:
        """Ask for an operation of WebHDFS."""
        return self.send(method, self.url(path, op, user=user, **parameters), body, headers)

    def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Reply:
        """Send a request on a connection of its own."""
        host, port = self.address.split(":")
        if self.tls is None:
            connection = HTTPConnection(host, int(port), timeout=TIMEOUT_S)
        else:
            connection = HTTPSConnection(host, int(port), timeout=TIMEOUT_S, context=self.tls)
        try:
            connection.request(method, target, body, headers or {})
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def write(
        self, path: str, content: bytes, op: str = "CREATE", *, user: str = "", **more: Any
    ) -> Reply:
        """Send bytes in two steps, as Hadoop's client does."""
        method = "PUT" if op == "CREATE" else "POST"
        first = self.ask(method, path, op, user=user, **more)
        if first.status != 307:
            return first
        location = urlsplit(first.headers["Location"])
        assert location.netloc == self.address
        assert location.scheme == ("http" if self.tls is None else "https")
        return self.send(method, f"{location.path}?{location.query}", content)

    def read(self, path: str, *, user: str = "", **parameters: Any) -> bytes:
        """Return bytes of a file."""
        reply = self.ask("GET", path, "OPEN", user=user, **parameters)
        assert reply.status == 200, reply
        return reply.body

    def connect(self) -> socket.socket:
        """Return a socket to it, for bytes that are no request."""
        host, port = self.address.split(":")
        return socket.create_connection((host, int(port)), TIMEOUT_S)

    def connect_s3(self) -> socket.socket:
        """Return a socket to its door of S3."""
        host, port = urlsplit(self.s3_url).netloc.split(":")
        return socket.create_connection((host, int(port)), TIMEOUT_S)

    def raw(self, sent: bytes) -> bytes:
        """Send bytes, and return all that comes until it closes the connection."""
        return all_of(self.connect(), sent)


def all_of(connection: socket.socket, sent: bytes) -> bytes:
    """Send bytes, and return all that comes until the connection is closed."""
    with connection:
        connection.sendall(sent)
        with connection.makefile("rb") as file:
            return file.read()


@contextmanager
def gateway_of(
    cluster: LocalCluster,
    folder: Path,
    *options: str,
    namenodes: str = "",
    program: str = "paxosblock",
    **environment: str,
) -> Iterator[RunningGateway]:
    """Run a gateway of a cluster, with further options and variables of its environment, which
    calls the NameNodes at other addresses if `namenodes` names them; `program` is the module."""
    command = [sys.executable, "-m", program, "gateway", "--listen", "127.0.0.1:0"]
    called = namenodes or ",".join(cluster.addresses)
    command += ["--path", str(folder), "--namenodes", called, *options]
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        child = Node.spawn([*command, "--die-with", str(os.getpid())], folder / "log")
    finally:
        os.environ.clear()
        os.environ.update(before)
    running = RunningGateway(child, folder)
    try:
        running.wait_ready()
        yield running
    finally:
        running.stop()


@contextmanager
def quiet_gateway_of(
    cluster: LocalCluster, folder: Path, *options: str
) -> Iterator[RunningGateway]:
    """Run one for all tests of a file, whose log tells of no defect at the end."""
    with gateway_of(cluster, folder, *options) as gateway:
        yield gateway
        log = gateway.log
    assert "Traceback" not in log, log


def content(fs: Client, path: str) -> bytes:
    """Return the bytes of a file."""
    with fs.open(path) as file:
        return file.read()


def put(fs: Client, path: str, data: bytes) -> None:
    """Make a file."""
    with fs.create(path) as file:
        file.write(data)
