"""Random operations of several users on the catalog are refused exactly where HDFS's Permissions
Guide refuses them: its table of operations is the model here.
"""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.api.care import SetReplication
from paxosblock.api.file_pages import GetFile
from paxosblock.api.namenode import (
    AppendFile,
    CloseFile,
    ConcatFiles,
    CreateFile,
    DeletePath,
    FileStatus,
    Kind,
    ListDirectory,
    MakeDirectories,
    RenamePath,
)
from paxosblock.api.ownership import AclStatus
from paxosblock.api.transaction import (
    AclChange,
    AssertFile,
    ChangeAcl,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Rename,
    SetOwner,
    SetPermission,
    SetTimes,
    Truncate,
)
from paxosblock.base.acl_entries import parse_acl
from paxosblock.errors import PaxosBlockError, PermissionDeniedError
from paxosblock.namenode.catalog import namespace, owners, permissions, tree
from paxosblock.namenode.catalog.draft import Draft, in_one
from paxosblock.namenode.catalog.permissions import ACTOR, ITSELF, Actor
from paxosblock.namenode.kv.interface import Committed, Conflict
from paxosblock.protocol.types import WriterId
from tests.namenode import acl_model
from tests.namenode.acl_model import Texts
from tests.namenode.memory_store import MemoryStore
from tests.namenode.rights_model import (
    HdfsModel,
    R,
    W,
    X,
    above,
    creates,
    deletes,
    joins,
    moves,
    publishes,
)
from tests.namenode.scene import (
    NamedCatalog,
    closed_file,
    create_request,
    new_catalog,
)
from tests.namenode.test_long_decisions import request_of

USERS = {
    "ann": Actor("ann", frozenset({"dev"})),
    "bob": Actor("bob", frozenset({"dev", "ops"})),
    "cy": Actor("cy"),
    "root": Actor("root", superuser=True),
}
GROUPS = ("dev", "ops", "supergroup")
MODES = (
    0o777,
    0o755,
    0o700,
    0o750,
    0o770,
    0o711,
    0o744,
    0o070,
    0o007,
    0o000,
    0o1777,
    0o1775,
    0o666,
    0o722,
)
FILES = (0o666, 0o666, 0o644, 0o640, 0o040, 0o004, 0o222, 0o200)
ACLS = (
    "user::rwx,group::---,other::rwx,user:ann:r-x",
    "user::rwx,group::rwx,other::---,user:bob:rwx,mask::r-x",
    "user::rwx,group::r-x,other::rwx,group:ops:rwx,group:dev:---",
    "user::rwx,group::---,other::rwx,group:dev:-wx,group:ops:r--,mask::rwx",
    "user::rw-,group::rwx,other::---,user:cy:rwx,default:user:ann:rwx",
    "default:user:cy:rwx,default:group:dev:---,default:other::rwx",
    "user::rwx,group::rwx,mask::---,other::rwx",
)
"""Lists that let some users in, and keep others out whom the mode would let in."""
PATHS = tuple(
    f"/{a}" + (f"/{b}" if b else "") + (f"/{c}" if c and b else "")
    for a in "ab"
    for b in ("", "c", "d")
    for c in ("", "e")
)


@dataclass(frozen=True)
class Case:
    """An operation by several ways, and whether HDFS lets it go on."""

    run: Callable[[NamedCatalog], Any]
    allows: Callable[[HdfsModel], bool]
    text: str

    def __repr__(self) -> str:
        return self.text


WRITER = WriterId("writer")


def transacted(*operations: Any) -> Callable[[NamedCatalog], Any]:
    return lambda catalog: catalog.transact(request_of(*operations))


async def appended(catalog: NamedCatalog, path: str) -> None:
    opened = await catalog.append(AppendFile(path, WRITER))
    await catalog.close_file(CloseFile(opened.status.file_id, WRITER))


async def created(catalog: NamedCatalog, request: CreateFile) -> None:
    inode = await catalog.create(request)
    await catalog.close_file(CloseFile(inode.number, request.writer))


async def set_replication(catalog: NamedCatalog, path: str) -> None:
    decide = in_one(namespace.set_replication)
    await catalog.decide(FileStatus, decide, SetReplication(path, 2))


def cases(path: str, other: str, flag: bool, mode: int) -> Iterator[Case]:
    def at(bits: int) -> Callable[[HdfsModel], bool]:
        return lambda model: model.traversed(path) and model.may(path, bits)

    new = creates(path, False)
    yield Case(lambda c: c.make_directories(MakeDirectories(path, flag, mode)), new, "mkdirs")
    yield Case(transacted(MakeDirectory(path)), new, "transact mkdir")
    create = msgspec.structs.replace(create_request(path), overwrite=flag, permission=mode)
    yield Case(lambda c: created(c, create), creates(path, flag), f"create {flag}")
    yield Case(transacted(Marker(path)), creates(path, True), "marker")
    move = RenamePath(path, other, flag)
    yield Case(lambda c: c.rename(move), moves(path, other, flag), f"rename {flag}")
    yield Case(transacted(Rename(path, other, flag)), moves(path, other, flag), "transact rename")
    publish = Rename(path, other, flag, as_new=True)
    yield Case(transacted(publish), publishes(path, other, flag), "publish")
    yield Case(lambda c: c.delete(DeletePath(path, flag)), deletes(path, flag), f"delete {flag}")
    yield Case(transacted(Delete(path, flag)), deletes(path, flag), f"transact delete {flag}")
    yield Case(lambda c: c.concat(ConcatFiles(path, (other,))), joins(path, other), "concat")
    yield Case(transacted(Concat(path, (other,))), joins(path, other), "transact concat")
    yield Case(transacted(Truncate(path, 0)), at(W), "truncate")
    yield Case(transacted(AssertFile(path)), at(0), "assert file")
    yield Case(lambda c: appended(c, path), at(W), "append")
    yield Case(lambda c: set_replication(c, path), at(W), "setrep")
    yield Case(lambda c: c.fence(path), at(W), "recover lease")
    yield Case(lambda c: c.status(path), at(0), "stat")
    yield Case(lambda c: c.file_page(GetFile(path)), at(R), "open")

    def owned(model: HdfsModel) -> bool:
        mine = path not in model.shown or model.shown[path].owner == model.actor.user
        return model.traversed(path) and (mine or model.actor.superuser)

    def given(model: HdfsModel) -> bool:
        user, groups = model.actor.user, model.actor.groups
        to_self = user == "ann" and "dev" in groups
        return owned(model) and (to_self or model.actor.superuser)

    chmod, chown = SetPermission(path, mode), SetOwner(path, "ann", "dev")
    yield Case(transacted(chmod), owned, "chmod")
    yield Case(transacted(chown), given, "chown")
    yield Case(transacted(SetTimes(path, 1.0)), at(W), "touch")

    for how in AclChange:
        bare = how in (AclChange.REMOVE, AclChange.REMOVE_DEFAULT)
        acl = ACLS[mode % len(ACLS)]
        change_acl = ChangeAcl(path, how, () if bare else parse_acl(acl))
        yield Case(transacted(change_acl), owned, how.value)
    yield Case(lambda c: acl_status(c, path), at(0), "getfacl")

    def listed(model: HdfsModel) -> bool:
        return model.traversed(path) and (not model.is_directory(path) or model.may(path, R | X))

    yield Case(lambda c: c.list(ListDirectory(path)), listed, "list")


KINDS_OF_CASES = len(list(cases("/a", "/b", False, 0)))


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    token = ACTOR.set(actor)
    try:
        yield
    finally:
        ACTOR.reset(token)


async def shown(catalog: NamedCatalog) -> dict[str, FileStatus]:
    """All that there is, by path."""
    found, left = {"/": await catalog.status("/")}, ["/"]
    while left:
        for entry in (await catalog.list(ListDirectory(left.pop()))).entries:
            found[entry.path] = entry
            if entry.kind is Kind.DIRECTORY:
                left.append(entry.path)
    return found


async def acl_status(catalog: NamedCatalog, path: str) -> AclStatus:
    return owners.acl_status(await catalog.view(), path, ACTOR.get())


async def acls_of(catalog: NamedCatalog, shown: dict[str, FileStatus]) -> dict[str, Texts]:
    """All entries of what has more than a mode, by path."""
    return {
        path: acl_model.texts((await acl_status(catalog, path)).acl)
        for path, status in shown.items()
        if status.has_acl
    }


async def change(store: MemoryStore, path: str, owner: str, group: str, mode: int) -> None:
    """chown and chmod by a superuser."""
    draft = Draft(store.view())
    inode = tree.find_inode(draft, path, ITSELF)
    draft.put_inode(msgspec.structs.replace(inode, owner=owner, group=group, permission=mode))
    assert isinstance(await store.commit(draft.to_edit()), Committed)


NAMES = ("ann", "bob", "cy", "root")
TREE = {
    "/a/c/e": False,
    "/a/d/e": False,
    "/b/c": False,
    "/b/d": False,
    "/a/c": True,
    "/a/d": True,
    "/a": True,
    "/b": True,
    "/": True,
}
"""The paths there are in the beginning, and which are directories."""


def inodes(modes: tuple[int, ...]) -> st.SearchStrategy[tuple[str, str, int]]:
    """An owner, a group and a mode; many modes let everybody in, so that others decide."""
    return st.tuples(st.sampled_from(NAMES), st.sampled_from(GROUPS), st.sampled_from(modes))


BEGUN_ACLS = st.tuples(*(st.sampled_from((None, None, *ACLS)) for _ in TREE))
BEGUN = st.tuples(*(inodes(MODES if directory else FILES) for directory in TREE.values()))
STEP = st.tuples(
    st.sampled_from(("ann", "bob", "cy", "cy", "root")),
    st.integers(0, KINDS_OF_CASES - 1),
    st.sampled_from((*TREE, *PATHS)),
    st.sampled_from((*TREE, *PATHS)),
    st.booleans(),
    st.sampled_from(MODES + FILES),
)


@settings(max_examples=150, deadline=None)
@given(begun=BEGUN, acls=BEGUN_ACLS, steps=st.lists(STEP, min_size=20, max_size=20))
def test_what_users_do_is_refused_where_hdfs_refuses_it(
    begun: Any, acls: Any, steps: list[Any]
) -> None:
    """A user gets the outcome that a superuser would get, where HDFS lets the user do it."""
    assert asyncio.run(_refused_wrongly(begun, acls, steps)) == []


async def _refused_wrongly(begun: Any, acls: Any, steps: list[Any]) -> list[str]:
    wrong: list[str] = []
    store = MemoryStore()
    catalog = await new_catalog(store)
    for path, directory in reversed(TREE.items()):
        if directory:
            await catalog.make_directories(MakeDirectories(path))
        else:
            await created(catalog, create_request(path))
    for path, inode in zip(TREE, begun, strict=True):
        await change(store, path, *inode)
    for path, acl in zip(TREE, acls, strict=True):
        if acl is not None and (TREE[path] or "default" not in acl):
            await transacted(ChangeAcl(path, AclChange.MODIFY, acl))(catalog)
    for user, kind, path, other, flag, mode in steps:
        case, actor = list(cases(path, other, flag, mode))[kind], USERS[user]
        before, aside = await shown(catalog), await new_catalog(copy.deepcopy(store))
        allowed = case.allows(HdfsModel(before, await acls_of(catalog, before), actor))
        of_superuser = await outcome(aside, case, USERS["root"])
        error = await outcome(catalog, case, actor)
        after = await shown(catalog)
        told = f"{user}: {case} {path} {other}: {error!r} {of_superuser!r}"
        if allowed:
            right = type(error) is type(of_superuser)
        elif of_superuser is None and not _nothing_to_do(case, before, await shown(aside)):
            right = isinstance(error, PermissionDeniedError)
        else:
            right = True
        right &= error is None or after == before
        wrong += [] if right and _new_is_theirs(actor, before, after) else [told]
    return wrong


async def outcome(catalog: NamedCatalog, case: Case, actor: Actor) -> PaxosBlockError | None:
    with acting(actor):
        try:
            await case.run(catalog)
        except PaxosBlockError as error:
            return error
    return None


def _nothing_to_do(case: Case, before: dict[str, FileStatus], after: dict[str, FileStatus]) -> bool:
    """A `mkdirs` of what is there, a `delete` of what is not."""
    return before == after and ("mkdir" in case.text or "delete" in case.text)


def _new_is_theirs(
    actor: Actor, before: dict[str, FileStatus], after: dict[str, FileStatus]
) -> bool:
    """True if new inodes are their maker's, and of the group of the directory above."""
    known = {each.file_id for each in before.values()}
    return all(
        (each.owner, each.group) == (actor.user, after[above(path)[-1]].group)
        for path, each in after.items()
        if each.file_id not in known
    )


# -- examples --------------------------------------------------------------------------------------


async def scene_of_two() -> tuple[MemoryStore, NamedCatalog]:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/dir"))
    await closed_file(catalog, "/dir/file", 2)
    await change(store, "/dir", "me", "supergroup", 0o755)
    await change(store, "/dir/file", "me", "supergroup", 0o640)
    return store, catalog


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (
            lambda c: c.make_directories(MakeDirectories("/dir/new")),
            'Permission denied: user=cy, access=WRITE, inode="/dir":me:supergroup:drwxr-xr-x',
        ),
        (
            lambda c: c.file_page(GetFile("/dir/file")),
            'Permission denied: user=cy, access=READ, inode="/dir/file":me:supergroup:-rw-r-----',
        ),
        (
            lambda c: c.delete(DeletePath("/tmp/of-ann")),
            "Permission denied by sticky bit: user=cy, "
            'path="/tmp/of-ann":ann:supergroup:drwxr-xr-x, '
            'parent="/tmp":root:supergroup:drwxrwxrwt',
        ),
        (
            lambda c: c.status("/closed/below"),
            'Permission denied: user=cy, access=EXECUTE, inode="/closed":ann:supergroup:drwx------',
        ),
    ],
)
async def test_a_refusal_is_in_hdfss_words(run: Callable[[NamedCatalog], Any], words: str) -> None:
    store, catalog = await scene_of_two()
    for path, owner, mode in (
        ("/tmp", "root", 0o1777),
        ("/tmp/of-ann", "ann", 0o755),
        ("/closed", "ann", 0o700),
    ):
        await catalog.make_directories(MakeDirectories(path))
        await change(store, path, owner, "supergroup", mode)
    with acting(USERS["cy"]), pytest.raises(PermissionDeniedError) as refused:
        await run(catalog)
    assert str(refused.value) == words


async def test_only_a_superuser_gives_what_they_make_to_others() -> None:
    store, catalog = await scene_of_two()
    await change(store, "/", "root", "dev", 0o777)
    for user, owner in (("cy", "cy"), ("root", "ann")):
        with acting(USERS[user]):
            made = await catalog.make_directories(MakeDirectories(f"/{user}", owner="ann"))
            assert (made.owner, made.group) == (owner, "dev")
            file = await catalog.create(
                msgspec.structs.replace(create_request(f"/{user}/f"), owner="ann")
            )
            assert (file.owner, file.group) == (owner, "dev")


async def test_hidden_names_are_made_by_every_user_and_are_their_own() -> None:
    store, catalog = await scene_of_two()
    await change(store, "/", "root", "supergroup", 0o755)
    with acting(USERS["ann"]):
        await catalog.make_directories(MakeDirectories("/.staging/of-ann", permission=0o700))
    hidden = await catalog.status("/.staging")
    assert (hidden.owner, hidden.permission) == ("root", 0o1777)
    with acting(USERS["cy"]):
        await catalog.make_directories(MakeDirectories("/.staging/of-cy", permission=0o700))
        for refused in (
            catalog.create(create_request("/.staging/of-ann/f")),
            catalog.delete(DeletePath("/.staging/of-ann", recursive=True)),
            catalog.make_directories(MakeDirectories("/another")),
        ):
            with pytest.raises(PermissionDeniedError):
                await refused
        await catalog.delete(DeletePath("/.staging/of-cy", recursive=True))


async def test_a_time_to_live_is_the_owners_who_may_delete_it() -> None:
    """A directory that another user could let end would be deleted by them."""
    store, catalog = await scene_of_two()
    await change(store, "/", "root", "supergroup", 0o777)
    await change(store, "/dir", "me", "supergroup", 0o777)
    with (
        acting(USERS["cy"]),
        pytest.raises(PermissionDeniedError, match="user=cy is not the owner"),
    ):
        await catalog.make_directories(MakeDirectories("/dir", ttl_s=1.0))
    await change(store, "/", "root", "supergroup", 0o755)
    with acting(Actor("me")), pytest.raises(PermissionDeniedError, match="access=WRITE"):
        await catalog.make_directories(MakeDirectories("/dir", ttl_s=1.0))
    assert (await catalog.status("/dir")).expires_s == 0


async def test_a_chmod_meanwhile_is_seen_by_what_was_decided_before_it() -> None:
    store, _ = await scene_of_two()
    await change(store, "/dir", "me", "supergroup", 0o777)
    draft = Draft(store.view())
    context = namespace.Context(iter([99]), 1, lambda _: False, {}, USERS["cy"])
    namespace.make_directories(draft, MakeDirectories("/dir/new"), context)
    await change(store, "/dir", "me", "supergroup", 0o755)
    assert not isinstance(await store.commit(draft.to_edit()), Committed)


@pytest.mark.parametrize(("owner", "mode"), [("cy", 0o700), ("cy", 0o1777)])
async def test_what_another_user_makes_meanwhile_in_an_empty_directory_keeps_it_from_a_deletion(
    owner: str, mode: int
) -> None:
    store, catalog = await scene_of_two()
    await catalog.make_directories(MakeDirectories("/dir/sub"))
    await change(store, "/", "root", "supergroup", 0o777)
    await change(store, "/dir", "ann", "supergroup", 0o777)
    await change(store, "/dir/sub", owner, "supergroup", mode)
    draft = Draft(store.view())
    context = namespace.Context(iter([99]), 1, lambda _: False, {}, USERS["ann"])
    assert not list(filter(None, namespace.delete(draft, DeletePath("/dir", True), context)))
    with acting(USERS["cy"]):
        await catalog.make_directories(MakeDirectories("/dir/sub/new"))
    assert not isinstance(await store.commit(draft.to_edit()), Committed)


async def test_a_large_directory_is_deleted_in_turns_if_its_owner_may() -> None:
    store, catalog = await scene_of_two()
    await change(store, "/", "root", "supergroup", 0o777)
    with acting(USERS["ann"]):
        for number in range(1200):
            await catalog.make_directories(MakeDirectories(f"/big/{number:04}"))
    await change(store, "/big/1199", "cy", "supergroup", 0o700)
    with acting(USERS["ann"]):
        await catalog.delete(DeletePath("/big/1199", recursive=True))  # it is empty
        await catalog.make_directories(MakeDirectories("/big/1199/x"))
    await change(store, "/big/1199", "cy", "supergroup", 0o700)
    with acting(USERS["ann"]), pytest.raises(PermissionDeniedError, match="access=ALL"):
        await catalog.delete(DeletePath("/big", recursive=True))
    assert (await catalog.status("/big")).kind is Kind.DIRECTORY
    await change(store, "/big/1199", "ann", "supergroup", 0o700)
    with acting(USERS["ann"]):
        assert (await catalog.delete(DeletePath("/big", recursive=True))).existed


@pytest.mark.parametrize(
    ("run", "closed", "words"),
    [
        (
            lambda c: c.concat(ConcatFiles("/mine/f", ("/theirs/f",))),
            {"/theirs": 0o755},
            'access=WRITE, inode="/theirs"',
        ),
        (
            lambda c: c.concat(ConcatFiles("/mine/f", ("/theirs/f",))),
            {"/theirs": 0o1777},
            'sticky bit: user=cy, path="/theirs/f"',
        ),
        (
            lambda c: c.rename(RenamePath("/mine/f", "/theirs/new")),
            {"/theirs": 0o755},
            'access=WRITE, inode="/theirs"',
        ),
        (
            lambda c: c.rename(RenamePath("/mine/f", "/theirs/f", overwrite=True)),
            {"/theirs": 0o1777},
            'sticky bit: user=cy, path="/theirs/f"',
        ),
        (
            lambda c: c.create(create_request("/theirs/f", WRITER, overwrite=True)),
            {"/theirs/f": 0o644},
            'access=WRITE, inode="/theirs/f"',
        ),
        (
            lambda c: c.create(create_request("/theirs/f", WRITER, overwrite=True)),
            {"/theirs": 0o1777},
            'sticky bit: user=cy, path="/theirs/f"',
        ),
        (
            transacted(Marker("/theirs/f")),
            {"/theirs": 0o1777},
            'sticky bit: user=cy, path="/theirs/f"',
        ),
        (
            lambda c: c.delete(DeletePath("/theirs", recursive=True)),
            {"/theirs": 0o1777},
            'sticky bit: user=cy, path="/theirs/f"',
        ),
        (
            lambda c: c.list(ListDirectory("/theirs")),
            {"/theirs": 0o711},
            'access=READ_EXECUTE, inode="/theirs"',
        ),
    ],
)
async def test_each_half_of_an_operation_is_demanded(
    run: Callable[[NamedCatalog], Any], closed: dict[str, int], words: str
) -> None:
    """All else is open to the user: each of these was done without the one demand."""
    store, catalog = await scene_of_two()
    for owner, directory in (("cy", "/mine"), ("ann", "/theirs")):
        await catalog.make_directories(MakeDirectories(directory))
        await created(catalog, create_request(f"{directory}/f"))
        for path, mode in ((directory, 0o777), (f"{directory}/f", 0o666)):
            await change(store, path, owner, "supergroup", closed.get(path, mode))
    await change(store, "/", "root", "supergroup", 0o777)
    before = await shown(catalog)
    with acting(USERS["cy"]), pytest.raises(PermissionDeniedError, match=re.escape(words)):
        await run(catalog)
    assert await shown(catalog) == before


@pytest.mark.parametrize(
    ("mode", "acl", "user", "may"),
    [
        (0o770, "user:cy:rwx,mask::r-x", "cy", "r-x"),  # the mask bounds a named user
        (0o770, "user:cy:rwx,mask::rwx", "cy", "rwx"),
        (0o777, "user:cy:---", "cy", "---"),  # what a named user is refused, others do not give
        (0o700, "user:ann:r-x,group:dev:rwx", "ann", "r-x"),  # nor do the groups
        (0o700, "group:ops:rwx,mask::r--", "bob", "r--"),  # the mask bounds a named group
        (0o770, "user:cy:rwx,group::rwx,mask::-w-", "eve", "-w-"),  # and the inode's own
        (0o707, "group:dev:r--,group:ops:--x,mask::rwx", "bob", "---"),  # one gives all, or none
        (0o707, "group:dev:r--", "cy", "rwx"),  # who is in no group is of the others
        (0o007, "user:me:rwx", "me", "---"),  # the owner's bits decide for the owner
        (0o770, "default:user:cy:rwx", "cy", "---"),  # default entries are for what is made in it
        (0o770, "default:user:cy:rwx", "eve", "rwx"),
        (0o770, "user:ann:r-x,default:user:cy:rwx", "cy", "---"),
    ],
)
async def test_the_first_entry_that_fits_decides(mode: int, acl: str, user: str, may: str) -> None:
    """`may` is all that one request may ask for, `---` if not even READ and EXECUTE together."""
    store, catalog = await scene_of_two()
    await change(store, "/dir", "me", "supergroup", mode)
    await transacted(ChangeAcl("/dir", AclChange.MODIFY, acl))(catalog)
    actors = {**USERS, "me": Actor("me"), "eve": Actor("eve", frozenset({"supergroup"}))}
    inode = tree.find_inode(Draft(store.view()), "/dir", ITSELF)
    wanted = sum(bit for bit, letter in zip((R, W, X), may, strict=True) if letter != "-")
    for bits in (wanted, R | X, R | W | X):
        allowed = permissions.allowed(inode, bits, actors[user])
        assert allowed is (wanted & bits == bits)


@pytest.mark.parametrize("kind", range(KINDS_OF_CASES))
async def test_what_is_decided_with_what_others_ask_for_is_decided_for_its_own_user(
    kind: int,
) -> None:
    """Changes that are asked for in one turn of the loop are decided together, as one edit."""
    store, catalog = await scene_of_two()
    for path in ("/dir", "/dir/file"):
        await change(store, path, "me", "supergroup", 0o701)
    case = list(cases("/dir/file", "/dir/new", True, 0o755))[kind]
    alone = await outcome(await new_catalog(copy.deepcopy(store)), case, USERS["cy"])
    store.yielding = True  # what comes while an edit is committed is decided together
    others = [
        outcome(catalog, next(cases(f"/{name}", "", True, 0o755)), USERS["root"]) for name in "xyz"
    ]
    *made, together = await asyncio.gather(*others, outcome(catalog, case, USERS["cy"]))
    assert (made, type(together)) == ([None] * 3, type(alone))


@pytest.mark.parametrize("user", ["root", "me"])
async def test_what_is_made_has_what_its_directory_gives_when_it_is_made(user: str) -> None:
    """The walk of a superuser reads no directory."""
    store, _ = await scene_of_two()
    draft = Draft(store.view())
    actor = Actor(user, superuser=user == "root")
    context = namespace.Context(iter([99]), 1, lambda _: False, {}, actor)
    namespace.make_directories(draft, MakeDirectories("/dir/new"), context)
    await change(store, "/dir", "me", "dev", 0o755)
    assert isinstance(await store.commit(draft.to_edit()), Conflict)
