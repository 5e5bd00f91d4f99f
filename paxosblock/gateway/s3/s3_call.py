"""One request to S3 as it was asked for: its bucket, its key, its parameters and its user."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.base.paths import NAME_BYTES_MAX
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import NotDirectoryError, NotFoundError
from paxosblock.gateway.budget import Budget, reader_bytes, writer_bytes
from paxosblock.gateway.exchange import ARRIVED_BYTES, Answer, Exchange
from paxosblock.gateway.s3.s3_errors import (
    S3Code,
    S3Error,
    invalid_argument,
    no_such_bucket,
    no_such_key,
)
from paxosblock.gateway.s3.s3_xml import XML, Field, document
from paxosblock.gateway.s3.signatures import Pairs, SignedRequest
from paxosblock.gateway.user_clients import UserClient

KEY_BYTES_MAX: Final = 1024
PARAMETERS_MAX: Final = 64
EXPECTED_OWNER: Final = "x-amz-expected-bucket-owner"
EXPECTED_SOURCE_OWNER: Final = "x-amz-source-expected-bucket-owner"
BUCKET_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")


@dataclass(frozen=True, slots=True)
class S3Call:
    """One operation as it was asked for."""

    exchange: Exchange
    bucket: str
    key: str
    query: Pairs
    signed: SignedRequest
    client: UserClient
    budget: Budget
    stack: contextlib.AsyncExitStack
    """The resources that it holds until its answer was sent."""
    root: str
    """The directory whose directories are buckets; "" for the root of the cluster."""
    request_id: str

    @property
    def fs(self) -> AsyncClient:
        """The cluster, as the user sees it."""
        return self.client.fs

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by names in which case does not count."""
        return self.exchange.headers

    @property
    def location(self) -> str:
        """The address of the object, as the caller may ask for it."""
        return f"{self.exchange.origin}/{quote(f'{self.bucket}/{self.key}')}"

    def parameter(self, name: str, default: str = "") -> str:
        """Return a parameter of the query, the first if there are several."""
        return next((value for each, value in self.query if each == name), default)

    def number(self, name: str, default: int, *, least: int = 0, most: int) -> int:
        """Return a parameter that is a number, at most `most`. Raises S3Error if it is none."""
        written = self.parameter(name)
        if not written:
            return default
        if not (written.isascii() and written.isdecimal() and len(written) < 12):
            raise invalid_argument(f"Provided {name} not an integer or within integer range")
        if int(written) < least:
            raise invalid_argument(f"{name} is at least {least}")
        return min(int(written), most)

    def bucket_path(self, bucket: str = "") -> str:
        """Return the directory of the bucket, or of another one."""
        return f"{self.root}/{bucket or self.bucket}"

    @property
    def path(self) -> str:
        """Return the path of the file that is the object. Raises S3Error if there can be none."""
        return f"{self.bucket_path()}/{checked_key(self.key).removesuffix('/')}"

    @property
    def is_marker(self) -> bool:
        """True if the key is that of a directory."""
        return self.key.endswith("/")

    async def bucket_status(self, bucket: str = "") -> FileStatus:
        """Return the directory of the bucket, or of another one. Raises S3Error without one."""
        try:
            status = await self.fs.stat(self.bucket_path(bucket))
        except (NotFoundError, NotDirectoryError):
            raise no_such_bucket() from None
        if status.kind is not Kind.DIRECTORY:
            raise no_such_bucket()
        return status

    async def check_owner(self, header: str, bucket: str = "") -> None:
        """Demand that a bucket, or another one, is of the user whom a header names, if it does.

        Raises:
            S3Error: it is not, or is not there.
        """
        expected = self.headers.get(header)
        if expected is not None and (await self.bucket_status(bucket)).owner != expected:
            raise S3Error(S3Code.ACCESS_DENIED, "Access Denied: the bucket has another owner")

    async def missing(self) -> S3Error:
        """Return the refusal of a key without an object: perhaps there is no bucket."""
        await self.bucket_status()
        return no_such_key()

    async def hold(self, size_bytes: int) -> None:
        """Hold room for so many bytes until the answer was sent. Raises as `Budget.hold`."""
        arrived_bytes = ARRIVED_BYTES if self.exchange.has_body else 0
        await self.stack.enter_async_context(self.budget.hold(size_bytes, arrived_bytes))

    async def hold_to_read(self, size_bytes: int) -> None:
        """As `hold`, for one who reads so many bytes."""
        await self.hold(reader_bytes(self.fs.config, size_bytes))

    async def hold_to_write(self, size_bytes: int) -> None:
        """As `hold`, for one who writes so many bytes."""
        await self.hold(writer_bytes(self.fs.config, size_bytes))


def answered(name: str, fields: list[Field], status: int = 200) -> Answer:
    """Return an answer that is a document."""
    return Answer(status, document(name, fields), {"Content-Type": XML})


def words_of(headers: Mapping[str, str], name: str) -> list[str]:
    """Return the words of a header that is a list, however often it came."""
    came = (value for each, value in headers.items() if each.lower() == name)
    return [word.strip() for value in came for word in value.split(",")]


def is_bucket_name(text: str) -> bool:
    """True if a bucket can be called so."""
    ends = f"{text[:1]}{text[-1:]}"
    return (
        3 <= len(text) <= 63
        and BUCKET_CHARACTERS.issuperset(text)
        and not {".", "-"} & {*ends}
        and ".." not in text
    )


def checked_key(key: str) -> str:
    """Return the key of an object.

    Raises:
        S3Error: no path of a file can be so.
    """
    if len(key.encode()) > KEY_BYTES_MAX:
        raise S3Error(S3Code.KEY_TOO_LONG, "Your key is too long")
    names = key.removesuffix("/").split("/")
    if any(name in {"", ".", ".."} or "\0" in name for name in names):
        raise invalid_argument(
            "A key is a path here: between its slashes stand names, and none is empty, '.' or '..'"
        )
    if any(len(name.encode()) > NAME_BYTES_MAX for name in names):
        raise invalid_argument(f"Between slashes a key has at most {NAME_BYTES_MAX} bytes here")
    return key


def decoded(text: str, what: str) -> str:
    """Return a text that was percent-encoded. Raises S3Error if it is not UTF-8."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise S3Error(S3Code.INVALID_URI, f"{what} is not UTF-8") from None


def pairs_of(query: str) -> Pairs:
    """Return the parameters of a query.

    Raises:
        S3Error: there are too many, or one is not UTF-8.
    """
    parts = [part for part in query.split("&") if part]
    if len(parts) > PARAMETERS_MAX:
        raise invalid_argument(f"a request has at most {PARAMETERS_MAX} parameters")
    found = []
    for part in parts:
        name, _, value = part.replace("+", " ").partition("=")
        found.append((decoded(name, "a parameter"), decoded(value, "a parameter")))
    return tuple(found)
