"""The callers that get the status page over HTTP, as whom they do, and with which headers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from paxosblock.api.namenode import CREATE, MKDIRS, MakeDirectories
from paxosblock.api.user_tokens import ISSUE_TOKEN, IssueToken, TokenRight
from paxosblock.config import NameNodeConfig, PageFor
from paxosblock.host.user import claimed_user
from paxosblock.namenode import namenode_server
from paxosblock.net.calls import control
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port import page_door
from paxosblock.net.port.access import Access, make_secret
from paxosblock.net.port.bearer import is_here
from paxosblock.net.port.page_door import COOKIE, PAGE_HEADERS
from tests.namenode.scene import create_request

PAGES = ("/", "/page.json", "/files", "/files.json", "/writers", "/unwhole", "/page.css", "/login")


@asynccontextmanager
async def served(folder: Path, **settings: Any) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """A NameNode with a file, and a browser that follows no redirect; it keeps cookies."""
    config = NameNodeConfig(heartbeat_interval_s=0.1, **settings)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(
            namenode_server.running(config, listen="127.0.0.1:0", path=folder / "nn", node_id="nn")
        )
        client = await stack.enter_async_context(RpcClient(Access.of_node(config, serves=False)))
        for method, request in (
            (CREATE, create_request("/mine/secret-name")),
            (MKDIRS, MakeDirectories("/closed", permission=0o700)),
            (MKDIRS, MakeDirectories("/closed/inner")),
        ):
            await client.call(node.address, method.name, request, method.answer, 5.0)
        jar = aiohttp.CookieJar(unsafe=True)
        browser = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=jar))
        yield f"http://{node.address}", browser


async def text(browser: aiohttp.ClientSession, url: str, **others: Any) -> tuple[int, str]:
    """Status and text of a page."""
    async with browser.get(url, allow_redirects=False, **others) as answer:
        return answer.status, await answer.text()


async def test_every_page_has_the_headers_that_keep_it_harmless(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, browser):
        for path in PAGES:
            async with browser.get(url + path) as answer:
                assert PAGE_HEADERS.items() <= answer.headers.items(), path
        policy = PAGE_HEADERS["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


async def test_a_page_is_read_and_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, browser):
        async with browser.head(url) as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        for verb in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            async with browser.request(verb, f"{url}/files") as answer:
                assert answer.status == 405, verb


async def test_a_caller_without_a_name_is_nobody_and_one_may_claim_one(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, browser):
        status, said = await text(browser, f"{url}/files?path=/closed")
        assert (status, "Permission denied: user=nobody" in said) == (403, True)
        status, said = await text(browser, f"{url}/files?path=/mine")
        assert (status, "secret-name" in said) == (200, True)
        claimed = {"Access-User": claimed_user()}
        assert (await text(browser, f"{url}/files?path=/closed", headers=claimed))[0] == 200
        form = {"user": claimed_user()}
        async with browser.post(f"{url}/login", data=form, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await text(browser, f"{url}/files?path=/closed"))[0] == 200
        assert f"<strong>{claimed_user()}</strong>" in (await text(browser, f"{url}/"))[1]


async def test_a_site_whose_name_leads_here_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, browser):
        for path in ("/", "/page.json", "/login"):
            status, said = await text(browser, url + path, headers={"Host": "evil.example"})
            assert (status, "no name of this node" in said) == (403, True), path
        port = url.rpartition(":")[2]
        assert (await text(browser, url, headers={"Host": f"localhost:{port}"}))[0] == 200
        async with browser.post(
            f"{url}/login", data={"user": "me"}, headers={"Origin": "http://evil.example"}
        ) as answer:
            assert answer.status == 403


async def test_without_proof_only_callers_on_this_machine_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_door, "is_here", lambda remote: False)
    async with served(tmp_path / "a") as (url, browser):
        status, said = await text(browser, url)
        assert (status, "callers on this machine" in said) == (403, True)
    async with served(tmp_path / "b", page=PageFor.ALL) as (url, browser):
        assert (await text(browser, url))[0] == 200
    async with served(tmp_path / "c", page=PageFor.NONE) as (url, browser):
        assert (await text(browser, url, headers={"Authorization": "x"}))[0] == 404


@pytest.mark.parametrize(
    ("remote", "here"),
    [
        *((each, True) for each in ("127.0.0.1", "::1", "::ffff:127.0.0.9")),
        *((each, False) for each in ("10.0.0.1", "::ffff:10.0.0.1", "", None, "fe80::1%eth0")),
    ],
)
def test_this_machine_is_loopback(remote: str | None, *, here: bool) -> None:
    assert is_here(remote) is here


def issued(url: str, access: Access, rights: TokenRight) -> str:
    address = url.removeprefix("http://")
    request = IssueToken(60, int(rights))
    return control.call(address, ISSUE_TOKEN, request, 10.0, access).token


async def test_with_a_secret_a_token_for_the_page_opens_it(tmp_path: Path) -> None:
    make_secret(tmp_path / "secret")
    access, soon = Access.of(str(tmp_path / "secret")), int(time.time()) + 60
    proof = access.request_proof("page", soon, "")
    async with served(tmp_path, access_file=str(tmp_path / "secret")) as (url, browser):
        status, said = await text(browser, f"{url}/files")
        assert (status, 'name="token"' in said, "mine" in said) == (403, True, False)
        assert (await text(browser, f"{url}/page.json"))[0] == 403
        own = await asyncio.to_thread(issued, url, access, TokenRight.READ)
        blind = await asyncio.to_thread(issued, url, access, TokenRight.WRITE)
        for wrong in ("", "nonsense", proof, blind, own[:-9]):
            form = {"token": wrong, "user": "me"}
            async with browser.post(f"{url}/login", data=form, allow_redirects=False) as answer:
                assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)
        bearer = {"Authorization": f"Bearer {own}"}
        assert (await text(browser, f"{url}/page.json", headers=bearer))[0] == 200
        form = {"token": own, "user": claimed_user()}
        async with browser.post(f"{url}/login", data=form, allow_redirects=False) as answer:
            assert answer.status == 303
        status, said = await text(browser, f"{url}/files?path=/closed")
        assert (status, "inner" in said) == (200, True)
        # The name of the node may be any here: a site that leads to it has no cookie of it.
        named = {"Host": "node1.example", "Cookie": _cookie(browser, url)}
        assert (await text(browser, f"{url}/", headers=named))[0] == 200


def _cookie(browser: aiohttp.ClientSession, url: str) -> str:
    (kept,) = browser.cookie_jar
    assert kept.key == COOKIE
    return f"{kept.key}={kept.value}"


async def test_a_name_that_no_user_has_and_a_form_that_is_none_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, browser):
        for data, status in (({"user": "a,b"}, 403), ({"user": "x" * 9000}, 400), (b"{}", 400)):
            async with browser.post(f"{url}/login", data=data, allow_redirects=False) as answer:
                assert (answer.status, "Set-Cookie" in answer.headers) == (status, False)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("path=/nope", 404),
        ("path=nope", 400),
        ("path=", 400),
        ("path=/" + "a" * 300, 400),
        ("path=" + "/a" * 1500, 400),
        ("path=" + "/a" * 50, 404),
        ("path=/%1b%5b31m%0a%00", 400),
        ("path=/%1b%5b31m%0a", 404),
        ("path=/%ff%fe", 404),
        ("path=/%f0%9f%92%a9", 404),
        ("path=/mine/..", 400),
        ("path=/mine/secret-name&place=99999999999999999999999", 400),
        ("path=/&after=%00", 200),
        ("path=/" + "a" * 10_000, 400),
    ],
)
async def test_a_path_that_leads_nowhere_gets_a_small_answer(
    tmp_path: Path, query: str, status: int
) -> None:
    async with served(tmp_path) as (url, browser):
        for page in ("/files", "/files.json"):
            wanted = URL(f"{url}{page}?{query}", encoded=True)
            async with browser.get(wanted) as answer:
                said = await answer.text()
                assert (answer.status, len(said) < 9000) == (status, True)
                assert "Traceback" not in said
                assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", said)
