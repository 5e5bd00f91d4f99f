"""A gateway that ends at any step of a PUT or of a Complete, before a call to the NameNode or
before its answer came: the object is as it was or as it should be, and a program that asks another
gateway again gets what it wants."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from paxosblock import AsyncClient, Client, LocalCluster
from paxosblock.api.namenode import Kind
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3.object_writes import put_object
from paxosblock.gateway.s3.s3_call import S3Call
from paxosblock.gateway.s3.upload_operations import complete_multipart_upload
from paxosblock.gateway.user_clients import UserClient
from tests.gateway.bare_requests import BareRequest, s3_call

PART = bytes(range(256)) * (5 * 4096)
TAIL = b"tail"
OLD = b"old"


class EndedError(BaseException):
    """The gateway has ended: nothing that it does reaches a NameNode any more."""


class EndingClient(AsyncClient):
    """The client of a gateway that ends at one of its calls."""

    def __init__(self, address: str, step: int, *, answered: bool) -> None:
        """It ends at call number `step`, from 0 on; `answered`: when the NameNode has done it, but
        before it hears of that."""
        super().__init__(address)
        self._left, self._answered = step, answered
        self._real = self._session.namenodes.call
        self._session.namenodes.call = self._counted  # type: ignore[method-assign] # it counts

    async def _counted(self, *asked: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == -1 and self._answered:
            await self._real(*asked, **options)
        if self._left < 0:
            raise EndedError
        return await self._real(*asked, **options)


async def ended_at(
    cluster: LocalCluster,
    step: int,
    run: Callable[[S3Call], Awaitable[Answer]],
    path: str,
    request: BareRequest,
    *,
    answered: bool,
    **query: str,
) -> bool:
    """Run an operation at a gateway that ends at a step; False if it was through before."""
    fs = EndingClient(cluster.addresses[0], step, answered=answered)
    try:
        async with contextlib.AsyncExitStack() as stack:
            await run(s3_call(UserClient(fs), stack, path, request, tuple(query.items())))
    except EndedError:
        return True
    finally:
        with contextlib.suppress(EndedError):
            await fs.close()
    return False


def is_clean(fs: Client) -> bool:
    """True if all that is hidden goes by itself."""
    hidden = [each for each in fs.ls("/.staging") if each.kind is Kind.DIRECTORY]
    return all(each.expires_s > 0 for each in hidden)


@pytest.mark.parametrize("answered", [False, True])
async def test_of_a_complete(
    cluster: LocalCluster, fs: Client, other: Any, bucket: str, answered: bool
) -> None:
    for step in itertools.count():
        f = {"Bucket": bucket, "Key": f"d/{step}"}
        other.put_object(**f, Body=OLD)
        upload = {**f, "UploadId": other.create_multipart_upload(**f)["UploadId"]}
        tags = [
            other.upload_part(**upload, PartNumber=number, Body=body)["ETag"]
            for number, body in enumerate((PART, TAIL), 1)
        ]
        parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        ended = await ended_at(
            cluster,
            step,
            complete_multipart_upload,
            f"/{bucket}/d/{step}",
            BareRequest("POST", document(parts)),
            answered=answered,
            uploadId=upload["UploadId"],
        )
        found = other.get_object(**f)["Body"].read()
        assert found in (OLD, PART + TAIL)
        assert found == PART + TAIL or ended
        again = other.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        got = other.get_object(**f)
        assert (got["ETag"], got["Body"].read()) == (again["ETag"], PART + TAIL)
        assert "Uploads" not in other.list_multipart_uploads(Bucket=bucket)
        if not ended:
            break
    assert step >= 5, "it ended at each of its calls"
    assert is_clean(fs)


def document(parts: list[dict[str, Any]]) -> bytes:
    """Return what a program sends to complete an upload."""
    told = "".join(
        f"<Part><PartNumber>{part['PartNumber']}</PartNumber><ETag>{part['ETag']}</ETag></Part>"
        for part in parts
    )
    return f"<CompleteMultipartUpload>{told}</CompleteMultipartUpload>".encode()


@pytest.mark.parametrize("answered", [False, True])
async def test_of_a_put(
    cluster: LocalCluster, fs: Client, other: Any, bucket: str, answered: bool
) -> None:
    for step in itertools.count():
        f = {"Bucket": bucket, "Key": f"d/{step}"}
        other.put_object(**f, Body=OLD)
        request = BareRequest("PUT", PART)
        path = f"/{bucket}/d/{step}"
        ended = await ended_at(cluster, step, put_object, path, request, answered=answered)
        found = other.get_object(**f)["Body"].read()
        assert found in (OLD, PART)
        assert found == PART or ended
        other.put_object(**f, Body=TAIL)
        assert other.get_object(**f)["Body"].read() == TAIL
        if not ended:
            break
    assert step >= 4, "it ended at each of its calls"
    assert is_clean(fs)
