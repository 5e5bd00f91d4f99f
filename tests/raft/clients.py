"""Clients of the simulated cluster, and the history of what they saw."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from paxosblock.errors import Outcome, PaxosBlockError
from paxosblock.namenode.kv.interface import (
    ABSENT_REVISION,
    Committed,
    Conflict,
    Expect,
    Transaction,
    Versioned,
)
from paxosblock.namenode.raft.machine import RequestId
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.raft.linearizability import ABSENT, Operation
from tests.raft.members import Members
from tests.raft.virtual_time import VirtualTimeLoop

KEYS = (b"a", b"b", b"c")
PATIENCE_S = 1.5


@dataclass(slots=True)
class History:
    """The operations on each key."""

    operations: dict[bytes, list[Operation]] = field(
        default_factory=lambda: {key: [] for key in KEYS}
    )
    answered: int = 0

    def add(self, key: bytes, operation: Operation) -> None:
        self.operations[key].append(operation)
        self.answered += operation.answered is not None


@dataclass(slots=True)
class Client:
    """Reads, writes, deletes and swaps; asks again with the same id when an answer is lost."""

    name: str
    loop: VirtualTimeLoop
    rng: random.Random
    members: Members
    history: History
    sequence: int = 0
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
        leaders = self.members.leaders()
        if not leaders:
            return
        called = self.loop.now
        try:
            leader = self.rng.choice(leaders)
            found = await leader.host.ask(_get(leader.store, key), self._patience_s())
        except (PaxosBlockError, TimeoutError):
            return
        value = found.value.decode() if found.exists else ABSENT
        self.known[key] = value, found.revision
        self.history.add(key, Operation("read", value, called, self.loop.now))

    def _patience_s(self) -> float:
        """How long to wait for one member, which may stand still, before asking another."""
        return self.rng.uniform(0.05, 0.5)

    async def _change(self, kind: str, key: bytes) -> None:
        self.sequence += 1
        request = RequestId(self.name.encode(), self.sequence)
        value = ABSENT if kind == "delete" else f"{self.name}-{self.sequence}"
        expected, revision = self.known.get(key, (ABSENT, ABSENT_REVISION))
        preconditions = (Expect(key, revision),) if kind == "swap" else ()
        puts = ((key, value.encode()),) if value else ()
        deletes = () if value else (key,)
        called = self.loop.now
        result = await self._ask(Transaction(preconditions, puts, deletes), request)
        answered = None if isinstance(result, Outcome) else self.loop.now
        if result is Outcome.NEVER:
            return
        if kind == "swap":
            swapped = None if result is Outcome.UNKNOWN else isinstance(result, Committed)
            operation = Operation("swap", value, called, answered, expected, swapped)
        else:
            operation = Operation("write", value, called, answered)
        self.history.add(key, operation)

    async def _ask(
        self, transaction: Transaction, request: RequestId
    ) -> Committed | Conflict | Outcome:
        """Ask whoever believes to lead, again and again while the outcome is unknown."""
        outcome = Outcome.NEVER
        deadline = self.loop.now + PATIENCE_S
        while self.loop.now < deadline:
            leaders = self.members.leaders()
            if leaders:
                try:
                    leader = self.rng.choice(leaders)
                    asked = leader.store.commit(transaction, request)
                    return await leader.host.ask(asked, self._patience_s())
                except TimeoutError:
                    outcome = Outcome.UNKNOWN
                except PaxosBlockError as error:
                    outcome = error.outcome if outcome is Outcome.NEVER else outcome
            await self.loop.pass_time(self.rng.uniform(0.01, 0.2))
            if outcome is Outcome.UNKNOWN and self.rng.random() < 0.3:
                break
        return outcome


async def _get(store: ReplicatedStore, key: bytes) -> Versioned:
    """What a process does to answer a read."""
    view = await store.barrier()
    return view.get(key)
