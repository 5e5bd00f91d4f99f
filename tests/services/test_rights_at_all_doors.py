"""Several users through the client, fsspec, a transaction and the verbs of `fs`: each operation at
each door, where HDFS's permission rules let it be done and where they do not.

The rules are the model that `tests/namenode/test_permissions.py` asks, too, which has more
operations and more trees; here it is the doors that must not differ.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import fsspec
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.transaction import (
    AclChange,
    ChangeAcl,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
    SetOwner,
    SetPermission,
    Truncate,
)
from paxosblock.base.acl_entries import parse_acl
from paxosblock.cli.main import run
from paxosblock.namenode.catalog.permissions import Actor
from tests.files import write
from tests.namenode import acl_model
from tests.namenode.rights_model import HdfsModel, R, W, X, creates, deletes, moves

pytestmark = pytest.mark.plain("users by the names that they claim")

ACTORS: Final = {
    "ann": Actor("ann", frozenset({"dev"})),
    "bob": Actor("bob", frozenset({"dev", "ops"})),
    "cy": Actor("cy"),
}
GROUPS: Final = ("dev", "ops", "others")
MODES: Final = (0o777, 0o755, 0o750, 0o770, 0o711, 0o722, 0o070, 0o007, 0o1777)
ACLS: Final = ("user:ann:rwx,mask::r-x", "group:ops:rwx,group:dev:---", "user:cy:-wx")
FILES_MIN: Final = 12
PICKS: Final = 3000
"""Users and paths that are tried until the rules let one do it, or do not."""

May = Callable[[HdfsModel], bool]


class RefusedError(Exception):
    """A verb ended with HDFS's words for a refusal."""


class User:
    """One user at every door."""

    def __init__(self, cluster: LocalCluster, name: str, local: Path) -> None:
        self.name, self.addresses = name, cluster.addresses
        self.client = Client(cluster.url, user=name)
        self.files = fsspec.filesystem(
            "paxosblock", namenodes=cluster.addresses, user=name, skip_instance_cache=True
        )
        self.local = local

    def verb(self, *words: str) -> None:
        """Run a verb of `paxosblock fs` as this user."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PAXOSBLOCK_NAMENODES", ",".join(self.addresses))
            patch.setenv("PAXOSBLOCK_CLIENT_USER", self.name)
            code = run(["fs", *words])
        if code:
            raise RefusedError(words)

    def append_with_fsspec(self, path: str) -> None:
        with self.files.open(path, "ab") as out:
            out.write(b"more")

    def append_with_client(self, path: str) -> None:
        with self.client.append(path) as out:
            out.write(b"more")


Door = Callable[[User, str, str], object]


@dataclass(frozen=True)
class Deed:
    """An operation on a path that is there (`on`), or on one that is not; `to` is a fresh path."""

    name: str
    on: Kind | None
    may: Callable[[str, str], May]
    doors: dict[str, Door]


def at(bits: int) -> Callable[[str, str], May]:
    return lambda path, _: lambda model: model.traversed(path) and model.may(path, bits)


def owned(path: str, _: str) -> May:
    return lambda model: model.traversed(path) and model.shown[path].owner == model.actor.user


DEEDS: Final = (
    Deed(
        "mkdir",
        None,
        lambda path, _: creates(path, overwrite=False),
        {
            "client": lambda user, path, _: user.client.mkdirs(path),
            "fsspec": lambda user, path, _: user.files.makedirs(path),
            "transact": lambda user, path, _: user.client.transact([MakeDirectory(path)]),
            "verb": lambda user, path, _: user.verb("mkdir", path),
        },
    ),
    Deed(
        "create",
        None,
        lambda path, _: creates(path, overwrite=False),
        {
            "client": lambda user, path, _: write(user.client, path, b"bytes"),
            "fsspec": lambda user, path, _: user.files.pipe_file(path, b"bytes"),
            "transact": lambda user, path, _: user.client.transact([Marker(path)]),
            "verb": lambda user, path, _: user.verb("put", str(user.local), path),
        },
    ),
    Deed(
        "read",
        Kind.FILE,
        at(R),
        {
            "client": lambda user, path, _: user.client.open(path).read(),
            "fsspec": lambda user, path, _: user.files.cat_file(path),
            "verb": lambda user, path, _: user.verb("cat", path),
        },
    ),
    Deed(
        "list",
        Kind.DIRECTORY,
        at(R | X),
        {
            "client": lambda user, path, _: user.client.ls(path),
            "fsspec": lambda user, path, _: user.files.ls(path),
            "verb": lambda user, path, _: user.verb("ls", path),
        },
    ),
    Deed(
        "append",
        Kind.FILE,
        at(W),
        {
            "client": lambda user, path, _: user.append_with_client(path),
            "fsspec": lambda user, path, _: user.append_with_fsspec(path),
            "verb": lambda user, path, _: user.verb("appendToFile", str(user.local), path),
        },
    ),
    Deed(
        "truncate",
        Kind.FILE,
        at(W),
        {
            "client": lambda user, path, _: user.client.truncate(path, 0),
            "transact": lambda user, path, _: user.client.transact([Truncate(path, 0)]),
            "verb": lambda user, path, _: user.verb("truncate", "0", path),
        },
    ),
    Deed(
        "rename",
        Kind.FILE,
        lambda path, to: moves(path, to, overwrite=False),
        {
            "client": lambda user, path, to: user.client.rename(path, to),
            "fsspec": lambda user, path, to: user.files.mv(path, to),
            "transact": lambda user, path, to: user.client.transact([Rename(path, to)]),
            "verb": lambda user, path, to: user.verb("mv", path, to),
        },
    ),
    Deed(
        "delete",
        Kind.FILE,
        lambda path, _: deletes(path, recursive=False),
        {
            "client": lambda user, path, _: user.client.delete(path),
            "fsspec": lambda user, path, _: user.files.rm_file(path),
            "transact": lambda user, path, _: user.client.transact([Delete(path)]),
            "verb": lambda user, path, _: user.verb("rm", "-skipTrash", path),
        },
    ),
    Deed(
        "chmod",
        Kind.FILE,
        owned,
        {
            "client": lambda user, path, _: user.client.set_permission(path, 0o640),
            "fsspec": lambda user, path, _: user.files.chmod(path, 0o640),
            "transact": lambda user, path, _: user.client.transact([SetPermission(path, 0o640)]),
            "verb": lambda user, path, _: user.verb("chmod", "640", path),
        },
    ),
    Deed(
        "setfacl",
        Kind.FILE,
        owned,
        {
            "client": lambda user, path, _: user.client.modify_acl_entries(path, ACLS[0]),
            "transact": lambda user, path, _: user.client.transact(
                [ChangeAcl(path, AclChange.MODIFY, parse_acl(ACLS[0]))]
            ),
            "verb": lambda user, path, _: user.verb("setfacl", "-m", ACLS[0], path),
        },
    ),
)


class Tree:
    """The files and directories, as their superuser makes and sees them."""

    def __init__(self, fs: Client, rng: random.Random) -> None:
        self.fs, self.rng = fs, rng
        self.top = f"/doors-{rng.randrange(1 << 30)}"
        self.numbers = itertools.count()
        fs.mkdirs(self.top)
        fs.set_permission(self.top, 0o777)
        above = [f"{self.top}/{each}" for each in "abcd"]
        below = [f"{each}/{name}" for each in above for name in "xyz"]
        self.own([MakeDirectory(path) for path in (*above, *below)])

    def add_files(self) -> None:
        """Have some more files, as others were deleted and moved."""
        fresh = (f"{self.top}/{a}/{b}/{next(self.numbers)}" for a in "abcd" for b in "xyz")
        self.own([Marker(path) for path in fresh])

    def own(self, made: Sequence[MakeDirectory | Marker]) -> None:
        """Make these, each with an owner and rights by chance."""
        rng, operations = self.rng, list[Operation](made)
        for each in made:
            operations.append(SetOwner(each.path, rng.choice([*ACTORS]), rng.choice(GROUPS)))
            operations.append(SetPermission(each.path, rng.choice(MODES)))
            if rng.random() < 0.3:
                acl = parse_acl(rng.choice(ACLS))
                operations.append(ChangeAcl(each.path, AclChange.MODIFY, acl))
        self.fs.transact(operations)

    def shown(self) -> dict[str, FileStatus]:
        """All that there is, by path, with the way to it."""
        found, left = {"/": self.fs.stat("/"), self.top: self.fs.stat(self.top)}, [self.top]
        while left:
            for entry in self.fs.ls(left.pop()):
                found[entry.path] = entry
                if entry.kind is Kind.DIRECTORY:
                    left.append(entry.path)
        return found

    def acls(self, shown: dict[str, FileStatus]) -> dict[str, acl_model.Texts]:
        """All entries of what has more than a mode."""
        return {
            path: acl_model.texts(self.fs.get_acl_status(path).acl)
            for path, status in shown.items()
            if status.has_acl
        }

    def fresh(self, shown: dict[str, FileStatus]) -> str:
        """A path in one of the directories that are there, where nothing is."""
        directories = [path for path, each in shown.items() if each.kind is Kind.DIRECTORY]
        above = self.rng.choice([path for path in directories if path != "/"])
        return f"{above}/new-{next(self.numbers)}"

    def scene(self, deed: Deed, wanted: bool) -> tuple[str, str, str, dict[str, FileStatus]]:
        """Return a user and paths for which the rules say so, and all that is shown."""
        shown = self.shown()
        acls = self.acls(shown)
        there = [path for path, each in shown.items() if each.kind is deed.on and path != "/"]
        for _ in range(PICKS):
            name = self.rng.choice([*ACTORS])
            path = self.rng.choice(there) if deed.on else self.fresh(shown)
            to = self.fresh(shown)
            if deed.may(path, to)(HdfsModel(shown, acls, ACTORS[name])) is wanted:
                return name, path, to, shown
        raise AssertionError(f"the rules never say {wanted} for {deed.name}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"namenode": {"groups": "ann=dev;bob=dev,ops"}}
    with LocalCluster(1, 1, tmp_path_factory.mktemp("cluster"), settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tree(cluster: LocalCluster) -> Iterator[Tree]:
    with Client(cluster.url) as fs:
        fs.set_permission("/", 0o755)
        yield Tree(fs, random.Random(23))


@pytest.fixture(scope="module")
def users(
    cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, User]]:
    local = tmp_path_factory.mktemp("local") / "file"
    local.write_bytes(b"local")
    users = {name: User(cluster, name, local) for name in ACTORS}
    yield users
    for user in users.values():
        user.client.close()


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.name)
def test_each_door_lets_users_do_what_hdfs_lets_them_and_nothing_else(
    deed: Deed,
    tree: Tree,
    users: dict[str, User],
    capfd: pytest.CaptureFixture[str],
) -> None:
    for (door, do), wanted, _ in itertools.product(deed.doors.items(), (True, False), range(2)):
        if sum(each.kind is Kind.FILE for each in tree.shown().values()) < FILES_MIN:
            tree.add_files()
        name, path, to, before = tree.scene(deed, wanted)
        told = f"{name} {deed.name} {path} {to} by {door}, allowed: {wanted}"
        capfd.readouterr()
        refused = _refusal(do, users[name], path, to, capfd)
        assert (refused == "") is wanted, f"{told}: {refused}"
        if wanted:
            continue
        assert "Permission denied" in refused, told
        after = tree.shown()
        assert (after, tree.acls(after)) == (before, tree.acls(before)), told


def _refusal(do: Door, user: User, path: str, to: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Return the words of a refusal; "" if it was done."""
    try:
        do(user, path, to)
    except RefusedError:
        return capfd.readouterr().err
    except PermissionError as error:
        return str(error)
    return ""
