"""Whatever comes to the door of S3: an answer of S3's kind, and no file is changed."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import Kind
from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.gateway.s3.s3_operation_table import LACKING, LACKING_HEADERS
from tests.gateway.gateways import S3, RunningGateway, all_of, content, gateway_of, put
from tests.gateway.s3_clients import send, signed_request

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


FIELDS = st.one_of(
    st.tuples(
        st.sampled_from(
            [
                "key", "KEY", "policy", "signature", "acl", "tagging", "bucket", "file", "redirect",
                "success_action_status", "success_action_redirect", "content-type", "content-md5",
                "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature",
                "x-amz-meta-a", "x-ignore-a", "x-amz-checksum-crc32", "x-amz-storage-class",
                "x-amz-security-token", *LACKING_HEADERS,
            ]
        ),
        st.one_of(
            st.sampled_from(
                [
                    "", "f", "d/${filename}", "../kept/f", "d//f", "x" * 1030, "201", "private",
                    "AWS4-HMAC-SHA256", "joe/20130524/x/s3/aws4_request", "20130524T000000Z",
                    "AAAAAA==", "<Tagging/>", "text/x\r\nSet-Cookie: y", "http://a/?b#c", "e30=",
                ]
            ),
            st.text(max_size=12),
        ),
    ),
    st.tuples(st.text(max_size=8), st.text(max_size=8)),
)  # fmt: skip
CONDITIONS = st.one_of(
    st.sampled_from([{"bucket": "open"}, {"bucket": "kept"}, ["content-length-range", 0, 5]]),
    st.tuples(
        st.sampled_from(["starts-with", "eq", "in"]),
        st.sampled_from(["$key", "$Content-Type", "$x-amz-meta-a", "$success_action_status", "$"]),
        st.sampled_from(["", "f", "d/", "201"]),
    ),
    st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4),
)
PIECES_OF_FORMS = st.sampled_from(
    [b"\r\n", b"--", b"a-b", b"--a-b", b"\r\n--a-b--", b"\0", b": ", b";", b"Content-Type:"]
)


def mostly(value: Any, others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Three of four times this value."""
    return st.integers(0, 3).flatmap(lambda drawn: st.just(value) if drawn else others)


@st.composite
def forms(draw: st.DrawFn) -> bytes:
    """A form that joe signed, or did not, whole or broken."""
    fields = draw(mostly([], st.lists(FIELDS, max_size=4)))
    if draw(mostly(True, st.just(False))):
        until = draw(mostly("2099-01-01T00:00:00Z", st.sampled_from(["2013-01-01", "soon"])))
        named = [["starts-with", f"${name}", ""] for name, _ in [*fields, ("key", "")]]
        lax = [{"bucket": "open"}, *named]
        conditions = draw(mostly(lax, st.lists(CONDITIONS, max_size=4)))
        said = json.dumps({"expiration": until, "conditions": conditions})
        policy = base64.b64encode(said.encode())
        made = base64.b64encode(hmac.digest(OPEN_SECRET.encode(), policy, "sha1")).decode()
        proof = [("AWSAccessKeyId", "joe"), ("policy", policy.decode()), ("signature", made)]
        fields = [*proof, ("key", draw(st.sampled_from(["f", "d/${filename}"]))), *fields]
    lines = [
        f'--a-b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    ]
    head = '--a-b\r\nContent-Disposition: form-data; name="file"; filename="{}"\r\n\r\n'
    name = draw(st.sampled_from(["g", "..", "ü", "a/b\\c", ""]))
    before = "".join([*lines, head.format(name)]).encode(errors="replace")
    sent = before + draw(st.binary(max_size=40)) + b"\r\n--a-b--\r\n"
    if draw(mostly(True, st.just(False))):
        return sent
    at = draw(st.integers(0, len(sent)))
    put_in = draw(st.just(b"") | PIECES_OF_FORMS | st.binary(max_size=4))
    return sent[:at] + put_in + sent[at + draw(st.integers(0, 9)) :]


@pytest.fixture(scope="module")
def open_bucket(fs: Client) -> str:
    """A bucket in which joe may make objects."""
    fs.mkdirs("/open")
    fs.set_permission("/open", 0o777)
    return "/open"


TYPES = st.sampled_from(
    [b"", b"multipart/form-data", b"multipart/form-data; boundary=", b"text/plain; boundary=a-b"]
)


@settings(QUIET, max_examples=200)
@given(
    path=mostly("/open", st.sampled_from(["/open/", "/kept", "/kept/f", "/", "/none", "/.s3"])),
    kind=mostly(b"multipart/form-data; boundary=a-b", TYPES),
    form=forms(),
)
def test_any_form_makes_the_object_that_its_policy_lets_or_none(  # noqa: PLR0917 - parts of a form
    quick: RunningGateway, kept: Client, open_bucket: str, path: str, kind: bytes, form: bytes
) -> None:
    said = {"Content-Type": kind.decode()}
    reply = send(quick.s3_url, "POST", path, form, said)
    check_answer(reply.status, reply.body)
    made = [each for each in kept.walk(open_bucket) if each.kind is Kind.FILE]
    assert len(made) == (reply.status < 400), (reply, made)
    for each in made:
        assert content(kept, each.path) in form
        kept.delete(each.path)


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
