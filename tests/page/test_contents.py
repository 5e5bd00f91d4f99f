"""The bytes of files from the page: to those who may read them, whole, and as what nothing runs."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPResponse, IncompleteRead
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.config import NameNodeConfig
from paxosblock.host.user import claimed_user
from paxosblock.namenode import namenode_server
from paxosblock.net.port import page_door
from paxosblock.net.port.page_door import DOWNLOADS_MAX
from paxosblock.page.contents import FIRST_BYTES, WINDOW_BYTES, kept_as
from tests.secure import url_of
from tests.waiting import wait_until, wait_until_async

MIB = 1 << 20
EVIL = 'a";\r\nX-Evil: 1\r\n\r\n<script>.html'
LARGE = b"x" * (64 * MIB)
"""More than the kernel keeps for a browser that does not read."""
LONG = bytes(range(256)) * (3 * MIB // 256) + b"the end"


@dataclass(frozen=True)
class Stored:
    """A cluster with files."""

    cluster: LocalCluster
    fs: Client

    def open(self, page: str, path: str, user: str = "", *, head: bool = False) -> HTTPResponse:
        """Ask for a page of a file."""
        url = url_of(self.cluster.namenode.address, f"{page}?path={quote(path)}")
        headers = {"Access-User": user or claimed_user()}
        request = urllib.request.Request(url, headers=headers, method="HEAD" if head else "GET")
        answer = urllib.request.urlopen(request, timeout=60)
        assert isinstance(answer, HTTPResponse)
        return answer


@pytest.fixture(scope="module")
def stored() -> Iterator[Stored]:
    with LocalCluster(datanodes=3) as cluster, Client(cluster.url, replication=2) as fs:
        cluster.wait_registered()
        for path, content in (
            ("/d/long", LONG),
            ("/d/empty", b""),
            (f"/d/{EVIL}", b"<script>alert(1)</script>\n\x1b[31m\xff\n"),
        ):
            with fs.create(path, block_size=MIB) as file:
                file.write(content)
        with fs.create("/d/large", block_size=8 * MIB) as file:
            file.write(LARGE)
        with fs.create("/private") as file:
            file.write(b"mine")
        fs.set_permission("/private", 0o600)
        yield Stored(cluster, fs)


def test_a_file_of_several_blocks_is_sent_whole(stored: Stored) -> None:
    assert len(LONG) > 2 * WINDOW_BYTES
    with stored.open("download", "/d/long") as answer:
        assert answer.headers["Content-Length"] == str(len(LONG))
        assert answer.read() == LONG
    with stored.open("download", "/d/empty") as answer:
        assert answer.read() == b""


def test_nothing_in_a_file_or_in_its_name_acts_in_a_browser(stored: Stored) -> None:
    with stored.open("download", f"/d/{EVIL}") as answer:
        headers = dict(answer.headers)
        assert answer.read().startswith(b"<script>")
    assert headers["Content-Type"] == "application/octet-stream"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in headers["Content-Security-Policy"]
    assert headers["Content-Disposition"] == kept_as(f"/d/{EVIL}")
    assert "X-Evil" not in headers
    with stored.open("preview", f"/d/{EVIL}") as answer:
        page = answer.read().decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\n\\x1b[31m\\xff" in page
    assert "<script>alert" not in page


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/a b.txt", "attachment; filename=\"a b.txt\"; filename*=UTF-8''a%20b.txt"),
        (f"/{EVIL}", None),
        ("/\u202eg.exe", "attachment; filename=\"_g.exe\"; filename*=UTF-8''%E2%80%AEg.exe"),
    ],
)
def test_a_name_stands_in_the_header_without_what_means_something_there(
    path: str, header: str | None
) -> None:
    found = kept_as(path)
    assert header in (None, found)
    assert found.isascii()
    assert found.isprintable()
    assert found.count('"') == 2


@pytest.mark.plain("it claims to be others, whom a certificate does not name")
def test_only_who_may_read_a_file_gets_its_bytes(stored: Stored) -> None:
    for page in ("download", "preview", "preview.json"):
        with pytest.raises(HTTPError) as refused:
            stored.open(page, "/private", "nobody")
        with refused.value as answer:
            assert (answer.code, b"mine" in answer.read()) == (403, False)
        with pytest.raises(HTTPError) as missing:
            stored.open(page, "/nope")
        with missing.value as answer:
            assert answer.code == 404
        with pytest.raises(HTTPError) as directory:
            stored.open(page, "/d")
        with directory.value as answer:
            assert answer.code == 409
    with stored.open("download", "/private") as answer:
        assert answer.read() == b"mine"


def test_the_first_bytes_are_those_of_a_long_file(stored: Stored) -> None:
    with stored.open("preview", "/d/long") as answer:
        page = answer.read().decode()
    assert f"The first {FIRST_BYTES} of {len(LONG)} bytes" in page
    with stored.open("preview", "/d/empty") as answer:
        assert "All of its 0 bytes" in answer.read().decode()


def test_the_head_of_a_download_has_no_bytes(stored: Stored) -> None:
    with stored.open("download", "/d/long", head=True) as answer:
        assert (answer.headers["Content-Length"], answer.read()) == (str(len(LONG)), b"")


def test_a_file_that_is_being_written_is_sent_as_far_as_it_was_flushed(stored: Stored) -> None:
    with stored.fs.create("/open") as file:
        file.write(b"acknowledged")
        file.flush()
        with stored.open("download", "/open") as answer:
            assert answer.read() == b"acknowledged"
        with stored.open("preview", "/open") as answer:
            assert b"acknowledged" in answer.read()


def test_a_file_is_linked_from_its_page(stored: Stored) -> None:
    with stored.open("files", "/d/long") as answer:
        page = answer.read().decode()
    assert 'href="/download?path=/d/long">' in page
    assert 'href="/preview?path=/d/long">' in page


def test_a_download_whose_blocks_are_gone_breaks_off_and_does_not_pass_for_whole(
    stored: Stored,
) -> None:
    answer = stored.open("download", "/d/large")
    began = answer.read(1000)
    for node in stored.cluster.datanodes:
        node.kill()
    with answer, pytest.raises((IncompleteRead, ConnectionError)):
        began += answer.read()
    for node in stored.cluster.datanodes:
        node.start()
    stored.cluster.wait_registered()
    with stored.open("download", "/d/large") as again:
        assert again.read() == LARGE


def test_a_node_sends_a_few_files_at_once_and_says_so_to_others(stored: Stored) -> None:
    with ExitStack() as stack:
        for _ in range(DOWNLOADS_MAX):
            stack.enter_context(stored.open("download", "/d/large"))
        with pytest.raises(HTTPError) as refused:
            stored.open("download", "/d/long")
        with refused.value as answer:
            assert (answer.code, b"paxosblock fs get" in answer.read()) == (503, True)

    def sent() -> bool:
        try:
            with stored.open("download", "/d/long") as answer:
                return answer.read() == LONG
        except HTTPError as error:
            error.close()
            return False

    wait_until(sent, what="the node has left those who went away")


class Endless:
    """A file of which there is always more."""

    size = 1 << 40

    async def pread(self, offset: int, size: int) -> bytes:
        """Return zeros."""
        return bytes(size)


class EndlessContents:
    """Each path leads to such a file."""

    @asynccontextmanager
    async def open(self, path: str) -> AsyncIterator[Endless]:
        """Open it."""
        yield Endless()


async def test_a_browser_that_takes_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(page_door, "STALLED_S", 0.1)
    config = NameNodeConfig(heartbeat_interval_s=0.1)
    async with namenode_server.running(
        config,
        listen="127.0.0.1:0",
        path=tmp_path / "nn",
        node_id="nn",
        contents_of=lambda own, access: EndlessContents(),
    ) as node:
        host, _, port = node.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(f"GET /download?path=/f HTTP/1.1\r\nHost: {node.address}\r\n\r\n".encode())
        await wait_until_async(lambda: "a file was not sent whole" in caplog.text)
        with contextlib.suppress(ConnectionError):
            while await reader.read(MIB):
                pass
        writer.close()


def test_in_a_secure_cluster_a_user_with_a_certificate_gets_a_file() -> None:
    with (
        LocalCluster(datanodes=1, secure=True) as cluster,
        Client(cluster.url, cluster.client_config, replication=1) as fs,
    ):
        with fs.create("/f") as file:
            file.write(b"signed for")
        config = cluster.client_config
        context = ssl.create_default_context(cafile=str(config.tls_ca))
        context.check_hostname = False
        context.load_cert_chain(str(config.tls_cert))
        url = f"https://{cluster.namenode.address}/download?path=/f"
        with urllib.request.urlopen(url, context=context, timeout=60) as answer:
            assert answer.read() == b"signed for"
