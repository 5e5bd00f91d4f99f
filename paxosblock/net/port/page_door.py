"""The door of the status page: which callers it lets in, and as whom, over HTTP and with a browser.

Where callers prove who they are, a browser shows the user's certificate, or sends a token: in the
cookie that the form at `/login` sets. That form is all that is posted here, and it changes nothing
of the cluster. Elsewhere a caller is on this machine, unless the setting `page` says otherwise, and
names this node as others cannot (`own_names.py`), so that no site in a browser reads along.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

from aiohttp import web

from paxosblock.api.user_tokens import TokenRight
from paxosblock.config import PageFor
from paxosblock.errors import (
    AccessDeniedError,
    InvalidRequestError,
    NotReadyError,
    PaxosBlockError,
)
from paxosblock.host.logs import facts
from paxosblock.net.port.access import Access
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.bearer import AUTHORIZATION, SCHEME, is_here
from paxosblock.net.port.caller import CALLER, NOBODY, USER, Caller
from paxosblock.net.port.doorkeeper import certified
from paxosblock.net.port.own_names import OWN_NAMES, OwnNames

PURPOSE: Final = "page"
"""The purpose for which a proof would be shown; there is none for pages, only tokens."""
COOKIE: Final = "paxosblock-page"
LOGIN: Final = "/login"
FORM_BYTES_MAX: Final = 8192
DOWNLOADS_MAX: Final = 4
"""Files that a node sends at once: each costs it the room and the work of a reader."""
STALLED_S: Final = 60.0
"""Seconds in which a browser takes the next part of a file; one that does not is left."""
PAGE_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    # With "no-referrer" a browser would send "Origin: null" with the form, as for another site.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_KEPT: Final = PAGE_HEADERS | {
    "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    "Content-Type": "application/octet-stream",
}
"""Headers of a file: a browser keeps it, and runs nothing in it, whatever it is."""

_log = logging.getLogger(__name__)


class ShownFile(Protocol):
    """A file to be kept."""

    @property
    def disposition(self) -> str:
        """The header that names it."""

    @property
    def size_bytes(self) -> int:
        """Its length."""

    @property
    def windows(self) -> AsyncIterator[bytes]:
        """Its bytes, some at a time."""


class ShownPage(Protocol):
    """An answer of HTTP."""

    @property
    def status(self) -> int:
        """The status of HTTP."""

    @property
    def content_type(self) -> str:
        """The kind of the body."""

    @property
    def body(self) -> bytes:
        """The bytes that are sent."""


class Pages(Protocol):
    """The pages behind the door."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The addresses of the pages."""

    @property
    def files(self) -> tuple[str, ...]:
        """The addresses of files that every caller gets who gets anything."""

    @property
    def downloads(self) -> tuple[str, ...]:
        """The addresses at which files of the cluster are sent."""

    def download(self, query: Mapping[str, str]) -> AbstractAsyncContextManager[ShownFile]:
        """Open a file for a block, for the user as whom `CALLER` calls."""

    def file(self, path: str) -> ShownPage:
        """Return a file."""

    async def page(self, path: str, query: Mapping[str, str], user: str) -> ShownPage:
        """Return a page for this user, as whom `CALLER` calls."""

    async def refusal(self, error: PaxosBlockError, user: str = "") -> ShownPage:
        """Return a page that gives the reason for a refusal."""

    async def login(self, user: str, *, with_token: bool, why: str = "") -> ShownPage:
        """Return the form to log in with."""


def add_pages(app: web.Application, pages: Pages, access: Access, page_for: PageFor) -> None:
    """Let `app` show `pages` to those callers who may see them."""
    if page_for is PageFor.NONE:
        return
    door = _Door(pages, access, page_for)
    for path in pages.paths:
        add_without_token(app, path, door.show)
    for path in pages.files:
        add_without_token(app, path, door.show_file)
    for path in pages.downloads:
        add_without_token(app, path, door.send)
    add_without_token(app, LOGIN, door.show_login)
    app.router.add_post(LOGIN, door.log_in)


class _Door:
    def __init__(self, pages: Pages, access: Access, page_for: PageFor) -> None:
        self._pages = pages
        self._access = access
        self._page_for = page_for
        self._downloads = 0

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Show a page to a caller who may see it; to another one the form, or a refusal."""

        async def show(caller: Caller) -> web.StreamResponse:
            return _sent(await self._pages.page(request.path, dict(request.query), caller.user))

        return await self._let_in(request, show)

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Send a file to a caller who may read it."""

        async def send(caller: Caller) -> web.StreamResponse:
            answer = web.StreamResponse(headers=_KEPT)
            self._downloads += 1
            try:
                if self._downloads > DOWNLOADS_MAX:
                    raise NotReadyError(
                        f"{DOWNLOADS_MAX} files are being sent by this node, which is as many as "
                        "it sends at once; `paxosblock fs get` gets this one from its DataNodes"
                    )
                async with self._pages.download(dict(request.query)) as file:
                    await _send(request, answer, file)
            except PaxosBlockError as error:
                if not answer.prepared:
                    return _sent(await self._pages.refusal(error, caller.user))
                _give_up(request, str(error))
            finally:
                self._downloads -= 1
            return answer

        return await self._let_in(request, send)

    async def _let_in(
        self,
        request: web.Request,
        answer: Callable[[Caller], Coroutine[Any, Any, web.StreamResponse]],
    ) -> web.StreamResponse:
        try:
            self._check_near(request)
        except AccessDeniedError as error:
            return _sent(await self._pages.refusal(error))
        try:
            caller = await self._caller(request)
        except PaxosBlockError as error:
            if request.path.endswith(".json"):
                return _sent(await self._pages.refusal(error))
            return await self._form(why="" if _offers_nothing(request) else str(error), status=403)
        CALLER.set(caller)
        return await answer(caller)

    async def show_file(self, request: web.Request) -> web.Response:
        """Show a file that says nothing of the cluster."""
        return _sent(self._pages.file(request.path))

    async def show_login(self, request: web.Request) -> web.Response:
        """Show the form."""
        return await self._guarded(request, self._form)

    async def log_in(self, request: web.Request) -> web.Response:
        """Check what was filled in, and have the browser send it from now on."""

        async def log_in() -> web.Response:
            form = await _form_of(request)
            token, user = form.get("token", "").strip(), form.get("user", "").strip()
            try:
                await self._proven(request, token, user)
            except PaxosBlockError as error:
                return await self._form(why=str(error))
            answer = web.Response(status=303, headers=PAGE_HEADERS | {"Location": "/"})
            answer.set_cookie(
                COOKIE,
                f"{quote(token, safe='.')}/{quote(user, safe='')}",
                httponly=True,
                samesite="Strict",
                secure=request.secure,
                path="/",
            )
            return answer

        return await self._guarded(request, log_in)

    async def _guarded(
        self,
        request: web.Request,
        answer: Callable[[], Coroutine[Any, Any, web.Response]],
    ) -> web.Response:
        try:
            self._check_near(request)
            _check_same_site(request)
            return await answer()
        except PaxosBlockError as error:
            return _sent(await self._pages.refusal(error))

    async def _form(self, *, why: str = "", status: int = 0) -> web.Response:
        with_token = not self._access.is_open
        answer = _sent(await self._pages.login("", with_token=with_token, why=why))
        if status:
            answer.set_status(status)
        return answer

    def _check_near(self, request: web.Request) -> None:
        """Raise AccessDeniedError for a caller who need prove nothing and is not on this machine,
        or may be a page of another site."""
        if not self._access.is_open:
            return
        host = request.headers.get("Host", "")
        check_near(self._page_for, request.app[OWN_NAMES], request.remote or "", host)

    async def _caller(self, request: web.Request) -> Caller:
        """Return who asks.

        Raises:
            AccessDeniedError: they prove less than is demanded.
            InvalidRequestError: no user can have that name.
        """
        token, _, user = request.cookies.get(COOKIE, "").partition("/")
        offered = request.headers.get(AUTHORIZATION, "")
        if offered or USER in request.headers:
            token, user = offered.removeprefix(SCHEME), request.headers.get(USER, "")
        return await self._proven(request, unquote(token), unquote(user))

    async def _proven(self, request: web.Request, word: str, user: str) -> Caller:
        """Return the user of the token `word`, or else the holder of the certificate that is shown,
        or else the one who claims to be `user`. Raises as `_caller`."""
        access, shown = self._access, SCHEME + word if word else ""
        token = await access.door.shown({AUTHORIZATION: shown})
        if token is not None:
            token.demand(TokenRight.READ, "the page")
            return Caller.with_token(token, request.remote or "")
        for name in certified(access, request):
            return Caller.certified(name, request.remote or "")
        access.check_certified((), offered=bool(shown))
        access.check_request(shown, time.time(), PURPOSE, "")
        return Caller.claiming(user or NOBODY, request.remote or "")


def check_near(page_for: PageFor, names: OwnNames, address: str, host: str) -> None:
    """Check that one who need prove nothing may have the page of a node with these names.

    Args:
        address: the host at which the connection begins.
        host: the header `Host`.

    Raises:
        AccessDeniedError: they are not on this machine, or may be a page of another site.
    """
    if page_for is not PageFor.ALL and not is_here(address):
        raise AccessDeniedError(
            "the page is for callers on this machine, as the node demands no proof of them; "
            'the setting page = "all" shows it to others'
        )
    if not names.have_host(host):
        raise AccessDeniedError(
            f"{host!r} is no name of this node: ask for an address, localhost, or the name in "
            "its --listen or --advertise"
        )


def _offers_nothing(request: web.Request) -> bool:
    return COOKIE not in request.cookies and "Authorization" not in request.headers


def _check_same_site(request: web.Request) -> None:
    """Raise AccessDeniedError for a form of another site than this one."""
    origin = request.headers.get("Origin", "")
    if origin and origin.partition("://")[2] != request.headers.get("Host", ""):
        raise AccessDeniedError(f"a form of {origin[:100]!r} may not log in here")


async def _form_of(request: web.Request) -> Mapping[str, str]:
    """Return the fields of a form. Raises InvalidRequestError if it is none, or too long."""
    length = request.content_length
    if length is None or length > FORM_BYTES_MAX:
        raise InvalidRequestError(f"a form here has at most {FORM_BYTES_MAX} bytes")
    if request.content_type != "application/x-www-form-urlencoded":
        raise InvalidRequestError("a form here is application/x-www-form-urlencoded")
    fields = await request.post()
    return {name: value for name, value in fields.items() if isinstance(value, str)}


async def _send(request: web.Request, answer: web.StreamResponse, file: ShownFile) -> None:
    """Send as much of a file as is asked for. Raises the error of a read."""
    answer.headers["Content-Disposition"] = file.disposition
    answer.content_length = file.size_bytes
    await answer.prepare(request)
    if request.method == "HEAD":
        return
    async for window in file.windows:
        try:
            await asyncio.wait_for(answer.write(window), STALLED_S)
        except TimeoutError:
            _give_up(request, f"the browser took nothing for {STALLED_S:g} s")
            return
        except ConnectionError:
            return  # it wants no more
    await answer.write_eof()


def _give_up(request: web.Request, why: str) -> None:
    """Close the connection, so that a part of a file does not pass for all of it."""
    _log.warning("a file was not sent whole", extra=facts(path=request.path_qs, why=why))
    if request.transport is not None:
        request.transport.abort()


def _sent(answer: ShownPage) -> web.Response:
    kind = answer.content_type
    return web.Response(
        status=answer.status,
        body=answer.body,
        headers=PAGE_HEADERS | {"Content-Type": f"{kind}; charset=utf-8"},
    )
