"""Signatures of requests: AWS's version 4 in a header or in the query, and version 2 in the query.

A signature proves that its maker knows the secret of an access key, and covers the method, the
path, the query and headers; a header says what is signed of the body. boto3 makes links of version
2 unless it is told otherwise.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import re
from calendar import timegm
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_tz
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from paxosblock.gateway.s3.access_keys import ANONYMOUS, AccessKey, KeyMaker, NoKeyError
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error

ALGORITHM: Final = "AWS4-HMAC-SHA256"
CONTENT_SHA256: Final = "x-amz-content-sha256"
UNSIGNED: Final = "UNSIGNED-PAYLOAD"
SKEW_S: Final = 15 * 60
"""Seconds by which the clocks of a program and a gateway may differ."""
LINK_S_MAX: Final = 7 * 24 * 3600
"""Seconds for which a signed link may be good."""
NOTHING: Final = hashlib.sha256(b"").hexdigest()

_SAFE: Final = "-_.~"
_HEX_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_IN_V2: Final = frozenset(
    {
        *("acl", "cors", "delete", "lifecycle", "location", "logging", "notification"),
        *("partNumber", "policy", "requestPayment", "tagging", "torrent", "uploadId", "uploads"),
        *("versionId", "versioning", "versions", "website", "response-cache-control"),
        *("response-content-disposition", "response-content-encoding", "response-expires"),
        *("response-content-language", "response-content-type"),
    }
)
"""The parameters that a signature of version 2 covers."""

Pairs = tuple[tuple[str, str], ...]
"""Parameters of a query, decoded, in the order in which they came."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """The part of a request that is signed."""

    method: str
    raw_path: str
    query: Pairs
    headers: Mapping[str, str]
    bucket_in_host: str = ""
    """The bucket that stands before the name of the gateway; "" if the path begins with it."""

    def parameter(self, name: str) -> str:
        """Return the first parameter of this name; "" without one."""
        return next((value for each, value in self.query if each == name), "")

    def values(self, name: str) -> list[str]:
        """Return the values of all headers of this name."""
        return [value for each, value in self.headers.items() if each.lower() == name]


class PayloadKind(enum.Enum):
    """The ways in which a body is covered by a signature, as `x-amz-content-sha256` says."""

    WHOLE = "the SHA-256 of the body"
    UNSIGNED = UNSIGNED
    CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
    CHUNKS_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
    UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

    @property
    def is_chunked(self) -> bool:
        """True if the body comes in AWS's chunks."""
        return self.value.startswith("STREAMING")

    @property
    def signs_chunks(self) -> bool:
        """True if each chunk has a signature."""
        return self in (PayloadKind.CHUNKS, PayloadKind.CHUNKS_TRAILER)


@dataclass(slots=True)
class ChunkSigner:
    """Makes the signatures of chunks: each covers the one before."""

    key: bytes = field(repr=False)
    date: str
    scope: str
    previous: str

    def of_chunk(self, digest: str) -> str:
        """Return the signature of the next chunk, whose SHA-256 is `digest`."""
        return self._next("AWS4-HMAC-SHA256-PAYLOAD", NOTHING, digest)

    def of_trailer(self, digest: str) -> str:
        """Return the signature of the trailer, whose SHA-256 is `digest`."""
        return self._next("AWS4-HMAC-SHA256-TRAILER", digest)

    def _next(self, algorithm: str, *digests: str) -> str:
        signed = "\n".join([algorithm, self.date, self.scope, self.previous, *digests])
        self.previous = hmac.digest(self.key, signed.encode(), "sha256").hex()
        return self.previous


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """The maker of a request, proven, and what covers its body."""

    key: AccessKey
    payload: PayloadKind = PayloadKind.UNSIGNED
    digest: str = ""
    """The SHA-256 of the whole body, for the kind that has it."""
    signer: ChunkSigner | None = None


def check_signature(sent: SentRequest, maker: KeyMaker, now_s: float) -> SignedRequest:
    """Return who has made a request; `ANONYMOUS` if it is not signed.

    Raises:
        S3Error: the signature is none, or was not made by who has the key, or has ended.
    """
    authorization = sent.values("authorization")
    if sent.parameter("X-Amz-Algorithm"):
        if authorization:
            raise S3Error(
                S3Code.INVALID_REQUEST,
                "Only one auth mechanism allowed: a signature in the query, or in a header",
            )
        return _check_link(sent, maker, now_s)
    if authorization:
        return _check_header(sent, authorization[0], maker, now_s)
    if sent.parameter("AWSAccessKeyId"):
        return _check_old_link(sent, maker, now_s)
    kind, digest = _payload(sent, UNSIGNED)
    if kind.signs_chunks:
        raise S3Error(S3Code.ACCESS_DENIED, "chunks are signed, and the request is not")
    return SignedRequest(ANONYMOUS, kind, digest)


@dataclass(frozen=True, slots=True)
class _Claim:
    """The words of a signature of version 4."""

    key: AccessKey
    date: str
    made_s: int
    """The time of it, in seconds since 1970."""
    scope: str
    signed_headers: tuple[str, ...]
    signature: str

    @property
    def region(self) -> str:
        return self.scope.split("/")[1]


def _check_header(
    sent: SentRequest, authorization: str, maker: KeyMaker, now_s: float
) -> SignedRequest:
    algorithm, _, rest = authorization.partition(" ")
    if algorithm not in (ALGORITHM, "AWS"):
        raise S3Error(S3Code.INVALID_ARGUMENT, "Unsupported Authorization Type")
    if algorithm != ALGORITHM:
        raise S3Error(
            S3Code.INVALID_REQUEST,
            f"The authorization mechanism you have provided is not supported. Please use "
            f"{ALGORITHM}.",
        )
    parts = (part.strip().partition("=") for part in rest.split(","))
    words = {name: value for name, _, value in parts}
    date = next(iter(sent.values("x-amz-date")), "") or _of_date_header(sent)
    if not _DATE.fullmatch(date):
        missing = "AWS authentication requires a valid Date or x-amz-date header"
        raise S3Error(S3Code.ACCESS_DENIED, missing)
    bad = S3Code.AUTHORIZATION_HEADER_MALFORMED
    claim = _claimed(
        maker,
        words.get("Credential", ""),
        date,
        words.get("SignedHeaders", ""),
        words.get("Signature", ""),
        bad,
    )
    if abs(now_s - claim.made_s) > SKEW_S:
        raise S3Error(
            S3Code.REQUEST_TIME_TOO_SKEWED,
            "The difference between the request time and the current time is too large.",
            RequestTime=date,
            ServerTime=datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            MaxAllowedSkewMilliseconds=str(SKEW_S * 1000),
        )
    if not sent.values(CONTENT_SHA256):
        raise S3Error(S3Code.INVALID_REQUEST, f"Missing required header: {CONTENT_SHA256}")
    _check_covered(sent, claim.signed_headers)
    kind, digest = _payload(sent, "")
    said = sent.values(CONTENT_SHA256)[0]
    return _proven(sent, claim, sent.query, said, now_s, (kind, digest))


def _check_link(sent: SentRequest, maker: KeyMaker, now_s: float) -> SignedRequest:
    bad = S3Code.AUTHORIZATION_QUERY
    if sent.parameter("X-Amz-Algorithm") != ALGORITHM:
        raise S3Error(bad, f'X-Amz-Algorithm only supports "{ALGORITHM}"')
    claim = _claimed(
        maker,
        sent.parameter("X-Amz-Credential"),
        sent.parameter("X-Amz-Date"),
        sent.parameter("X-Amz-SignedHeaders"),
        sent.parameter("X-Amz-Signature"),
        bad,
    )
    lasts = sent.parameter("X-Amz-Expires")
    if not (lasts.isascii() and lasts.isdecimal() and len(lasts) < 9):
        raise S3Error(bad, "X-Amz-Expires should be a number")
    if not 1 <= int(lasts) <= LINK_S_MAX:
        raise S3Error(bad, "X-Amz-Expires must be from 1 to a week (in seconds)")
    if claim.made_s > now_s + SKEW_S:
        raise S3Error(S3Code.ACCESS_DENIED, "Request is not valid yet")
    if now_s >= claim.made_s + int(lasts):
        raise _link_ended()
    # It says what covers the body, which a link need not do.
    _check_covered(sent, (*claim.signed_headers, CONTENT_SHA256))
    kind, digest = _payload(sent, sent.parameter("X-Amz-Content-Sha256") or UNSIGNED)
    said = digest or kind.value
    query = tuple(pair for pair in sent.query if pair[0] != "X-Amz-Signature")
    return _proven(sent, claim, query, said, now_s, (kind, digest))


def _check_covered(sent: SentRequest, covered: Iterable[str]) -> None:
    """Demand that no header of Amazon's was added to what was signed: `x-amz-copy-source` makes of
    a link with which one may write an object one that reads any other."""
    amz = {name.lower() for name in sent.headers if name.lower().startswith("x-amz-")}
    if unsigned := amz.difference(covered):
        raise S3Error(
            S3Code.ACCESS_DENIED,
            f"There were headers present in the request which were not signed: "
            f"{', '.join(sorted(unsigned))}",
        )


def _claimed(  # noqa: PLR0917 - the words of a signature
    maker: KeyMaker, credential: str, date: str, signed: str, signature: str, bad: S3Code
) -> _Claim:
    parts = credential.rsplit("/", 4)
    if len(parts) != 5 or not _DATE.fullmatch(date) or not signed or not signature:
        raise S3Error(bad, "a credential, a date, signed headers and a signature are needed")
    key_id, day, _, service, end = parts
    if (service, end) != ("s3", "aws4_request") or day != date[:8]:
        raise S3Error(bad, "the credential is not of this day, or not for s3/aws4_request")
    names = tuple(signed.split(";"))
    if "host" not in names or any(name != name.lower() for name in names):
        raise S3Error(bad, "host is a signed header, and their names have small letters")
    key = _key(maker, key_id)
    try:
        made_s = _seconds_of(date)
    except ValueError:  # it may be the 31st of February
        raise S3Error(bad, "the date is none") from None
    return _Claim(key, date, made_s, "/".join(parts[1:]), names, signature)


@lru_cache
def _seconds_of(date: str) -> int:
    return int(datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp())


def _key(maker: KeyMaker, key_id: str) -> AccessKey:
    try:
        return maker.find(key_id)
    except NoKeyError:
        raise S3Error(
            S3Code.INVALID_ACCESS_KEY_ID,
            "The AWS Access Key Id you provided does not exist in our records.",
        ) from None


def _payload(sent: SentRequest, default: str) -> tuple[PayloadKind, str]:
    said = next(iter(sent.values(CONTENT_SHA256)), default)
    if _HEX_DIGEST.fullmatch(said):
        return PayloadKind.WHOLE, said
    for kind in PayloadKind:
        if kind is not PayloadKind.WHOLE and kind.value == said:
            return kind, ""
    if said.startswith("STREAMING-AWS4-ECDSA"):
        raise S3Error(S3Code.NOT_IMPLEMENTED, f"{CONTENT_SHA256}: {said}")
    raise S3Error(
        S3Code.INVALID_ARGUMENT, f"{CONTENT_SHA256} must be a SHA-256, {UNSIGNED} or STREAMING-..."
    )


def _proven(  # noqa: PLR0917 - the parts of what is signed
    sent: SentRequest,
    claim: _Claim,
    query: Pairs,
    said_of_body: str,
    now_s: float,
    payload: tuple[PayloadKind, str],
) -> SignedRequest:
    canonical = canonical_request(sent, query, claim.signed_headers, said_of_body)
    digest = hashlib.sha256(canonical).hexdigest()
    to_sign = "\n".join([ALGORITHM, claim.date, claim.scope, digest]).encode()
    key, right = _check_new(claim, to_sign)
    _check_end(claim.key, now_s)
    kind, body_digest = payload
    signer = ChunkSigner(key, claim.date, claim.scope, right) if kind.signs_chunks else None
    return SignedRequest(claim.key, kind, body_digest, signer)


def canonical_request(
    sent: SentRequest, query: Pairs, signed_headers: Iterable[str], said_of_body: str
) -> bytes:
    """Return the text that a signature of version 4 signs."""
    path = quote(unquote_to_bytes(sent.raw_path), safe=f"/{_SAFE}")
    encoded = sorted((quote(name, safe=_SAFE), quote(value, safe=_SAFE)) for name, value in query)
    names = tuple(signed_headers)
    lines = [
        sent.method,
        path,
        "&".join(f"{name}={value}" for name, value in encoded),
        *(f"{name}:{','.join(map(_trimmed, sent.values(name)))}" for name in names),
        "",
        ";".join(names),
        said_of_body,
    ]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _trimmed(value: str) -> str:
    return " ".join(value.split())


def _check_new(claim: _Claim, to_sign: bytes) -> tuple[bytes, str]:
    """Return the key that has signed what a claim is for, and its signature."""
    for secret in claim.key.secrets:
        key = signing_key(secret, claim.date[:8], claim.region)
        right = hmac.digest(key, to_sign, "sha256").hex()
        if hmac.compare_digest(right.encode(), claim.signature.encode("utf-8", "replace")):
            return key, right
    raise _wrong_signature()


@lru_cache(1024)
def signing_key(secret: str, day: str, region: str) -> bytes:
    """Return the key that signs requests of a day in a region, made of the secret of a key."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode("utf-8", "surrogateescape"), "sha256")
    return key


# -- version 2 -------------------------------------------------------------------------------------


def _check_old_link(sent: SentRequest, maker: KeyMaker, now_s: float) -> SignedRequest:
    key, ends = _key(maker, sent.parameter("AWSAccessKeyId")), sent.parameter("Expires")
    if not (ends.isascii() and ends.isdecimal() and len(ends) < 13):
        raise S3Error(S3Code.ACCESS_DENIED, "Invalid date (should be seconds since epoch)")
    if now_s >= int(ends):
        raise _link_ended()
    _check_old(key, _signed_by_old_link(sent, ends), sent.parameter("Signature"))
    _check_end(key, now_s)
    kind, digest = _payload(sent, UNSIGNED)
    if kind.signs_chunks:
        raise S3Error(S3Code.INVALID_REQUEST, "a link of version 2 signs no chunks")
    return SignedRequest(key, kind, digest)


def _check_old(key: AccessKey, to_sign: bytes, signature: str) -> None:
    came = signature.encode("utf-8", "replace")
    if not any(
        hmac.compare_digest(base64.b64encode(hmac.digest(secret.encode(), to_sign, "sha1")), came)
        for secret in key.secrets
    ):
        raise _wrong_signature()


def _signed_by_old_link(sent: SentRequest, ends: str) -> bytes:
    # The headers that are signed stand in such a link, and a program may send them, too.
    told = {name.lower(): value.strip() for name, value in sent.query}
    told |= {name.lower(): value.strip() for name, value in sent.headers.items()}
    amz = "".join(f"{name}:{told[name]}\n" for name in sorted(told) if name.startswith("x-amz-"))
    covered = sorted(pair for pair in sent.query if pair[0] in _IN_V2)
    query = "&".join(f"{name}={value}" if value else name for name, value in covered)
    before = f"/{sent.bucket_in_host}" if sent.bucket_in_host else ""
    lines = [
        sent.method,
        told.get("content-md5", ""),
        told.get("content-type", ""),
        ends,
        f"{amz}{before}{sent.raw_path}{'?' if query else ''}{query}",
    ]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


# -- forms -----------------------------------------------------------------------------------------


def check_form(fields: Mapping[str, str], maker: KeyMaker, now_s: float) -> SignedRequest:
    """Return who has signed the policy of a form; `ANONYMOUS` if it has none.

    Args:
        fields: those of the form, by their names in small letters.

    Raises:
        S3Error: as `check_signature`.
    """
    policy, bad = fields.get("policy", ""), S3Code.INVALID_ARGUMENT
    if not policy:
        return SignedRequest(ANONYMOUS)
    to_sign = policy.encode("utf-8", "replace")
    if "x-amz-signature" in fields:
        if fields.get("x-amz-algorithm") != ALGORITHM:
            raise S3Error(bad, f"X-Amz-Algorithm only supports {ALGORITHM}")
        credential, date = fields.get("x-amz-credential", ""), fields.get("x-amz-date", "")
        claim = _claimed(maker, credential, date, "host", fields["x-amz-signature"], bad)
        _check_new(claim, to_sign)
        key = claim.key
    else:
        for name in ("awsaccesskeyid", "signature"):
            if name not in fields:
                raise S3Error(bad, f"Bucket POST must contain a field named '{name}'.")
        key = _key(maker, fields["awsaccesskeyid"])
        _check_old(key, to_sign, fields["signature"])
    _check_end(key, now_s)
    return SignedRequest(key)


# -- ends ------------------------------------------------------------------------------------------


def _check_end(key: AccessKey, now_s: float) -> None:
    if key.until_s is not None and now_s >= key.until_s:
        words = "The access key has ended: `paxosblock admin s3-key` makes another one"
        raise S3Error(S3Code.EXPIRED_TOKEN, words)


def _link_ended() -> S3Error:
    return S3Error(S3Code.ACCESS_DENIED, "Request has expired")


def _wrong_signature() -> S3Error:
    return S3Error(
        S3Code.SIGNATURE_DOES_NOT_MATCH,
        "The request signature we calculated does not match the signature you provided. Check your "
        "key and signing method.",
    )


def _of_date_header(sent: SentRequest) -> str:
    """Return the header `Date` in the form of `x-amz-date`; "" if it is none."""
    try:
        found = parsedate_tz(next(iter(sent.values("date")), ""))
        if found is None:
            return ""
        seconds = timegm((*found[:6], 0, 0, 0)) - (found[9] or 0)
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")
    except (ValueError, OverflowError, OSError, IndexError, TypeError):
        return ""


def base64_bytes(text: str, size: int) -> bytes | None:
    """Return so many bytes that a text says in base64; None if it does not."""
    try:
        found = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return found if len(found) == size else None
