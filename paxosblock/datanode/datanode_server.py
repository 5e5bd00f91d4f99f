"""A DataNode on the network: data streams, control calls, health and metrics on one port.

FORMAT.md lays out each volume's folder. While the node serves, the first folder that could be
opened also holds `address`: the host:port that the node really has.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from paxosblock.api.datanode import (
    ACCEPT,
    ACCEPT_ALL,
    FIND_CHUNK,
    FIND_REPLICA,
    LIST_REPLICAS,
    PROCESS,
)
from paxosblock.api.insight import DATANODE_STATUS, SHOW_SETTINGS
from paxosblock.api.methods import Method
from paxosblock.api.user_tokens import TokenRight
from paxosblock.config import DataNodeConfig
from paxosblock.datanode.data_node import DataNode, open_volumes
from paxosblock.datanode.store.identity import kept_node_id, new_node_id
from paxosblock.datanode.volumes.hung_disk import find_hung
from paxosblock.errors import StorageError
from paxosblock.host.descriptors import RESERVE, RESERVE_COUNT, raise_limit
from paxosblock.host.disk import OsDisk
from paxosblock.host.logs import facts
from paxosblock.host.metrics import CONTENT_TYPE
from paxosblock.host.process import boot_id
from paxosblock.host.startup import collect_seldom, refuse_optimized_python
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.own_calls import OwnCalls
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.lending import LendingDoor
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.caller import CALLER, CallerRole
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.node_roles import Roles
from paxosblock.net.port.page_door import add_pages
from paxosblock.net.port.upgrade import STREAM
from paxosblock.net.serving import (
    ServingNode,
    end_within,
    publish_address,
    stop_signal,
    until_stopped,
)
from paxosblock.net.serving import listen as listen_at
from paxosblock.net.streams.stream_server import upgrade_handler
from paxosblock.page.site import Site

Q = TypeVar("Q")
A = TypeVar("A")

_log = logging.getLogger(__name__)


async def serve(
    config: DataNodeConfig,
    *,
    listen: str,
    paths: Sequence[Path],
    namenodes: Sequence[str],
    node_id: str | None = None,
    upgrade: bool = False,
    advertise: str | None = None,
) -> None:
    """Run a DataNode until SIGTERM or SIGINT, or until its last volume fails. Its process ends at
    most `volume_hung_after` behind the signal, even if a disk hangs.

    Args:
        listen: host:port; port 0 lets the system choose.
        paths: a folder for each volume, made if it is missing.
        namenodes: host:port of every NameNode; they need not run yet.
        node_id: None: that of the certificate, without one that of the folders, in new ones a new
            one.
        upgrade: each volume gets a snapshot first, unless it has one (FORMAT.md 7).
        advertise: host:port by which others reach it; None: where it listens.

    Raises:
        ConfigError: it cannot listen there, or a folder belongs to another node.
        StorageError, CorruptionError: a folder cannot be used, or is in use.
    """
    refuse_optimized_python()
    stop = stop_signal()
    async with running(
        config,
        listen=listen,
        paths=paths,
        namenodes=namenodes,
        node_id=node_id,
        upgrade=upgrade,
        advertise=advertise,
    ) as node:
        collect_seldom()
        await until_stopped(stop, node, "datanode")
        end_within(config.volume_hung_after_s, "datanode", node)
        _log.info("DataNode closes")


@contextlib.asynccontextmanager
async def running(
    config: DataNodeConfig,
    *,
    listen: str,
    paths: Sequence[Path],
    namenodes: Sequence[str],
    node_id: str | None = None,
    upgrade: bool = False,
    advertise: str | None = None,
    boot: str | None = None,
) -> AsyncIterator[ServingNode]:
    """Yield a DataNode for the length of a `with`; `boot` names the time since the machine started,
    by default as its system does. Raises like `serve`.
    """
    descriptors = raise_limit()
    RESERVE.keep(RESERVE_COUNT)
    guard = Guard.of(config, descriptors // 2)  # a block that is being written keeps its file open
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(RpcClient(guard.access))
        disk = OsDisk()
        if guard.access.tls is not None:
            node_id = guard.access.tls.own_id(node_id)
        hung = await find_hung(disk, paths, config.volume_hung_after_s)
        silent = {lost.folder for lost in hung}
        answering = [path for path in paths if path not in silent]
        name = node_id or kept_node_id(disk, answering) or new_node_id()
        opened = open_volumes(
            disk, paths, name, config, boot or boot_id(), upgrade=upgrade, hung=hung
        )
        roles = Roles(proven=guard.access.proves_nodes)
        node = DataNode(name, opened, namenodes, client, config, roles=roles)
        stack.push_async_callback(node.close)
        guard.access.door.checks = node.tokens
        guard.add_to(node.counters.metrics)
        await node.load()
        if node.failure:
            raise StorageError(node.failure)
        app, router = _app(node, guard), _calls(node)
        site = Site.of_datanode(name, OwnCalls(router, client), guard.access.scheme)
        add_pages(app, site, guard.access, config.page)
        address = await listen_at(stack, app, router, listen, guard)
        publish_address(stack, node.volumes[0].folder, address)
        guard.names.add([advertise] if advertise else [])
        if config.short_circuit:
            with contextlib.suppress(OSError):  # without such sockets clients read by streams
                node.lender.door = LendingDoor.open()
        node.start(advertise or address)
        _log.info(
            "DataNode serves",
            extra=facts(node=name, address=advertise or address, volumes=len(node.volumes)),
        )
        yield ServingNode(address, node.wait_failure, node.busy)


def _app(node: DataNode, guard: Guard) -> web.Application:
    app = web.Application()

    async def healthz(_: web.Request) -> web.Response:
        failure = node.failure
        state = {
            "role": "datanode",
            "node": node.name,
            "status": failure or "ok",
            "storages": node.volume_states,
        }
        return web.json_response(state, status=503 if failure else 200)

    async def show_metrics(_: web.Request) -> web.Response:
        body = node.counters.metrics.page()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    add_without_token(app, "/healthz", healthz)
    add_without_token(app, "/metrics", show_metrics)
    upgrade = upgrade_handler(
        app,
        lambda _: node.new_stream(),
        stall_s=guard.request_bodies.limits.stall_s,
        refusals=guard.refusals,
        access=guard.access,
    )
    add_without_token(app, STREAM.path, upgrade)
    return app


def _calls(node: DataNode) -> RpcRouter:
    router = RpcRouter()

    def register(
        method: Method[Q, A], handler: Callable[[Q], Awaitable[A]], *, at_once: bool = False
    ) -> None:
        name, most = method.name, method.request_bytes_max
        router.register(name, method.request, handler, at_once=at_once, request_bytes_max=most)

    def of_namenode(
        method: Method[Q, A], handler: Callable[[Q], Awaitable[A]], *, at_once: bool = False
    ) -> None:
        async def handle(request: Q) -> A:
            node.roles.check(CALLER.get(), CallerRole.NAMENODE, method.name)
            return await handler(request)

        register(method, handle, at_once=at_once)

    of_namenode(ACCEPT, node.accept, at_once=True)
    of_namenode(ACCEPT_ALL, node.accept_all, at_once=True)
    of_namenode(FIND_CHUNK, node.find_chunk)
    of_namenode(PROCESS, node.process)

    def of_reader(method: Method[Q, A], handler: Callable[[Q], Awaitable[A]]) -> None:
        async def handle(request: Q) -> A:
            if (token := CALLER.get().token) is not None:
                node.tokens.allow(token, TokenRight.READ, method.name)
            return await handler(request)

        register(method, handle)

    of_reader(LIST_REPLICAS, node.list_replicas)
    of_reader(FIND_REPLICA, node.find_replica)
    of_reader(DATANODE_STATUS, node.status)
    of_reader(SHOW_SETTINGS, node.settings)
    return router
