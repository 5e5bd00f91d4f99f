"""The addresses of the pages of a node, and the answer at each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from paxosblock.base.version import __version__
from paxosblock.errors import PaxosBlockError
from paxosblock.page import rendering, views
from paxosblock.page.contents import (
    Contents,
    FirstBytes,
    first_bytes,
    kept_as,
    windows,
)
from paxosblock.page.views import Calls, Query

HTML: Final = "text/html"
JSON: Final = "application/json"
STATIC: Final = {"/page.css": "text/css", "/page.js": "text/javascript"}
LOGIN: Final = "/login"
DOWNLOAD: Final = "/download"


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The answer to a request for one address."""

    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Download:
    """A file that a browser is to keep."""

    disposition: str
    """The header that names it."""
    size_bytes: int
    windows: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True)
class _View:
    """A page: the struct of it, its template, and what stands above it."""

    make: Callable[[Calls, Query], Awaitable[msgspec.Struct]]
    template: str
    title: str


_OF_NAMENODE: Final = {
    "/": _View(views.first_page, "overview.html", "Overview"),
    "/files": _View(views.files, "files.html", "Files"),
    "/block": _View(views.block, "block.html", "Block"),
    "/writers": _View(views.writers, "writers.html", "Writers"),
    "/unwhole": _View(views.unwhole, "unwhole.html", "Blocks that are not whole"),
}
_OF_DATANODE: Final = {"/": _View(views.datanode, "datanode.html", "DataNode")}

_OF_GATEWAY: Final = {"/": _View(views.gateway, "gateway.html", "Gateway")}


class Site:
    """The pages of one node: each as HTML, and the same struct as JSON (`/` as `/page.json`)."""

    def __init__(
        self,
        role: str,
        name: str,
        calls: Calls,
        pages: Mapping[str, _View],
        scheme: str,
        *,
        contents: Contents | None = None,
        login: str = LOGIN,
    ) -> None:
        """Use `of_namenode` and so on. Other nodes have their pages at `scheme`://. Without
        `contents` no page shows bytes of files, without `login` there is no form to log in with."""
        self._common = {
            "role": role,
            "node": name,
            "scheme": scheme,
            "version": __version__,
            "shows_bytes": contents is not None,
            "login": login,
        }
        self._calls = calls
        self._contents = contents
        if contents is not None:
            pages = {**pages, "/preview": _first_bytes_of(contents)}
        self._pages = pages
        self._as_json = {
            "/page.json" if path == "/" else f"{path}.json": view for path, view in pages.items()
        }

    @classmethod
    def of_namenode(
        cls, name: str, calls: Calls, scheme: str, contents: Contents | None = None
    ) -> Site:
        """Return that of a NameNode."""
        return cls("NameNode", name, calls, _OF_NAMENODE, scheme, contents=contents)

    @classmethod
    def of_datanode(cls, name: str, calls: Calls, scheme: str) -> Site:
        """Return that of a DataNode."""
        return cls("DataNode", name, calls, _OF_DATANODE, scheme)

    @classmethod
    def of_gateway(cls, name: str, calls: Calls, scheme: str) -> Site:
        """Return that of a gateway."""
        return cls("gateway", name, calls, _OF_GATEWAY, scheme, login="")

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the addresses of all pages."""
        return (*self._pages, *self._as_json)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the addresses of what pages need beside themselves; it is the same for all."""
        return tuple(STATIC)

    @property
    def downloads(self) -> tuple[str, ...]:
        """Return the addresses at which browsers get files to keep."""
        return (DOWNLOAD,) if self._contents is not None else ()

    @asynccontextmanager
    async def download(self, query: Query) -> AsyncIterator[Download]:
        """Open a file for a block. Raises the cluster's error if the caller may not have it."""
        assert self._contents is not None, "there is no address of downloads"
        path = query.get("path", "")
        async with self._contents.open(path) as file:
            yield Download(kept_as(path), file.size, windows(file))

    def file(self, path: str) -> PageAnswer:
        """Return one of `files`."""
        return PageAnswer(HTTPStatus.OK, STATIC[path], rendering.static(path[1:]))

    async def page(self, path: str, query: Query, user: str) -> PageAnswer:
        """Return one of the pages at `paths`, for a `user`; a small error page if there is none."""
        as_json = path in self._as_json
        view = self._as_json[path] if as_json else self._pages[path]
        try:
            page = await view.make(self._calls, query)
            if as_json:
                return PageAnswer(HTTPStatus.OK, JSON, rendering.json(page))
            body = await self._html(view.template, view.title, user, page=page)
            return PageAnswer(HTTPStatus.OK, HTML, body)
        except PaxosBlockError as error:
            asked = f"{path}?{urlencode(query, errors='surrogatepass')}"
            return await self.refusal(error, user, as_json=as_json, asked=asked)

    async def refusal(
        self, error: PaxosBlockError, user: str = "", *, as_json: bool = False, asked: str = ""
    ) -> PageAnswer:
        """Return a page that says why there is no other, with a link to where `asked` would lead
        at the NameNode that leads."""
        status = HTTPStatus(error.http_status)
        if as_json:
            told = {"error": type(error).__name__, "reason": str(error)}
            return PageAnswer(status, JSON, msgspec.json.encode(told))
        title = f"{status.value} {status.phrase}"
        leader = str(error.details.get("leader", "")) if asked else ""
        body = await self._html(
            "error.html", title, user, reason=str(error), leader=leader, asked=asked
        )
        return PageAnswer(status, HTML, body)

    async def login(self, user: str, *, with_token: bool, why: str = "") -> PageAnswer:
        """Return the form by which a person says who they are: with a token, where one is wanted.
        `why` tells why what they wrote was refused."""
        status = HTTPStatus.FORBIDDEN if why else HTTPStatus.OK
        body = await self._html("login.html", "Log in", user, with_token=with_token, why=why)
        return PageAnswer(status, HTML, body)

    async def _html(self, template: str, title: str, user: str, **values: Any) -> bytes:
        common = self._common | {"title": title, "user": user}
        return await rendering.html(template, common | values)


def _first_bytes_of(contents: Contents) -> _View:
    async def make(_: Calls, query: Query) -> FirstBytes:
        return await first_bytes(contents, query.get("path", ""))

    return _View(make, "preview.html", "First bytes")
