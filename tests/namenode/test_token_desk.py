"""Tokens of users at the NameNodes: who gets which, what one is good for, and what ends it.

Each attack is shown to work where its defence is missing: the token is good but for one thing.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from paxosblock.api import care, lease_call, status
from paxosblock.api import namenode as api
from paxosblock.api.capability import MAC_BYTES, BlockKey
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.methods import Method
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.api.user_tokens import (
    ISSUE_TOKEN,
    LIST_TOKENS,
    LONGEST_S,
    PREFIX,
    REVOKE_TOKEN,
    IssueToken,
    ListTokens,
    RevokeToken,
    SignedFor,
    TokenIssued,
    TokenNote,
    TokenRight,
    UserToken,
    check,
    key_at,
    seal,
    unsealed,
)
from paxosblock.config import NameNodeConfig
from paxosblock.datanode.own_keys import OwnTokens
from paxosblock.errors import (
    AccessDeniedError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    PermissionDeniedError,
)
from paxosblock.namenode.calls import CALLS
from paxosblock.namenode.catalog import token_records
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import decode_token
from paxosblock.namenode.token_desk import TokenDesk
from paxosblock.net.port.caller import CALLER, HERE, Caller, CallerRole
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN as WRITER
from tests.namenode.scene import MEMBERS, Scene, new_scene

START_S = 1_800_000_000
DAY_S = 24 * 3600
READ, WRITE, BACKUP, ADMIN = (
    TokenRight.READ,
    TokenRight.WRITE,
    TokenRight.BACKUP,
    TokenRight.ADMIN,
)
ANN, ANN_AS_ACTOR = Caller(CallerRole.CLAIMED, "ann"), Actor("ann", frozenset({"dev", "ops"}))
ROOT, ROOT_AS_ACTOR = Caller(CallerRole.USER, "root"), Actor("root", superuser=True)
EVERYTHING = int(READ | WRITE | BACKUP | ADMIN)


class Cluster:
    """NameNodes on one store, whose wall clock the test sets."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now_s = float(START_S)

    async def desk(self) -> TokenDesk:
        catalog = Catalog(self.store, clock_ms=lambda: round(self.now_s * 1000))
        await catalog.start(5, "cluster-1")
        return TokenDesk(catalog)

    def datanode(self) -> OwnTokens:
        return OwnTokens(lambda: None, lambda: self.now_s)


async def issued(
    desk: TokenDesk,
    request: IssueToken | None = None,
    caller: Caller = ANN,
    actor: Actor = ANN_AS_ACTOR,
) -> TokenIssued:
    return await desk.issue(request or IssueToken(DAY_S, int(READ | WRITE)), caller, actor)


def bringing(token: UserToken) -> Caller:
    return Caller.with_token(token, "10.0.0.1")


async def refused(desk: TokenDesk, word: str) -> str:
    with pytest.raises(AccessDeniedError) as error:
        await desk.check(word)
    text = str(error.value)
    assert "\n" not in text
    assert word not in text
    return text


async def test_a_token_is_its_user_with_its_groups_and_rights_at_each_namenode() -> None:
    cluster = Cluster()
    leader, other = await cluster.desk(), await cluster.desk()
    made = await issued(leader, IssueToken(DAY_S, int(READ), "etl", groups=("dev",)))
    for desk in (leader, other):
        token = await desk.check(made.token)
        assert (token.user, token.groups, token.rights) == ("ann", ("dev",), READ)
        assert token.until_s == START_S + DAY_S
        caller = bringing(token)
        assert (caller.role, caller.user, caller.groups) == (CallerRole.USER, "ann", ("dev",))
    assert made.token not in repr(made)


async def test_a_token_ends() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    made = await issued(desk)
    token = await desk.check(made.token)
    cluster.now_s += DAY_S - 1
    desk.allow(await desk.check(made.token), READ, "stat")
    cluster.now_s += 1 + 3 * 3600
    assert "ended 3h ago" in await refused(desk, made.token)
    with pytest.raises(AccessDeniedError, match="ended 3h ago"):
        desk.allow(token, READ, "stat")  # on the connection that it opened


async def test_a_clock_that_is_hours_off_is_named() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    made = await issued(desk, IssueToken(LONGEST_S, int(READ)))
    cluster.now_s -= 3 * 3600
    text = await refused(desk, made.token)
    assert "is the clock of this node right? (2027-01-15 05:00 UTC)" in text


async def test_a_token_that_was_revoked_is_refused_by_all_and_on_open_connections() -> None:
    cluster = Cluster()
    leader, other, datanode = await cluster.desk(), await cluster.desk(), cluster.datanode()
    made, kept = await issued(leader), await issued(leader)
    datanode.take(other.told(datanode.at))
    token = await other.check(made.token)
    assert await datanode.check(made.token) == token
    await leader.revoke(RevokeToken(made.note.serial), ANN, ANN_AS_ACTOR)
    await leader.revoke(RevokeToken(made.note.serial), ANN, ANN_AS_ACTOR)  # twice is once
    for desk in (leader, other):
        assert "was revoked" in await refused(desk, made.token)
        with pytest.raises(AccessDeniedError, match="was revoked"):
            desk.allow(token, READ, "stat")
        await desk.check(kept.token)
    assert await datanode.check(made.token), "it is told with the next heartbeat"
    datanode.take(other.told(datanode.at))
    with pytest.raises(AccessDeniedError, match="was revoked"):
        await datanode.check(made.token)
    with pytest.raises(AccessDeniedError, match="was revoked"):
        datanode.allow(token, READ, "ReadBytes")
    assert await datanode.check(kept.token)
    assert other.told(datanode.at) is None
    found = await leader.show(ListTokens(), ANN, ANN_AS_ACTOR)
    assert {each.note.serial: each.revoked for each in found.tokens} == {
        made.note.serial: True,
        kept.note.serial: False,
    }


@pytest.mark.parametrize("place", range(4 * (MAC_BYTES + 8)))
async def test_a_flipped_bit_makes_it_strange(place: int) -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    made = await issued(desk)
    text = made.token.removeprefix(PREFIX)
    packed = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    # The last bytes are the signature for DataNodes, which no NameNode looks at.
    packed[place % (len(packed) - MAC_BYTES)] ^= 1 << place % 8
    forged = PREFIX + base64.urlsafe_b64encode(bytes(packed)).rstrip(b"=").decode()
    assert forged != made.token
    with pytest.raises(AccessDeniedError):
        await desk.check(forged)


async def test_more_rights_written_into_a_token_are_noticed() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    made = await issued(desk, IssueToken(DAY_S, int(READ)))
    token, body, macs = unsealed(made.token)
    better = msgspec.msgpack.encode(msgspec.structs.replace(token, rights=EVERYTHING, user="root"))
    forged = PREFIX + base64.urlsafe_b64encode(better + b"".join(macs)).rstrip(b"=").decode()
    assert unsealed(forged)[0].user == "root"
    assert "did not sign the token" in await refused(desk, forged)
    assert len(body) < 60


async def test_a_datanode_that_was_broken_into_makes_none_that_a_namenode_believes() -> None:
    cluster = Cluster()
    desk, datanode = await cluster.desk(), cluster.datanode()
    await issued(desk)
    told = desk.told(0)
    assert told is not None
    key = told.keys[0]
    token = UserToken(key.id, 7, "root", (), EVERYTHING, START_S + DAY_S)
    body = msgspec.msgpack.encode(token)
    for derived in (key, key_at(key, SignedFor.NAMENODE)):
        sealed = seal(token, derived)
        assert "did not sign" in await refused(desk, sealed)
    mac = hmac.digest(key.key, body, "sha256")[:MAC_BYTES]
    both = PREFIX + base64.urlsafe_b64encode(body + mac + mac).rstrip(b"=").decode()
    datanode.take(told)
    assert (await datanode.check(both)).user == "root", "at DataNodes it is a node anyway"
    assert "did not sign" in await refused(desk, both)


async def test_a_token_of_another_cluster_and_of_another_purpose_is_foreign() -> None:
    cluster, another = Cluster(), Cluster()
    desk, foreign = await cluster.desk(), await another.desk()
    theirs = await issued(foreign)
    assert "this cluster did not sign the token" in await refused(desk, theirs.token)
    await issued(desk)  # it has keys now, of the same time
    assert "this cluster did not sign the token" in await refused(desk, theirs.token)
    own, datanode = await issued(desk), cluster.datanode()
    told = foreign.told(0)
    datanode.take(told)
    with pytest.raises(AccessDeniedError, match="this cluster did not sign"):
        await datanode.check(own.token)
    # The keys of block tokens are of the same kind, and of another purpose.
    catalog = Catalog(cluster.store, clock_ms=lambda: round(cluster.now_s * 1000))
    rolled = await catalog.roll_block_keys(LONGEST_S)
    key = rolled.keys[0]
    block_signed = seal(UserToken(key.id, 7, "root", (), EVERYTHING, START_S + DAY_S), key)
    assert "this cluster did not sign the token" in await refused(desk, block_signed)


@pytest.mark.parametrize(
    "word",
    ["", "pb1.", "pb1.!!!", "pb1.AAAA", "pb2.AAAA", "Bearer", "pb1." + "A" * 9000, "pb1.é", "x"],
)
async def test_what_is_no_token_is_told_so_in_one_line(word: str) -> None:
    desk = await Cluster().desk()
    with pytest.raises(AccessDeniedError, match="this is no token") as error:
        await desk.check(word)
    assert "\n" not in str(error.value)


async def test_a_part_of_a_token_is_none() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    made = await issued(desk)
    for length in range(len(PREFIX), len(made.token)):
        with pytest.raises(AccessDeniedError):
            await desk.check(made.token[:length])


async def test_keys_roll_and_a_token_is_good_to_its_end() -> None:
    cluster = Cluster()
    desk, datanode = await cluster.desk(), cluster.datanode()
    datanode.take(desk.told(datanode.at))
    assert datanode.at == 0
    made: list[tuple[float, str]] = []
    used = set()
    for _ in range(60):
        cluster.now_s += LONGEST_S / 7
        one = await issued(desk, IssueToken(LONGEST_S, int(READ)))
        used.add((await desk.check(one.token)).key)
        if len(made) > 0:
            assert await datanode.check(one.token), "though it has not heard of the latest roll"
        made.append((cluster.now_s, one.token))
        for since_s, word in made[-7:]:
            if cluster.now_s < since_s + LONGEST_S:
                await desk.check(word)
                if datanode.at:
                    await datanode.check(word)
        datanode.take(desk.told(datanode.at))
    assert 7 <= len(used) <= 10
    told = desk.told(0)
    assert told is not None
    assert len(told.keys) == 3


async def test_a_datanode_that_was_told_nothing_yet_cannot_tell() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    made = await issued(desk)
    loop = asyncio.get_running_loop()
    waiting = OwnTokens(lambda: told_soon(), lambda: cluster.now_s)  # noqa: PLW0108 - made later

    def told_soon() -> None:
        loop.call_soon(waiting.take, desk.told(0))

    assert await waiting.check(made.token)
    asked: list[bool] = []
    datanode = OwnTokens(lambda: asked.append(True), lambda: cluster.now_s)
    with pytest.raises(NotReadyError, match="has not been told the key"):
        await datanode.check(made.token)
    assert asked == [True]


# -- who gets which --------------------------------------------------------------------------------


async def test_a_token_of_others_and_of_groups_that_one_is_not_in_is_for_superusers() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    for request in (
        IssueToken(DAY_S, int(READ), user="bob"),
        IssueToken(DAY_S, int(READ), groups=("dev", "supergroup")),
    ):
        with pytest.raises(PermissionDeniedError):
            await issued(desk, request)
        made = await issued(desk, request, ROOT, ROOT_AS_ACTOR)
        token = await desk.check(made.token)
        assert (token.user, token.groups) == (request.user or "root", request.groups)


async def test_a_token_carries_groups_that_were_proven() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    certified = Caller(CallerRole.USER, "ann", ("dev", "ops"))
    made = await issued(desk, caller=certified)
    assert (await desk.check(made.token)).groups == ("dev", "ops")
    fewer = bringing(
        await desk.check((await issued(desk, IssueToken(60, 1, groups=("dev",)))).token)
    )
    with pytest.raises(PermissionDeniedError, match="ann is not in the group ops"):
        await issued(desk, IssueToken(60, 1, groups=("ops",)), fewer, Actor("ann"))
    again = await issued(desk, IssueToken(60, 1), fewer, Actor("ann"))
    assert again.note.groups == ("dev",)


async def test_a_token_makes_none_that_outlives_or_exceeds_it() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    reader = bringing(await desk.check((await issued(desk, IssueToken(3600, int(READ)))).token))
    again = await issued(desk, IssueToken(LONGEST_S, int(READ)), reader)
    assert again.note.until_s == START_S + 3600
    cluster.now_s += 1800
    again = await issued(desk, IssueToken(LONGEST_S, int(READ)), reader)
    assert again.note.until_s == START_S + 3600
    with pytest.raises(AccessDeniedError, match="takes the right write"):
        await issued(desk, caller=reader)
    made = await issued(desk, IssueToken(3600, int(READ | WRITE)), ROOT, ROOT_AS_ACTOR)
    of_root = bringing(await desk.check(made.token))
    for request in (IssueToken(60, int(READ), user="bob"), IssueToken(60, int(ADMIN))):
        with pytest.raises(AccessDeniedError, match="takes the right admin"):
            await issued(desk, request, of_root, ROOT_AS_ACTOR)
    with pytest.raises(PermissionDeniedError, match="not in the group ops"):
        await issued(desk, IssueToken(60, 1, groups=("ops",)), of_root, ROOT_AS_ACTOR)


async def test_many_short_programs_have_one_token() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    asked = IssueToken(DAY_S, int(READ), "spark", again=True)
    first = await issued(desk, asked)
    assert await issued(desk, asked) == first
    cluster.now_s += DAY_S / 2 - 1
    assert await issued(desk, asked) == first
    await desk.check(first.token)
    for other in (
        IssueToken(DAY_S, int(READ), "spark"),
        IssueToken(DAY_S, int(READ), "other", again=True),
        IssueToken(DAY_S, int(READ | WRITE), "spark", again=True),
        IssueToken(DAY_S, int(READ), "spark", groups=("dev",), again=True),
    ):
        made = await issued(desk, other)
        assert made.token != first.token
        assert (await desk.check(made.token)).groups == other.groups
    cluster.now_s += DAY_S / 2 - 1
    last = await issued(desk, asked)
    assert last.note.serial != first.note.serial
    await desk.revoke(RevokeToken(last.note.serial), ANN, ANN_AS_ACTOR)
    renewed = await issued(desk, asked)
    assert renewed.note.serial != last.note.serial
    # Who has a token for an hour is not given one for a day.
    brief = bringing(await desk.check((await issued(desk, IssueToken(3600, int(READ)))).token))
    assert (await issued(desk, asked, brief)).note.until_s == cluster.now_s + 3600
    await desk.check(renewed.token)


@pytest.mark.parametrize("role", [CallerRole.DATANODE, CallerRole.NAMENODE])
async def test_a_node_gets_no_token(role: CallerRole) -> None:
    desk = await Cluster().desk()
    with pytest.raises(AccessDeniedError, match="this caller is a node"):
        await issued(desk, caller=Caller(role, "ann"), actor=ROOT_AS_ACTOR)


async def test_each_sees_and_revokes_their_own_and_a_superuser_all() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    of_ann = await issued(desk, IssueToken(DAY_S, 1, "etl"))
    of_root = await issued(desk, None, ROOT, ROOT_AS_ACTOR)
    seen = (await desk.show(ListTokens(), ANN, ANN_AS_ACTOR)).tokens
    assert [each.note for each in seen] == [of_ann.note]
    seen = (await desk.show(ListTokens(), ROOT, ROOT_AS_ACTOR)).tokens
    assert {each.note.serial for each in seen} == {of_ann.note.serial, of_root.note.serial}
    with pytest.raises(NotFoundError):
        await desk.revoke(RevokeToken(of_root.note.serial), ANN, ANN_AS_ACTOR)
    stolen = bringing(await desk.check((await issued(desk)).token))
    with pytest.raises(AccessDeniedError, match="takes the right admin"):
        await desk.revoke(RevokeToken(of_ann.note.serial), stolen, ANN_AS_ACTOR)
    assert stolen.token is not None
    await desk.revoke(RevokeToken(stolen.token.serial), stolen, ANN_AS_ACTOR)  # itself
    await desk.revoke(RevokeToken(of_ann.note.serial), ROOT, ROOT_AS_ACTOR)
    assert "was revoked" in await refused(desk, of_ann.token)
    await desk.check(of_root.token)


async def test_tokens_that_ended_are_forgotten_and_a_user_has_only_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most, swept = 40, 4
    monkeypatch.setattr(token_records, "PER_USER_MAX", most)
    monkeypatch.setattr(token_records, "SWEPT_MAX", swept)
    cluster = Cluster()
    desk = await cluster.desk()
    for number in range(most):
        made = await issued(desk, IssueToken(60, 1))
        if number < 3:
            await desk.revoke(RevokeToken(made.note.serial), ANN, ANN_AS_ACTOR)
    with pytest.raises(InvalidRequestError, match="may have no more"):
        await issued(desk, IssueToken(60, 1))
    await issued(desk, None, ROOT, ROOT_AS_ACTOR)
    cluster.now_s += 61
    assert (await desk.show(ListTokens(), ANN, ANN_AS_ACTOR)).tokens == ()
    with pytest.raises(NotFoundError, match="that has not ended"):
        await desk.revoke(RevokeToken(made.note.serial), ANN, ANN_AS_ACTOR)
    for _ in range(most // swept + 1):
        await issued(desk, IssueToken(60, 1))
    told = desk.told(0)
    assert told is not None
    assert told.revoked == ()
    kept = [key for key, _ in cluster.store.view().scan(b"j", b"k")]
    assert len(kept) == most // swept + 2


async def test_the_tokens_of_others_cost_who_issues_and_revokes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    for number in range(50):
        request = IssueToken(DAY_S, int(READ), "job", user=f"user-{number}")
        await issued(desk, request, ROOT, ROOT_AS_ACTOR)
    read: list[str] = []

    def decode(value: bytes) -> TokenNote:
        note = decode_token(value)
        read.append(note.user)
        return note

    monkeypatch.setattr(token_records, "decode_token", decode)
    made = await issued(desk, IssueToken(DAY_S, int(READ), "job"))
    again = await issued(desk, IssueToken(DAY_S, int(READ), "job", again=True))
    assert again.note == made.note
    await desk.revoke(RevokeToken(made.note.serial), ROOT, ROOT_AS_ACTOR)
    listed = (await desk.show(ListTokens(), ANN, ANN_AS_ACTOR)).tokens
    assert [(each.note, each.revoked) for each in listed] == [(made.note, True)]
    assert {*read} == {"ann"}
    # A name that begins with that of another user.
    anna = Caller(CallerRole.CLAIMED, "anna")
    assert (await desk.show(ListTokens(), anna, Actor("anna"))).tokens == ()


async def test_all_that_was_kept_of_tokens_goes_once_they_have_ended() -> None:
    cluster = Cluster()
    desk = await cluster.desk()
    made = await issued(desk, IssueToken(60, 1))
    await desk.revoke(RevokeToken(made.note.serial), ANN, ANN_AS_ACTOR)
    before = len(list(cluster.store.view().scan(b"", b"\xff")))
    cluster.now_s += 61
    await issued(desk, IssueToken(60, 1))
    after = [key[:1] for key, _ in cluster.store.view().scan(b"", b"\xff")]
    assert len(after) == before - 1
    assert not {b"q"} & {*after}


# -- what one is good for: the table of calls ------------------------------------------------------


@pytest.fixture
def as_caller() -> Iterator[None]:
    before = CALLER.set(HERE)
    yield
    CALLER.reset(before)


def test_each_call_that_changes_something_takes_the_right_to() -> None:
    """A row says what changes; the tests of the audit log show that each does."""
    for call in CALLS:
        right = call.right
        if not isinstance(right, TokenRight):
            continue  # by what is asked: below
        changes = call.deeds is not None
        of_tokens = call.method in (ISSUE_TOKEN, LIST_TOKENS, REVOKE_TOKEN)
        of_nodes = call.of_datanode or call.method is api.RENEW_LEASES
        assert (right is TokenRight.NONE) is of_tokens, call.method.name
        if of_tokens:
            continue
        if changes:
            assert right & (WRITE | ADMIN), call.method.name
        elif right & WRITE:
            assert of_nodes, call.method.name


async def test_a_token_to_read_changes_nothing() -> None:
    scene = await new_scene()
    before = CALLER.set(HERE)
    try:
        made = await scene.service.call(ISSUE_TOKEN, IssueToken(60, int(READ), user=_me(scene)))
        await scene.service.call(api.MKDIRS, api.MakeDirectories("/a"))
        CALLER.set(bringing(await scene.node.tokens.check(made.token)))
        assert (await scene.service.call(api.STAT, api.PathRequest("/a"))).path == "/a"
        await scene.service.call(api.LIST, api.ListDirectory("/"))
        for method, request in _changes():
            with pytest.raises(AccessDeniedError, match="takes the right"):
                await scene.service.call(method, request)
        await scene.service.call(REVOKE_TOKEN, RevokeToken(made.note.serial))
        with pytest.raises(AccessDeniedError, match="was revoked"):
            await scene.service.call(api.STAT, api.PathRequest("/a"))
    finally:
        CALLER.reset(before)
        await scene.close()


def _me(scene: Scene) -> str:
    return scene.node.users.superuser


def _changes() -> list[tuple[Any, Any]]:
    return [
        (api.MKDIRS, api.MakeDirectories("/b")),
        (api.DELETE, api.DeletePath("/a", recursive=True)),
        (api.RENAME, api.RenamePath("/a", "/b")),
        (api.CLOSE_FILE, api.CloseFile(2, WRITER)),
        (lease_call.RECOVER_LEASE, lease_call.RecoverLease("/a")),
        (status.SAFE_MODE, status.SafeModeRequest(status.SafeModeAction.ENTER)),
        (care.BALANCE, care.Balance("me", 0.1)),
    ]


async def test_a_token_to_write_makes_no_call_of_operators_though_its_user_may() -> None:
    scene = await new_scene()
    before = CALLER.set(HERE)
    try:
        enter = status.SafeModeRequest(status.SafeModeAction.ENTER)
        for rights, may in ((READ | WRITE, False), (READ | ADMIN, True)):
            CALLER.set(HERE)
            request = IssueToken(60, int(rights), user=_me(scene))
            made = await scene.service.call(ISSUE_TOKEN, request)
            CALLER.set(bringing(await scene.node.tokens.check(made.token)))
            await scene.service.call(status.SAFE_MODE, status.SafeModeRequest())
            if may:
                await scene.service.call(status.SAFE_MODE, enter)
            else:
                with pytest.raises(AccessDeniedError, match="takes the right admin"):
                    await scene.service.call(status.SAFE_MODE, enter)
    finally:
        CALLER.reset(before)
        await scene.close()


async def test_a_stolen_token_is_good_for_no_call_of_a_node() -> None:
    """Without the check of roles the same caller would be believed: as one that claims it."""
    scene = await new_scene(config=NameNodeConfig(block_tokens=True))
    before = CALLER.set(HERE)
    room = StorageReport(MEMBERS[0], 1 << 40, 1 << 40, 0)
    register = Register("dn-s1", "stranger:1", "run-9", (room,))
    try:
        request = IssueToken(60, EVERYTHING, user=_me(scene))
        made = await scene.service.call(ISSUE_TOKEN, request)
        CALLER.set(bringing(await scene.node.tokens.check(made.token)))
        calls: list[tuple[Method[Any, Any], Any]] = [
            (REGISTER, register),
            (HEARTBEAT, Heartbeat("dn-s1", "run-1", (room,), 0)),
        ]
        for method, asked in calls:
            with pytest.raises(AccessDeniedError, match="is of a DataNode alone"):
                await scene.service.call(method, asked)
        CALLER.set(Caller(CallerRole.CLAIMED, _me(scene)))
        assert (await scene.service.call(REGISTER, register)).keys
    finally:
        CALLER.reset(before)
        await scene.close()


async def test_a_token_acts_as_its_user_and_no_more() -> None:
    scene = await new_scene()
    before = CALLER.set(HERE)
    try:
        await scene.service.call(api.MKDIRS, api.MakeDirectories("/private", permission=0o700))
        CALLER.set(Caller(CallerRole.CLAIMED, "ann"))
        made = await scene.service.call(ISSUE_TOKEN, IssueToken(60, EVERYTHING))
        CALLER.set(bringing(await scene.node.tokens.check(made.token)))
        with pytest.raises(PermissionDeniedError, match="user=ann, access=EXECUTE"):
            await scene.service.call(GET_FILE, GetFile("/private/file"))
        with pytest.raises(PermissionDeniedError):
            await scene.service.call(ISSUE_TOKEN, IssueToken(60, 1, user="root"))
    finally:
        CALLER.reset(before)
        await scene.close()


@pytest.mark.parametrize(
    "asked",
    [
        IssueToken(0, 1),
        IssueToken(LONGEST_S + 1, 1),
        IssueToken(float("nan"), 1),
        IssueToken(60, 0),
        IssueToken(60, 16),
        IssueToken(60, -1),
        IssueToken(60, 1, "x" * 201),
        IssueToken(60, 1, "a\nb"),
        IssueToken(60, 1, user="a:b"),
        IssueToken(60, 1, groups=("a,b",)),
        IssueToken(60, 1, groups=tuple(f"group-{n:0200}" for n in range(30))),
    ],
)
async def test_a_token_that_there_cannot_be_is_refused(asked: IssueToken) -> None:
    scene = await new_scene()
    try:
        with pytest.raises(InvalidRequestError):
            await scene.service.call(ISSUE_TOKEN, asked)
    finally:
        await scene.close()


async def test_what_registering_and_heartbeats_tell_is_enough_to_check_a_token() -> None:
    scene = await new_scene()
    before = CALLER.set(HERE)
    room = StorageReport(MEMBERS[0], 1 << 40, 1 << 40, 0)
    try:
        register = Register("dn-s1", "dn-s1:9864", "run-1", (room,), heartbeat_s=1.0)
        told = await scene.service.call(REGISTER, register)
        assert told.tokens is None
        made = await scene.service.call(ISSUE_TOKEN, IssueToken(60, 1, user="ann"))
        datanode = OwnTokens(lambda: None)
        answer = await scene.service.call(HEARTBEAT, Heartbeat("dn-s1", "run-1", (room,), 0))
        datanode.take(answer.tokens)
        assert (await datanode.check(made.token)).user == "ann"
        beat = Heartbeat("dn-s1", "run-1", (room,), 0, datanode.at)
        assert (await scene.service.call(HEARTBEAT, beat)).tokens is None
        told = await scene.service.call(REGISTER, register)
        assert told.tokens == answer.tokens
    finally:
        CALLER.reset(before)
        await scene.close()


def test_a_token_is_small_and_its_check_is_quick() -> None:
    key = BlockKey(1_800_000_000, bytes(32))
    token = UserToken(key.id, 1 << 63, "ann", ("dev", "ops"), 3, START_S)
    word = seal(token, key)
    assert len(word) < 120
    known = {key.id: key_at(key, SignedFor.NAMENODE).key}
    assert check(word, SignedFor.NAMENODE, known.get, START_S - 1) == token
