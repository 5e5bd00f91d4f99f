"""A form that a page in a browser sends, as a request to write: its fields are the headers, and its
file is the body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from paxosblock.gateway.exchange import Exchange
from paxosblock.gateway.s3.access_keys import KeyMaker
from paxosblock.gateway.s3.form_bodies import FormBody, boundary_of
from paxosblock.gateway.s3.object_facts import KEPT_HEADERS
from paxosblock.gateway.s3.post_policies import PostPolicy
from paxosblock.gateway.s3.s3_errors import invalid_argument
from paxosblock.gateway.s3.signatures import SignedRequest, check_form

FILE_NAME: Final = "${filename}"
"""Stands in fields for the name of the file."""
_HEADERS: Final = frozenset({*KEPT_HEADERS, "content-md5"})


class PostForm:
    """The form that comes with a request."""

    def __init__(self, exchange: Exchange, fields: Mapping[str, str], body: FormBody) -> None:
        """`fields` are those before the file, by their names in small letters."""
        self.fields = {
            name: value if name == "policy" else value.replace(FILE_NAME, body.file_name)
            for name, value in fields.items()
        }
        said = self.fields
        self.headers: Mapping[str, str] = {
            name: value
            for name, value in said.items()
            if name in _HEADERS or name.startswith("x-amz-")
        } | ({"x-amz-acl": said["acl"]} if "acl" in said else {})
        self.policy = PostPolicy.of(said["policy"]) if said.get("policy") else None
        """The policy that it must meet; None: it has none, and is not signed."""
        self.traffic = exchange.traffic
        self.method, self.target = exchange.method, exchange.target
        self.address, self.origin = exchange.address, exchange.origin
        self.has_body = True
        self._body = body

    @classmethod
    async def of(cls, exchange: Exchange) -> PostForm | None:
        """Return the form that comes with a request, after its fields were read; None: none
        comes.

        Raises:
            S3Error: it has no file, or too many fields, or its policy is none.
            InvalidRequestError, DeadlineError: it breaks off.
        """
        boundary = boundary_of(exchange.headers.get("Content-Type", ""))
        if not boundary or exchange.method != "POST":
            return None
        body = FormBody(boundary, exchange.body())
        return cls(exchange, await body.fields(), body)

    @property
    def key(self) -> str:
        """The key of the object. Raises S3Error if none is said."""
        if not (key := self.fields.get("key")):
            raise invalid_argument("Bucket POST must contain a field named 'key'.")
        return key

    def check(self, bucket: str, keys: KeyMaker, now_s: float) -> SignedRequest:
        """Return who has signed its policy. Raises S3Error if that is not so, or does not let it be
        sent."""
        signed = check_form(self.fields, keys, now_s)
        if self.policy is not None:
            self.policy.check(self.fields, bucket, now_s)
        return signed

    def body(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the file. Raises as `FormBody.file`."""
        return self._body.file()
