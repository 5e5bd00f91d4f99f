"""A NameNode on the network: control calls, health and metrics on one port.

Its folder holds `kv/` (KV.md) and, while it serves, `address`: the host:port it really has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web

from paxosblock.config import NameNodeConfig
from paxosblock.errors import ConfigError, StorageError
from paxosblock.logs import facts
from paxosblock.metrics import CONTENT_TYPE, NodeMetrics
from paxosblock.namenode.kv.engine import SingleMemberStore
from paxosblock.namenode.node import NameNode, over_rpc
from paxosblock.namenode.service import Service
from paxosblock.rpc import RpcClient, RpcRouter
from paxosblock.startup import refuse_optimized_python

SHUTDOWN_S = 2.0
"""How long calls under way may take to end when the node closes."""

_log = logging.getLogger(__name__)


async def serve(
    config: NameNodeConfig,
    *,
    listen: str,
    path: Path,
    node_id: str,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run a NameNode until SIGTERM or SIGINT.

    Args:
        listen: host:port; port 0 lets the system choose.
        path: the node's folder, made if it is missing.
        ready: called with the real address once it answers.

    Raises:
        ConfigError: it cannot listen there, or the folder is in use.
        StorageError, CorruptionError: the folder cannot be read or written.
    """
    refuse_optimized_python()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running(config, listen=listen, path=path, node_id=node_id) as address:
        if ready is not None:
            ready(address)
        await stop.wait()
        _log.info("NameNode closes")


@contextlib.asynccontextmanager
async def running(
    config: NameNodeConfig, *, listen: str, path: Path, node_id: str
) -> AsyncIterator[str]:
    """A NameNode for the length of a `with`; yields its address. Raises like `serve`."""
    async with contextlib.AsyncExitStack() as stack:
        store = SingleMemberStore(_make_folder(path) / "kv", address=listen)
        await store.start()
        stack.push_async_callback(store.close)
        client = await stack.enter_async_context(RpcClient())
        clock_s = asyncio.get_running_loop().time
        reach = over_rpc(client, config.recovery_timeout_s)
        node = NameNode(node_id, config, store, clock_s, reach)
        stack.push_async_callback(node.close)
        await node.start()
        address = await _listen(stack, _app(node), listen)
        _write_address(path, address)
        stack.callback((path / "address").unlink, missing_ok=True)
        _log.info("NameNode serves", extra=facts(address=address, path=path))
        yield address


def _app(node: NameNode) -> web.Application:
    app = web.Application()
    router = RpcRouter()
    Service(node).add_to(router)
    router.add_to(app)
    metrics = _metrics(node)

    async def healthz(_: web.Request) -> web.Response:
        failure = node.failure
        state = {"role": "namenode", "node": node.name, "status": failure or "ok"}
        return web.json_response(state, status=503 if failure else 200)

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", show_metrics)
    return app


def _metrics(node: NameNode) -> NodeMetrics:
    metrics = NodeMetrics("namenode")
    metrics.observe("leases", "Writers that hold files.", lambda: len(node.leases))
    metrics.observe("recoveries", "Blocks being recovered.", lambda: node.recoverer.running)
    metrics.observe("datanodes", "DataNodes that registered.", lambda: len(node.datanodes))
    metrics.observe("alarms", "Broken invariants and damaged replicas.", node.alarms.counts.total)
    return metrics


def _make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error
    return path


async def _listen(stack: contextlib.AsyncExitStack, app: web.Application, listen: str) -> str:
    """Open the port; return the address it really has."""
    host, colon, port = listen.rpartition(":")
    if not (colon and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"'{listen}' is not an address to listen at: host:port")
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, host.strip("[]") or None, int(port)).start()
    except OSError as error:
        raise ConfigError(f"cannot listen at {listen}: {error.strerror}") from error
    return f"{host}:{runner.addresses[0][1]}"


def _write_address(path: Path, address: str) -> None:
    """Whoever finds the file finds all of it."""
    try:
        fresh = path / "address.new"
        fresh.write_text(f"{address}\n")
        os.replace(fresh, path / "address")
    except OSError as error:
        raise StorageError(f"{path / 'address'}: {error.strerror}") from error
