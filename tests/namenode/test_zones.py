"""Encryption zones: the mark, who gets a key, and the master key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from paxosblock.api.encryption import (
    ENCRYPT_DIRECTORY,
    ENCRYPTION_ZONES,
    ROLL_MASTER_KEY,
    EncryptDirectory,
    EncryptionZones,
    RollMasterKey,
    ZonesRequest,
)
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    CREATE,
    DELETE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    MKDIRS,
    NO_BLOCK,
    RENAME,
    STAT,
    TRANSACT,
    AddBlock,
    AppendFile,
    BlockRequest,
    BlockView,
    CloseFile,
    DeletePath,
    FinalizeBlock,
    FirstBlock,
    MakeDirectories,
    PathRequest,
    RenamePath,
    Transact,
)
from paxosblock.api.ownership import SET_PERMISSION, SetPathPermission
from paxosblock.api.transaction import Concat, Delete, Marker
from paxosblock.base.chunk_cipher import ADDED_BYTES, key_of_block
from paxosblock.config import NameNodeConfig
from paxosblock.errors import (
    AccessDeniedError,
    ConfigError,
    DirectoryNotEmptyError,
    InvalidRequestError,
    PermissionDeniedError,
)
from paxosblock.namenode.catalog import keys, namespace
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.records import decode_zone
from paxosblock.namenode.kv.interface import Conflict
from paxosblock.namenode.zone_keys import name_of
from paxosblock.net.port.caller import CALLER, Caller
from paxosblock.protocol.types import FIRST_GENERATION, Durability
from tests.namenode.scene import ANN, BOB, Scene, create_request, new_scene
from tests.namenode.test_transactions import request_of

OLD, NEW = bytes(32), bytes([7] * 32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file with the master key."""
    file = tmp_path / "master"
    write(file, OLD)
    return file


@pytest.fixture
async def scene(file: Path) -> AsyncIterator[Scene]:
    """A NameNode with a zone at /z."""
    scene = await new_scene(config=NameNodeConfig(master_key_file=str(file)))
    await scene.service.call(MKDIRS, MakeDirectories("/z"))
    await scene.service.call(ENCRYPT_DIRECTORY, EncryptDirectory("/z"))
    yield scene
    await scene.close()


@pytest.fixture
def as_ann() -> Iterator[None]:
    before = CALLER.set(Caller.claiming("ann", "127.0.0.1", private=True))
    yield
    CALLER.reset(before)


def write(file: Path, *masters: bytes) -> None:
    file.write_text("".join(f"{master.hex()}\n" for master in masters))
    file.chmod(0o600)


async def written(scene: Scene, path: str, *, zone_of: str = "") -> BlockView:
    """A closed file of one block with two chunks of 10 bytes of user data each."""
    request = replace_of(create_request(path), zone_of=zone_of or path)
    status = (await scene.service.call(CREATE, request)).status
    wanted = AddBlock(status.file_id, ANN, NO_BLOCK, 4)
    view = await scene.service.call(ADD_BLOCK, wanted)
    size = 2 * (10 + view.added_bytes)
    ends = FinalizeBlock(view.record.block, ANN, FIRST_GENERATION, 2, size)
    await scene.service.call(FINALIZE_BLOCK, ends)
    await scene.node.catalog.close_file(CloseFile(status.file_id, ANN))
    return view


replace_of = msgspec.structs.replace


async def encrypted(scene: Scene, path: str) -> bool:
    return (await scene.service.call(STAT, PathRequest(path))).encrypted


async def test_all_that_is_made_below_is_of_the_zone_and_nothing_else(scene: Scene) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/z/a/b"))
    await scene.service.call(MKDIRS, MakeDirectories("/plain"))
    inside = await written(scene, "/z/a/file")
    outside = await written(scene, "/plain/file")
    assert [await encrypted(scene, path) for path in ("/z", "/z/a", "/z/a/b", "/z/a/file")] == [
        True
    ] * 4
    assert not await encrypted(scene, "/plain/file")
    assert inside.added_bytes == ADDED_BYTES
    assert inside.key is not None
    assert (outside.added_bytes, outside.key) == (0, None)


async def test_a_zone_stays_where_a_directory_on_the_way_would_go(scene: Scene) -> None:
    """The directory was made for a file, and would go with the last one."""
    first, last = "/way/first", "/way/last"
    await scene.service.call(TRANSACT, request_of(Marker(first), Delete(first)))
    await scene.service.call(ENCRYPT_DIRECTORY, EncryptDirectory("/way"))
    await scene.service.call(TRANSACT, request_of(Marker(last), Delete(last, prune=True)))
    assert await encrypted(scene, "/way")


async def test_users_see_lengths_of_user_data(scene: Scene) -> None:
    await written(scene, "/z/file")
    await written(scene, "/z/more")
    assert (await scene.service.call(STAT, PathRequest("/z/file"))).size == 20
    joined = Transact((Concat("/z/file", ("/z/more",)),), 3, 1 << 20, Durability.DISK)
    await scene.service.call(TRANSACT, joined)
    view = await scene.service.call(GET_FILE, GetFile("/z/file", decrypts=True))
    assert view.status.size == 40
    assert [each.offset for each in view.blocks] == [0, 20]
    assert [each.record.size_bytes for each in view.blocks] == [2 * (10 + ADDED_BYTES)] * 2
    first, second = view.blocks
    assert first.key != second.key  # each block has its own, wherever it is


async def test_the_first_block_comes_with_its_key_and_the_catalog_keeps_none(scene: Scene) -> None:
    """An answer is remembered in the catalog: the key must not be in it."""
    request = replace_of(
        create_request("/z/file"), first=FirstBlock(4), once=Once("session", 1), zone_of="/z/file"
    )
    made = await scene.service.call(CREATE, request)
    assert made.first is not None
    assert made.first.key is not None
    again = await scene.service.call(CREATE, request)
    assert again.first is not None
    assert again.first.key == made.first.key
    view = await scene.node.catalog.view()
    values = b"".join(found.value for _, found in view.scan(b"", b""))
    zone = decode_zone(view.get(keys.zone(made.status.file_id - 1)).value)
    key = scene.node.zone_keys._unwrapped(made.status.file_id - 1, zone)
    assert key_of_block(key, made.first.record.block) == made.first.key.key
    assert key not in values
    assert made.first.key.key not in values
    assert "DataKey>" in repr(made.first)
    assert repr(made.first.key.key)[2:-1] not in repr(made.first)


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("/", InvalidRequestError, "the root is no encryption zone"),
        ("/z", InvalidRequestError, "is already an encryption zone"),
        ("/z/below", InvalidRequestError, "is already in an encryption zone"),
        ("/file", InvalidRequestError, "an encryption zone for a file"),
        ("/full", DirectoryNotEmptyError, "zone for a non-empty directory"),
    ],
)
async def test_what_cannot_become_a_zone(
    scene: Scene, path: str, error: type[Exception], text: str
) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/z/below"))
    await scene.service.call(MKDIRS, MakeDirectories("/full/of"))
    await written(scene, "/file")
    with pytest.raises(error, match=text):
        await scene.service.call(ENCRYPT_DIRECTORY, EncryptDirectory(path))


async def test_only_a_superuser_makes_rolls_and_lists_zones(scene: Scene, as_ann: None) -> None:
    with pytest.raises(PermissionDeniedError):
        await scene.service.call(ENCRYPT_DIRECTORY, EncryptDirectory("/"))
    with pytest.raises(PermissionDeniedError):
        await scene.service.call(ROLL_MASTER_KEY, RollMasterKey())
    with pytest.raises(PermissionDeniedError):
        await scene.service.call(ENCRYPTION_ZONES, ZonesRequest())


async def test_who_may_not_read_gets_no_key(scene: Scene) -> None:
    view = await written(scene, "/z/file")
    await scene.service.call(SET_PERMISSION, SetPathPermission("/z/file", 0o600))
    before = CALLER.set(Caller.claiming("bob", "127.0.0.1", private=True))
    try:
        with pytest.raises(PermissionDeniedError):
            await scene.service.call(GET_FILE, GetFile("/z/file", decrypts=True))
        with pytest.raises(PermissionDeniedError):
            await scene.service.call(GET_BLOCK, BlockRequest(view.record.block))
    finally:
        CALLER.reset(before)


async def test_a_key_goes_only_where_nobody_listens(scene: Scene) -> None:
    await written(scene, "/z/file")
    await written(scene, "/plain")
    me = scene.node.users.superuser
    before = CALLER.set(Caller.claiming(me, "10.0.0.7"))
    try:
        with pytest.raises(AccessDeniedError, match="only over TLS or to a client on the NameNode"):
            await scene.service.call(GET_FILE, GetFile("/z/file", decrypts=True))
        assert (await scene.service.call(GET_FILE, GetFile("/plain", decrypts=True))).blocks
        assert (await scene.service.call(STAT, PathRequest("/z/file"))).size == 20
        shown = await scene.service.call(GET_FILE, GetFile("/z/file", only_shows=True))
        assert [each.key for each in shown.blocks] == [None]
    finally:
        CALLER.reset(before)


@pytest.mark.parametrize(
    ("source", "destination", "text"),
    [
        ("/z/file", "/file", "/z/file can't be moved from an encryption zone."),
        ("/z/dir", "/dir", "/z/dir can't be moved from an encryption zone."),
        ("/plain", "/z/plain", "/plain can't be moved into an encryption zone."),
        (
            "/z/file",
            "/y/f",
            "/z/file can't be moved from encryption zone /z to encryption zone /y.",
        ),
        ("/z", "/y/z", "/z can't be moved from encryption zone /z to encryption zone /y."),
    ],
)
async def test_nothing_crosses_the_border_of_a_zone(
    scene: Scene, source: str, destination: str, text: str
) -> None:
    for path in ("/z/dir", "/y"):
        await scene.service.call(MKDIRS, MakeDirectories(path))
    await scene.service.call(ENCRYPT_DIRECTORY, EncryptDirectory("/y"))
    await written(scene, "/z/file")
    await written(scene, "/plain")
    with pytest.raises(InvalidRequestError) as caught:
        await scene.service.call(RENAME, RenamePath(source, destination))
    assert str(caught.value) == text
    if source != "/z":
        target = "/plain" if destination != "/z/plain" else "/z/file"
        joined = Transact((Concat(target, (source,)),), 3, 1 << 20, Durability.DISK)
        if source != "/z/dir":
            with pytest.raises(InvalidRequestError, match="can't be moved"):
                await scene.service.call(TRANSACT, joined)


async def test_a_client_that_cannot_encrypt_is_refused(scene: Scene) -> None:
    await written(scene, "/z/file")
    for request in (create_request("/z/old"), create_request("/z/file", BOB, overwrite=True)):
        with pytest.raises(InvalidRequestError, match="client of an earlier version cannot"):
            await scene.service.call(CREATE, request)
    with pytest.raises(InvalidRequestError, match="client of an earlier version cannot"):
        await scene.service.call(APPEND, AppendFile("/z/file", ANN))
    with pytest.raises(InvalidRequestError, match="client of an earlier version cannot"):
        await scene.service.call(GET_FILE, GetFile("/z/file"))
    await scene.service.call(CREATE, create_request("/plain"))


async def test_within_a_zone_and_with_all_of_it_things_are_moved(scene: Scene) -> None:
    view = await written(scene, "/z/file")
    await scene.service.call(MKDIRS, MakeDirectories("/z/dir"))
    await scene.service.call(RENAME, RenamePath("/z/file", "/z/dir/file"))
    await scene.service.call(RENAME, RenamePath("/z", "/elsewhere"))
    found = await scene.service.call(GET_FILE, GetFile("/elsewhere/dir/file", decrypts=True))
    assert [each.key for each in found.blocks] == [view.key]
    assert [each.path for each in await scene.node.catalog.zones()] == ["/elsewhere"]


async def test_a_file_may_be_made_elsewhere_for_a_zone(scene: Scene) -> None:
    """As staged files are, and the rest of a chunk that a truncation cuts."""
    await scene.service.call(MKDIRS, MakeDirectories("/.staging/mine"))
    view = await written(scene, "/.staging/mine/1", zone_of="/z/not/there/yet")
    assert view.key is not None
    with pytest.raises(InvalidRequestError, match="can't be moved from an encryption zone"):
        await scene.service.call(RENAME, RenamePath("/.staging/mine/1", "/plain"))
    await scene.service.call(RENAME, RenamePath("/.staging/mine/1", "/.staging/mine/2"))
    await scene.service.call(RENAME, RenamePath("/.staging/mine/2", "/z/file"))
    with pytest.raises(InvalidRequestError, match="is in another encryption zone than /plain"):
        await written(scene, "/z/odd", zone_of="/plain")


@pytest.mark.parametrize("path", ["/top/file", "/top/dir/file"])
async def test_what_was_decided_before_the_directory_became_a_zone_is_decided_again(
    scene: Scene, path: str
) -> None:
    """The decision that makes something has read the entry of the directory, not its inode."""
    await scene.service.call(MKDIRS, MakeDirectories("/top"))
    draft = Draft(scene.store.view())
    context = Context(iter([1000, 1001, 1002]), 0, lambda _: False, {})
    namespace.create(draft, create_request(path), context)
    await scene.service.call(ENCRYPT_DIRECTORY, EncryptDirectory("/top"))
    assert isinstance(await scene.store.commit(draft.to_edit()), Conflict)


async def test_the_key_of_a_deleted_zone_stays_and_another_zone_at_its_place_has_its_own(
    scene: Scene, file: Path
) -> None:
    """Snapshots and backups may show its files."""
    view = await written(scene, "/z/file")
    old = (await scene.service.call(STAT, PathRequest("/z"))).file_id
    key = scene.node.zone_keys._unwrapped(
        old, decode_zone(scene.store.view().get(keys.zone(old)).value)
    )
    await scene.service.call(DELETE, DeletePath("/z", recursive=True))
    assert (await scene.service.call(ENCRYPTION_ZONES, ZonesRequest())).zones == ()
    await scene.service.call(MKDIRS, MakeDirectories("/z"))
    await scene.service.call(ENCRYPT_DIRECTORY, EncryptDirectory("/z"))
    assert (await written(scene, "/z/file")).key != view.key
    write(file, NEW, OLD)
    assert (await scene.service.call(ROLL_MASTER_KEY, RollMasterKey())).wrapped == 2
    kept = decode_zone(scene.store.view().get(keys.zone(old)).value)
    assert kept.master == name_of(NEW)
    assert scene.node.zone_keys._unwrapped(old, kept) == key


async def test_the_master_key_is_rolled_and_no_key_of_a_block_changes(
    scene: Scene, file: Path
) -> None:
    view = await written(scene, "/z/file")
    write(file, NEW, OLD)
    rolled = await scene.service.call(ROLL_MASTER_KEY, RollMasterKey())
    assert (rolled.master, rolled.wrapped) == (name_of(NEW), 1)
    assert (await scene.service.call(ROLL_MASTER_KEY, RollMasterKey())).wrapped == 0
    write(file, NEW)
    other = await new_scene(config=NameNodeConfig(master_key_file=str(file)), store=scene.store)
    found = await other.service.call(GET_FILE, GetFile("/z/file", decrypts=True))
    assert [each.key for each in found.blocks] == [view.key]


async def test_the_next_leader_reads_what_was_rolled_at_the_first_try(
    scene: Scene, file: Path, tmp_path: Path
) -> None:
    view = await written(scene, "/z/file")
    its_own = tmp_path / "its own"
    write(its_own, OLD)
    config = NameNodeConfig(master_key_file=str(its_own))
    other = await new_scene(config=config, store=scene.store)
    await other.node.zone_keys.refresh()
    for each in (file, its_own):
        write(each, NEW, OLD)
    await scene.service.call(ROLL_MASTER_KEY, RollMasterKey())
    await other.node.zone_keys.turn()
    found = await other.service.call(GET_FILE, GetFile("/z/file", decrypts=True))
    assert [each.key for each in found.blocks] == [view.key]


async def test_without_the_master_key_there_is_one_line_and_nothing_is_lost(
    scene: Scene, file: Path
) -> None:
    view = await written(scene, "/z/file")
    status = (
        await scene.service.call(CREATE, replace_of(create_request("/z/open"), zone_of="/z/open"))
    ).status
    last = await scene.service.call(ADD_BLOCK, AddBlock(status.file_id, ANN, NO_BLOCK, 4))
    write(file, NEW)
    other = await new_scene(config=NameNodeConfig(master_key_file=str(file)), store=scene.store)
    with pytest.raises(ConfigError) as caught:
        await other.service.call(GET_FILE, GetFile("/z/file", decrypts=True))
    assert "\n" not in str(caught.value)
    assert f"wrapped by master key {name_of(OLD)}, which this NameNode has not" in str(caught.value)
    with pytest.raises(ConfigError):
        await other.service.call(ROLL_MASTER_KEY, RollMasterKey())
    # What is open is ended all the same, and names and lengths are there.
    ends = FinalizeBlock(last.record.block, ANN, FIRST_GENERATION, 1, 1 + ADDED_BYTES)
    assert (await other.service.call(FINALIZE_BLOCK, ends)).key is None
    await other.node.catalog.close_file(CloseFile(status.file_id, ANN))
    assert (await other.service.call(STAT, PathRequest("/z/open"))).size == 1
    write(file, NEW, OLD)
    await other.node.zone_keys.turn()
    found = await other.service.call(GET_FILE, GetFile("/z/file", decrypts=True))
    assert [each.key for each in found.blocks] == [view.key]


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "it holds no secret"), ("abc\n", "line 1 is no secret"), (None, "No such file")],
)
async def test_a_bad_file_is_one_line_and_the_namenode_serves(
    tmp_path: Path, text: str | None, why: str
) -> None:
    file = tmp_path / "master"
    if text is not None:
        file.write_text(text)
        file.chmod(0o600)
    scene = await new_scene(config=NameNodeConfig(master_key_file=str(file)))
    await scene.service.call(MKDIRS, MakeDirectories("/z"))
    with pytest.raises(ConfigError, match=why):
        await scene.service.call(ENCRYPT_DIRECTORY, EncryptDirectory("/z"))
    assert why in (await scene.service.call(ENCRYPTION_ZONES, ZonesRequest())).why
    assert not await encrypted(scene, "/z")
    await scene.close()


async def test_a_command_may_print_the_master_key() -> None:
    async def shown(command: str) -> EncryptionZones:
        scene = await new_scene(config=NameNodeConfig(master_key_command=command))
        found = await scene.service.call(ENCRYPTION_ZONES, ZonesRequest())
        await scene.close()
        return found

    assert (await shown(f"printf {OLD.hex()}")).master == name_of(OLD)
    assert "exit code 3: no such key" in (await shown("sh -c 'echo no such key >&2; exit 3'")).why
    assert "No such file" in (await shown("/no/such/program")).why
