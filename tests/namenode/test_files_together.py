"""Many files that are made in one change, and closed and named in another one."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

import pytest
from msgspec.structs import replace

from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    CREATE_FILES,
    FILES_TOGETHER_MAX,
    LIST,
    MKDIRS,
    RENEW_LEASES,
    STAT,
    TRANSACT,
    CloseFile,
    CreatedFile,
    CreateFile,
    CreateFiles,
    FirstBlock,
    Kind,
    ListDirectory,
    MakeDirectories,
    PathRequest,
    RenewLeases,
    Transact,
)
from paxosblock.api.quota import SET_QUOTA, SetQuota
from paxosblock.api.transaction import Delete, Operation, Rename
from paxosblock.errors import (
    CorruptionError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    PaxosBlockError,
    QuotaExceededError,
)
from paxosblock.namenode.audit import AUDIT_LOG
from paxosblock.protocol.types import Durability, WriterId
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.scene import ROOM_BYTES, Scene, create_request
from tests.namenode.test_creating import ends

HIDDEN = "/.hidden/batch"
NAMES = [f"{number}" for number in range(4)]


def writer(name: str) -> WriterId:
    return WriterId(f"writer-{name}")


def create_of(name: str) -> CreateFile:
    made = create_request(f"{HIDDEN}/{name}", writer(name), parent_must_exist=True)
    return replace(made, first=FirstBlock(window=2, size=CHUNK_BYTES))


def request(*names: str) -> CreateFiles:
    """The files of a batch, in a directory of its own."""
    directory = MakeDirectories(HIDDEN, ttl_s=60.0)
    return CreateFiles(tuple(map(create_of, names)), directory, Once("session-of-create", 1))


async def made(scene: Scene, *names: str) -> tuple[CreatedFile, ...]:
    """The files of a batch, each with a block that holds a chunk at every member."""
    created = (await scene.service.call(CREATE_FILES, request(*names))).files
    for each in created:
        assert each.first is not None
        for storage in each.first.record.members:
            scene.network.reach[storage].create(each.first.record.block)
        scene.write(each.first, 1, 1, 1)
    return created


def published(created: tuple[CreatedFile, ...], names: list[str], to: str = "") -> Transact:
    """Return the request that closes the files and gives each its name."""
    closes: list[CloseFile] = []
    operations: list[Operation] = []
    for each, name in zip(created, names, strict=True):
        assert each.first is not None
        last = replace(ends(each.first), writer=writer(name))
        closes.append(CloseFile(each.status.file_id, writer(name), last, size=CHUNK_BYTES))
        operations.append(Rename(f"{HIDDEN}/{name}", f"{to}/{name}", as_new=True))
    return Transact(
        (*operations, Delete(HIDDEN, recursive=True)), 3, 1 << 20, Durability.DISK,
        once=Once("session-of-close", 1), closes=tuple(closes),
    )  # fmt: skip


async def names_in(scene: Scene, path: str = "/") -> list[str]:
    found = (await scene.service.call(LIST, ListDirectory(path))).entries
    return [each.path for each in found if each.kind is Kind.FILE]


async def entries_made(scene: Scene, call: Awaitable[object]) -> int:
    before = (await scene.node.catalog.view()).revision
    await call
    return (await scene.node.catalog.view()).revision - before


async def test_one_entry_of_the_log_makes_all_files_and_one_closes_and_names_them(
    scene: Scene,
) -> None:
    spare = replace(create_request("/.hidden/spare"), first=FirstBlock(window=2))
    await scene.service.call(CREATE_FILES, CreateFiles((spare,)))  # reserves ids, in its own entry
    count = await entries_made(scene, scene.service.call(CREATE_FILES, request(*NAMES)))
    assert count == 1
    created = await made(scene, *NAMES)  # a copy of the request has the first answer
    assert [each.status.path for each in created] == [f"{HIDDEN}/{name}" for name in NAMES]
    assert len({each.first.record.block for each in created if each.first}) == len(NAMES)
    writers = tuple(map(writer, NAMES))
    assert (await scene.service.call(RENEW_LEASES, RenewLeases(writers))).lost == ()
    asked = scene.service.call(TRANSACT, published(created, NAMES))
    assert await entries_made(scene, asked) == 1
    assert await names_in(scene) == [f"/{name}" for name in NAMES]
    for each, name in zip(created, NAMES, strict=True):
        status = await scene.service.call(STAT, PathRequest(f"/{name}"))
        shown = (status.file_id, status.size, status.open)
        assert shown == (each.status.file_id, CHUNK_BYTES, False)
    assert (await scene.service.call(RENEW_LEASES, RenewLeases(writers))).lost == writers
    with pytest.raises(NotFoundError):
        await scene.service.call(STAT, PathRequest(HIDDEN))


async def test_each_member_is_told_by_one_call_of_all_files_that_were_closed_together(
    scene: Scene,
) -> None:
    created = await made(scene, *NAMES)
    scene.network.calls.clear()
    await scene.service.call(TRANSACT, published(created, NAMES))
    assert sorted(scene.network.calls) == sorted(scene.network.reach)


async def test_copies_of_both_requests_change_nothing_and_hear_the_first_answers(
    scene: Scene,
) -> None:
    created = await made(scene, *NAMES)
    asked = published(created, NAMES)
    outcome = await scene.service.call(TRANSACT, asked)
    for _ in range(2):
        again = scene.service.call(CREATE_FILES, request(*NAMES))
        assert await entries_made(scene, again) == 0
        assert await entries_made(scene, scene.service.call(TRANSACT, asked)) == 0
    assert await scene.service.call(TRANSACT, asked) == outcome
    shown = (await scene.service.call(CREATE_FILES, request(*NAMES))).files
    assert [each.status for each in shown] == [each.status for each in created]


async def test_if_one_cannot_be_made_none_is(scene: Scene) -> None:
    taken = CreateFiles((create_request("/a"), create_request("/b"), create_request("/a/c")))
    with pytest.raises(PaxosBlockError, match="'/a'"):
        await scene.service.call(CREATE_FILES, taken)
    assert await names_in(scene) == []


@pytest.mark.parametrize(
    ("wrong", "error"), [("size", CorruptionError), ("writer", FencedError), ("path", Exception)]
)
async def test_if_one_cannot_be_closed_or_named_all_stay_open_and_unnamed(
    scene: Scene, wrong: str, error: type[Exception]
) -> None:
    created = await made(scene, *NAMES)
    asked = published(created, NAMES)
    last = asked.closes[-1]
    if wrong == "path":
        await scene.service.call(MKDIRS, MakeDirectories(f"/{NAMES[-1]}"))
    else:
        bad = replace(last, size=1) if wrong == "size" else replace(last, writer=WriterId("other"))
        asked = replace(asked, closes=(*asked.closes[:-1], bad))
    with pytest.raises(error):
        await scene.service.call(TRANSACT, asked)
    assert await names_in(scene) == []
    hidden = (await scene.service.call(LIST, ListDirectory(HIDDEN))).entries
    assert [each.open for each in hidden] == [True] * len(NAMES)
    writers = tuple(map(writer, NAMES))
    assert (await scene.service.call(RENEW_LEASES, RenewLeases(writers))).lost == ()


async def test_a_quota_counts_each_file_and_keeps_all_away_if_one_is_too_many(
    scene: Scene,
) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/few"))
    await scene.service.call(SET_QUOTA, SetQuota("/few", names=len(NAMES)))
    created = await made(scene, *NAMES)
    with pytest.raises(QuotaExceededError):
        await scene.service.call(TRANSACT, published(created, NAMES, "/few"))
    assert await names_in(scene, "/few") == []
    await scene.service.call(SET_QUOTA, SetQuota("/few", names=len(NAMES) + 1))
    await scene.service.call(TRANSACT, published(created, NAMES, "/few"))
    assert len(await names_in(scene, "/few")) == len(NAMES)


async def test_files_of_a_known_size_take_no_room_of_whole_blocks_until_they_are_closed(
    scene: Scene,
) -> None:
    wide = [replace(create_of(name), block_size=ROOM_BYTES // 3 * 2) for name in NAMES]
    asked = replace(request(), files=tuple(wide))
    created = (await scene.service.call(CREATE_FILES, asked)).files
    assert all(each.first is not None for each in created)


async def test_the_audit_log_has_each_file_as_if_it_was_made_by_itself(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            deed = vars(record)["deed"]
            lines.append(f"{deed.command} {deed.source} {deed.destination or ''}".strip())

    noted = Noted()
    AUDIT_LOG.addHandler(noted)
    caplog.set_level(logging.INFO, AUDIT_LOG.name)
    try:
        created = await made(scene, *NAMES[:2])
        await scene.service.call(TRANSACT, published(created, NAMES[:2]))
    finally:
        AUDIT_LOG.removeHandler(noted)
    ids = [each.status.file_id for each in created]
    assert lines == [
        f"mkdirs {HIDDEN}",
        f"create {HIDDEN}/0",
        f"create {HIDDEN}/1",
        f"completeFile /.reserved/.inodes/{ids[0]}",
        f"completeFile /.reserved/.inodes/{ids[1]}",
        f"rename {HIDDEN}/0 /0",
        f"rename {HIDDEN}/1 /1",
        f"delete {HIDDEN}",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        CreateFiles(()),
        CreateFiles((create_request("/a"),) * (FILES_TOGETHER_MAX + 1)),
        CreateFiles((create_request("/a"),), MakeDirectories("/b")),
        CreateFiles((replace(create_request("/a"), replication=0),)),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(scene: Scene, wrong: CreateFiles) -> None:
    with pytest.raises(InvalidRequestError):
        await scene.service.call(CREATE_FILES, wrong)
