"""A program that writes paths with pathlib need not turn them into text."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from paxosblock import Client
from paxosblock.api.transaction import (
    AclChange,
    AssertAbsent,
    AssertFile,
    ChangeAcl,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Rename,
    SetOwner,
    SetPermission,
)
from paxosblock.errors import InvalidRequestError

DIRECTORY = PurePosixPath("/pathlib")


def test_every_call_takes_a_pathlib_path(fs: Client) -> None:
    first, second, third = (DIRECTORY / name for name in ("first", "second", "third"))
    bytes_written = bytes(1000)
    assert fs.mkdirs(DIRECTORY).path == str(DIRECTORY)
    for path in (first, second):
        with fs.create(path) as out:
            out.write(bytes_written)
    with fs.append(second) as out:
        out.write(bytes_written)
    assert fs.take_over(second) == 2000
    with fs.open(first) as file:
        assert file.read() == bytes_written
    assert b"".join(fs.follow(second, 1000)) == bytes_written
    assert not fs.wait_longer(second, 2000, 0.01)
    assert len(fs.locations(second)) == 1, "an append goes on in the last block"
    fs.concat(first, [second])
    assert fs.rename(first, third).path == str(third)
    assert fs.set_replication(third, 2).replication == 2
    assert fs.set_permission(third, 0o600).permission == 0o600
    assert fs.set_owner(third, group="staff").group == "staff"
    assert fs.modify_acl_entries(third, "user:bob:r--").has_acl
    assert fs.remove_acl_entries(third, "user:bob").has_acl  # the mask stays, as in HDFS
    assert fs.set_acl(third, fs.get_acl_status(third).acl).has_acl
    assert not fs.remove_acl(third).has_acl
    assert not fs.remove_default_acl(DIRECTORY).has_acl
    assert fs.stat(third).size == 3000
    assert [entry.path for entry in fs.ls(DIRECTORY)] == [str(third)]
    assert [entry.path for entry in fs.walk(DIRECTORY)] == [str(third)]
    assert [entry.path for entry in fs.glob(DIRECTORY / "th*")] == [str(third)]
    assert [page.next_after for page in fs.pages(DIRECTORY)] == [None]
    assert [page.entries for page in fs.pages(DIRECTORY, third.name)] == [()]
    assert [each.key for each in fs.list_keys(DIRECTORY).keys] == [third.name]
    assert not fs.exists(second)
    assert fs.delete(DIRECTORY, recursive=True)


def test_the_operations_of_a_transaction_take_pathlib_paths(fs: Client) -> None:
    top = PurePosixPath("/pathlib-transact")
    one, two, three = (top / name for name in ("one", "two", "three"))
    assert fs.transact([AssertAbsent(top), MakeDirectory(top), Marker(one)]).applied
    assert fs.transact([AssertFile(one), Rename(one, two)]).applied
    assert fs.transact([Marker(three), Concat(three, [two])]).applied
    assert fs.transact([SetPermission(three, 0o600), SetOwner(three, "ann")]).applied
    assert (fs.stat(three).permission, fs.stat(three).owner) == (0o600, "ann")
    assert fs.transact([ChangeAcl(three, AclChange.MODIFY, "user:bob:r--")]).applied
    assert fs.stat(three).has_acl
    assert [entry.path for entry in fs.ls(top)] == [str(three)]
    assert fs.transact([Delete(top, recursive=True)]).applied
    assert Concat(three, [two]) == Concat(str(three), (str(two),))


@pytest.mark.parametrize("path", [b"/bytes", 5, None])
def test_what_is_no_path_is_refused_before_anybody_is_asked(path: Any) -> None:
    with Client("127.0.0.1:1") as fs, pytest.raises(InvalidRequestError, match="a path is a str"):
        fs.stat(path)
