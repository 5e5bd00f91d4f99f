"""A NameNode on the network: control calls, health and metrics on one port.

Its folder has `raft/` (raft/RAFT.md) and, while the NameNode is up, `address`: the host:port at
which it listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from aiohttp import web

from paxosblock.api.file_pages import PAGE_BLOCKS
from paxosblock.api.namenode_list import CHANGE_NAMENODES, ChangeNameNodes, NameNodesChange
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus, NameNodeStatusRequest
from paxosblock.api.user_tokens import TokenRight
from paxosblock.config import NameNodeConfig
from paxosblock.host.descriptors import RESERVE, RESERVE_COUNT, raise_limit
from paxosblock.host.disk import OsDisk
from paxosblock.host.folder_room import FolderRoom
from paxosblock.host.logs import facts
from paxosblock.host.metrics import CONTENT_TYPE, NodeMetrics
from paxosblock.host.stall import AwakeClock, StallWatch
from paxosblock.host.startup import collect_seldom, refuse_optimized_python
from paxosblock.namenode.audit import keep_audit, of_nothing_named
from paxosblock.namenode.backup_route import Backups
from paxosblock.namenode.calls import CALLS, By, Call, Service, handled
from paxosblock.namenode.instruments import instruments
from paxosblock.namenode.membership import Engine, Peers, engine_of, join
from paxosblock.namenode.name_node import NameNode, over_rpc
from paxosblock.namenode.rights import of_superuser
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.own_calls import OwnCalls
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import Access
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.node_roles import Roles
from paxosblock.net.port.page_door import add_pages
from paxosblock.net.port.upgrade_server import caller_of
from paxosblock.net.serving import ServingNode, publish_address, stop_signal, until_stopped
from paxosblock.net.serving import listen as listen_at
from paxosblock.page.contents import Contents
from paxosblock.page.site import Site

_log = logging.getLogger(__name__)

ContentsOf = Callable[[OwnCalls, Access], Contents]


async def serve(
    config: NameNodeConfig,
    *,
    listen: str,
    path: Path,
    node_id: str,
    peers: Peers | None = None,
    contents_of: ContentsOf | None = None,
) -> None:
    """Run a NameNode until SIGTERM or SIGINT. Its process ends when its disk fails.

    Args:
        listen: host:port; port 0 lets the system choose.
        path: the node's folder, made if it is missing.
        peers: the NameNodes of the cluster, if there are several, and the address of this one.
        contents_of: makes what opens files for its status page, which shows no bytes without.

    Raises:
        ConfigError: it cannot listen there, the folder is in use, or raftos is missing.
        UnavailableError: it joins other NameNodes, and none of them has a catalog for it.
        StorageError, CorruptionError: the folder cannot be read or written.
    """
    refuse_optimized_python()
    if peers and peers.joins:
        tls = Access.of_node(config).tls
        # Before the wait for signals, as it may be killed at any step.
        await join(path, peers, within_s=config.join_within_s, tls=tls)
    stop = stop_signal()
    gc.collect()  # of all that was imported, before others wait for this NameNode
    node_of = partial(running, config, listen=listen, path=path, node_id=node_id, peers=peers)
    with contextlib.suppress(_StoppedError):
        async with node_of(stop=stop, contents_of=contents_of) as node:
            # Imported and loaded objects stay, so no full collection need visit them again.
            collect_seldom()
            await until_stopped(stop, node, "namenode")
            _log.info("NameNode closes")


class _StoppedError(Exception):
    """The NameNode was told to stop while it waited for the others of a new cluster."""


async def _begin(engine: Engine, stop: asyncio.Event) -> None:
    """Let the engine begin, which may wait for other members.

    Raises:
        _StoppedError: `stop` came first.
    """
    begins, stopped = asyncio.ensure_future(engine.begin()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((begins, stopped), return_when=asyncio.FIRST_COMPLETED)
        if not begins.done():
            raise _StoppedError
        begins.result()
    finally:
        begins.cancel()
        stopped.cancel()


@contextlib.asynccontextmanager
async def running(
    config: NameNodeConfig,
    *,
    listen: str,
    path: Path,
    node_id: str,
    peers: Peers | None = None,
    stop: asyncio.Event | None = None,
    contents_of: ContentsOf | None = None,
    page_blocks: int = PAGE_BLOCKS,
) -> AsyncIterator[ServingNode]:
    """Run a NameNode, which shows `page_blocks` of a file at a time, for the length of a `with`.
    Raises like `serve`; _StoppedError if `stop` came while it waited for other members."""
    descriptors = raise_limit()
    RESERVE.keep(RESERVE_COUNT)
    guard = Guard.of(config, descriptors * 3 // 4)
    async with contextlib.AsyncExitStack() as stack:
        if config.audit_file:
            keep_audit(stack, Path(config.audit_file), config.audit_file_size, config.audit_files)
        OsDisk().make_folder(path)
        engine = engine_of(config, path, listen, peers, guard.access.tls)
        store = engine.store
        stack.push_async_callback(store.close)
        client = await stack.enter_async_context(RpcClient(guard.access))
        clock_s = AwakeClock(asyncio.get_running_loop().time)
        reach = over_rpc(client, config.recovery_timeout_s)
        node = NameNode(node_id, config, store, clock_s, reach, listed=engine.listed)
        node.page_blocks = page_blocks
        stack.push_async_callback(node.close)
        stall = StallWatch(clock_s)
        stall.start()
        stack.callback(stall.stop)
        # The port opens before the store, because other members speak to the store here; an early
        # call of a client is refused with the reason.
        metrics, router = instruments(node, engine, stall), RpcRouter()
        guard.add_to(metrics)
        room = FolderRoom(OsDisk(), path, node.clock_s)
        of_engine = _status_call(engine, guard.access, room), _changes(engine)
        roles = Roles(proven=guard.access.proves_nodes)
        Service(node, metrics, (*CALLS, *of_engine), roles).add_to(router)
        if peers:
            guard.names.add([peers.address])
        guard.access.door.checks = node.tokens
        _believe_issuer(stack, node, guard)
        app = _app(node, engine, metrics, guard)
        own = OwnCalls(router, client)
        contents = contents_of and contents_of(own, guard.access)
        site = Site.of_namenode(node.name, own, guard.access.scheme, contents)
        add_pages(app, site, guard.access, config.page)
        opened = await listen_at(stack, app, router, listen, guard)
        address = peers.address if peers else opened
        await _begin(engine, stop or asyncio.Event())
        await store.start()
        await node.start()
        stack.push_async_callback(engine.resign)
        publish_address(stack, path, address)
        leaving = asyncio.create_task(_leave(engine, stop or asyncio.Event(), address))
        stack.callback(leaving.cancel)
        _log.info("NameNode serves", extra=facts(address=address, path=path))
        yield ServingNode(address, store.wait_failure)


def _believe_issuer(stack: contextlib.AsyncExitStack, node: NameNode, guard: Guard) -> None:
    """Take tokens of the OpenID issuer that the settings name, if they name one.

    Raises:
        ConfigError: the package for that is missing.
    """
    if node.config.oidc_issuer:
        from paxosblock.namenode.oidc import Issuer  # noqa: PLC0415 - PyJWT may be missing

        issuer = Issuer(node.config, node.clock_s, lambda: node.catalog.now_ms() / 1000)
        guard.access.door.issuer = issuer
        stack.push_async_callback(issuer.close)


async def _leave(engine: Engine, stop: asyncio.Event, address: str) -> None:
    """Let the process end, as one that has nothing left to do, once this NameNode was removed."""
    await engine.removed()
    sys.stderr.write(f"namenode: {address} was removed from the list of NameNodes: it ends\n")
    stop.set()


def _app(node: NameNode, engine: Engine, metrics: NodeMetrics, guard: Guard) -> web.Application:
    app = web.Application()

    async def demand(request: web.Request) -> None:
        caller = await caller_of(request, guard.access, guard.refusals)
        if caller.token is not None:
            node.tokens.allow(caller.token, TokenRight.BACKUP, "a backup")
        await node.users.demand_superuser(caller)

    engine.add_to(app)
    Backups(engine.checkpoint, demand).add_to(app)

    async def healthz(_: web.Request) -> web.Response:
        trouble = node.trouble
        state = {"role": "namenode", "node": node.name, "status": trouble or "ok"}
        return web.json_response(state, status=503 if trouble else 200)

    async def show_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics.page(), headers={"Content-Type": CONTENT_TYPE})

    add_without_token(app, "/healthz", healthz)
    add_without_token(app, "/metrics", show_metrics)
    return app


def _status_call(engine: Engine, access: Access, folder: FolderRoom) -> Call:
    """Return the call that each NameNode answers for itself, as a member of its engine."""

    async def answer(node: NameNode, _: NameNodeStatusRequest) -> NameNodeStatus:
        position, room = engine.position(), await folder.seen()
        return NameNodeStatus(
            node=node.name,
            role=position.role,
            serves=node.leadership.serves,
            leader=(engine.store.leader() or "") if engine.members() else "",
            term=position.term,
            commit_index=position.commit_index,
            applied_index=position.applied_index,
            lag=dict(position.lag),
            members=engine.members(),
            datanodes=node.views.datanodes(),
            trouble=node.trouble,
            cluster=node.catalog.cluster_id,
            alarms=node.alarms.latest(),
            alarm_count=node.alarms.counts.total(),
            access_open=access.is_open,
            capacity_bytes=room.capacity_bytes,
            free_bytes=room.free_bytes,
        )

    return handled(NAMENODE_STATUS, answer, by=By.EVERY_MEMBER, right=TokenRight.READ)


def _changes(engine: Engine) -> Call:
    """Return the call that changes the list of NameNodes."""

    async def answer(_: NameNode, asked: ChangeNameNodes) -> NameNodesChange:
        return await engine.change(asked)

    return handled(
        CHANGE_NAMENODES,
        answer,
        by=By.LEADER,
        deeds=of_nothing_named("changeNameNodes"),
        may=of_superuser(),
        right=TokenRight.ADMIN,
    )
