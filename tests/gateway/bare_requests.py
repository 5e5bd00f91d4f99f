"""Requests that come to a door without a socket."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

from paxosblock.gateway.budget import Budget
from paxosblock.gateway.exchange import Traffic
from paxosblock.gateway.s3.access_keys import KeyMaker
from paxosblock.gateway.s3.s3_call import S3Call
from paxosblock.gateway.s3.signatures import Pairs, SignedRequest
from paxosblock.gateway.user_clients import UserClient
from paxosblock.host.user import current_user


class BareRequest:
    """A request, with the bytes that come with it."""

    target, address, origin = "/", "127.0.0.1", "http://127.0.0.1"

    def __init__(self, method: str = "GET", body: bytes = b"") -> None:
        self.method = method
        self.headers: Mapping[str, str] = {"content-length": str(len(body))} if body else {}
        self.has_body = bool(body)
        self.traffic = Traffic()
        self._body = body

    async def body(self) -> AsyncIterator[bytes]:
        yield self._body


def s3_call(
    client: UserClient,
    stack: contextlib.AsyncExitStack,
    path: str,
    request: BareRequest | None = None,
    query: Pairs = (),
    *,
    budget: Budget | None = None,
) -> S3Call:
    """Return a request for the object at `/BUCKET/KEY`, made by the user of this process."""
    _, bucket, key = path.split("/", 2)
    signed = SignedRequest(KeyMaker().find(current_user()))
    return S3Call(
        request or BareRequest(),
        bucket,
        key,
        query,
        signed,
        client,
        budget or Budget(1 << 30),
        stack,
        root="",
        request_id="1",
    )
