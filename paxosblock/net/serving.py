"""Opens and closes a node's port, and publishes its address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from aiohttp import web

from paxosblock.errors import ConfigError, PaxosBlockError, StorageError
from paxosblock.host.whole_file import replace_file
from paxosblock.net.calls.call_server import SHUTDOWN_S, RpcRouter, add_calls, add_http_calls
from paxosblock.net.port.accepting import Listener, open_sockets, sockets_at
from paxosblock.net.port.access_server import http_demand
from paxosblock.net.port.admission import Slot
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.http_server import HeadWatch, HttpConnection
from paxosblock.net.port.own_names import OWN_NAMES

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

DISK_FAILED: Final = 74
"""Exit code of a node whose disk failed, at its start or later: `EX_IOERR` of sysexits(3)."""
ADDRESS_FILE: Final = "address"


@dataclass(frozen=True, slots=True)
class ServingNode:
    """A node that serves at `address` (host:port); `failure` waits until it no longer can, and
    returns the reason: a StorageError if its disks failed.
    """

    address: str
    failure: Callable[[], Awaitable[PaxosBlockError]]
    busy: Callable[[], str] = lambda: ""
    """Names the disks that work for it at this moment; any thread may call it."""


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set; they no longer end the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def until_stopped(stop: asyncio.Event, node: ServingNode, role: str) -> None:
    """Return when `stop` is set. If the disks of `node` fail before that, end this process.

    Only a new process, which reads what is really on the disk, may go on after a failed sync: the
    system drops bytes that it could not write, and a second sync succeeds without them (fsyncgate,
    2018).

    Raises:
        ConfigError: the node cannot go on for another reason than its disks.
    """
    stopped = asyncio.ensure_future(stop.wait())
    failed = asyncio.ensure_future(node.failure())
    try:
        await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            if isinstance(failure := failed.result(), StorageError):
                _end(role, failure)
            raise failure
    finally:
        stopped.cancel()
        failed.cancel()


def end_within(seconds: float, role: str, node: ServingNode) -> None:
    """End this process after so many `seconds` if it has not ended by itself: its threads cannot
    end while a disk hangs."""

    def end() -> None:
        busy = node.busy() or "a thread"
        _end(role, StorageError(f"{busy}: it hangs: ended without it after {seconds:g} s"))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _end(role: str, failure: StorageError) -> NoReturn:
    """End like a crash, which every file of a node survives: a thread may hang in the disk."""
    logging.shutdown()
    sys.stderr.write(f"{role}: {failure}\n")
    sys.stderr.flush()
    os._exit(DISK_FAILED)


async def listen(
    stack: contextlib.AsyncExitStack,
    app: web.Application,
    router: RpcRouter,
    address: str,
    guard: Guard | None = None,
) -> str:
    """Serve `app` with the control calls of `router` at `address` until `stack` closes.

    Args:
        address: host:port; port 0 lets the system choose.
        guard: the bounds on connections; None: the default ones.

    Returns:
        The address that it really has.

    Raises:
        ConfigError: this is no address, or it is taken.
    """
    guard = guard or Guard()
    app.middlewares.append(http_demand(guard.access, guard.refusals))
    app[OWN_NAMES] = guard.names
    add_calls(app, router, guard.request_bodies, guard.access)
    add_http_calls(app, router, guard.request_bodies, guard.access)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    stall_s = guard.request_bodies.limits.stall_s

    def connect(server: web.Server, heads: HeadWatch, slot: Slot) -> HttpConnection:
        return HttpConnection(server, heads, slot, stall_s)

    return await open_port(stack, runner, address, guard, connect, tls=guard.access.tls)


@dataclass(frozen=True, slots=True)
class Port:
    """A port at which this process listens, maybe together with others: its host:port, and the
    sockets."""

    address: str
    sockets: tuple[socket.socket, ...]


def bind_port(address: str) -> Port:
    """Listen at `address` (host:port; port 0 lets the system choose) before there is an event loop,
    so that processes which are forked later share it.

    Raises:
        ConfigError: this is no address, or it is taken.
    """
    host, port = _host_and_port(address)
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    try:
        sockets = sockets_at(socket.getaddrinfo(_place(host), port, type=kind, flags=flags))
    except OSError as error:
        raise _not_there(address, error) from error
    return Port(f"{host}:{sockets[0].getsockname()[1]}", tuple(sockets))


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"'{address}' is not an address to listen at: host:port")
    return host, int(port)


def _place(host: str) -> str | None:
    """Return the host as `getaddrinfo` reads it: None for all addresses of the machine."""
    return host.strip("[]") or None


def _not_there(address: str, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen at {address}: {(error.strerror or str(error)).lower()}")


async def open_port(
    stack: contextlib.AsyncExitStack,
    runner: web.BaseRunner,
    address: str | Port,
    guard: Guard,
    connect: Callable[[web.Server, HeadWatch, Slot], HttpConnection],
    *,
    tls: Tls | None = None,
) -> str:
    """Let `runner` answer requests at `address` until `stack` closes, each connection by what
    `connect` makes for it, and in `tls` if there is any. Returns and raises as `listen`."""
    host, port = _host_and_port(address.address if isinstance(address, Port) else address)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    server = runner.server
    assert server is not None, "it is set up"
    heads = HeadWatch(guard.head_timeout_s, guard.refusals)
    stack.callback(heads.close)
    if isinstance(address, Port):
        sockets = [*address.sockets]
    else:
        try:
            sockets = await open_sockets(_place(host), port)
        except OSError as error:
            raise _not_there(address, error) from error
    listener = Listener(
        sockets,
        guard.admission,
        guard.refusals,
        lambda slot: connect(server, heads, slot),
        tls=tls,
        handshake_s=guard.head_timeout_s,
        shared=isinstance(address, Port),
    )
    stack.push_async_callback(listener.close)
    real = f"{host}:{listener.port}"
    guard.names.add([real])
    return real


def publish_address(
    stack: contextlib.AsyncExitStack | contextlib.ExitStack,
    folder: Path,
    address: str,
    name: str = ADDRESS_FILE,
) -> None:
    """Write `address` to a file in `folder`, where it stays until `stack` closes.

    A reader never sees a part of the file. Raises StorageError if it cannot be written.
    """
    target = folder / name
    try:
        replace_file(target, f"{address}\n".encode())
    except OSError as error:
        raise StorageError.of(target, error) from error
    stack.callback(target.unlink, missing_ok=True)
