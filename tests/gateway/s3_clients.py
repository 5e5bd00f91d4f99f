"""Programs of S3 for tests: boto3's client, and signed requests with any bytes in them."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.host.user import current_user
from tests.gateway.gateways import TIMEOUT_S, Reply


def s3_client(
    url: str, key_id: str = "", secret: str = OPEN_SECRET, verify: str | None = None, **options: Any
) -> Any:
    """Return boto3's client, which asks nothing twice; `verify` names those whom it believes."""
    config = Config(retries={"total_max_attempts": 1}, read_timeout=TIMEOUT_S, **options)
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=key_id or current_user(),
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=config,
        verify=verify,
    )


def code_of(error: ClientError) -> str:
    """Return the code of a refusal."""
    return str(error.response["Error"]["Code"])


def refused(call: Any, **arguments: Any) -> str:
    """Return the code with which a call of boto3 is refused; "" if it is not."""
    try:
        call(**arguments)
    except ClientError as error:
        return code_of(error)
    return ""


class _Signer(S3SigV4Auth):  # type: ignore[misc] # it has no types
    """Signs what the headers say of the body, right or wrong."""

    def payload(self, request: AWSRequest) -> Any:
        self._said = getattr(self, "_said", None) or request.headers.get("x-amz-content-sha256")
        return self._said or super().payload(request)

    def _modify_request_before_signing(self, request: AWSRequest) -> None:
        self.payload(request)
        super()._modify_request_before_signing(request)


def signed_request(
    url: str,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    key_id: str = "",
    secret: str = OPEN_SECRET,
) -> Reply:
    """Send a request that botocore signed, with this target as it is."""
    said = _signed(
        url, method, target, body, headers, Credentials(key_id or current_user(), secret)
    )
    return send(url, method, target, body, said)


def signed_head(url: str, method: str, target: str, *, length: int) -> bytes:
    """Return the head of a request whose body, of so many bytes, is not signed."""
    unsigned = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", "Content-Length": str(length)}
    credentials = Credentials(current_user(), OPEN_SECRET)
    said = _signed(url, method, target, b"", unsigned, credentials)
    said.setdefault("Host", urlsplit(url).netloc)
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _signed(  # noqa: PLR0917 - the parts of a request
    url: str,
    method: str,
    target: str,
    body: bytes,
    headers: Mapping[str, str] | None,
    credentials: Credentials,
) -> dict[str, str]:
    request = AWSRequest(method, f"{url}{target}", dict(headers or {}), body)
    _Signer(credentials, "s3", "us-east-1").add_auth(request)
    return dict(request.headers.items())


def send(
    url: str,
    method: str,
    target: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Reply:
    """Send a request as it is."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    try:
        connection.request(method, target, body, dict(headers or {}))
        answer = connection.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def error_code(reply: Reply) -> str:
    """Return the code in the document of a refusal."""
    root = ElementTree.fromstring(reply.body)
    assert root.tag == "Error", reply
    assert root.findtext("RequestId") == reply.headers["x-amz-request-id"]
    return root.findtext("Code") or ""
