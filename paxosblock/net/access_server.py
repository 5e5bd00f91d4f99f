"""The tokens that a node demands over HTTP if it has an access secret (`access.py`)."""

from __future__ import annotations

import time
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from paxosblock.errors import AccessDeniedError
from paxosblock.net.access import Access
from paxosblock.net.refusals import Refusal, Refusals
from paxosblock.net.upgrade_server import refusal

_WITHOUT_TOKEN: Final = web.AppKey("without_token", set[str])


def add_without_token(app: web.Application, path: str, handler: Handler) -> None:
    """Let `handler` answer whoever gets `path`: it demands a proof of its own, or shows nothing of
    files.
    """
    app.router.add_get(path, handler)
    app.setdefault(_WITHOUT_TOKEN, set()).add(path)


def token_demand(access: Access, refusals: Refusals) -> Middleware:
    """Return the middleware by which all paths but those (`add_without_token`) demand a token."""

    @web.middleware
    async def demand(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in request.app.get(_WITHOUT_TOKEN, ()):
            try:
                access.check_token(request.headers.get("Authorization", ""), time.time())
            except AccessDeniedError as error:
                refusals.count(Refusal.NO_ACCESS, request.remote or "")
                return refusal(error)
        return await handler(request)

    return demand
