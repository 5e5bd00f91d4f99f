"""A gateway on the network: its doors, health and metrics on one port, and S3 on another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from paxosblock.config import ClientConfig, GatewayConfig
from paxosblock.errors import ConfigError, PaxosBlockError
from paxosblock.gateway import door_figures
from paxosblock.gateway.budget import Budget
from paxosblock.gateway.door_figures import DoorFigures
from paxosblock.gateway.exchange import Answer, Exchange
from paxosblock.gateway.gateway_pages import GatewayCalls, GatewayPages, status_of
from paxosblock.gateway.http_engine import HttpEngine
from paxosblock.gateway.s3.access_keys import KeyMaker
from paxosblock.gateway.s3.s3_door import S3Door
from paxosblock.gateway.s3.s3_door import failure as s3_failure
from paxosblock.gateway.user_clients import UserClients
from paxosblock.gateway.webhdfs.webhdfs_door import WebHdfsDoor, failure
from paxosblock.gateway.who_asks import Identification
from paxosblock.gateway.worker_metrics import ALONE, Worker
from paxosblock.host.descriptors import RESERVE, RESERVE_COUNT, raise_limit
from paxosblock.host.logs import facts
from paxosblock.host.metrics import CONTENT_TYPE, NodeMetrics
from paxosblock.host.startup import (
    collect_seldom,
    refuse_optimized_python,
    return_freed_memory,
)
from paxosblock.net.calls.call_server import SHUTDOWN_S
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import Access
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.request_bodies import BodyLimits
from paxosblock.net.serving import (
    ADDRESS_FILE,
    Port,
    ServingNode,
    open_port,
    publish_address,
    stop_signal,
    until_stopped,
)
from paxosblock.page.site import Site

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

READ_AHEAD_BYTES: Final = 2 * 1024 * 1024
"""Bytes that are fetched ahead for one reader: many read at a time, and each over one socket."""

S3_ADDRESS_FILE: Final = "s3-address"
WEBHDFS: Final = "webhdfs"
S3: Final = "s3"
OWN: Final = "own"
"""The door for what a gateway tells of itself: its page, health and metrics."""
DOORS: Final = WEBHDFS, S3, OWN

_log = logging.getLogger(__name__)


async def serve(
    config: GatewayConfig,
    client: ClientConfig,
    *,
    listen: str | Port,
    namenodes: Sequence[str],
    advertise: str | None = None,
    path: Path | None = None,
    s3_listen: str | Port | None = None,
    worker: Worker = ALONE,
    tell_ready: Callable[[], None] = lambda: None,
) -> None:
    """Run a gateway until SIGTERM or SIGINT.

    Args:
        client: the settings by which it calls the cluster.
        listen: host:port, where port 0 lets the system choose; or a port that is shared.
        namenodes: host:port of every NameNode; they need not run yet.
        advertise: host:port by which callers reach it, too.
        path: a folder in which `address` has the address where it listens, and `s3-address` that of
            the door of S3.
        s3_listen: the same for the door of S3; None: it has none.
        worker: which of several it is.
        tell_ready: is called once it serves.

    Raises:
        ConfigError: it cannot listen there, or a setting is wrong.
        StorageError: the address cannot be written.
    """
    refuse_optimized_python()
    return_freed_memory()
    stop = stop_signal()
    running_gateway = running(
        config,
        client,
        listen=listen,
        namenodes=namenodes,
        advertise=advertise,
        path=path,
        s3_listen=s3_listen,
        worker=worker,
    )
    async with running_gateway as node:
        collect_seldom()
        tell_ready()
        await until_stopped(stop, node, "gateway")
        _log.info("Gateway closes")


@contextlib.asynccontextmanager
async def running(
    config: GatewayConfig,
    client: ClientConfig,
    *,
    listen: str | Port,
    namenodes: Sequence[str],
    advertise: str | None = None,
    path: Path | None = None,
    s3_listen: str | Port | None = None,
    worker: Worker = ALONE,
) -> AsyncIterator[ServingNode]:
    """Yield a gateway for the length of a `with`. Raises like `serve`."""
    descriptors = raise_limit()
    RESERVE.keep(RESERVE_COUNT)
    limits = BodyLimits(config.request_memory_bytes, config.idle_stream_s)
    guard = Guard.bounded(config, descriptors // 2, limits)  # each may open one to a DataNode
    async with contextlib.AsyncExitStack() as stack:
        shared = replace(client, prefetch_size=min(client.prefetch_size, READ_AHEAD_BYTES))
        clients = UserClients(namenodes, shared, config.users_kept)
        stack.push_async_callback(clients.close)
        metrics = NodeMetrics("gateway")
        who = Identification.at(client, guard.names, config.proxy_users)
        tls, s3_tls = _certificate(config, failure), _certificate(config, s3_failure)
        guard.add_to(metrics, proves=who.proves, tls=tls)
        budget = Budget(config.request_memory_bytes)
        figures = {door: DoorFigures(door) for door in DOORS}
        door_figures.add_to(metrics, figures.values())
        rpc = await stack.enter_async_context(RpcClient(Access.of_client(client)))
        status = partial(
            status_of,
            doors=tuple(figures.values()),
            namenodes=namenodes,
            clients=clients,
            budget=budget,
            guard=guard,
            who=who,
            worker=worker,
        )
        calls = GatewayCalls(status, config, rpc)
        site = Site.of_gateway(advertise or client.host, calls, rpc.access.scheme)
        pages = GatewayPages(site, config.page, who)
        doors = Doors(
            clients, who, budget, metrics=metrics, figures=figures, pages=pages, worker=worker
        )
        await stack.enter_async_context(worker.telling(metrics.page))
        guard.names.add([advertise] if advertise else [])
        engine = HttpEngine(doors.answer, failure, config.idle_stream_s)
        address = await _open(stack, engine, listen, guard, tls)
        figures[WEBHDFS].address = figures[OWN].address = address
        if s3_listen is not None:
            s3 = S3Door(clients, who, budget, config, _key_maker(client, who))
            s3_engine = HttpEngine(
                figures[S3].counting(s3.answer), s3_failure, config.idle_stream_s
            )
            s3_address = await _open(stack, s3_engine, s3_listen, guard, s3_tls)
            figures[S3].address = s3_address
            _tell(stack, path, s3_address, S3_ADDRESS_FILE, "Gateway serves S3")
        _tell(stack, path, address, ADDRESS_FILE, "Gateway serves")
        yield ServingNode(address, _never)


def _tell(
    stack: contextlib.AsyncExitStack, path: Path | None, address: str, file: str, words: str
) -> None:
    """Say where a door is, in a file of the folder `path`, if there is one, and in the log."""
    if path is not None:
        publish_address(stack, path, address, file)
    _log.info(words, extra=facts(address=address))


async def _open(
    stack: contextlib.AsyncExitStack,
    engine: HttpEngine,
    listen: str | Port,
    guard: Guard,
    tls: Tls | None,
) -> str:
    runner = web.ServerRunner(engine.server, shutdown_timeout=SHUTDOWN_S)
    return await open_port(stack, runner, listen, guard, engine.connect, tls=tls)


def _certificate(config: GatewayConfig, refusal: Callable[[int, str], Answer]) -> Tls | None:
    """Return the certificate of a port, None if it speaks no TLS; `refusal` makes the answer to
    a caller that does not speak it.

    Raises:
        ConfigError: a file is not as it should be.
    """
    if not config.https_cert:
        if config.https_key:
            words = f"https_key {config.https_key}: https_cert is missing: its certificate"
            raise ConfigError(words)
        return None
    from paxosblock.net.port.https import HttpsCertificate  # noqa: PLC0415 - few need ssl

    answer = refusal(HTTPStatus.BAD_REQUEST, "this port speaks TLS: ask it by https")
    assert isinstance(answer.body, bytes), "a refusal is short"
    fields = answer.headers | {"Content-Length": str(len(answer.body)), "Connection": "close"}
    lines = ["HTTP/1.1 400 Bad Request", *(f"{name}: {value}" for name, value in fields.items())]
    return HttpsCertificate(
        config.https_cert,
        config.https_key,
        refusal="\r\n".join([*lines, "", ""]).encode() + answer.body,
    )


def _key_maker(client: ClientConfig, who: Identification) -> KeyMaker:
    """Return the maker of access keys.

    Raises:
        ConfigError: users must prove who they are, and there is no secret by which keys are made.
    """
    secrets = Access.of(client.access_file).secrets
    if who.proves and not secrets:
        raise ConfigError(
            "the door of S3 needs the access secret of the cluster, by which access keys are made: "
            "name its file with access_file in [client]"
        )
    return KeyMaker(secrets)


async def _never() -> PaxosBlockError:
    """Wait: a gateway keeps nothing that could fail."""
    never: asyncio.Future[PaxosBlockError] = asyncio.get_running_loop().create_future()
    return await never


class Doors:
    """Everything that is answered at the port of one gateway."""

    def __init__(
        self,
        clients: UserClients,
        identification: Identification,
        budget: Budget,
        *,
        metrics: NodeMetrics,
        figures: Mapping[str, DoorFigures],
        pages: GatewayPages,
        worker: Worker = ALONE,
    ) -> None:
        self._webhdfs = WebHdfsDoor(clients, identification, budget)
        self._metrics, self._worker = metrics, worker
        self._pages = pages
        self._by_webhdfs = figures[WEBHDFS].counting(self._webhdfs.answer)
        self._by_own = figures[OWN].counting(self._own)
        metrics.observe("clients", "Users for whom there are connections.", lambda: len(clients))
        metrics.observe(
            "bytes_under_way", "Room held for bytes of files.", lambda: budget.held_bytes
        )

    async def answer(self, exchange: Exchange) -> Answer:
        """Return the answer to a request."""
        is_webhdfs = self._webhdfs.has(exchange.target)
        return await (self._by_webhdfs if is_webhdfs else self._by_own)(exchange)

    async def _own(self, exchange: Exchange) -> Answer:
        method, path = exchange.method, exchange.target.partition("?")[0]
        if method == "GET" and path == "/healthz":
            state = {"role": "gateway", "status": "ok"}
            typed = {"Content-Type": "application/json"}
            return Answer(HTTPStatus.OK, msgspec.json.encode(state), typed)
        if method == "GET" and path == "/metrics":
            page = await self._worker.page_of_all(self._metrics.page)
            return Answer(HTTPStatus.OK, page, {"Content-Type": CONTENT_TYPE})
        if self._pages.has(path):
            return await self._pages.answer(exchange)
        return failure(HTTPStatus.NOT_FOUND, "there is no door: ask for /webhdfs/v1/PATH?op=...")
