"""Control calls for people: `POST /rpc/<method>` with msgpack in both directions.

A request has the `Content-Type` of msgpack, with which a browser sends nothing for a page of
another site without asking the node before. A 200 carries the answer; every other status carries
the msgpack of a `PaxosBlockError`. The header `X-Request-Id` names a call in the logs. The product
itself calls in frames (`call_server.py`).
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from paxosblock.errors import InvalidRequestError, PaxosBlockError
from paxosblock.net.calls.call_names import new_name
from paxosblock.net.calls.rpc import RpcRouter, answer
from paxosblock.net.port.request_bodies import RequestBodies
from paxosblock.net.port.upgrade import ERROR_TYPE
from paxosblock.net.wire import encode_error

_NAME_HEADER: Final = "X-Request-Id"


def add_http_calls(
    app: web.Application, router: RpcRouter, request_bodies: RequestBodies | None = None
) -> None:
    """Let `app` answer the calls of `router` over HTTP; `request_bodies` reads what they send."""
    read = (request_bodies or RequestBodies()).read

    async def handle(request: web.Request) -> web.StreamResponse:
        name = request.headers.get(_NAME_HEADER) or new_name()
        try:
            if request.content_type != ERROR_TYPE:
                raise InvalidRequestError(f"a request here has Content-Type: {ERROR_TYPE}")
            call = router.find(request.match_info["method"])
            body, status = await answer(call, name, await read(request)), 200
        except PaxosBlockError as error:
            body, status = encode_error(error), error.http_status
        return web.Response(status=status, body=body, content_type=ERROR_TYPE)

    app.router.add_post("/rpc/{method}", handle)
