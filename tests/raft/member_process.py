"""A member as a process of its own, for tests that kill it.

    python -m tests.raft.member_process --folder DIR --member N --ports P,P,P

It serves the engine's `/raft`, and for the test: `GET /status`, `GET /read/KEY`, `POST
/write/KEY?client=C&sequence=N` with the value as the body. Errors come as `{"outcome": ...}`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import uvloop
from aiohttp import web
from aiohttp.typedefs import Handler

from paxosblock.errors import NotReadyError, PaxosBlockError
from paxosblock.namenode.kv.interface import Conflict, Edit, Expect
from paxosblock.namenode.raft.http_transport import HttpTransport
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.store import ReplicatedStore

SECRET = b"a secret of the tests"
STORE: web.AppKey[ReplicatedStore] = web.AppKey("store", ReplicatedStore)


def addresses(ports: list[int]) -> list[str]:
    return [f"127.0.0.1:{port}" for port in ports]


async def status(request: web.Request) -> web.Response:
    return web.json_response({"applied_index": request.app[STORE].status().applied_index})


async def read(request: web.Request) -> web.Response:
    view = await request.app[STORE].barrier()
    found = view.get(request.match_info["key"].encode())
    return web.json_response({"value": found.value.decode(), "revision": found.revision})


async def write(request: web.Request) -> web.Response:
    """Once, however often it is asked, as the catalog does it: the edit itself says so."""
    body, store = await request.read(), request.app[STORE]
    client, sequence = (request.query[name].encode() for name in ("client", "sequence"))
    latest = (await store.barrier()).get(client)
    if latest.value != sequence:
        puts = ((request.match_info["key"].encode(), body), (client, sequence))
        result = await store.commit(Edit((Expect(client, latest.revision),), puts))
        if isinstance(result, Conflict):
            raise NotReadyError("a copy of the request came in between: ask again")
    return web.json_response({})


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except PaxosBlockError as error:
        return web.json_response({"outcome": error.outcome.value, "why": str(error)}, status=503)
    return response


async def serve(
    folder: Path, member: int, ports: list[int], options: Options
) -> tuple[web.AppRunner, ReplicatedStore]:
    """Open the port first: calls that come before the store is open are refused."""
    everybody = addresses(ports)
    transport = HttpTransport(everybody[member], everybody, SECRET)
    store = ReplicatedStore(folder, everybody[member], everybody, transport, options=options)
    app = web.Application(middlewares=[errors])
    app[STORE] = store
    transport.add_to(app)
    app.router.add_get("/status", status)
    app.router.add_get("/read/{key}", read)
    app.router.add_post("/write/{key}", write)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", ports[member]).start()
    await store.start()
    return runner, store


async def run(arguments: argparse.Namespace) -> None:
    ports = [int(port) for port in arguments.ports.split(",")]
    limits = Limits(flush_bytes=arguments.flush_bytes, trailing_entries=100)
    runner, store = await serve(arguments.folder, arguments.member, ports, Options(limits=limits))
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await store.close()
    await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--member", type=int, required=True)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--flush-bytes", type=int, default=64 << 20)
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
