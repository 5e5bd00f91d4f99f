"""The node's end of an HTTP Upgrade: a connection goes from aiohttp to another protocol."""

from __future__ import annotations

import asyncio

from aiohttp import web

from paxosblock.errors import AccessDeniedError, PaxosBlockError
from paxosblock.net.port.access import Access
from paxosblock.net.port.admission import Slot
from paxosblock.net.port.bearer import is_here
from paxosblock.net.port.caller import USER, Caller, CallerRole
from paxosblock.net.port.doorkeeper import Doorkeeper, certified
from paxosblock.net.port.http_server import HttpConnection
from paxosblock.net.port.refusals import Refusal, Refusals
from paxosblock.net.port.upgrade import ERROR_TYPE, Spoken
from paxosblock.net.wire import encode_error


def asks_for(spoken: Spoken, request: web.Request) -> bool:
    """True if a caller asks for this, in this version."""
    return request.headers.get("Upgrade", "").lower() == spoken.protocol


def unknown_protocol(spoken: Spoken) -> web.Response:
    """Return the answer to a caller that asks for another protocol at the path of this one."""
    return web.Response(
        status=426,
        headers={"Upgrade": spoken.protocol, "Connection": "Upgrade"},
        text=f"{spoken.path} speaks {spoken.protocol} only\n",
    )


def refusal(error: PaxosBlockError) -> web.Response:
    """Return the answer to a caller that is refused."""
    return web.Response(status=error.http_status, body=encode_error(error), content_type=ERROR_TYPE)


def take_over(
    request: web.Request,
    transport: asyncio.Transport,
    spoken: Spoken,
    protocol: asyncio.BaseProtocol,
    doorkeeper: Doorkeeper | None,
) -> Slot:
    """Move the request's transport from aiohttp to `protocol`; to aiohttp it looks closed.

    Both ends speak `spoken` from now on. What the `doorkeeper` does not let through is not heard.

    Returns:
        The connection's slot, to release when the connection is lost or no longer counts.
    """
    http = request.protocol
    slot = http.hand_over() if isinstance(http, HttpConnection) else Slot(None, "")
    headers = {"Upgrade": spoken.protocol}
    if doorkeeper is not None:
        protocol, headers = doorkeeper.before(protocol, slot), headers | doorkeeper.headers
    # A uvloop transport chooses how to read when reading starts: buffered or not.
    transport.pause_reading()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    http.transport = None
    http.connection_lost(None)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    transport.write(
        f"HTTP/1.1 101 Switching Protocols\r\n{lines}Connection: Upgrade\r\n\r\n".encode()
    )
    transport.resume_reading()
    return slot


async def connected_caller_of(request: web.Request, access: Access, refusals: Refusals) -> Caller:
    """Return who asks for an Upgrade: as `caller_of`, or else a node, which proves that to the
    doorkeeper before anything is heard of it. Raises as `caller_of`."""
    caller = await caller_of(request, access, refusals)
    if caller.role is CallerRole.CLAIMED and access.is_node(request.headers):
        return Caller(CallerRole.NODE, "", (), caller.address)
    return caller


async def caller_of(request: web.Request, access: Access, refusals: Refusals) -> Caller:
    """Return who sent this, which holds for the whole connection after an Upgrade: the user of the
    token that it has brought, or else the holder of the certificate that it has shown, or else the
    user that it claims to be.

    Raises:
        InvalidRequestError: no user can have that name.
        AccessDeniedError: the token is not good; that is counted in `refusals`.
        PaxosBlockError: the node cannot tell whether it is.
    """
    address, private = request.remote or "", request.secure or is_here(request.remote)
    try:
        token = await access.door.shown(request.headers)
    except AccessDeniedError:
        refusals.count(Refusal.NO_ACCESS, request.remote or "")
        raise
    if token is not None:
        return Caller.with_token(token, address, private=private)
    for name in certified(access, request):
        return Caller.certified(name, address, private=private)
    return Caller.claiming(request.headers.get(USER), address, private=private)


def peer_of(transport: asyncio.Transport) -> str:
    """Return host:port of the other end."""
    host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
    return f"{host}:{port}"
