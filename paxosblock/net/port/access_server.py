"""The demands of a node over HTTP: a token of a user (`bearer.py`), or else a proof where it has an
access secret (`access.py`) and a certificate where it has one; and that no page in a browser asks,
as such a page may come from any site."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from paxosblock.errors import AccessDeniedError, PaxosBlockError, UnavailableError
from paxosblock.net.port.access import NONCE, TO, Access
from paxosblock.net.port.bearer import AUTHORIZATION
from paxosblock.net.port.doorkeeper import certified
from paxosblock.net.port.http_server import slot_of
from paxosblock.net.port.own_names import OWN_NAMES, OwnNames, is_own
from paxosblock.net.port.refusals import Refusal, Refusals
from paxosblock.net.port.upgrade_server import refusal

PROOF_HEADERS: Final = "proof of the node"
"""The key of a request under which the headers are that prove this node to its caller."""
_WITHOUT_TOKEN: Final = web.AppKey("without_token", set[str])


def add_without_token(app: web.Application, path: str, handler: Handler) -> None:
    """Let `handler` answer every caller that gets `path`: it demands a proof of its own, or shows
    nothing of files.
    """
    app.router.add_get(path, handler)
    app.setdefault(_WITHOUT_TOKEN, set()).add(path)


def http_demand(access: Access, refusals: Refusals) -> Middleware:
    """Return the middleware by which all paths but those (`add_without_token`) demand a token, and
    no page in a browser. A connection proves enough by such a request to get a place; it proves
    nothing by a request that every caller may make, and then gives way to any other."""

    @web.middleware
    async def demand(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in request.app.get(_WITHOUT_TOKEN, ()):
            return await handler(request)
        brought, why = request.headers.get(AUTHORIZATION, ""), Refusal.WEB_PAGE
        try:
            names = certified(access, request)
            open_to = not names and not access.demands(offered=bool(brought))
            check_no_page(request.headers, request.app[OWN_NAMES], named=open_to)
            why = Refusal.NO_ACCESS
            has_token = await access.door.shown(request.headers) is not None
            if not has_token:
                access.check_certified(names, offered=bool(brought))
            meant = _prepare_proof(access, request)
            if not has_token:
                access.check_request(brought, time.time(), request.path.split("/")[1], meant)
        except AccessDeniedError as error:
            refusals.count(why, request.remote or "")
            return refusal(error)
        except PaxosBlockError as error:
            return refusal(error)
        slot = slot_of(request)
        # Where callers prove no secret, a request must be whole to count: `read` sees its end.
        if not access.is_open or request.content.is_eof():
            try:
                slot.prove()
            except UnavailableError as error:
                return refusal(error)
        response = await handler(request)
        if slot.spare:
            response.force_close()
        return response

    return demand


def _prepare_proof(access: Access, request: web.Request) -> str:
    """Prepare the proof of this node where one is asked for; return how the caller dialled it, ""
    if it does not say.

    Raises:
        AccessDeniedError: it wants another node.
    """
    if NONCE in request.headers:
        challenge = access.challenge(request.path, request.headers, is_own(request))
        if challenge is not None:
            request[PROOF_HEADERS] = challenge.headers
            return request.headers[TO]
    return ""


def check_no_page(
    headers: Mapping[str, str], own: OwnNames, *, named: bool, pages: Collection[str] = ()
) -> None:
    """Check, by the headers of a request, that no page in a browser asks.

    Args:
        named: it gives a name of this node as its own, too.
        pages: the origins whose pages may ask.

    Raises:
        AccessDeniedError: one may do so.
    """
    if "Origin" in headers and headers["Origin"] not in pages:
        raise AccessDeniedError("a page in a browser may not ask here: leave out Origin")
    host = headers.get("Host", "")
    if named and not own.have_host(host):
        raise AccessDeniedError(
            f"{host!r} is no name of this node: ask for an address, localhost, or the name in its "
            "--listen or --advertise"
        )
