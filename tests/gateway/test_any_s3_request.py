"""Whatever comes to the door of S3: an answer of S3's kind, and no file is changed."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paxosblock import Client, LocalCluster
from paxosblock.gateway.s3.s3_operation_table import LACKING, LACKING_HEADERS
from tests.gateway.gateways import S3, RunningGateway, all_of, content, gateway_of, put
from tests.gateway.s3_clients import signed_request

QUIET = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
VERBS = ("GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW")
NAMES = (
    *("list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after"),
    *("encoding-type", "marker", "versions", "versionId", "partNumber", "delete", "location"),
    *("uploads", "uploadId", "max-parts", "max-uploads", "key-marker", "upload-id-marker"),
    *("response-content-type", "X-Amz-Expires", "Expires", "x-id", "", "öp", *LACKING),
)
VALUES = st.one_of(
    st.sampled_from(["", "2", "-1", "0", "1", "9" * 30, "/", "kept", "url", "null", "\0", "\r\n"]),
    st.text(max_size=12),
)
PIECES = st.one_of(
    st.sampled_from(["", ".", "..", "%2F", "%00", "%", "%ff", "a", "kept", "f", "ü", "+", "//"]),
    st.text(max_size=8).map(lambda text: quote(text, safe="")),
)
PATHS = st.one_of(
    st.lists(PIECES, max_size=5).map(lambda parts: "/" + "/".join(parts)),
    st.sampled_from(["/kept/f", "/kept", "/", "/kept/" + "x" * 1030, "/.staging/f", "/.s3/f"]),
)
HEADERS = st.one_of(
    st.sampled_from(
        [
            ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), ("x-amz-content-sha256", "x"),
            ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ("x-amz-decoded-content-length", "3"), ("x-amz-decoded-content-length", "-1"),
            ("x-amz-copy-source", "/kept/f"), ("x-amz-copy-source", "%ff"),
            ("x-amz-copy-source", "kept/f?versionId=x"), ("x-amz-trailer", "x-amz-checksum-crc32"),
            ("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-md5", "x"),
            ("content-md5", "x"), ("range", "bytes=1-"), ("range", "bytes=9-1"),
            ("if-match", "*"), ("if-none-match", "*"), ("if-modified-since", "x"),
            ("expect", "100-continue"), ("x-amz-meta-a", "x" * 3000), ("x-amz-date", "x"),
            ("x-amz-acl", "private"), ("x-amz-tagging", "=&a=%ff&&a"),
            ("content-encoding", "aws-chunked,gzip"),
        ]
    ),
    st.tuples(st.sampled_from(LACKING_HEADERS), st.just("x")),
)  # fmt: skip
BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"<Delete><Object><Key>f</Key></Object></Delete>", b"<Delete/>", b"<x", b"\xff<Delete>",
            b"<!DOCTYPE a [<!ENTITY x 'y'>]><Delete/>", b"3\r\nabc\r\n0\r\n\r\n", b"0\r\n\r\n",
            b"<Tagging/>", b"<Tagging><TagSet><Tag/></TagSet></Tagging>",
            b"<CreateBucketConfiguration/>", b"<CompleteMultipartUpload/>",
            b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>x</ETag></Part>"
            b"</CompleteMultipartUpload>",
        ]
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def quick(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """A gateway that soon gives up those who send halves of requests."""
    soon = {"PAXOSBLOCK_GATEWAY_REQUEST_HEAD_TIMEOUT": "1s", "PAXOSBLOCK_GATEWAY_IDLE_STREAM": "1s"}
    with gateway_of(cluster, tmp_path_factory.mktemp("quick"), *S3, **soon) as gateway:
        yield gateway
        log = gateway.log
    assert "Traceback" not in log, log


@pytest.fixture(scope="module")
def kept(fs: Client) -> Iterator[Client]:
    """A file of this user that no request of these tests may change: they ask as another."""
    fs.mkdirs("/kept")
    put(fs, "/kept/f", b"kept")
    before = fs.stat("/kept/f")
    yield fs
    assert (fs.stat("/kept/f"), content(fs, "/kept/f")) == (before, b"kept")
    assert [each.name for each in fs.ls("/kept")] == ["f"]


def check_answer(status: int, body: bytes) -> None:
    """Check that a refusal is one of S3's kind, and no defect."""
    if status >= 400 and body:
        root = ElementTree.fromstring(body)
        assert root.tag == "Error"
        assert root.findtext("Code")
        assert status < 500 or root.findtext("Code") in ("NotImplemented", "SlowDown"), body


@QUIET
@given(
    verb=st.sampled_from(VERBS),
    path=PATHS,
    parameters=st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=4),
    headers=st.lists(HEADERS, max_size=3),
    body=BODIES,
)
def test_any_signed_request_is_answered(  # noqa: PLR0917 - the parts of a request
    quick: RunningGateway,
    kept: Client,
    verb: str,
    path: str,
    parameters: list[tuple[str, str]],
    headers: list[tuple[str, str]],
    body: bytes,
) -> None:
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in parameters)
    target = quote(path, safe="/%+") + (f"?{query}" if query else "")
    reply = signed_request(quick.s3_url, verb, target, body, dict(headers), key_id="joe")
    check_answer(reply.status, reply.body)


LINES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"GET /kept/f HTTP/1.1",
            b"PUT /kept/f HTTP/1.1",
            b"DELETE /kept/f HTTP/1.1",
            b"POST /kept?delete HTTP/1.1",
            b"GET http://other/kept/f HTTP/1.1",
            b"OPTIONS * HTTP/1.1",
            b"CONNECT other:80 HTTP/1.1",
            b"GET /kept/f?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=////&a HTTP/1.1",
            b"GET /kept/f?AWSAccessKeyId=joe&Expires=99999999999&Signature=x HTTP/1.1",
        ]
    ),
)
LOOSE = st.one_of(
    st.sampled_from(
        [
            b"Host: 127.0.0.1", b"Content-Length: 5", b"Content-Length: -1", b"Expect: nonsense",
            b"Transfer-Encoding: chunked", b"Authorization: AWS4-HMAC-SHA256 Credential=a/b/c/d/e",
            b"Authorization: AWS joe:x", b"Authorization: AWS4-HMAC-SHA256", b"Authorization: ",
            b"Authorization: AWS4-HMAC-SHA256 Credential=joe/20130524/x/s3/aws4_request,"
            b"SignedHeaders=host,Signature=\xff", b"x-amz-date: 20130231T000000Z",
            b"x-amz-date: 20130524T000000Z", b"Date: x", b"Date: Fri, 99 May 2013 00:00:00 GMT",
            b"x-amz-content-sha256: UNSIGNED-PAYLOAD", b"Origin: null",
        ]
    ),
    st.binary(max_size=20),
)  # fmt: skip


@QUIET
@given(line=LINES, headers=st.lists(LOOSE, max_size=5), body=st.binary(max_size=60))
def test_any_bytes_are_refused_or_the_connection_ends(
    quick: RunningGateway, kept: Client, line: bytes, headers: list[bytes], body: bytes
) -> None:
    sent = b"\r\n".join([line, b"Connection: close", *headers, b"", b""]) + body
    came = all_of(quick.connect_s3(), sent)
    while came:
        head, _, rest = came.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        fields = dict(field.lower().split(b": ", 1) for field in head.split(b"\r\n")[1:])
        assert status == 100 or status >= 400, came
        length = int(fields.get(b"content-length", b"0")) if not line.startswith(b"HEAD") else 0
        check_answer(status, rest[:length])
        came = rest[length:]


def test_the_door_still_serves(quick: RunningGateway, kept: Client) -> None:
    """After all of that."""
    reply = signed_request(quick.s3_url, "GET", "/kept/f")
    assert (reply.status, reply.body) == (200, b"kept")
