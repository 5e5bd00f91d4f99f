"""Two users of a running cluster, by the names that they claim: each is kept from the files of the
other, through every door, and what only a superuser may do is refused to both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.care import BALANCE, SET_ADMIN_STATE, AdminState, Balance, SetAdminState
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.fsck_call import CHECK_FILES, CheckFiles
from paxosblock.api.lease_call import RECOVER_LEASE, GiveUp, RecoverLease
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    ADD_BLOCK,
    CLOSE_FILE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    MKDIRS,
    REOPEN_BLOCK,
    SEAL_BLOCK,
    AddBlock,
    BlockRequest,
    CloseFile,
    FinalizeBlock,
    MakeDirectories,
    ReopenBlock,
)
from paxosblock.api.namenode_list import CHANGE_NAMENODES, ChangeNameNodes
from paxosblock.api.rebuild import REBUILD_BLOCK, RebuildBlock
from paxosblock.api.status import EXPLAIN, SAFE_MODE, SafeModeAction, SafeModeRequest
from paxosblock.base.replacement import Policy
from paxosblock.errors import PermissionDeniedError
from paxosblock.host.user import HADOOP_USER_NAME
from paxosblock.net.calls import control
from paxosblock.net.port.access import Access
from paxosblock.protocol.types import BlockId
from tests.fork_server import ended
from tests.secure import url_of

pytestmark = pytest.mark.plain(
    "users by the names that they claim; certificates: test_roles_of_nodes.py"
)

SETTINGS = {"namenode": {"groups": "ann=dev;bob=dev;eve=supergroup,dev"}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(1, 1, folder, settings=SETTINGS) as cluster:
        for user in ("ann", "bob"):
            home = MakeDirectories(f"/{user}", permission=0o750, owner=user)
            assert control.call(cluster.namenode.address, MKDIRS, home).owner == user
        yield cluster


@pytest.fixture
def ann(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url, user="ann") as fs:
        yield fs


@pytest.fixture
def bob(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url, user="bob") as fs:
        yield fs


def asked(cluster: LocalCluster, user: str, method: Method[Any, Any], request: Any) -> Any:
    return control.call(cluster.namenode.address, method, request, 30.0, Access(user=user))


def test_each_has_their_files_for_themselves(ann: Client, bob: Client) -> None:
    with ann.create("/ann/f", replication=1) as out:
        out.write(b"of ann")
    made = ann.stat("/ann/f")
    assert (made.owner, made.group) == ("ann", "supergroup")
    words = 'Permission denied: user=bob, access={}, inode="/ann":ann:supergroup:drwxr-x---'
    for verb, access in (
        (lambda: bob.open("/ann/f"), "EXECUTE"),
        (lambda: bob.stat("/ann/f"), "EXECUTE"),
        (lambda: bob.ls("/ann"), "READ_EXECUTE"),
        (lambda: bob.create("/ann/g"), "EXECUTE"),
        (lambda: bob.append("/ann/f"), "EXECUTE"),
        (lambda: bob.delete("/ann/f"), "EXECUTE"),
        (lambda: bob.truncate("/ann/f", 1), "EXECUTE"),
        (lambda: bob.rename("/ann/f", "/bob/f"), "EXECUTE"),
        (lambda: bob.take_over("/ann/f"), "EXECUTE"),
        (lambda: bob.set_replication("/ann/f", 2), "EXECUTE"),
        (lambda: next(iter(bob.follow("/ann/f"))), "EXECUTE"),
    ):
        with pytest.raises(PermissionDeniedError) as refused:
            verb()
        assert str(refused.value) == words.format(access)
        assert isinstance(refused.value, PermissionError)
    with pytest.raises(PermissionDeniedError, match=r'access=WRITE, inode="/":'):
        bob.rename("/bob", "/else")
    with ann.open("/ann/f") as file:
        assert file.read() == b"of ann"


def test_the_id_of_a_file_or_block_is_no_way_around_its_mode(
    cluster: LocalCluster, ann: Client
) -> None:
    """Ids are counted up, and a writer's name is in what `stat` says of an open file."""
    with ann.create("/ann/open", replication=1) as out:
        out.write(b"x")
        out.hflush()
        seen = asked(cluster, "ann", GET_FILE, GetFile("/ann/open"))
        file, (view,) = seen.status.file_id, seen.blocks
        block, writer, generation = view.record.block, view.record.writer, view.record.generation
        requests: list[tuple[Method[Any, Any], Any]] = [
            (GET_FILE, GetFile("", file_id=file)),
            (GET_BLOCK, BlockRequest(block)),
            (EXPLAIN, BlockRequest(block)),
            (ADD_BLOCK, AddBlock(file, writer, block, window=2)),
            (REOPEN_BLOCK, ReopenBlock(file, writer, block, 2, 1, 8)),
            (FINALIZE_BLOCK, FinalizeBlock(block, writer, generation, 0, 0)),
            (SEAL_BLOCK, BlockRequest(block, writer=writer)),
            (
                REBUILD_BLOCK,
                RebuildBlock(block, writer, generation, (), Policy()),
            ),
            (CLOSE_FILE, CloseFile(file, writer)),
        ]
        for method, request in requests:
            with pytest.raises(PermissionDeniedError, match="user=bob, access="):
                asked(cluster, "bob", method, request)
        assert asked(cluster, "ann", GET_BLOCK, BlockRequest(block)).record == view.record
        out.write(b"y")
    with ann.open("/ann/open") as written:
        assert written.read() == b"xy"


OPERATORS: list[tuple[Method[Any, Any], Any]] = [
    (SET_ADMIN_STATE, SetAdminState("none", AdminState.DECOMMISSIONED)),
    (SAFE_MODE, SafeModeRequest(SafeModeAction.ENTER)),
    (BALANCE, Balance("me", 0.1)),
    (CHECK_FILES, CheckFiles("/")),
    (CHANGE_NAMENODES, ChangeNameNodes(remove="127.0.0.1:1")),
    (RECOVER_LEASE, RecoverLease("/ann/f", (GiveUp(BlockId(1), ()),))),
]


@pytest.mark.parametrize("case", OPERATORS, ids=lambda case: case[0].name)
def test_what_operators_do_is_for_superusers(
    cluster: LocalCluster, case: tuple[Method[Any, Any], Any]
) -> None:
    with pytest.raises(PermissionDeniedError) as refused:
        asked(cluster, "bob", *case)
    assert str(refused.value) == "Access denied for user bob. Superuser privilege is required"
    assert not asked(cluster, "bob", SAFE_MODE, SafeModeRequest(SafeModeAction.GET)).on


def test_a_backup_of_the_catalog_is_for_superusers(cluster: LocalCluster) -> None:
    url = url_of(cluster.namenode.address, "backup")
    for headers in ({"Access-User": "bob"}, {}):
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(url, headers=headers), timeout=30)
    with urlopen(Request(url, headers={"Access-User": "eve"}), timeout=30) as given:
        assert given.read()


def fs_as(user: str, cluster: LocalCluster, *words: str) -> Any:
    environment = dict(os.environ)
    environment |= {HADOOP_USER_NAME: user, "PAXOSBLOCK_NAMENODES": cluster.namenode.address}
    return ended([sys.executable, "-m", "paxosblock", "fs", *words], env=environment)


def test_commands_act_for_the_user_of_the_environment(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"of bob")
    assert fs_as("bob", cluster, "put", str(local), "/bob/b").returncode == 0
    refused = fs_as("ann", cluster, "cat", "/bob/b")
    assert refused.returncode == 1
    assert 'user=ann, access=EXECUTE, inode="/bob":bob:supergroup:drwxr-x---' in refused.stderr
    assert refused.stderr.count("\n") == 1
    for words in (("rm", "/bob/b"), ("mv", "/bob/b", "/ann/b"), ("mkdir", "/new")):
        refused = fs_as("ann", cluster, *words)
        assert refused.returncode == 1, words
        assert "Permission denied: user=ann" in refused.stderr
    assert fs_as("bob", cluster, "cat", "/bob/b").stdout == "of bob"
    assert fs_as("eve", cluster, "cat", "/bob/b").stdout == "of bob"
    assert fs_as("eve", cluster, "mkdir", "/by-eve").returncode == 0


def test_without_permissions_every_user_does_everything_and_owns_what_they_make(
    tmp_path: Path,
) -> None:
    settings = {"namenode": {"permissions": False}}
    with (
        LocalCluster(1, 1, tmp_path / "cluster", settings=settings) as cluster,
        Client(cluster.url, user="ann") as ann,
        Client(cluster.url, user="bob") as bob,
    ):
        ann.mkdirs("/ann", permission=0o700)
        with bob.create("/ann/f", replication=1) as out:
            out.write(b"x")
        assert (ann.stat("/ann").owner, ann.stat("/ann/f").owner) == ("ann", "bob")
        bob.delete("/ann", recursive=True)
