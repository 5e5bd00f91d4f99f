"""Objects of more parts than one change joins: they are joined change by change, and the object is
made by the last one. A NameNode in memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import pytest

from paxosblock.api.namenode import CLOSE_FILE, FINALIZE_BLOCK, CloseFile, FinalizeBlock, Kind
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import NotFoundError
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3 import upload_operations
from paxosblock.gateway.s3.object_facts import etag_of
from paxosblock.gateway.s3.s3_call import S3Call
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error
from paxosblock.gateway.s3.upload_operations import (
    JOINED_MAX,
    abort_multipart_upload,
    complete_multipart_upload,
    create_multipart_upload,
    list_parts,
)
from paxosblock.gateway.user_clients import UserClient
from paxosblock.protocol.types import FIRST_GENERATION, BlockId
from tests.gateway.bare_requests import BareRequest, s3_call
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.scene import ANN, Scene, blocks_of, new_scene

KEY = "/bucket/d/f"
PARTS = 6
FEW = 2
"""Parts that one change joins here, in place of thousands."""
NEVER = 1_000_000


class EndedError(BaseException):
    """The gateway has ended: nothing that it does reaches a NameNode any more."""


class MemoryGateway:
    """A gateway in memory, which may end at call number `step`: before the NameNode does it, or,
    where `answered`, before it hears of that."""

    def __init__(self, scene: Scene, step: int = NEVER, *, answered: bool = False) -> None:
        self._scene = scene
        self._left, self._answered = step, answered
        self.fs = AsyncClient("127.0.0.1:1")
        self.fs._session.namenodes.call = self._call  # type: ignore[method-assign] # it asks the one in memory
        self.methods: list[str] = []

    async def _call(self, method: Any, request: Any, **_: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not (self._answered and self._left == -1):
            raise EndedError
        self.methods.append(method.name)
        answer = await self._scene.service.call(method, request)
        if self._left < 0:
            raise EndedError
        return answer

    async def run(
        self,
        operation: Callable[[S3Call], Awaitable[Answer]],
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        **query: str,
    ) -> ElementTree.Element:
        """Run an operation, and return the document of its answer."""
        request = BareRequest("POST", body)
        request.headers = {**request.headers, **(headers or {})}
        async with contextlib.AsyncExitStack() as stack:
            call = s3_call(UserClient(self.fs), stack, KEY, request, tuple(query.items()))
            answer = await operation(call)
        assert isinstance(answer.body, bytes)
        return ElementTree.fromstring(answer.body or b"<None/>")

    async def complete(self, parts: MadeParts, **headers: str) -> str:
        """Complete an upload, and return the tag of the object."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        made = await self.run(
            complete_multipart_upload, parts.document(), names, uploadId=parts.upload_id
        )
        return made.findtext("{*}ETag") or ""


@dataclass
class MadeParts:
    """An upload whose parts are there, each of one block."""

    upload_id: str
    tags: list[str] = field(default_factory=list)
    blocks: list[BlockId] = field(default_factory=list)

    def document(self) -> bytes:
        """Return what a program sends to complete it."""
        told = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
            for number, tag in enumerate(self.tags, 1)
        )
        return f"<CompleteMultipartUpload>{told}</CompleteMultipartUpload>".encode()


async def put_part(scene: Scene, directory: str, number: int) -> tuple[str, BlockId]:
    """Make a part, in the place of one that is there; return its tag and its block."""
    fs = MemoryGateway(scene).fs
    path = f"{directory}/{number:05d}"
    with contextlib.suppress(NotFoundError):
        await fs.delete(path)
    file = await scene.create(path)
    view = await scene.add_block(file)
    scene.write(view, 1, 1, 1)
    block = view.record.block
    finalize = FinalizeBlock(block, ANN, FIRST_GENERATION, 1, CHUNK_BYTES)
    await scene.service.call(FINALIZE_BLOCK, finalize)
    status = await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    return etag_of(status), block


async def uploaded(scene: Scene, count: int = PARTS) -> MadeParts:
    """Begin an upload, and make its parts."""
    begun = await MemoryGateway(scene).run(create_multipart_upload, uploads="")
    made = MadeParts(begun.findtext("{*}UploadId") or "")
    for number in range(1, count + 1):
        tag, block = await put_part(scene, f"/.staging/s3-{made.upload_id}", number)
        made.tags.append(tag)
        made.blocks.append(block)
    return made


async def blocks_at_key(scene: Scene) -> list[BlockId]:
    """The blocks of the object, in order; none: there is no object."""
    try:
        status = await MemoryGateway(scene).fs.stat(KEY)
    except NotFoundError:
        return []
    return [entry.record.block for entry in await blocks_of(scene.node.catalog, status.file_id)]


async def refusal(gateway: MemoryGateway, parts: MadeParts, **headers: str) -> S3Code | None:
    """Complete an upload; return the code with which that is refused."""
    try:
        await gateway.complete(parts, **headers)
    except S3Error as error:
        return error.code
    return None


@contextlib.asynccontextmanager
async def bucket() -> AsyncIterator[Scene]:
    """A NameNode with a bucket."""
    scene = await new_scene()
    try:
        await MemoryGateway(scene).fs.mkdirs("/bucket")
        yield scene
    finally:
        await scene.close()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one change join few parts, which may be small."""
    monkeypatch.setattr(upload_operations, "JOINED_MAX", FEW)
    monkeypatch.setattr(upload_operations, "PART_BYTES_MIN", 1)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("answered", [False, True])
async def test_ended_at_any_step_it_is_completed_by_another_gateway(answered: bool) -> None:
    for step in itertools.count():
        async with bucket() as scene:
            parts = await uploaded(scene)
            one, ended = MemoryGateway(scene, step, answered=answered), False
            try:
                await one.complete(parts)
            except EndedError:
                ended = True
            assert await blocks_at_key(scene) in ([], parts.blocks)
            hidden = await MemoryGateway(scene).fs.ls("/.staging")
            assert all(each.kind is Kind.DIRECTORY and each.expires_s > 0 for each in hidden)
            tag = await MemoryGateway(scene).complete(parts)
            assert await blocks_at_key(scene) == parts.blocks
            assert tag == await MemoryGateway(scene).complete(parts)
            assert not await MemoryGateway(scene).fs.ls("/.staging")
            if not ended:
                break
    assert one.methods.count("transact") == PARTS // FEW, "two changes join, the last one makes"


async def half_joined(scene: Scene) -> MadeParts:
    """Return an upload of which a gateway has joined some parts, before it ended."""
    parts = await uploaded(scene)
    for step in itertools.count():
        with contextlib.suppress(EndedError):
            await MemoryGateway(scene, step).complete(parts)
        names = await MemoryGateway(scene).fs.ls(f"/.staging/s3-{parts.upload_id}")
        if "joined" in {each.name for each in names}:
            return parts
    raise AssertionError


@pytest.mark.usefixtures("few")
async def test_other_parts_of_the_same_sizes_do_not_pass_for_those_that_are_joined() -> None:
    async with bucket() as scene:
        parts = await half_joined(scene)
        other = MadeParts(parts.upload_id, [*parts.tags])
        other.tags[0], _ = await put_part(scene, f"/.staging/s3-{parts.upload_id}", 1)
        gateway = MemoryGateway(scene)
        assert await refusal(gateway, other) is S3Code.INVALID_PART
        assert await refusal(gateway, MadeParts(parts.upload_id, parts.tags[:-1])) is (
            S3Code.INVALID_PART
        )
        assert await blocks_at_key(scene) == []
        await gateway.complete(parts)
        assert await blocks_at_key(scene) == parts.blocks


@pytest.mark.usefixtures("few")
async def test_a_part_that_is_replaced_while_others_are_joined_is_refused() -> None:
    async with bucket() as scene:
        parts = await half_joined(scene)
        await put_part(scene, f"/.staging/s3-{parts.upload_id}", PARTS)
        assert await refusal(MemoryGateway(scene), parts) is S3Code.INVALID_PART
        assert await blocks_at_key(scene) == []
        listed = await MemoryGateway(scene).run(list_parts, uploadId=parts.upload_id)
        assert len(listed.findall("{*}Part")) == PARTS - FEW - 1
        await MemoryGateway(scene).run(abort_multipart_upload, uploadId=parts.upload_id)
        assert not await MemoryGateway(scene).fs.ls("/.staging")


@pytest.mark.usefixtures("few")
async def test_a_condition_that_is_not_met_leaves_the_parts_for_one_that_is() -> None:
    async with bucket() as scene:
        parts = await half_joined(scene)
        await MemoryGateway(scene).fs.mkdirs("/bucket/d")
        await put_part(scene, "/bucket/d", 1)
        await MemoryGateway(scene).fs.rename("/bucket/d/00001", KEY)
        code = await refusal(MemoryGateway(scene), parts, if_none_match="*")
        assert code is S3Code.PRECONDITION_FAILED
        await MemoryGateway(scene).complete(parts)
        assert await blocks_at_key(scene) == parts.blocks


@pytest.mark.usefixtures("few")
async def test_gateways_that_complete_the_same_at_once_answer_the_same() -> None:
    async with bucket() as scene:
        parts = await uploaded(scene)
        gateways = [MemoryGateway(scene) for _ in range(4)]
        asked = (each.complete(parts, if_none_match="*") for each in gateways)
        (tag,) = {*await asyncio.gather(*asked)}
        assert await blocks_at_key(scene) == parts.blocks
        assert tag == etag_of(await MemoryGateway(scene).fs.stat(KEY))


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_one_change_may_join_as_many_parts_as_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upload_operations, "PART_BYTES_MIN", 1)
    async with bucket() as scene:
        parts = await uploaded(scene, 2 * JOINED_MAX + 1)
        gateway = MemoryGateway(scene)
        await gateway.complete(parts)
        assert await blocks_at_key(scene) == parts.blocks
        assert gateway.methods.count("transact") == 2
