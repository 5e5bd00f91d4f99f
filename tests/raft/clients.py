"""Clients of the simulated cluster, and the history of what they saw."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from paxosblock.errors import NotReadyError, Outcome, PaxosBlockError
from paxosblock.namenode.kv.interface import (
    ABSENT_REVISION,
    Committed,
    Conflict,
    Edit,
    Expect,
    Versioned,
)
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.raft.linearizability import ABSENT, Operation
from tests.raft.members import Members
from tests.raft.virtual_time import VirtualTimeLoop

KEYS = (b"a", b"b", b"c")
PATIENCE_S = 1.5
LEADERS_ASKED = 0.5
"""The part of the reads that is asked of whoever believes to lead; the others are of anybody."""


@dataclass(slots=True)
class History:
    """The operations on each key."""

    operations: dict[bytes, list[Operation]] = field(
        default_factory=lambda: {key: [] for key in KEYS}
    )
    answered: int = 0
    read_at_followers: int = 0

    def add(self, key: bytes, operation: Operation) -> None:
        self.operations[key].append(operation)
        self.answered += operation.answered is not None


@dataclass(slots=True)
class Client:
    """Reads, writes, deletes and swaps; asks again when an answer is lost.

    Each edit leaves the client's latest number under the client's own key and expects to
    find there what it knows. So a copy changes nothing, and tells whether the first was applied:
    as the catalog does it (`changes.py`).
    """

    name: str
    loop: VirtualTimeLoop
    rng: random.Random
    members: Members
    history: History
    sequence: int = 0
    latest: int | None = ABSENT_REVISION
    """The revision of the own key; None when it has to be asked for."""
    known: dict[bytes, tuple[str, int]] = field(default_factory=dict)

    async def run(self, until: float) -> None:
        while self.loop.now < until:
            await self.loop.pass_time(self.rng.uniform(0.0, 0.06))
            key = self.rng.choice(KEYS)
            match self.rng.choice(("read", "read", "write", "delete", "swap")):
                case "read":
                    await self._read(key)
                case kind:
                    await self._change(kind, key)

    async def _read(self, key: bytes) -> None:
        leads = self.rng.random() < LEADERS_ASKED
        asked = self.members.leaders() if leads else self.members.up()
        if not asked:
            return
        called = self.loop.now
        try:
            member = self.rng.choice(asked)
            found = await member.host.ask(_get(member.store, key), self._patience_s())
        except (PaxosBlockError, TimeoutError):
            return
        self.history.read_at_followers += not member.up or not member.store.is_leader()
        value = found.value.decode() if found.exists else ABSENT
        self.known[key] = value, found.revision
        self.history.add(key, Operation("read", value, called, self.loop.now))

    def _patience_s(self) -> float:
        """Return how long to wait for one member, which may stand still, before asking another."""
        return self.rng.uniform(0.05, 0.5)

    async def _change(self, kind: str, key: bytes) -> None:
        self.sequence += 1
        value = ABSENT if kind == "delete" else f"{self.name}-{self.sequence}"
        expected, revision = self.known.get(key, (ABSENT, ABSENT_REVISION))
        preconditions = (Expect(key, revision),) if kind == "swap" else ()
        puts = ((key, value.encode()),) if value else ()
        deletes = () if value else (key,)
        called = self.loop.now
        result = await self._ask(Edit(preconditions, puts, deletes))
        answered = None if isinstance(result, Outcome) else self.loop.now
        if result is Outcome.NEVER:
            return
        if kind == "swap":
            swapped = None if result is Outcome.UNKNOWN else isinstance(result, Committed)
            operation = Operation("swap", value, called, answered, expected, swapped)
        else:
            operation = Operation("write", value, called, answered)
        self.history.add(key, operation)

    async def _ask(self, edit: Edit) -> Committed | Conflict | Outcome:
        """Ask a member that believes to lead, again and again while the outcome is unknown."""
        outcome = Outcome.NEVER
        deadline = self.loop.now + PATIENCE_S
        while self.loop.now < deadline:
            leaders = self.members.leaders()
            if leaders:
                try:
                    leader = self.rng.choice(leaders)
                    asked = _once(
                        leader.store, edit, self.name.encode(), self.sequence, self.latest
                    )
                    result = await leader.host.ask(asked, self._patience_s())
                    if isinstance(result, Committed):
                        self.latest = result.revision
                    elif outcome is Outcome.UNKNOWN:
                        return outcome  # this try was refused; one before may still be applied
                    return result
                except TimeoutError:
                    outcome, self.latest = Outcome.UNKNOWN, None
                except PaxosBlockError as error:
                    outcome = error.outcome if outcome is Outcome.NEVER else outcome
                    self.latest = None
            await self.loop.pass_time(self.rng.uniform(0.01, 0.2))
            if outcome is Outcome.UNKNOWN and self.rng.random() < 0.3:
                break
        return outcome


async def _get(store: ReplicatedStore, key: bytes) -> Versioned:
    """Read as a process does to answer a client."""
    view = await store.read_barrier()
    return view.get(key)


async def _once(
    store: ReplicatedStore,
    edit: Edit,
    key: bytes,
    sequence: int,
    latest: int | None,
) -> Committed | Conflict:
    """Apply a request once, as a process does for a client. It may come late."""
    if latest is None:
        found = (await store.barrier()).get(key)
        latest = found.revision
        if found.value == b"%d" % sequence:
            return Committed(latest)
        if found.exists and int(found.value) > sequence:
            raise NotReadyError("a later request was applied")
    result = await store.commit(
        Edit(
            (Expect(key, latest), *edit.expect),
            (*edit.puts, (key, b"%d" % sequence)),
            edit.deletes,
        )
    )
    if isinstance(result, Conflict) and result.key == key:
        raise NotReadyError("an earlier request was applied after all: ask again")
    return result
