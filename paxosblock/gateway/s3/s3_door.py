"""The door of S3: from a request to its operation, and from what that raises to a refusal."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from paxosblock.config import GatewayConfig
from paxosblock.errors import NotDirectoryError, NotFoundError, PaxosBlockError
from paxosblock.gateway.budget import Budget
from paxosblock.gateway.exchange import Answer, Exchange, answered_with
from paxosblock.gateway.s3 import (
    bucket_operations,
    key_lists,
    object_posts,
    object_reads,
    object_writes,
    s3_operation_table,
    upload_operations,
)
from paxosblock.gateway.s3.access_keys import AccessKey, KeyMaker, revoked_path
from paxosblock.gateway.s3.allowed_pages import AllowedPages
from paxosblock.gateway.s3.post_forms import PostForm
from paxosblock.gateway.s3.s3_call import (
    EXPECTED_OWNER,
    S3Call,
    decoded,
    is_bucket_name,
    pairs_of,
)
from paxosblock.gateway.s3.s3_errors import (
    S3Code,
    S3Error,
    as_s3_error,
    refusal_of,
)
from paxosblock.gateway.s3.s3_operation_table import Level, S3Operation, operation_of
from paxosblock.gateway.s3.signatures import SentRequest, SignedRequest, check_signature
from paxosblock.gateway.user_clients import Principal, UserClient, UserClients
from paxosblock.gateway.who_asks import Identification
from paxosblock.host.logs import facts

OPERATIONS: Final = s3_operation_table.OPERATIONS
"""The operations by name, which these modules have put into the table."""
WITH_OPERATIONS: Final = (
    bucket_operations,
    key_lists,
    object_posts,
    object_reads,
    object_writes,
    upload_operations,
)
REVOKED_S: Final = 5.0
"""Seconds after which a gateway asks again if a key was revoked."""
KEYS_REMEMBERED: Final = 4096

_log = logging.getLogger(__name__)


class S3Door:
    """Answers requests of S3 for the users of one cluster."""

    def __init__(  # noqa: PLR0917 - the parts of a gateway
        self,
        clients: UserClients,
        identification: Identification,
        budget: Budget,
        config: GatewayConfig,
        keys: KeyMaker,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`now` is the time in seconds since 1970. Raises ConfigError for origins that are none."""
        self._clients = clients
        self._identification = identification
        self._budget = budget
        self._root = config.s3_root.rstrip("/")
        self._domain = config.s3_domain.lower()
        self._anonymous = config.s3_anonymous
        self._pages = AllowedPages.of(config.s3_cors_origins)
        self._keys = keys
        self._now = now
        self._good_until_s: dict[str, float] = {}
        """The time until which a key counts as not revoked, by its id."""

    async def answer(self, exchange: Exchange) -> Answer:
        """Return the answer to a request. Raises nothing but what ends the process."""
        request_id = uuid.uuid4().hex[:16].upper()
        resource = exchange.target.partition("?")[0][:1024]
        try:
            answer = await self._answered(exchange, request_id)
        except S3Error as error:
            answer = refusal_of(error, resource, request_id)
        except PaxosBlockError as error:
            refused = as_s3_error(error)
            if refused.code in (S3Code.INTERNAL_ERROR, S3Code.SLOW_DOWN):
                _log.warning("S3 refuses: %s", error, extra=facts(request=request_id))
            answer = refusal_of(refused, resource, request_id)
        except Exception:
            _log.exception("S3 failed at a request", extra=facts(request=request_id))
            answer = failure(HTTPStatus.INTERNAL_SERVER_ERROR, "the gateway failed, see its log")
        answer.headers["x-amz-request-id"] = request_id
        self._pages.tell(exchange.headers, answer)
        if exchange.method == "HEAD" and answer.status >= HTTPStatus.BAD_REQUEST:
            answer.body = b""
        return answer

    async def _answered(self, exchange: Exchange, request_id: str) -> Answer:
        sent, bucket, key = self._sent(exchange)
        self._identification.check_place(
            exchange.headers, is_own=bool(sent.bucket_in_host), pages=self._pages.origins
        )
        if preflight := self._pages.preflight(exchange.method, exchange.headers):
            return preflight
        is_for_bucket = bool(bucket) and not key
        if is_for_bucket and not sent.query and (form := await PostForm.of(exchange)):
            signed = form.check(bucket, self._keys, self._now())
            exchange, key = form, form.key
        else:
            signed = check_signature(sent, self._keys, self._now())
        if not signed.key.id and not self._anonymous:
            raise S3Error(S3Code.ACCESS_DENIED, "Access Denied: the request is not signed")
        level = Level.BUCKET if is_for_bucket else Level.OBJECT if key else Level.SERVICE
        wanted = operation_of(level, exchange.method, sent.query, exchange.headers)
        _check_key(signed.key, wanted, bucket)

        async def run(stack: contextlib.AsyncExitStack) -> Answer:
            user = Principal(signed.key.user)
            client = await stack.enter_async_context(self._clients.lent(user))
            await self._check_not_revoked(client, signed)
            call = S3Call(
                exchange,
                bucket,
                key,
                sent.query,
                signed,
                client=client,
                budget=self._budget,
                stack=stack,
                root=self._root,
                request_id=request_id,
            )
            if bucket:
                await call.check_owner(EXPECTED_OWNER)
            return await wanted.run(call)

        return await answered_with(run)

    def _sent(self, exchange: Exchange) -> tuple[SentRequest, str, str]:
        """Return the request as it is signed, its bucket and its key; each "" without one."""
        raw_path, _, raw_query = exchange.target.partition("?")
        if not raw_path.startswith("/"):
            raise S3Error(S3Code.INVALID_URI, "Couldn't parse the specified URI.")
        in_host = self._bucket_in(exchange.headers.get("Host", ""))
        query = pairs_of(raw_query)
        sent = SentRequest(exchange.method, raw_path, query, exchange.headers, in_host)
        path = decoded(raw_path, "the path")[1:]
        bucket, _, key = (in_host, "", path) if in_host else path.partition("/")
        if bucket and not is_bucket_name(bucket):
            raise S3Error(S3Code.INVALID_BUCKET_NAME, "The specified bucket is not valid.")
        return sent, bucket, key

    def _bucket_in(self, host: str) -> str:
        name = host.rpartition(":")[0] if host[-1:].isdigit() and ":" in host else host
        name = name.lower()
        if not self._domain or not name.endswith(f".{self._domain}"):
            return ""
        return name.removesuffix(f".{self._domain}")

    async def _check_not_revoked(self, client: UserClient, signed: SignedRequest) -> None:
        key, now_s = signed.key, self._now()
        if key.until_s is None or now_s < self._good_until_s.get(key.id, 0):
            return
        try:
            await client.fs.stat(revoked_path(key.id))
        except (NotFoundError, NotDirectoryError):
            if len(self._good_until_s) >= KEYS_REMEMBERED:
                self._good_until_s.clear()
            self._good_until_s[key.id] = now_s + REVOKED_S
            return
        raise S3Error(S3Code.INVALID_ACCESS_KEY_ID, "The access key was revoked.")


def _check_key(key: AccessKey, wanted: S3Operation, bucket: str) -> None:
    if wanted.changes and key.read_only:
        raise S3Error(S3Code.ACCESS_DENIED, "The access key may only read")
    if bucket and key.bucket not in ("", bucket):
        raise S3Error(S3Code.ACCESS_DENIED, "The access key is good for another bucket")


def failure(status: int, words: str) -> Answer:
    """Return the answer of this status to what reaches no operation."""
    code = S3Code.INVALID_REQUEST
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        code = S3Code.SLOW_DOWN
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        code = S3Code.INTERNAL_ERROR
    answer = refusal_of(S3Error(code, words), "", "")
    answer.status = status
    return answer
