"""Whatever comes to the port of a gateway: an answer of its door's kind, and no file is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paxosblock import Client, LocalCluster
from paxosblock.gateway.webhdfs.operation_table import LACKING
from paxosblock.gateway.webhdfs.webhdfs_door import OPERATIONS
from paxosblock.host.user import current_user
from tests.gateway.gateways import RunningGateway, content, gateway_of, put

QUIET = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
VERBS = ("GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW")
NAMES = (
    *("op", "OP", "offset", "length", "overwrite", "permission", "destination", "renameoptions"),
    *("user.name", "doas", "delegation", "recursive", "replication", "blocksize", "fsaction"),
    *("startafter", "noredirect", "createflag", "createparent", "owner", "group", "data"),
    *("accesstime", "modificationtime", "unknown", "", "öp"),
)
VALUES = st.one_of(
    st.sampled_from(["", "true", "-1", "0", "1", "777", "9" * 30, "/", "/kept", "nobody", "NONE"]),
    st.text(max_size=12),
)
PIECES = st.one_of(
    st.sampled_from(["", ".", "..", "%2F", "%00", "%", "%ff", "a", "kept", "ü", "+", ":", "\\"]),
    st.text(max_size=8).map(lambda text: quote(text, safe="")),
)
PATHS = st.one_of(
    st.lists(PIECES, max_size=6).map("/".join),
    st.sampled_from(["x" * 300, "x/" * 1_500, "x" * 10_000, "//", "/../../etc/passwd"]),
)


@pytest.fixture(scope="module")
def quick(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway that soon gives up those who send halves of requests."""
    soon = {"PAXOSBLOCK_GATEWAY_REQUEST_HEAD_TIMEOUT": "1s", "PAXOSBLOCK_GATEWAY_IDLE_STREAM": "1s"}
    with gateway_of(cluster, tmp_path_factory.mktemp("quick"), **soon) as gateway:
        yield gateway
        log = gateway.log
    assert "Traceback" not in log, log


@pytest.fixture(scope="module")
def kept(fs: Client) -> Iterator[Client]:
    """A file of this user that no request of these tests may change: they ask as others."""
    put(fs, "/kept", b"kept")
    before = fs.stat("/kept")
    yield fs
    assert (fs.stat("/kept"), content(fs, "/kept")) == (before, b"kept")


def check_answers(came: bytes) -> None:
    """Check that each answer is one of HTTP, and each refusal one of Hadoop's kind."""
    while came:
        head, _, rest = came.partition(b"\r\n\r\n")
        line, *fields = head.split(b"\r\n")
        version, status, _ = line.split(b" ", 2)
        assert version.startswith(b"HTTP/"), line
        headers = dict(field.lower().split(b": ", 1) for field in fields)
        if status == b"100":
            came = rest
            continue
        length = int(headers[b"content-length"])
        body, came = rest[:length], rest[length:]
        if int(status) >= 400 and body:
            told = json.loads(body)["RemoteException"]
            assert {*told} == {"exception", "javaClassName", "message"}
            assert told["javaClassName"].endswith(told["exception"])
            assert int(status) < 500, told


@QUIET
@given(
    verb=st.sampled_from(VERBS),
    op=st.one_of(st.sampled_from([*OPERATIONS, *LACKING]), VALUES),
    path=PATHS,
    parameters=st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6),
    version=st.sampled_from(["HTTP/1.1", "HTTP/1.0"]),
    body=st.binary(max_size=40),
)
def test_any_operation_is_answered(  # noqa: PLR0917 - the parts of a request
    quick: RunningGateway,
    kept: Client,
    verb: str,
    op: str,
    path: str,
    parameters: list[tuple[str, str]],
    version: str,
    body: bytes,
) -> None:
    assert current_user() not in dict(parameters).values()
    query = "&".join(f"{name}={quote(value)}" for name, value in [("op", op), *parameters])
    line = f"{verb} /webhdfs/v1/{path}?{query} {version}"
    head = f"{line}\r\nHost: {quick.address}\r\nConnection: close\r\nContent-Length: {len(body)}"
    if verb == "HEAD":  # its answer has a length and no body
        return
    came = quick.raw(f"{head}\r\n\r\n".encode("utf-8", "surrogateescape") + body)
    assert came.startswith(b"HTTP/1."), came
    check_answers(came)


HEADERS = st.one_of(
    st.sampled_from(
        [
            b"Host: 127.0.0.1", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: x",
            b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Expect: 100-continue",
            b"Expect: nonsense", b"Connection: close", b"Connection: Upgrade", b"Upgrade: h2c",
            b"Authorization: Bearer pb1.x", b"Authorization: Basic eDp4", b"Origin: null",
            b"Access-User: x", b": x", b"x", b"Content-Encoding: gzip", b"Range: bytes=0-1",
        ]
    ),
    st.binary(max_size=20),
)  # fmt: skip


@QUIET
@given(
    line=st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [
                b"GET /webhdfs/v1/kept?op=OPEN HTTP/1.1",
                b"PUT /webhdfs/v1/kept?op=CREATE&data=true&overwrite=true HTTP/1.1",
                b"POST /webhdfs/v1/kept?op=APPEND&data=true HTTP/1.1",
                b"DELETE /webhdfs/v1/kept?op=DELETE HTTP/1.1",
                b"GET http://other/webhdfs/v1/?op=LISTSTATUS HTTP/1.1",
                b"OPTIONS * HTTP/1.1",
                b"CONNECT other:80 HTTP/1.1",
                b"GET /webhdfs/v1 HTTP/2.0",
                b"PRI * HTTP/2.0",
            ]
        ),
    ),
    headers=st.lists(HEADERS, max_size=5),
    body=st.binary(max_size=60),
)
def test_any_bytes_are_answered_or_the_connection_ends(
    quick: RunningGateway, kept: Client, line: bytes, headers: list[bytes], body: bytes
) -> None:
    came = quick.raw(b"\r\n".join([line, b"Connection: close", *headers, b"", b""]) + body)
    if came and not line.startswith(b"GET /webhdfs/v1/kept"):
        check_answers(came)


def test_the_gateway_still_serves(quick: RunningGateway, kept: Client) -> None:
    """After all of that."""
    assert quick.read("/kept") == b"kept"


def test_more_parameters_than_any_program_sends_are_refused(quick: RunningGateway) -> None:
    reply = quick.send("GET", "/webhdfs/v1/?op=LISTSTATUS" + "&a=b" * 300)
    assert (reply.status, reply.exception) == (400, "IllegalArgumentException")


def test_paths_lead_nowhere_else(quick: RunningGateway, kept: Client, tmp_path: Path) -> None:
    for path, status in {
        "/a/../kept": 400,
        "/./kept": 400,
        "//kept": 400,
        "/%2E%2E/kept": 400,
        "/%2e%2e%2fkept": 400,
        "/kept%00": 400,
        "/kept%252F": 404,
        "/%6Bept": 200,
        "/kept/": 200,
        f"/{'x' * 10_000}": 400,
        f"/{'x' * 256}": 400,
        "/%C3%28": 400,
    }.items():
        reply = quick.send("GET", f"/webhdfs/v1{path}?op=GETFILESTATUS&user.name=joe")
        assert reply.status == status, (path, reply)
