"""The operations of S3: those that a gateway has, and those that it refuses by name."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3.s3_call import S3Call
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, not_implemented
from paxosblock.gateway.s3.signatures import Pairs

COPY_SOURCE: Final = "x-amz-copy-source"


class Level(enum.Enum):
    """The subject of a request."""

    SERVICE = "service"
    BUCKET = "bucket"
    OBJECT = "object"


S3Run = Callable[[S3Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class S3Operation:
    """An operation that a gateway has; the docstring of `run` says what it does."""

    name: str
    verb: str
    level: Level
    parameter: str
    """The parameter that makes it this operation; "" without one."""
    copies: bool
    """It is this operation if a header names an object to copy."""
    changes: bool
    """A key that may only read is refused."""
    run: S3Run


_Place = tuple[Level, str, str, bool]

OPERATIONS: Final[dict[str, S3Operation]] = {}
"""The operations by name."""
_PLACES: Final[dict[_Place, S3Operation]] = {}

LACKING: Final[Mapping[str, str]] = {
    "accelerate": "transfer acceleration",
    "acl": "access control lists (changes: use permissions and ACLs of the file system)",
    "analytics": "analytics",
    "cors": "CORS by bucket (use the gateway's setting `s3_cors_origins`)",
    "encryption": "encryption by bucket (use encryption zones)",
    "intelligent-tiering": "tiers",
    "inventory": "inventories",
    "legal-hold": "object lock",
    "lifecycle": "lifecycles (use times to live of directories)",
    "logging": "logging (use the audit log)",
    "metadataConfiguration": "tables of metadata",
    "metadataTable": "tables of metadata",
    "metrics": "metrics by bucket",
    "notification": "notifications",
    "object-lock": "object lock",
    "ownershipControls": "ownership controls",
    "policy": "policies (use permissions and ACLs of the file system)",
    "policyStatus": "policies",
    "publicAccessBlock": "public access",
    "renameObject": "RenameObject",
    "replication": "replication of buckets",
    "requestPayment": "payment",
    "restore": "archives",
    "retention": "object lock",
    "select": "SelectObjectContent",
    "session": "sessions of directory buckets",
    "tagging": "tags of buckets",
    "torrent": "torrents",
    "versioning": "versions (changes)",
    "website": "websites",
}
"""Parameters that make a request an operation which a gateway lacks, unless it is in the table: it
is refused by name, and nothing is done."""

LACKING_HEADERS: Final = (
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-if-match-initiated-time",
    "x-amz-if-match-last-modified-time",
    "x-amz-if-match-size",
    "x-amz-mfa",
    "x-amz-object-lock-legal-hold",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-copy-source-server-side-encryption-customer-algorithm",
    "x-amz-website-redirect-location",
    "x-amz-write-offset-bytes",
)
"""Headers that ask for what a gateway lacks: a request with one is refused."""

_ACLS_OF_OWNERS: Final = frozenset({"", "private", "bucket-owner-full-control"})
_OWNERSHIPS: Final = frozenset({"", "BucketOwnerEnforced"})


def s3_operation(
    name: str,
    verb: str,
    level: Level,
    parameter: str = "",
    *,
    copies: bool = False,
    changes: bool = False,
) -> Callable[[S3Run], S3Run]:
    """Let a function be an operation of S3."""

    def note(run: S3Run) -> S3Run:
        made = S3Operation(name, verb, level, parameter, copies, changes, run)
        OPERATIONS[name] = _PLACES[level, verb, parameter, copies] = made
        return run

    return note


def operation_of(level: Level, verb: str, query: Pairs, headers: Mapping[str, str]) -> S3Operation:
    """Return the operation that a request asks for.

    Raises:
        S3Error: there is none, or it is lacking.
    """
    found = _operation_at(level, verb, frozenset(name for name, _ in query), COPY_SOURCE in headers)
    _check_headers(headers)
    return found


@lru_cache
def _operation_at(level: Level, verb: str, asked: frozenset[str], copies: bool) -> S3Operation:
    known = [place[2] for place in _PLACES if place[:2] == (level, verb) and place[3] == copies]
    named = next((name for name in known if name and name in asked), "")
    if not named and (lacking := next((name for name in LACKING if name in asked), "")):
        raise not_implemented(f"?{lacking}: {LACKING[lacking]}")
    found = _PLACES.get((level, verb, named, copies))
    elsewhere = {place[2] for place in _PLACES} - {"", named}
    if found is None or (not named and asked & elsewhere):
        if verb not in {"GET", "HEAD", "PUT", "POST", "DELETE"} or not copies:
            words = "The specified method is not allowed against this resource."
            raise S3Error(S3Code.METHOD_NOT_ALLOWED, words)
        raise not_implemented(f"{COPY_SOURCE} at this place")
    return found


def _check_headers(headers: Mapping[str, str]) -> None:
    for name in LACKING_HEADERS:
        if name in headers:
            raise not_implemented(name)
    if headers.get("x-amz-acl", "") not in _ACLS_OF_OWNERS:
        raise not_implemented("x-amz-acl, but that which gives the owner all")
    if headers.get("x-amz-object-ownership", "") not in _OWNERSHIPS:
        raise not_implemented("x-amz-object-ownership, but BucketOwnerEnforced")
    if headers.get("x-amz-bucket-object-lock-enabled", "false").lower() != "false":
        raise not_implemented("x-amz-bucket-object-lock-enabled: object lock")
    if headers.get("x-amz-storage-class", "STANDARD") != "STANDARD":
        words = "The storage class you specified is not valid: there is STANDARD"
        raise S3Error(S3Code.INVALID_STORAGE_CLASS, words)
