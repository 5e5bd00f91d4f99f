"""A backup of the catalog that is brought back in the middle of a life, by the book.

`docs/operations.md`: all NameNodes are stopped, their folders replaced, and started again in safe
mode; the operator has every DataNode up before he leaves it; then he looks at what `fsck` calls
lost, and deletes it. Writers and readers go on all the time, as do the blows until he looks.

What must hold: `fsck` calls nothing lost of which a DataNode has a replica, nor a file that nobody
deleted since the backup; what was closed before the backup and not changed since reads back, to the
last byte; of what was changed since, each byte that is there is the right one, and those that were
acknowledged before the backup are there (`Users.are_again`).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from paxosblock.api.fsck_call import CHECK_FILES, CheckFiles, Condition, Finding
from paxosblock.api.lease_call import RECOVER_LEASE, RecoverLease
from paxosblock.api.namenode import DELETE, DeletePath
from paxosblock.api.status import (
    CLUSTER_STATUS,
    SAFE_MODE,
    ClusterStatusRequest,
    SafeModeAction,
    SafeModeRequest,
)
from paxosblock.client.async_client import AsyncClient
from paxosblock.errors import PaxosBlockError
from tests.lives.dripping import Drip

if TYPE_CHECKING:
    from tests.lives.life import Life

BEGINS_WITHIN_S: Final = 30.0
BACKUP_AGE_S: Final = 25.0
"""The oldest backup that is brought back."""
DRIPS_S: Final = 2.0
"""Seconds before the backup at the least in which somebody begins to write who still does when it
is brought back: the time in which a file is made in most lives."""
LEARNED_WITHIN_S: Final = 90.0
"""Of a truce, in which all DataNodes are up."""


class Restorable(Protocol):
    """Users who know what a backup brings back."""

    def now(self) -> Any: ...

    def are_again(self, past: Any) -> None: ...

    def must_have(self) -> set[str]: ...


class Restore:
    """One of them in the life of one seed."""

    def __init__(self, life: Life, users: Restorable) -> None:
        self.life = life
        self.users = users
        self.rng = random.Random(f"{life.seed} restore")

    async def run(self) -> None:
        """Take the backup some time, and bring it back later; see the end of it."""
        life, loop = self.life, self.life.loop
        await loop.pass_time(self.rng.uniform(5, BEGINS_WITHIN_S))
        drip = Drip(life)
        await loop.pass_time(DRIPS_S)
        await self._until(lambda: life.cluster.namenode is not None and bool(self.users.now()))
        life._happens("backup")
        backup, past = life.cluster.namenodes.back_up(), self.users.now()
        dripped = drip.acknowledged
        assert past is not None
        await loop.pass_time(self.rng.uniform(0, self.rng.choice((0.5, 5.0, BACKUP_AGE_S))))
        await self._until(lambda: not life._namenode_suffers and not life.in_safe_mode)
        life.checker.look()
        life._happens("restore")
        life._namenode_suffers = True
        life.checker.brings_back()
        self.users.are_again(past)
        life.cluster.namenodes.bring_back(backup)
        life.may_cut = True
        life.checker.rebase()
        await loop.pass_time(self.rng.choice((0.0, 3.0, 15.0)) * self.rng.random())
        life.make_truce()
        await self._until(lambda: all(each.node is not None for each in life.cluster.machines))
        await self._ask(self._all_are_there)
        await self._ask(self._leave_safe_mode)
        life.balance()  # else nobody asks in the seconds in which blocks are learned
        end_s = loop.now + LEARNED_WITHIN_S
        while left := await self._unlearned():
            if loop.now > end_s:
                life.world.mistake(f"restored, and never learned: {'; '.join(left)}")
                break
            await self._ask(self._fsck)
            await loop.pass_time(2.0)
        life.checker.unclear = life._namenode_suffers = False
        life.end_truce()
        await drip.end(dripped)

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            await self.life.loop.pass_time(0.1)

    async def _ask(self, what: Callable[[AsyncClient], Awaitable[bool]]) -> None:
        """Ask as an operator does who does not give up."""

        async def ask() -> bool:
            async with self.life.cluster.new_client() as fs:
                try:
                    return await what(fs)
                except PaxosBlockError:
                    return False

        while not await self.life._admin.ask(ask()):
            await self.life.loop.pass_time(0.5)

    async def _all_are_there(self, fs: AsyncClient) -> bool:
        status = await fs._session.namenodes.call(CLUSTER_STATUS, ClusterStatusRequest())
        there = {node.node for node in status.datanodes}
        return {each.name for each in self.life.cluster.machines} <= there

    async def _leave_safe_mode(self, fs: AsyncClient) -> bool:
        await fs._session.namenodes.call(SAFE_MODE, SafeModeRequest(SafeModeAction.LEAVE))
        return True

    async def _unlearned(self) -> list[str]:
        await self._until(lambda: self.life.cluster.namenode is not None)
        return self.life.checker.unlearned()

    def _is_unlearnable(self, file: int) -> bool:
        checker = self.life.checker
        return any(
            wanted.file == file and wanted.record.restored and not checker.readable(block)
            for block, wanted in checker.blocks.items()
        )

    def _needs_a_word(self, found: Finding) -> bool:
        """True for a file whose last block only an operator ends."""
        if found.condition is Condition.UNCLEAR:
            wanted = self.life.checker.blocks.get(found.block)
            if wanted is None or not wanted.record.may_be_empty:
                return False
        elif found.condition is not Condition.OPEN:
            return False
        return self._is_unlearnable(found.file_id)

    async def _fsck(self, fs: AsyncClient) -> bool:
        """Do as `fsck --delete-corrupt --yes` does. A file that was open at the backup, and deleted
        since, stays open without a replica of its last block: it is deleted by name. If it was not
        deleted, the last block of it never was anywhere, as its writer died before it made a
        replica, or was empty and left the file: that ends empty, as `recover-lease --force` ends
        it."""
        findings = await _checked(fs)
        there = self.users.must_have()
        for each in findings:
            if self._needs_a_word(each):
                if each.path in there:
                    await self._end_empty(fs, each.path)
                else:
                    await fs._session.namenodes.call_once(DELETE, _deletes(each))
            elif each.condition.lost:
                self.life.counts["files lost at a restore"] += 1
                said = f"fsck calls {each.path}, block {each.block}, {each.condition.value}"
                if each.path in there:
                    self.life.world.mistake(f"{said}: nobody deleted it since the backup")
                if self.life.checker.readable(each.block):
                    told = self.life.checker.told(each.block)
                    self.life.world.mistake(f"{said}: a DataNode has it; {told}")
                await fs._session.namenodes.call_once(DELETE, _deletes(each))
        return True

    async def _end_empty(self, fs: AsyncClient, path: str) -> None:
        """End the last block of a file without anything in it, if the NameNode says it may."""
        with contextlib.suppress(PaxosBlockError):  # asked again until it is learned, or too late
            found = await fs._session.namenodes.call(RECOVER_LEASE, RecoverLease(path))
            if empty := tuple(each.block for each in found.stuck if each.may_be_empty):
                self.life.counts["blocks that no storage ever had"] += len(empty)
                await fs._session.namenodes.call(RECOVER_LEASE, RecoverLease(path, empty=empty))


async def _checked(fs: AsyncClient) -> list[Finding]:
    findings: list[Finding] = []
    request: CheckFiles | None = CheckFiles("/")
    while request is not None:
        page = await fs._session.namenodes.call(CHECK_FILES, request)
        findings += page.findings
        request = CheckFiles("/", page.next) if page.next is not None else None
    return findings


def _deletes(found: Finding) -> DeletePath:
    return DeletePath(found.path, file_id=found.file_id)
