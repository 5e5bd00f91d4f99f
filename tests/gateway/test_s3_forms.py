"""Objects that pages in browsers send by a form, whose policy somebody with a key has signed; and
pages that may ask at all."""

from __future__ import annotations

import asyncio
import base64
import hmac
import itertools
import json
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.config import GatewayConfig
from paxosblock.errors import ConfigError
from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.gateway.s3.allowed_pages import AllowedPages
from paxosblock.gateway.s3.form_bodies import FIELDS_BYTES_MAX, FormBody, boundary_of
from paxosblock.gateway.s3.post_policies import PostPolicy
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error
from paxosblock.host.user import current_user
from tests.gateway.gateways import S3, Reply, RunningGateway, content, gateway_of
from tests.gateway.s3_clients import error_code, s3_client, send

BOUNDARY = "--a-b'"
PAGE = "https://app.example.org"
NOW_S = 1_795_852_014.0

Fields = Sequence[tuple[str, str]]


@pytest.fixture(scope="module")
def gateway(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """One that pages of one origin may ask."""
    pages = {"PAXOSBLOCK_GATEWAY_S3_CORS_ORIGINS": PAGE}
    with gateway_of(cluster, tmp_path_factory.mktemp("pages"), *S3, **pages) as gateway:
        yield gateway
        log = gateway.log
    assert "Traceback" not in log, log


@pytest.fixture(scope="module")
def other(gateway: RunningGateway) -> Any:
    """A program of S3 at it."""
    return s3_client(gateway.s3_url)


def form(fields: Fields, file: bytes, name: str = "dir\\ü f.txt") -> bytes:
    """Return a form as a browser sends it."""
    lines = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'
        for field, value in fields
    ]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
    end = f'\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name="submit"\r\n\r\nUpload'
    before, behind = "".join([*lines, head]), f"{end}\r\n--{BOUNDARY}--\r\n"
    return before.encode() + b"Content-Type: text/plain\r\n\r\n" + file + behind.encode()


def post(
    gateway: RunningGateway, bucket: str, fields: Fields, file: bytes, **headers: str
) -> Reply:
    """Send a form."""
    said = {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"', **headers}
    return send(gateway.s3_url, "POST", f"/{bucket}", form(fields, file), said)


def signed(bucket: str, conditions: Sequence[object], fields: Fields, ends_s: int = 60) -> Fields:
    """Return a form's fields with a policy of these conditions beside those of the fields."""
    until = datetime.now(UTC) + timedelta(seconds=ends_s)
    said = {
        "expiration": until.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "conditions": [{"bucket": bucket}, *conditions],
    }
    policy = base64.b64encode(json.dumps(said).encode())
    made = hmac.digest(OPEN_SECRET.encode(), policy, "sha1")
    proof = [
        ("AWSAccessKeyId", current_user()),
        ("policy", policy.decode()),
        ("signature", base64.b64encode(made).decode()),
    ]
    return [*proof, *fields]


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_forms_of_boto3_make_objects(
    gateway: RunningGateway, other: Any, bucket: str, fs: Client, version: str
) -> None:
    client = s3_client(gateway.s3_url, signature_version=version)
    more = {"Content-Type": "text/x", "success_action_status": "201", "x-amz-meta-a": "b"}
    made = client.generate_presigned_post(
        bucket,
        "d/${filename}",
        Fields=more,
        Conditions=[{name: value} for name, value in more.items()]
        + [["content-length-range", 0, 1 << 20]],
    )
    assert urlsplit(made["url"]).path == f"/{bucket}"
    file = bytes(range(256)) * 2000
    reply = post(gateway, bucket, [*made["fields"].items()], file, Origin=PAGE)
    assert reply.status == 201, reply
    assert reply.headers["Access-Control-Allow-Origin"] == PAGE
    told = ElementTree.fromstring(reply.body)
    assert (told.tag, told.findtext("Key")) == ("PostResponse", "d/ü f.txt")
    got = other.head_object(Bucket=bucket, Key="d/ü f.txt")
    assert (got["ETag"], got["ContentType"], got["Metadata"]) == (
        told.findtext("ETag"), "text/x", {"a": "b"}
    )  # fmt: skip
    assert content(fs, f"/{bucket}/d/ü f.txt") == file


def test_a_form_says_what_is_answered(gateway: RunningGateway, bucket: str) -> None:
    any_key = ["starts-with", "$key", ""]

    def answered(**fields: str) -> Reply:
        named = [*{"key": "f", **fields}.items()]
        said = [any_key, *({name: value} for name, value in fields.items())]
        return post(gateway, bucket, signed(bucket, said, named), b"x")

    assert answered().status == 204
    assert answered(success_action_status="200").status == 200
    assert answered(success_action_status="404").status == 204
    page = answered(success_action_redirect="http://there.example/a?b=c#d")
    place, _, rest = page.headers["Location"].partition("&etag=")
    assert (page.status, place) == (303, f"http://there.example/a?b=c&bucket={bucket}&key=f")
    assert rest == f"{quote(page.headers['ETag'])}#d"
    assert answered(redirect="javascript:alert(1)").status == 204


def test_a_form_that_its_policy_does_not_let_makes_nothing(
    gateway: RunningGateway, bucket: str, other: Any
) -> None:
    begins = ["starts-with", "$key", "mine/"]
    good = [("key", "mine/f")]

    def code(fields: Fields, file: bytes = b"12345", **headers: str) -> str:
        return error_code(post(gateway, bucket, fields, file, **headers))

    assert code(good) == "AccessDenied"  # nobody signed it
    assert code(signed(bucket, [begins], [("key", "other/f")])) == "AccessDenied"
    assert code(signed("other", [begins], good)) == "AccessDenied"
    assert code(signed(bucket, [begins], good, ends_s=-1)) == "AccessDenied"
    assert code(signed(bucket, [begins], [*good, ("x-amz-meta-a", "b")])) == "AccessDenied"
    assert code(signed(bucket, [begins], good), Origin="https://evil.example") == "AccessDenied"
    assert code([*signed(bucket, [begins], good)][:-2]) == "InvalidArgument"
    wrong = [(name, "x" if name == "signature" else at) for name, at in signed(bucket, [], good)]
    assert code(wrong) == "SignatureDoesNotMatch"
    sizes = [begins, ["content-length-range", 2, 4]]
    assert code(signed(bucket, sizes, good)) == "EntityTooLarge"
    assert code(signed(bucket, sizes, good), b"1") == "EntityTooSmall"
    assert code(signed(bucket, [begins], [])) == "AccessDenied"  # there is no key
    acl = [*good, ("acl", "public-read")]
    assert code(signed(bucket, [begins, {"acl": "public-read"}], acl)) == "NotImplemented"
    bare = send(gateway.s3_url, "POST", f"/{bucket}", b"", {"Content-Type": "text/plain"})
    assert error_code(bare) == "AccessDenied"
    assert "Contents" not in other.list_objects_v2(Bucket=bucket)


def test_a_page_may_ask_if_its_origin_is_named(
    gateway: RunningGateway, bucket: str, other: Any
) -> None:
    other.put_object(Bucket=bucket, Key="f", Body=b"x")
    link = other.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "f"})
    target = link.removeprefix(gateway.s3_url)
    asks = {"Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-amz-date"}
    for origin, status, allowed in ((PAGE, 200, PAGE), ("https://x.example", 403, None)):
        for method, more in (("GET", {}), ("OPTIONS", asks)):
            reply = send(gateway.s3_url, method, target, b"", {"Origin": origin, **more})
            assert (reply.status, reply.headers.get("Access-Control-Allow-Origin")) == (
                status, allowed
            )  # fmt: skip
    reply = send(gateway.s3_url, "OPTIONS", target, b"", {"Origin": PAGE, **asks})
    assert reply.headers["Access-Control-Allow-Headers"] == "x-amz-date"
    missing = send(gateway.s3_url, "GET", f"/{bucket}/none", b"", {"Origin": PAGE})
    assert missing.headers["Access-Control-Allow-Origin"] == PAGE, "it may read refusals, too"


@pytest.mark.parametrize("text", ["*", "app.example.org", "https://a.example/x", "https://[", "a"])
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no origin"):
        AllowedPages.of(GatewayConfig(s3_cors_origins=text).s3_cors_origins)


# -- parts of it, in memory -----------------------------------------------------------------------


def taken_apart(sent: bytes, cuts: Sequence[int]) -> tuple[dict[str, str], str, bytes]:
    """Return the fields, the name of the file and its bytes, of a form that comes in pieces."""

    async def pieces() -> AsyncIterator[bytes]:
        edges = [0, *sorted(cuts), len(sent)]
        for start, end in itertools.pairwise(edges):
            yield sent[start:end]

    async def run() -> tuple[dict[str, str], str, bytes]:
        body = FormBody(BOUNDARY.encode(), pieces())
        fields = await body.fields()
        return fields, body.file_name, b"".join([piece async for piece in body.file()])

    return asyncio.run(run())


def test_a_form_may_be_cut_anywhere() -> None:
    file = f"\r\n--{BOUNDARY[:-1]}\r\n--\r\n\r".encode() * 3
    sent = form([("Key", "ü"), ("a", "")], file)
    wanted = {"key": "ü", "a": ""}, "ü f.txt", file
    assert taken_apart(sent, range(1, len(sent))) == wanted
    chance = random.Random(1)
    for _ in range(100):
        assert taken_apart(sent, chance.sample(range(len(sent)), 5)) == wanted


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"", S3Code.MALFORMED_POST),
        (form([("a", "b")], b"x").partition(b"Upload")[0][:-80], S3Code.MALFORMED_POST),
        (form([("a", "x" * FIELDS_BYTES_MAX)], b""), S3Code.MAX_POST_PRE_DATA),
        (form([], b"") + bytes(FIELDS_BYTES_MAX), S3Code.MALFORMED_POST),
        (form([("a", "b"), ("A", "c")], b""), S3Code.INVALID_ARGUMENT),
        (f"--{BOUNDARY}--\r\n".encode(), S3Code.INVALID_ARGUMENT),
        (f"--{BOUNDARY}\r\nX: y\r\n\r\n".encode(), S3Code.MALFORMED_POST),
        (form([("a", "b")], b"").replace(b"\r\n\r\nb", b"\r\n\r\n\xff"), S3Code.MALFORMED_POST),
    ],
)
def test_what_is_no_form_is_refused(sent: bytes, code: S3Code) -> None:
    with pytest.raises(S3Error) as caught:
        taken_apart(sent, ())
    assert caught.value.code is code


def test_the_boundary_is_told_by_the_type() -> None:
    assert boundary_of(f'multipart/form-data; boundary="{BOUNDARY}"') == BOUNDARY.encode()
    assert boundary_of("Multipart/Form-Data;boundary=x") == b"x"
    assert boundary_of("multipart/form-data") == boundary_of("text/plain; boundary=x") == b""


def policy_of(**said: object) -> str:
    """Return a policy as a form has it."""
    usual = {"expiration": "2030-01-01T00:00:00Z", "conditions": [{"bucket": "b"}]}
    return base64.b64encode(json.dumps({**usual, **said}).encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "e30=", base64.b64encode(b"\xff").decode(), base64.b64encode(b"[" * 9999).decode(),
        policy_of(expiration="soon"), policy_of(expiration=3), policy_of(expiration="2030-01-01"),
        policy_of(conditions={}), policy_of(conditions=[{}]), policy_of(conditions=[{"a": 1}]),
        policy_of(conditions=[["eq", "key", "x"]]), policy_of(conditions=[["in", "$key", "x"]]),
        policy_of(conditions=[["content-length-range", 0]]), policy_of(conditions=[3]),
        policy_of(conditions=[["content-length-range", -1, 0]]),
        policy_of(conditions=[["content-length-range", True, 2]]),
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(S3Error) as caught:
        PostPolicy.of(text)
    assert caught.value.code is S3Code.INVALID_POLICY_DOCUMENT


@pytest.mark.parametrize(
    ("condition", "fields", "is_let"),
    [
        ({"KEY": "a"}, {"key": "a"}, True),
        (["Eq", "$Key", "a"], {"key": "A"}, False),
        (["starts-with", "$key", ""], {"key": "a"}, True),
        (["starts-with", "$key", ""], {}, False),
        (["starts-with", "$content-type", "image/"], {"content-type": "image/a, image/b"}, True),
        (["starts-with", "$content-type", "image/"], {"content-type": "image/a,text/b"}, False),
        (["eq", "$x-ignore-a", "b"], {"x-ignore-a": "b", "x-ignore-c": "d"}, True),
        (["starts-with", "$key", "a"], {"key": "ab", "acl": "private"}, False),
    ],
)
def test_each_condition_of_a_policy_counts(
    condition: object, fields: Mapping[str, str], is_let: bool
) -> None:
    policy = PostPolicy.of(policy_of(conditions=[{"bucket": "b"}, condition]))
    if is_let:
        policy.check(fields, "b", NOW_S)
        return
    with pytest.raises(S3Error) as caught:
        policy.check(fields, "b", NOW_S)
    assert caught.value.code is S3Code.ACCESS_DENIED
