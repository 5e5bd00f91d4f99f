"""How a node opens its port and tells where it is reached."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from aiohttp import web

from paxosblock.errors import ConfigError, StorageError
from paxosblock.rpc import RpcRouter

ADDRESS_FILE: Final = "address"
SHUTDOWN_S: Final = 2.0
"""How long calls under way may take to end when the node closes."""
BACKLOG: Final = 4096
"""Connections that may wait to be accepted, if the system allows as many. Of a program's thousand
calls at once it dropped those above the 128 that are usual, and tried them again after seconds."""


async def listen(
    stack: contextlib.AsyncExitStack, app: web.Application, router: RpcRouter, address: str
) -> str:
    """Serve `app` with the control calls of `router` at `address` until `stack` closes.

    Args:
        address: host:port; port 0 lets the system choose.

    Returns:
        The address it really has.

    Raises:
        ConfigError: this is no address, or it is taken.
    """
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"'{address}' is not an address to listen at: host:port")
    router.add_to(app)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    server = runner.server
    assert server is not None, "it is set up"
    server.request_handler = router.ahead_of(server.request_handler)
    try:
        site = web.TCPSite(runner, host.strip("[]") or None, int(port), backlog=BACKLOG)
        await site.start()
    except OSError as error:
        raise ConfigError(f"cannot listen at {address}: {error.strerror}") from error
    return f"{host}:{runner.addresses[0][1]}"


def publish_address(stack: contextlib.AsyncExitStack, folder: Path, address: str) -> None:
    """Write `address` to `folder`/address, where it stays until `stack` closes.

    Whoever finds the file finds all of it. Raises StorageError when it cannot be written.
    """
    target = folder / ADDRESS_FILE
    try:
        fresh = folder / f"{ADDRESS_FILE}.new"
        fresh.write_text(f"{address}\n")
        os.replace(fresh, target)
    except OSError as error:
        raise StorageError(f"{target}: {error.strerror}") from error
    stack.callback(target.unlink, missing_ok=True)
