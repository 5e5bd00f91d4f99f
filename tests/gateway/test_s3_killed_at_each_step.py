"""A gateway that is killed at any step of a PUT or of a Complete, or among the bytes that come: a
proxy kills its process when it sees the call of that step, or the answer to it.

The object is as it was or as it should be, a program that asks another gateway again gets what it
wants, and what is left goes when its time to live has passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import Kind
from paxosblock.errors import NotFoundError
from tests.calls_proxy import CallsProxy, served
from tests.gateway.few_joined import FEW
from tests.gateway.gateways import S3, RunningGateway, gateway_of
from tests.gateway.s3_clients import s3_client, signed_head
from tests.waiting import wait_until

pytestmark = pytest.mark.plain("its proxy reads the calls at which it kills")

PART = bytes(range(256)) * (5 * 4096)
TAIL = b"tail"
OLD = b"old"
FEW_JOINED = "tests.gateway.few_joined"
SEARCH = "namenode_status"
"""The question of a client that waits for long. It is no step of a request."""
CALLS_MIN = 4
"""Fewest calls to NameNodes that a request to write makes."""


class Killer:
    """Kills a gateway at call number `step` of a request, from 0 on, when it comes: which is also
    when the answer to the one before it came. Or when the answer number `answer` comes."""

    def __init__(self, step: int | None = None, answer: int | None = None) -> None:
        self._step, self._answer = step, answer
        self.gateway: RunningGateway | None = None
        """The gateway, from the moment on at which calls count."""
        self.has_killed = False
        self.methods: list[str] = []
        """The methods that were called, in order."""
        self._answers = 0

    async def call(self, method: str) -> bool:
        """Hear that a call came."""
        if self.gateway is not None and method != SEARCH:
            if len(self.methods) == self._step:
                self._kill(self.gateway)
            self.methods.append(method)
        return not self.has_killed

    async def answer(self, method: str) -> bool:
        """Hear that an answer came."""
        if self.gateway is not None and method != SEARCH:
            if self._answers == self._answer:
                self._kill(self.gateway)
            self._answers += 1
        return not self.has_killed

    def _kill(self, gateway: RunningGateway) -> None:
        if not self.has_killed:
            os.kill(gateway.pid, signal.SIGKILL)  # the other thread waits for its end
        self.has_killed = True


def kill_in(
    cluster: LocalCluster,
    folder: Path,
    killer: Killer,
    ask: Callable[[Any], object],
    program: str = "paxosblock",
) -> None:
    """Ask a gateway that is killed at a step, if it comes to that."""

    async def run() -> None:
        proxy = CallsProxy(cluster.addresses[0], call=killer.call, answer=killer.answer)
        async with served(proxy.serve) as address:
            await asyncio.to_thread(serve, address)

    def serve(address: str) -> None:
        with gateway_of(cluster, folder, *S3, namenodes=address, program=program) as gateway:
            client = s3_client(gateway.s3_url)
            client.list_buckets()  # what it asks at first is no step of a request
            killer.gateway = gateway
            try:
                ask(client)
            except BotoCoreError:
                assert killer.has_killed
            killer.gateway = None

    folder.mkdir()
    asyncio.run(run())


def killers(first: int = 0) -> Iterator[Killer]:
    """Yield one for each call of a request from `first` on, then one that does not kill, and one
    for the answer to the last call, which makes the object."""
    for step in itertools.count(first):
        killer = Killer(step)
        yield killer
        if not killer.has_killed:
            assert step >= CALLS_MIN, killer.methods
            yield Killer(answer=len(killer.methods) - 1)
            return


def written(fs: Client) -> list[str]:
    """The hidden files to which somebody writes."""
    return [each.path for each in fs.walk("/.staging") if each.open]


def left(fs: Client) -> list[str]:
    """The hidden directories with something in them."""
    found = []
    for each in fs.ls("/.staging"):
        with contextlib.suppress(NotFoundError):  # it has ended
            found += [each.path] if each.kind is Kind.DIRECTORY and fs.ls(each.path) else []
    return found


def check_it_goes(fs: Client) -> None:
    """Check that all that is hidden has an end, and that nothing is left behind it."""
    for path in left(fs):
        with contextlib.suppress(NotFoundError):
            assert fs.stat(path).expires_s > 0, path
        fs.mkdirs(path, ttl_s=0.05)  # its end is now
    wait_until(lambda: not left(fs), what="the end of what was not published")


def test_of_a_put(
    cluster: LocalCluster, fs: Client, other: Any, bucket: str, tmp_path: Path
) -> None:
    for number, killer in enumerate(killers()):
        f = {"Bucket": bucket, "Key": f"d/{number}"}
        other.put_object(**f, Body=OLD)
        ask = partial(_put, **f, Body=PART)
        kill_in(cluster, tmp_path / str(number), killer, ask)
        found = other.get_object(**f)["Body"].read()
        assert found in (OLD, PART)
        assert found == PART or killer.has_killed
        other.put_object(**f, Body=TAIL)
        assert other.get_object(**f)["Body"].read() == TAIL
    assert found == PART, "the last one lost its answer only"
    check_it_goes(fs)


def test_of_a_complete(
    cluster: LocalCluster, fs: Client, other: Any, bucket: str, tmp_path: Path
) -> None:
    for number, killer in enumerate(killers()):
        f = {"Bucket": bucket, "Key": f"d/{number}"}
        other.put_object(**f, Body=OLD)
        upload = {**f, "UploadId": other.create_multipart_upload(**f)["UploadId"]}
        wanted = sent_parts(other, upload, (PART, TAIL))
        kill_in(cluster, tmp_path / str(number), killer, partial(_complete, **wanted))
        found = other.get_object(**f)["Body"].read()
        assert found in (OLD, PART + TAIL)
        assert found == PART + TAIL or killer.has_killed
        again = other.complete_multipart_upload(**wanted)
        got = other.get_object(**f)
        assert (got["ETag"], got["Body"].read()) == (again["ETag"], PART + TAIL)
        assert "Uploads" not in other.list_multipart_uploads(Bucket=bucket)
    assert found == PART + TAIL, "the last one lost its answer only"
    check_it_goes(fs)


def sent_parts(client: Any, upload: dict[str, str], bodies: Sequence[bytes]) -> dict[str, Any]:
    """Send the parts of an upload, and return the arguments that complete it."""
    parts = [
        {
            "PartNumber": number,
            "ETag": client.upload_part(**upload, PartNumber=number, Body=body)["ETag"],
        }
        for number, body in enumerate(bodies, 1)
    ]
    return {**upload, "MultipartUpload": {"Parts": parts}}


def test_of_a_complete_that_joins_parts_change_by_change(
    cluster: LocalCluster, fs: Client, bucket: str, tmp_path: Path
) -> None:
    """Killed between two of them, another gateway goes on where it ended, and no part is lost."""
    bodies = [bytes([number]) * 100 for number in range(2 * FEW + 2)]
    with gateway_of(cluster, tmp_path, *S3, program=FEW_JOINED) as gateway:
        other = s3_client(gateway.s3_url)

        def complete(number: int, killer: Killer) -> bytes:
            f = {"Bucket": bucket, "Key": f"d/{number}"}
            other.put_object(**f, Body=OLD)
            upload = {**f, "UploadId": other.create_multipart_upload(**f)["UploadId"]}
            wanted = sent_parts(other, upload, bodies)
            ask = partial(_complete, **wanted)
            kill_in(cluster, tmp_path / str(number), killer, ask, FEW_JOINED)
            found: bytes = other.get_object(**f)["Body"].read()
            assert other.complete_multipart_upload(**wanted)["ETag"]
            assert other.get_object(**f)["Body"].read() == b"".join(bodies)
            return found

        whole = Killer()
        assert complete(0, whole) == b"".join(bodies)
        changes = [at for at, method in enumerate(whole.methods) if method == "transact"]
        assert len(changes) == 3, whole.methods
        for number, killer in enumerate(killers(changes[0]), 1):
            found = complete(number, killer)
            assert found in (OLD, b"".join(bodies))
            assert found == OLD or len(killer.methods) == len(whole.methods)
        assert found == b"".join(bodies), "the last one lost its answer only"
        assert "Uploads" not in other.list_multipart_uploads(Bucket=bucket)
    check_it_goes(fs)


def _put(client: Any, **arguments: Any) -> None:
    client.put_object(**arguments)


def _complete(client: Any, **arguments: Any) -> None:
    client.complete_multipart_upload(**arguments)


def test_among_the_bytes_of_a_put_and_of_a_part(
    cluster: LocalCluster, fs: Client, other: Any, bucket: str, tmp_path: Path
) -> None:
    f = {"Bucket": bucket, "Key": "f"}
    other.put_object(**f, Body=OLD)
    upload = {**f, "UploadId": other.create_multipart_upload(**f)["UploadId"]}
    targets = f"/{bucket}/f", f"/{bucket}/f?partNumber=1&uploadId={upload['UploadId']}"
    with gateway_of(cluster, tmp_path, *S3) as gateway:
        head = [signed_head(gateway.s3_url, "PUT", each, length=len(PART)) for each in targets]
        with gateway.connect_s3() as put, gateway.connect_s3() as part:
            put.sendall(head[0] + PART[: len(PART) // 2])
            part.sendall(head[1] + PART[: len(PART) // 2])
            wait_until(lambda: len(written(fs)) == 2, what="both files")
            gateway.kill()
    assert other.get_object(**f)["Body"].read() == OLD
    assert "Parts" not in other.list_parts(**upload)
    other.upload_part(**upload, PartNumber=1, Body=TAIL)
    other.abort_multipart_upload(**upload)
    other.put_object(**f, Body=PART)
    assert other.get_object(**f)["Body"].read() == PART
    check_it_goes(fs)
