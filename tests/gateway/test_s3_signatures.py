"""Signatures of S3, by the examples that AWS publishes, and whatever is changed in one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

import pytest
from botocore.auth import HmacV1QueryAuth, S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from paxosblock.errors import InvalidRequestError
from paxosblock.gateway.s3.access_keys import OPEN_SECRET, AccessKey, KeyMaker, NoKeyError
from paxosblock.gateway.s3.aws_chunked import ChunkedBody
from paxosblock.gateway.s3.s3_call import pairs_of
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error
from paxosblock.gateway.s3.signatures import (
    PayloadKind,
    SentRequest,
    SignedRequest,
    check_signature,
)

# "Signature Calculations for the Authorization Header" and "Authenticating Requests: Using Query
# Parameters" in the API reference of S3.
KEY_ID, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
HOST = "examplebucket.s3.amazonaws.com"
DATE = "20130524T000000Z"
THEN_S = 1369353600.0
NOTHING = hashlib.sha256(b"").hexdigest()
SCOPE = f"{KEY_ID}/20130524/us-east-1/s3/aws4_request"


class ExampleKeys(KeyMaker):
    """The one key of the examples."""

    def find(self, key_id: str) -> AccessKey:
        if key_id != KEY_ID:
            raise NoKeyError
        return AccessKey(KEY_ID, "example", ("another secret", SECRET))


def sent(method: str, target: str, headers: Mapping[str, str], host: str = HOST) -> SentRequest:
    path, _, query = target.partition("?")
    return SentRequest(method, path, pairs_of(query), {"Host": host, **headers})


def authorization(signed: str, signature: str) -> dict[str, str]:
    said = f"Credential={SCOPE},SignedHeaders={signed},Signature={signature}"
    return {"Authorization": f"AWS4-HMAC-SHA256 {said}", "x-amz-date": DATE}


LISTED = ("host;x-amz-content-sha256;x-amz-date", {"x-amz-content-sha256": NOTHING})
EXAMPLES = {
    "get a range": sent(
        "GET",
        "/test.txt",
        {
            "Range": "bytes=0-9",
            "x-amz-content-sha256": NOTHING,
            **authorization(
                "host;range;x-amz-content-sha256;x-amz-date",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
        },
    ),
    "put": sent(
        "PUT",
        "/test%24file.text",
        {
            "Date": "Fri, 24 May 2013 00:00:00 GMT",
            "x-amz-storage-class": "REDUCED_REDUNDANCY",
            "x-amz-content-sha256": (
                "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
            ),
            **authorization(
                "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
        },
    ),
    "get a lifecycle": sent(
        "GET",
        "/?lifecycle",
        {
            **LISTED[1],
            **authorization(
                LISTED[0], "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
            ),
        },
    ),
    "list": sent(
        "GET",
        "/?max-keys=2&prefix=J",
        {
            **LISTED[1],
            **authorization(
                LISTED[0], "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
            ),
        },
    ),
    "link": sent(
        "GET",
        f"/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={quote(SCOPE, safe='')}"
        f"&X-Amz-Date={DATE}&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
        {},
    ),
    "chunks": sent(
        "PUT",
        "/examplebucket/chunkObject.txt",
        {
            "x-amz-storage-class": "REDUCED_REDUNDANCY",
            "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            "Content-Encoding": "aws-chunked",
            "x-amz-decoded-content-length": "66560",
            "Content-Length": "66824",
            **authorization(
                "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
                "x-amz-decoded-content-length;x-amz-storage-class",
                "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
            ),
        },
        "s3.amazonaws.com",
    ),
}
CHUNKS = (
    (b"a" * 65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"),
    (b"a" * 1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"),
    (b"", "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"),
)


def check(request: SentRequest, at_s: float = THEN_S) -> SignedRequest:
    return check_signature(request, ExampleKeys(), at_s)


def code(request: SentRequest, at_s: float = THEN_S) -> S3Code:
    with pytest.raises(S3Error) as found:
        check(request, at_s)
    return found.value.code


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Authorization": "Basic x"}, S3Code.INVALID_ARGUMENT),
        ({"Authorization": "AWS joe:x"}, S3Code.INVALID_REQUEST),
        ({"x-amz-date": "20130231"}, S3Code.ACCESS_DENIED),
        ({"x-amz-date": ""}, S3Code.ACCESS_DENIED),
    ],
)
def test_a_header_that_signs_nothing_is_refused_as_in_s3(
    headers: dict[str, str], code: S3Code
) -> None:
    request = sent("GET", "/", {**LISTED[1], **authorization(LISTED[0], "x"), **headers})
    with pytest.raises(S3Error) as caught:
        check_signature(request, ExampleKeys(), THEN_S)
    assert caught.value.code is code


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_aws_signed_is_believed(name: str) -> None:
    assert check(EXAMPLES[name]).key.user == "example"


@pytest.mark.parametrize("name", EXAMPLES)
def test_whatever_is_changed_is_noticed(name: str) -> None:
    right = EXAMPLES[name]
    wrong = S3Code.SIGNATURE_DOES_NOT_MATCH
    headers = dict(right.headers)
    assert code(SentRequest("DELETE", right.raw_path, right.query, headers)) is wrong
    assert code(SentRequest(right.method, right.raw_path + "x", right.query, headers)) is wrong
    assert code(SentRequest(right.method, right.raw_path, (*right.query, ("a", "")), headers)) is (
        wrong
    )
    assert (
        code(SentRequest(right.method, right.raw_path, right.query, headers | {"Host": "other"}))
        is wrong
    )


@pytest.mark.parametrize(
    ("late_s", "good"), [(899, True), (901, False), (-899, True), (-901, False)]
)
def test_a_clock_may_differ_by_a_quarter_of_an_hour(late_s: float, good: bool) -> None:
    if good:
        assert check(EXAMPLES["put"], THEN_S + late_s).key.id == KEY_ID
        return
    assert code(EXAMPLES["put"], THEN_S + late_s) is S3Code.REQUEST_TIME_TOO_SKEWED


def test_a_link_is_good_for_as_long_as_it_says() -> None:
    assert check(EXAMPLES["link"], THEN_S + 86399).key.id == KEY_ID
    assert code(EXAMPLES["link"], THEN_S + 86400) is S3Code.ACCESS_DENIED
    assert code(EXAMPLES["link"], THEN_S - 901) is S3Code.ACCESS_DENIED


@pytest.mark.parametrize("name", ["put", "link"])
def test_every_amz_header_is_signed(name: str) -> None:
    """One that was added on the way, or to a link, would otherwise count."""
    right = EXAMPLES[name]
    more = dict(right.headers) | {"x-amz-copy-source": "/other/key"}
    added = SentRequest(right.method, right.raw_path, right.query, more)
    assert code(added) is S3Code.ACCESS_DENIED


def test_a_link_may_leave_the_sum_of_the_body_to_the_request() -> None:
    right = EXAMPLES["link"]
    more = dict(right.headers) | {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    link = SentRequest(right.method, right.raw_path, right.query, more)
    assert check(link).key.id == KEY_ID


async def chunked(data: bytes, piece: int = 1000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), piece):
        yield data[start : start + piece]


def framed() -> bytes:
    parts = (
        b"%x;chunk-signature=%s\r\n%s\r\n" % (len(data), signature.encode(), data)
        for data, signature in CHUNKS
    )
    return b"".join(parts)


async def read(data: bytes, *, has_trailer: bool = False) -> bytes:
    signed = check(EXAMPLES["chunks"])
    assert signed.payload is PayloadKind.CHUNKS
    body = ChunkedBody(chunked(data), signed.signer, has_trailer=has_trailer)
    return b"".join([bytes(piece) async for piece in body.pieces()])


async def test_the_chunks_that_aws_signed_are_read() -> None:
    assert await read(framed()) == b"a" * 66560


@pytest.mark.parametrize("place", [0, 90, 100, 65536 + 90, 65536 + 200, -90, -3])
async def test_a_changed_byte_of_chunks_is_noticed(place: int) -> None:
    data = bytearray(framed())
    data[place] ^= 1
    with pytest.raises(S3Error) as found:
        await read(bytes(data))
    assert found.value.code in (S3Code.SIGNATURE_DOES_NOT_MATCH, S3Code.INCOMPLETE_BODY)


@pytest.mark.parametrize("cut", [1, 2, 3, 80, 200, 1500, 60000])
async def test_chunks_that_break_off_are_noticed(cut: int) -> None:
    with pytest.raises(S3Error, match="not aws-chunked"):
        await read(framed()[:-cut])
    with pytest.raises(S3Error, match="bytes follow its end"):
        await read(framed() + b"x" * cut)


# -- what botocore signs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    ["/data/a%20b", "/data/%C3%BC%2Bx?versionId=a%2Fb&x", "/data/~a.b-c_d?prefix=%20", "/"],
)
@pytest.mark.parametrize("kind", [S3SigV4Auth, S3SigV4QueryAuth, HmacV1QueryAuth])
def test_what_botocore_signs_is_believed(target: str, kind: type) -> None:
    headers = {"x-amz-meta-x": " a  b ", "Content-Type": "text/plain"}
    request = AWSRequest("PUT", f"http://gw{target}", headers, b"")
    credentials = Credentials(KEY_ID, SECRET)
    if kind is HmacV1QueryAuth:
        kind(credentials).add_auth(request)
    else:
        kind(credentials, "s3", "us-east-1").add_auth(request)
    path = request.url.removeprefix("http://gw")
    came = sent("PUT", path, dict(request.headers.items()), "gw")
    assert check(came, time.time()).key.id == KEY_ID
    changed = sent("PUT", path.replace("/", "/x", 1), dict(request.headers.items()), "gw")
    assert code(changed, time.time()) is S3Code.SIGNATURE_DOES_NOT_MATCH


# -- keys ------------------------------------------------------------------------------------------


def test_a_key_says_all_that_it_may() -> None:
    maker = KeyMaker((b"first", b"second"))
    made = maker.make("ann", 5, "data", read_only=True)
    assert maker.find(made.id) == made
    assert (made.user, made.until_s, made.bucket, made.read_only) == ("ann", 5, "data", True)
    assert made.secrets[0] not in repr(made)
    assert KeyMaker((b"second",)).find(made.id).secrets == made.secrets[1:]
    assert maker.make("ann", 5, "data", read_only=True).id != made.id


def test_an_id_that_was_changed_has_another_secret() -> None:
    maker = KeyMaker((b"first",))
    made = maker.make("ann", 5, read_only=True)
    found = 0
    for place in range(3, len(made.id)):
        other = made.id[:place] + ("A" if made.id[place] != "A" else "B") + made.id[place + 1 :]
        try:
            assert maker.find(other).secrets != made.secrets
            found += 1
        except NoKeyError:
            pass
    assert found


@pytest.mark.parametrize("key_id", ["", "x", "PXB", "PXB1", "PXBAAAA", "ü", "PXB" + "A" * 200])
def test_what_is_no_id_of_a_key_is_refused(key_id: str) -> None:
    with pytest.raises(NoKeyError):
        KeyMaker((b"first",)).find(key_id)


def test_without_a_secret_the_id_is_the_user() -> None:
    assert KeyMaker().find("ann") == AccessKey("ann", "ann", (OPEN_SECRET,))
    with pytest.raises(NoKeyError):
        KeyMaker().find("a,b")
    with pytest.raises(InvalidRequestError):
        KeyMaker((b"first",)).make("x" * 100, 0, "d" * 63, read_only=False)
