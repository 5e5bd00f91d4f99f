"""The user for whom a NameNode takes a caller, and the groups that it finds for a user."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable

import pytest

from paxosblock.config import NameNodeConfig
from paxosblock.errors import NotReadyError, PermissionDeniedError
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.users import ASKED_MAX, Users
from paxosblock.net.calls.call_server import InlineCoroutine
from paxosblock.net.port.caller import HERE, UNTOLD, Caller, CallerRole
from tests.waiting import wait_until_async

ROOT = "hdfs"


def users(
    groups_of: Callable[[str], tuple[str, ...]] = lambda _: (), *, permissions: bool = True
) -> Users:
    config = NameNodeConfig(groups=(("ann", ("dev", "ops")),), permissions=permissions)
    return Users(ROOT, config, lambda: 0.0, groups_of)


class Directory:
    """A directory of users that does not answer for some of them until it is told to."""

    def __init__(self, *silent: str) -> None:
        self.silent, self.asked, self.answers = silent, list[str](), threading.Event()

    def groups_of(self, user: str) -> tuple[str, ...]:
        self.asked.append(user)
        if user in self.silent:
            self.answers.wait()
        return (f"group of {user}",)


@pytest.mark.parametrize("role", [CallerRole.DATANODE, CallerRole.NAMENODE])
async def test_a_node_with_the_id_of_the_superuser_is_not_the_superuser(role: CallerRole) -> None:
    known = users()
    for name in (ROOT, "ann"):
        actor = await known.look_up(Caller(role, name))
        assert not actor.superuser
        assert actor.groups == frozenset()
        assert actor.user not in (ROOT, "ann")
    with pytest.raises(PermissionDeniedError):
        await known.demand_superuser(Caller(role, ROOT))
    assert (await users(permissions=False).look_up(Caller(role, "dn1"))).superuser


async def test_this_process_is_the_superuser_and_a_caller_that_was_not_told_is_nobody() -> None:
    assert (await users().look_up(HERE)).superuser
    untold = await users().look_up(UNTOLD)
    assert not untold.superuser
    assert untold.user == "nobody"


async def test_groups_come_from_the_certificate_then_the_setting_then_the_system() -> None:
    known = users(Directory().groups_of)
    certified = Caller(CallerRole.USER, "ann", ("qa",))
    assert (await known.look_up(certified)).groups == {"qa"}
    assert (await known.look_up(Caller.claiming("ann", ""))).groups == {"dev", "ops"}
    assert (await known.look_up(Caller.claiming("bob", ""))).groups == {"group of bob"}


async def test_a_directory_that_does_not_answer_for_one_user_holds_up_no_other() -> None:
    directory = Directory("bob")
    known = users(directory.groups_of)
    waiting = asyncio.create_task(known.look_up(Caller.claiming("bob", "10.0.0.1")))
    joining = asyncio.create_task(known.look_up(Caller.claiming("bob", "10.0.0.2")))
    async with asyncio.timeout(10):
        await wait_until_async(lambda: directory.asked == ["bob"])
        assert (await known.look_up(Caller.claiming("carl", ""))).groups == {"group of carl"}
        known.answer_s = 0.01
        with pytest.raises(NotReadyError, match="groups of bob are not known yet"):
            await known.look_up(Caller.claiming("bob", "10.0.0.3"))
        directory.answers.set()
        for actor in await asyncio.gather(waiting, joining):
            assert actor.groups == {"group of bob"}
    assert directory.asked == ["bob", "carl"]


async def _by_a_task(waits_for: asyncio.Future[object], timeout_s: float) -> object:
    """`asyncio.wait_for` as Python has it from 3.12 on."""
    async with asyncio.timeout(timeout_s):
        return await waits_for


async def test_groups_are_waited_for_without_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a call is that is begun where its frame is read."""
    monkeypatch.setattr(asyncio, "wait_for", _by_a_task)
    directory = Directory("bob", "eve")
    known = users(directory.groups_of)
    loop = asyncio.get_running_loop()
    ended: asyncio.Queue[Actor | Exception] = asyncio.Queue()

    async def call(name: str) -> None:
        try:
            ended.put_nowait(await known.look_up(Caller.claiming(name, "")))
        except (NotReadyError, RuntimeError) as error:
            ended.put_nowait(error)

    def begin(name: str) -> None:
        calling = call(name)
        context = contextvars.copy_context()
        InlineCoroutine(calling, context.run(calling.send, None), context, lambda _: None)

    loop.call_soon(begin, "bob")
    async with asyncio.timeout(10):
        await wait_until_async(lambda: directory.asked == ["bob"])
        known.answer_s = 0.01
        loop.call_soon(begin, "eve")
        late = await ended.get()
        assert isinstance(late, NotReadyError), late
        directory.answers.set()
        found = await ended.get()
    assert isinstance(found, Actor), found
    assert found.groups == {"group of bob"}


async def test_a_directory_that_answers_for_none_takes_a_bounded_number_of_threads() -> None:
    names = [f"user{number}" for number in range(ASKED_MAX)]
    directory = Directory(*names)
    known = users(directory.groups_of)
    waiting = [asyncio.create_task(known.look_up(Caller.claiming(name, ""))) for name in names]
    async with asyncio.timeout(10):
        await wait_until_async(lambda: len(directory.asked) == ASKED_MAX)
        with pytest.raises(NotReadyError, match="does not answer for 16 other users"):
            await known.look_up(Caller.claiming("ann's friend", ""))
        directory.answers.set()
        await asyncio.gather(*waiting)
        assert (await known.look_up(Caller.claiming("carl", ""))).groups == {"group of carl"}
