"""Access control lists change, are given to new inodes and are kept as HDFS describes it."""

from __future__ import annotations

import asyncio
import itertools
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    CLOSE_FILE,
    CREATE,
    MKDIRS,
    RENAME,
    STAT,
    TRANSACT,
    CloseFile,
    FileStatus,
    MakeDirectories,
    PathRequest,
    RenamePath,
    Transact,
    Unmasked,
)
from paxosblock.api.ownership import (
    CHANGE_ACL,
    GET_ACL_STATUS,
    SET_OWNER,
    SET_PERMISSION,
    ChangePathAcl,
    SetPathOwner,
    SetPathPermission,
)
from paxosblock.api.transaction import AclChange, ChangeAcl, Rename
from paxosblock.base.acl_entries import Acl, AclEntry, AclType, full_acl, parse_acl
from paxosblock.errors import InvalidRequestError, NotFoundError, SafeModeError
from paxosblock.namenode.catalog import acls, keys
from paxosblock.namenode.catalog.permissions import Action, Actor, allowed
from paxosblock.namenode.catalog.records import (
    DirectoryInode,
    FileInode,
    Inode,
    decode_inode,
    encode,
)
from paxosblock.protocol.types import Durability
from tests.namenode import acl_model
from tests.namenode.acl_model import Texts
from tests.namenode.scene import ANN, Scene, create_request, new_scene

ENTRY = st.builds(
    AclEntry,
    st.sampled_from(AclType),
    st.integers(0, 7),
    st.sampled_from(("", "", "ann", "bob", "dev")),
    st.booleans(),
)
WHOLE = st.lists(ENTRY, max_size=3).map(
    lambda more: [
        *(AclEntry(kind, 6) for kind in (AclType.USER, AclType.GROUP, AclType.OTHER)),
        *more,
    ]
)
SPEC = st.one_of(st.lists(ENTRY, min_size=1, max_size=4), WHOLE).map(
    lambda entries: tuple({entry.key: entry for entry in entries}.values())
)
STEP = st.tuples(
    st.sampled_from((*AclChange, AclChange.MODIFY, "chmod", "make")),
    st.sampled_from(("/d", "/f")),
    SPEC,
    st.integers(0, 0o777),
)


async def acl_at(scene: Scene, path: str) -> Acl:
    return (await scene.service.call(GET_ACL_STATUS, PathRequest(path))).acl


async def stat(scene: Scene, path: str) -> FileStatus:
    return await scene.service.call(STAT, PathRequest(path))


async def change(
    scene: Scene, path: str, how: AclChange, written: str | Acl = (), **more: Any
) -> FileStatus:
    bare = how is AclChange.REMOVE_ENTRIES
    acl = parse_acl(written, permissions=not bare) if isinstance(written, str) else written
    return await scene.service.call(CHANGE_ACL, ChangePathAcl(path, how, acl, **more))


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, min_size=10, max_size=10))
def test_lists_become_what_hdfs_makes_of_them(steps: list[Any]) -> None:
    assert asyncio.run(_wrong(steps)) == []


async def _wrong(steps: list[Any]) -> list[str]:
    scene = await new_scene()
    await scene.service.call(MKDIRS, MakeDirectories("/d", permission=0o750))
    await scene.create("/f")
    model: dict[str, Texts] = {"/d": acl_model.minimal(0o750), "/f": acl_model.minimal(0o644)}
    wrong: list[str] = []
    for number, (how, path, spec, mode) in enumerate(steps):
        before, refused = model[path], False
        if how == "chmod":
            await scene.service.call(SET_PERMISSION, SetPathPermission(path, mode))
            model[path] = acl_model.chmod(before, mode)
        elif how == "make":
            await _make(scene, number, mode, model)
        else:
            entries = () if how in (AclChange.REMOVE, AclChange.REMOVE_DEFAULT) else spec
            told = acl_model.texts(entries)
            after = acl_model.changed(before, how.value, told, directory=path == "/d")
            model[path] = before if after is None else after
            try:
                await change(scene, path, how, entries)
            except InvalidRequestError:
                refused = True
            if refused is not (after is None):
                wrong.append(f"{how} {told} of {before}: refused {refused}")
        for each, acl in model.items():
            status = await stat(scene, each)
            found = acl_model.texts(await acl_at(scene, each))
            if (found, status.permission) != (acl, acl_model.mode_of(acl)):
                wrong.append(f"{each} after {how} {spec} {mode:o} of {before}: {found}, not {acl}")
            if status.has_acl is not (len(acl) > 3):
                wrong.append(f"{each}: has_acl {status.has_acl}")
    await scene.close()
    return wrong


async def _make(scene: Scene, number: int, mode: int, model: dict[str, Texts]) -> None:
    """A directory and a file in /d."""
    directory, file = f"/d/d{number}", f"/d/f{number}"
    await scene.service.call(MKDIRS, MakeDirectories(directory, permission=mode))
    request = msgspec.structs.replace(create_request(file), permission=mode)
    await scene.service.call(CREATE, request)
    for path, is_directory in ((directory, True), (file, False)):
        model[path] = acl_model.inherited(model["/d"], mode, directory=is_directory)


def test_a_list_lets_each_user_do_what_the_guide_says() -> None:
    """Default entries, which some of the lists have, do not count for the directory itself."""
    random = Random(23)
    kinds = (AclType.USER, AclType.GROUP, AclType.MASK, AclType.OTHER)
    wrong = []
    for _ in range(1500):
        inode: Inode = DirectoryInode(2, 1, "d", 1, "ann", "dev", random.randrange(0o1000))
        entries = {}
        for _ in range(random.randrange(1, 6)):
            kind = random.choice(kinds)
            named = kind in (AclType.USER, AclType.GROUP)
            name = random.choice(("", "bob", "cy", "ops", "dev")) if named else ""
            entry = AclEntry(kind, random.randrange(8), name, random.random() < 0.3)
            entries[entry.key] = entry
        inode = acls.changed(inode, AclChange.MODIFY, tuple(entries.values()))
        acl = acl_model.texts(full_acl(inode.permission, acls.entries_of(inode)))
        for user, group in itertools.product(("ann", "bob", "cy", "eve"), ("", "dev", "ops")):
            actor = Actor(user, frozenset({group, random.choice(("", "dev", "ops"))} - {""}))
            for bits in Action:
                if allowed(inode, bits, actor) is not acl_model.may(acl, inode, actor, bits):
                    wrong.append(f"{actor} {bits.name} {acl}")
    assert wrong == []


# -- examples: those of HDFS's guide ---------------------------------------------------------------


async def shown(scene: Scene, path: str) -> list[str]:
    return [str(entry) for entry in await acl_at(scene, path)]


async def test_the_example_of_the_guide(scene: Scene) -> None:
    await scene.create("/f")
    await change(
        scene, "/f", AclChange.SET, "user::rw-,user:bruce:rwx,group::r-x,group:sales:rwx,"
        "mask::r-x,other::r--",
    )  # fmt: skip
    assert (await stat(scene, "/f")).permission == 0o654
    assert await shown(scene, "/f") == [
        "user::rw-",
        "user:bruce:rwx",
        "group::r-x",
        "group:sales:rwx",
        "mask::r-x",
        "other::r--",
    ]
    status = await scene.service.call(GET_ACL_STATUS, PathRequest("/f"))
    assert [str(each) for each in status.entries] == [
        "user:bruce:rwx",
        "group::r-x",
        "group:sales:rwx",
    ]


async def test_the_group_has_its_own_bits_again_when_the_list_goes(scene: Scene) -> None:
    await scene.create("/f")
    await change(scene, "/f", AclChange.MODIFY, "user:ann:rwx")
    assert (await stat(scene, "/f")).permission == 0o674
    await change(scene, "/f", AclChange.REMOVE)
    found = await stat(scene, "/f")
    assert (found.permission, found.has_acl) == (0o644, False)


async def test_to_take_away_what_is_not_there_changes_no_mask(scene: Scene) -> None:
    await scene.create("/f")
    await change(scene, "/f", AclChange.MODIFY, "user:bob:rwx,mask::r--")
    await change(scene, "/f", AclChange.REMOVE_ENTRIES, "user:ann")
    assert (await stat(scene, "/f")).permission == 0o644


async def test_the_sticky_bit_stays_whatever_becomes_of_the_list(scene: Scene) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/sticky", permission=0o1755))
    for how, written in (
        (AclChange.MODIFY, "user:ann:rwx,default:user:ann:rwx"),
        (AclChange.REMOVE_DEFAULT, ""),
        (AclChange.REMOVE, ""),
    ):
        await change(scene, "/sticky", how, written)
        assert (await stat(scene, "/sticky")).permission & 0o1000, how


@pytest.mark.parametrize(
    ("path", "how", "written", "words"),
    [
        (
            "/f",
            AclChange.MODIFY,
            "default:user:ann:rwx",
            "Invalid ACL: only directories may have a default ACL. Path: /f",
        ),
        (
            "/d",
            AclChange.SET,
            "user:ann:rwx",
            "Invalid ACL: the user, group and other entries are required. Path: /d",
        ),
        (
            "/d",
            AclChange.MODIFY,
            "mask:ann:rwx",
            "Invalid ACL: this entry type must not have a name: mask:ann:rwx. Path: /d",
        ),
        (
            "/d",
            AclChange.MODIFY,
            "user:ann:rwx,user:ann:r--",
            "Invalid ACL: multiple entries with same scope, type and name. Path: /d",
        ),
        (
            "/d",
            AclChange.REMOVE_ENTRIES,
            "user:",
            "Invalid ACL: the user, group and other entries are required. Path: /d",
        ),
        (
            "/d",
            AclChange.MODIFY,
            ",".join(f"user:u{number}:rwx" for number in range(29)),
            "Invalid ACL: ACL has 33 access entries, which exceeds maximum of 32. Path: /d",
        ),
        (
            "/d",
            AclChange.MODIFY,
            ",".join(f"default:user:u{number}:rwx" for number in range(33)),
            "Invalid ACL: ACL has 33 default entries, which exceeds maximum of 32. Path: /d",
        ),
    ],
)
async def test_a_list_that_hdfs_does_not_take_is_refused_in_its_words(
    scene: Scene, path: str, how: AclChange, written: str, words: str
) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    await scene.create("/f")
    before = scene.store.view().revision
    with pytest.raises(InvalidRequestError) as refused:
        await change(scene, path, how, written)
    assert str(refused.value) == words
    assert scene.store.view().revision == before


async def test_the_mask_of_named_entries_cannot_be_taken_away(scene: Scene) -> None:
    await scene.create("/f")
    await change(scene, "/f", AclChange.MODIFY, "user:ann:rwx")
    with pytest.raises(InvalidRequestError, match="mask is required and cannot be deleted"):
        await change(scene, "/f", AclChange.REMOVE_ENTRIES, "mask:")


async def test_32_entries_of_each_kind_are_taken(scene: Scene) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    for scope in ("", "default:"):
        many = ",".join(f"{scope}user:u{number}:r--" for number in range(28))
        await change(scene, "/d", AclChange.MODIFY, many)
    assert len(await acl_at(scene, "/d")) == 64


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((AclEntry(AclType.USER, 8, "ann"),), "8 is no permission"),
        ((AclEntry(AclType.USER, -1, "ann"),), "-1 is no permission"),
        ((AclEntry(AclType.USER, 7, "a:b"),), "'a:b' is no owner or group"),
        ((AclEntry(AclType.USER, 7, "a\nb"),), "is no owner or group"),
        ((), "no <acl_spec> entry"),
    ],
)
async def test_entries_that_make_no_sense_change_nothing(
    scene: Scene, entries: Acl, why: str
) -> None:
    await scene.create("/f")
    with pytest.raises(InvalidRequestError, match=why):
        await change(scene, "/f", AclChange.MODIFY, entries)
    with pytest.raises(InvalidRequestError, match=why):
        await scene.service.call(TRANSACT, transaction(ChangeAcl("/f", AclChange.SET, entries)))
    assert not (await stat(scene, "/f")).has_acl


def transaction(*operations: Any) -> Transact:
    return Transact(operations, 3, 1 << 20, Durability.DISK)


async def test_a_transaction_changes_lists_all_or_none(scene: Scene) -> None:
    await scene.create("/f")
    good = ChangeAcl("/f", AclChange.MODIFY, "user:ann:rwx")
    with pytest.raises(NotFoundError, match="operation 2 of 2: '/none'"):
        await scene.service.call(TRANSACT, transaction(good, ChangeAcl("/none", AclChange.REMOVE)))
    assert not (await stat(scene, "/f")).has_acl
    await scene.service.call(TRANSACT, transaction(good))
    assert "user:ann:rwx" in await shown(scene, "/f")


async def test_it_is_one_entry_of_the_log_once_and_none_when_nothing_changes(scene: Scene) -> None:
    await scene.create("/f")
    before, once = scene.store.view().revision, Once("a client's session", 1)
    first = await change(scene, "/f", AclChange.MODIFY, "user:ann:rwx", once=once)
    assert scene.store.view().revision == before + 1
    await change(scene, "/f", AclChange.MODIFY, "user:ann:rwx")
    assert scene.store.view().revision == before + 1
    await change(scene, "/f", AclChange.REMOVE)
    assert await change(scene, "/f", AclChange.MODIFY, "user:ann:rwx", once=once) == first
    assert not (await stat(scene, "/f")).has_acl


async def test_a_list_goes_with_a_rename_and_none_is_shown_of_what_is_not_there(
    scene: Scene,
) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    await scene.service.call(MKDIRS, MakeDirectories("/e"))
    await change(scene, "/d", AclChange.MODIFY, "user:ann:rwx,default:user:bob:r--")
    await change(scene, "/e", AclChange.MODIFY, "default:user:cy:r--")
    before = await acl_at(scene, "/d")
    await scene.service.call(RENAME, RenamePath("/d", "/e/d"))
    assert await acl_at(scene, "/e/d") == before
    for request in (acl_at(scene, "/d"), change(scene, "/d", AclChange.REMOVE)):
        with pytest.raises(NotFoundError, match="'/d': no such file or directory"):
            await request


async def test_nothing_changes_in_safe_mode(scene: Scene) -> None:
    await scene.create("/f")
    await scene.node.catalog.enter_safe_mode()
    with pytest.raises(SafeModeError):
        await change(scene, "/f", AclChange.MODIFY, "user:ann:rwx")


async def test_all_missing_directories_get_the_default_entries(scene: Scene) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    await change(scene, "/d", AclChange.MODIFY, "default:user:bob:rwx")
    await scene.service.call(MKDIRS, MakeDirectories("/d/a/b", permission=0o700))
    for path in ("/d/a", "/d/a/b"):
        assert "default:user:bob:rwx" in await shown(scene, path)
        assert "user:bob:rwx" in await shown(scene, path)
    assert "mask::r-x" in await shown(scene, "/d/a")
    assert "mask::---" in await shown(scene, "/d/a/b")


async def test_a_file_that_is_published_gets_what_one_that_is_made_there_gets(
    scene: Scene,
) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    await scene.service.call(SET_OWNER, SetPathOwner("/d", group="dev"))
    await change(scene, "/d", AclChange.MODIFY, "default:user:bob:rwx")
    for name, as_new in (("new", True), ("moved", False)):
        number = await scene.create(f"/{name}")
        await scene.service.call(CLOSE_FILE, CloseFile(number, ANN))
        rename = Rename(f"/{name}", f"/d/{name}", as_new=as_new)
        await scene.service.call(TRANSACT, transaction(rename))
    assert await shown(scene, "/d/new") == [
        "user::rw-",
        "user:bob:rwx",
        "group::r-x",
        "mask::rw-",
        "other::r--",
    ]
    assert (await stat(scene, "/d/new")).group == "dev"
    moved = await stat(scene, "/d/moved")
    assert (moved.has_acl, moved.permission, moved.group) == (False, 0o644, "supergroup")
    await scene.service.call(TRANSACT, transaction(Rename("/d/new", "/back", as_new=True)))
    back = await stat(scene, "/back")
    assert (back.has_acl, back.permission) == (False, 0o654), "the mask is no right of the group"


# -- as it is kept ---------------------------------------------------------------------------------

OF_EARLIER_VERSIONS = (
    (
        DirectoryInode(2, 1, "d", 1, "ann", "dev", 0o755),
        "89a474797065a164a66e756d62657202a6706172656e7401a46e616d65a164aa637265617465645f6d7301"
        "a56f776e6572a3616e6ea567726f7570a3646576aa7065726d697373696f6ecd01edaa657870697265735f6d"
        "7300",
    ),
    (
        FileInode(3, 1, "f", 1, 2, "ann", "dev", 0o644, 3, 1024, Durability.DISK),
        "de0012a474797065a166a66e756d62657203a6706172656e7401a46e616d65a166aa637265617465645f6d73"
        "01ab6d6f6469666965645f6d7302a56f776e6572a3616e6ea567726f7570a3646576aa7065726d697373696f"
        "6ecd01a4ab7265706c69636174696f6e03aa626c6f636b5f73697a65cd0400aa6475726162696c697479a464"
        "69736ba6777269746572a0a46f70656ec3a66c656e67746800ad617070656e6465645f66726f6d00ab747275"
        "6e636174696f6e7300a8726573657276656400",
    ),
)
"""Inodes, and their records as versions wrote them that knew no lists."""


@pytest.mark.parametrize(("inode", "record"), OF_EARLIER_VERSIONS)
def test_an_inode_without_a_list_is_read_and_kept_as_before(inode: Inode, record: str) -> None:
    assert decode_inode(bytes.fromhex(record)) == inode
    assert "acl" not in msgspec.msgpack.decode(encode(inode))


async def test_a_list_is_kept_with_its_inode(scene: Scene) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    number = (await stat(scene, "/d")).file_id
    plain = scene.store.view().get(keys.inode(number)).value
    await change(scene, "/d", AclChange.MODIFY, "user:ann:rwx,default:group:dev:r-x")
    kept = scene.store.view().get(keys.inode(number)).value
    assert msgspec.msgpack.decode(kept)["acl"] == [
        ["user", 7, "ann", False],
        ["group", 5, "", False],
        ["user", 7, "", True],
        ["group", 5, "", True],
        ["group", 5, "dev", True],
        ["mask", 5, "", True],
        ["other", 5, "", True],
    ]
    await change(scene, "/d", AclChange.REMOVE)
    assert scene.store.view().get(keys.inode(number)).value == plain


# -- umask -----------------------------------------------------------------------------------------


async def test_the_umask_counts_where_no_default_entries_decide(scene: Scene) -> None:
    """HDFS-6962: the mode without the umask bounds default entries."""
    await scene.service.call(MKDIRS, MakeDirectories("/plain"))
    await scene.service.call(MKDIRS, MakeDirectories("/listed"))
    await change(scene, "/listed", AclChange.MODIFY, "default:user:bob:rwx")
    for above in ("/plain", "/listed"):
        unmasked = Unmasked(0o777, 0o027)
        request = MakeDirectories(f"{above}/d/e", permission=0o750, unmasked=unmasked)
        await scene.service.call(MKDIRS, request)
        file = msgspec.structs.replace(
            create_request(f"{above}/way/f"), permission=0o640, unmasked=Unmasked(0o666, 0o027)
        )
        await scene.service.call(CREATE, file)
    for name, mode in (("d", 0o750), ("d/e", 0o750), ("way", 0o750), ("way/f", 0o640)):
        assert (await stat(scene, f"/plain/{name}")).permission == mode
        bits = "rw-" if name.endswith("f") else "rwx"
        assert f"mask::{bits}" in await shown(scene, f"/listed/{name}")


async def test_directories_on_the_way_let_their_maker_go_on(scene: Scene) -> None:
    request = MakeDirectories("/a/b", permission=0o000, unmasked=Unmasked(0o077, 0o777))
    await scene.service.call(MKDIRS, request)
    assert (await stat(scene, "/a")).permission == 0o300
    assert (await stat(scene, "/a/b")).permission == 0


@pytest.mark.parametrize(
    ("permission", "unmasked"),
    [
        (0, Unmasked(-1, 0o777)),
        (0o1777, Unmasked(0o3777, 0o2000)),
        (0, Unmasked(0o777, -1)),
        (0o755, Unmasked(0o700, 0)),
    ],
)
async def test_a_umask_that_is_none_makes_nothing(
    scene: Scene, permission: int, unmasked: Unmasked
) -> None:
    file = msgspec.structs.replace(create_request("/a"), permission=permission, unmasked=unmasked)
    with pytest.raises(InvalidRequestError, match="octal"):
        await scene.service.call(MKDIRS, MakeDirectories("/a", True, permission, unmasked=unmasked))
    with pytest.raises(InvalidRequestError, match="octal"):
        await scene.service.call(CREATE, file)
