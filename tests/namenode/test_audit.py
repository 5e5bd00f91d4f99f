"""The audit log tells of each change and each refusal, in HDFS's format."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    CLOSE_FILE,
    CREATE,
    DELETE,
    MKDIRS,
    RENAME,
    STAT,
    TRANSACT,
    CloseFile,
    DeletePath,
    MakeDirectories,
    PathRequest,
    RenamePath,
    Transact,
)
from paxosblock.api.namenode_list import ChangeNameNodes
from paxosblock.api.ownership import (
    CHANGE_ACL,
    SET_PERMISSION,
    ChangePathAcl,
    SetPathPermission,
)
from paxosblock.api.transaction import (
    AclChange,
    AssertAbsent,
    AssertDirectory,
    AssertFile,
    ChangeAcl,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
    SetAttributes,
    SetOwner,
    SetPermission,
    SetTimes,
    Truncate,
)
from paxosblock.client.async_client import AsyncClient
from paxosblock.config import NameNodeConfig
from paxosblock.errors import AccessDeniedError, NotFoundError, PaxosBlockError
from paxosblock.host.logs import BatchHandler
from paxosblock.host.user import claimed_user
from paxosblock.namenode import audit, namenode_server
from paxosblock.namenode.audit import AUDIT_LOG, AuditFormatter, Deed, deed_of
from paxosblock.namenode.calls import CALLS, By, Call, Service
from paxosblock.namenode.name_node import NameNode
from paxosblock.namenode.namenode_server import running
from paxosblock.net.port.caller import CALLER, REQUEST_ID, Caller
from paxosblock.protocol.types import Durability
from tests.namenode.scene import ANN, Scene, create_request, new_scene

SHOWS = {
    "application",
    "check_access",
    "check_files",
    "cluster_status",
    "encryption_zones",
    "explain",
    "get_acl_status",
    "get_attributes",
    "get_block",
    "get_file",
    "leaving",
    "list",
    "list_keys",
    "list_quotas",
    "list_subtree",
    "settings",
    "list_snapshots",
    "diff_snapshots",
    "kept_room",
    "list_tokens",
    "stat",
    "sum_subtree",
    "unwhole_blocks",
    "watch",
    "work",
    "writers",
}
"""Calls that only show something."""
AUDITED = {call.method.name for call in CALLS if call.deeds is not None}
"""Calls whose row tells the audit log what they change."""
NO_USERS = {
    "block_report": "a DataNode tells what it holds",
    "heartbeat": "a DataNode tells that it lives",
    "register": "a DataNode comes; what an operator says of it is set_admin_state",
    "renew_leases": "a writer goes on with what its create or append began",
    "report_bad_replica": "a hint, which is looked into before anything is done",
}
"""Calls by which no user changes what is durable, with the reason."""
OPERATIONS: dict[type, Operation] = {
    AssertAbsent: AssertAbsent("/a"),
    AssertFile: AssertFile("/a"),
    AssertDirectory: AssertDirectory("/a"),
    MakeDirectory: MakeDirectory("/a"),
    Rename: Rename("/a", "/b"),
    Concat: Concat("/a", ("/b", "/c")),
    Truncate: Truncate("/a", 0),
    Delete: Delete("/a"),
    Marker: Marker("/a"),
    SetPermission: SetPermission("/a", 0o600),
    SetTimes: SetTimes("/a", 1.0),
    SetOwner: SetOwner("/a", "ann"),
    SetAttributes: SetAttributes("/a", {"user.a": b"1"}),
    ChangeAcl: ChangeAcl("/a", AclChange.MODIFY, "user:ann:rwx"),
}


class _Kept(logging.Handler):
    """Keeps the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(AuditFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def parts(self) -> list[dict[str, str]]:
        """The parts of each line, by their names."""
        said = [line.partition("paxosblock.audit: ")[2] for line in self.lines]
        return [dict(part.split("=", 1) for part in line.split("\t")) for line in said]


@pytest.fixture
def kept() -> Iterator[_Kept]:
    handler = _Kept()
    AUDIT_LOG.setLevel(logging.INFO)
    AUDIT_LOG.addHandler(handler)
    before = CALLER.set(Caller.claiming("ann", "10.0.0.7"))
    yield handler
    CALLER.reset(before)
    AUDIT_LOG.removeHandler(handler)
    AUDIT_LOG.setLevel(logging.CRITICAL)


def test_a_handler_of_another_program_gets_the_line_and_what_records_have(kept: _Kept) -> None:
    kept.setFormatter(logging.Formatter("%(levelname)s %(name)s %(lineno)d %(message)s"))
    audit.note_done(audit.of_path("mkdirs"), MakeDirectories("/a"), None)
    (line,) = kept.lines
    assert line.startswith("INFO paxosblock.audit 0 allowed=true\tugi=ann ")
    assert "\tcmd=mkdirs\tsrc=/a\t" in line


def test_every_call_is_audited_or_says_why_not() -> None:
    names = {call.method.name for call in CALLS}
    assert names - AUDITED == SHOWS & names | NO_USERS.keys()
    assert not AUDITED & (SHOWS | NO_USERS.keys())
    of_engine = namenode_server._changes(cast("Any", None)).deeds
    assert of_engine is not None
    assert of_engine(ChangeNameNodes()) == (Deed("changeNameNodes", ""),)


def test_every_row_that_logs_a_change_or_decides_one_is_audited() -> None:
    """Whoever writes a row cannot call one that changes something one that shows something."""
    changing = {call.method.name for call in CALLS if call.log is not None}
    assert changing <= AUDITED


def test_every_operation_of_a_transaction_that_changes_something_is_audited() -> None:
    assert {*get_args(Operation)} == OPERATIONS.keys()
    silent = {kind for kind, operation in OPERATIONS.items() if deed_of(operation) is None}
    assert silent == {AssertAbsent, AssertFile, AssertDirectory}
    assert deed_of(OPERATIONS[Concat]) == Deed("concat", "[/b, /c]", "/a")


async def test_a_line_is_that_of_hdfs(kept: _Kept) -> None:
    scene = await new_scene(config=NameNodeConfig(permissions=False))
    REQUEST_ID.set("a-request")
    await scene.service.call(MKDIRS, MakeDirectories("/a b", owner="ann"))
    await scene.service.call(RENAME, RenamePath("/a b", "/c"))
    await scene.close()
    first, second = (line.split(": ", 1) for line in kept.lines)
    assert first[0].endswith(" INFO paxosblock.audit")
    assert first[1] == (
        "allowed=true\tugi=ann (auth:SIMPLE)\tip=/10.0.0.7\tcmd=mkdirs\tsrc=/a b\tdst=null\t"
        "perm=ann:supergroup:rwxr-xr-x\tproto=rpc\trequest=a-request"
    )
    assert "\tcmd=rename\tsrc=/a b\tdst=/c\tperm=ann:" in second[1]


async def test_what_shows_changes_nothing_or_fails_is_no_line(kept: _Kept) -> None:
    scene = await new_scene(config=NameNodeConfig(permissions=False))
    await scene.service.call(DELETE, DeletePath("/none"))
    with pytest.raises(NotFoundError):
        await scene.service.call(STAT, PathRequest("/none"))
    with pytest.raises(NotFoundError):
        await scene.service.call(RENAME, RenamePath("/none", "/b"))
    await scene.close()
    assert kept.lines == []


async def test_a_path_cannot_pass_for_another_part_or_line(kept: _Kept) -> None:
    scene = await new_scene(config=NameNodeConfig(permissions=False))
    await scene.service.call(MKDIRS, MakeDirectories("/a\tallowed=false\nallowed=true"))
    await scene.close()
    assert [part["src"] for part in kept.parts] == [r"/a\tallowed=false\nallowed=true"]


def transact(*operations: Operation) -> Transact:
    return Transact(operations, 3, 1 << 20, Durability.DISK)


async def test_each_operation_of_a_transaction_is_a_line(kept: _Kept) -> None:
    scene = await new_scene(config=NameNodeConfig(permissions=False))
    request = transact(AssertAbsent("/d"), MakeDirectory("/d"), Marker("/d/a"), Delete("/d/a"))
    await scene.service.call(TRANSACT, request)
    with pytest.raises(NotFoundError):
        await scene.service.call(TRANSACT, transact(MakeDirectory("/e"), Truncate("/none", 0)))
    await scene.close()
    found = [(part["cmd"], part["src"]) for part in kept.parts]
    assert found == [("mkdirs", "/d"), ("create", "/d/a"), ("delete", "/d/a")]


async def test_a_refusal_is_a_line_also_of_a_look(kept: _Kept) -> None:
    async def refuse(node: NameNode, request: Any) -> Any:
        details = {"operation": 2} if isinstance(request, Transact) else {}
        raise AccessDeniedError("no", **details)

    def row(method: Method[Any, Any]) -> Call:
        (of_cluster,) = (call for call in CALLS if call.method is method)
        return replace(of_cluster, answer=refuse, by=By.EVERY_MEMBER)

    scene = await new_scene(config=NameNodeConfig(permissions=False))
    service = Service(scene.node, calls=(row(RENAME), row(STAT), row(TRANSACT)))

    async def ask(method: Any, request: Any) -> None:
        with pytest.raises(AccessDeniedError):
            await service.call(method, request)

    await ask(RENAME, RenamePath("/a", "/b"))
    await ask(STAT, PathRequest("/secret"))
    await ask(TRANSACT, transact(MakeDirectory("/d"), Delete("/x"), Delete("/y")))
    await ask(TRANSACT, transact(MakeDirectory("/d"), AssertFile("/z")))
    await scene.close()
    wanted = [("rename", "/a"), ("stat", "/secret"), ("delete", "/x"), ("check", "/z")]
    assert [(part["cmd"], part["src"]) for part in kept.parts] == wanted
    assert {part["allowed"] for part in kept.parts} == {"false"}
    assert {part["perm"] for part in kept.parts} == {"null"}


async def one_change(scene: Scene, rng: random.Random) -> list[tuple[str, str, str]]:
    """Ask for something; return what an audit must tell of it if it is done."""
    call, paths = (
        scene.service.call,
        [f"/{rng.choice('ab')}", f"/{rng.choice('ab')}/{rng.choice('cd')}"],
    )
    path, other = rng.choice(paths), rng.choice(paths)
    match rng.randrange(6):
        case 0:
            await call(MKDIRS, MakeDirectories(path))
            return [("mkdirs", path, "null")]
        case 1:
            await call(RENAME, RenamePath(path, other))
            return [("rename", path, other)]
        case 2:
            gone = await call(DELETE, DeletePath(path, rng.random() < 0.5))
            return [("delete", path, "null")] if gone.existed else []
        case 3:
            if rng.random() < 0.5:
                how = rng.choice((AclChange.REMOVE, AclChange.REMOVE_DEFAULT))
                await call(CHANGE_ACL, ChangePathAcl(path, how))
                return [(how.value, path, "null")]
            await call(SET_PERMISSION, SetPathPermission(path, rng.choice((0o700, 0o755))))
            return [("setPermission", path, "null")]
        case 4:
            made = await call(CREATE, create_request(path, ANN, overwrite=True))
            number = made.status.file_id
            await call(CLOSE_FILE, CloseFile(number, ANN))
            return [
                ("create", path, "null"),
                ("completeFile", f"/.reserved/.inodes/{number}", "null"),
            ]
        case _:
            await call(TRANSACT, transact(MakeDirectory(path), Delete(path, True), Marker(other)))
            return [
                ("mkdirs", path, "null"),
                ("delete", path, "null"),
                ("create", other, "null"),
            ]


@pytest.mark.parametrize("seed", range(10))
async def test_the_log_is_the_history_of_a_random_run(kept: _Kept, seed: int) -> None:
    scene, rng, history = (
        await new_scene(config=NameNodeConfig(permissions=False)),
        random.Random(seed),
        [],
    )
    for _ in range(100):
        try:
            history += await one_change(scene, rng)
        except PaxosBlockError:
            continue
    await scene.close()
    assert [(part["cmd"], part["src"], part["dst"]) for part in kept.parts] == history
    assert len(history) > 30
    assert {part["allowed"] for part in kept.parts} == {"true"}


async def test_without_a_reader_no_line_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_write", lambda *_, **__: pytest.fail("a line is made"))
    scene = await new_scene(config=NameNodeConfig(permissions=False))
    await scene.service.call(MKDIRS, MakeDirectories("/a"))
    await scene.close()


async def test_a_node_keeps_it_in_the_file_that_its_settings_name(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    config = NameNodeConfig(audit_file=str(file), permissions=False)
    async with (
        running(config, listen="127.0.0.1:0", path=tmp_path / "nn", node_id="nn") as node,
        AsyncClient(node.address, user="eve") as eve,
        AsyncClient(node.address) as fs,
    ):
        await asyncio.gather(eve.mkdirs("/a"), fs.mkdirs("/b"), eve.mkdirs("/c"))
    assert not any(isinstance(each, BatchHandler) for each in AUDIT_LOG.handlers)
    text = file.read_text()
    for user, path in (("eve", "/a"), (claimed_user(), "/b"), ("eve", "/c")):
        wanted = f"allowed=true\tugi={user} (auth:SIMPLE)\tip=/127.0.0.1\tcmd=mkdirs\tsrc={path}\t"
        assert text.count(wanted) == 1
    assert "request=null" not in text
