"""The answers of a DataNode about one replica, and all that may be there after a crash.

Its arithmetic is that of the acceptor alone (`protocol.register`): each request that is sent has
one outcome, and until it is answered the replica may be as before or as after it. A power cut may
take from a replica of `memory` durability what no caller was told to be durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from paxosblock.protocol.effects import AdoptLog
from paxosblock.protocol.messages import Nack, Reply, Request
from paxosblock.protocol.register import Replica, Transition, restarted
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    NO_GENERATION,
    BlockId,
    Durability,
    Generation,
    Reason,
    ReplicaState,
    StorageId,
)
from tests.datanode.any_request import expected, gives_way

REFUSED = (Reason.CORRUPT, Reason.NO_REPLICA)


@dataclass(slots=True)
class Told:
    """One block at one storage."""

    block: BlockId
    folder: Path
    storage: StorageId
    maybe: list[Replica | None] = field(default_factory=lambda: [None])
    """All that it may be, in the order of the requests: only the first was answered."""
    durable: tuple[Generation, int] = (NO_GENERATION, 0)
    """So many chunks of the log of this accepted generation were told to be durable."""
    top: int = 0
    """The greatest generation that any caller named."""
    in_log: bool = False
    """Records of it may be in the log of small replicas."""
    hurt: bool = False
    """Damage to a file may have cost it."""
    dead: bool = False
    """It was seen to be dead, and not healed since."""
    cut: bool = False
    """The power went since it was last looked at."""
    replacing: bool = False
    """A log that contradicts a decision may be noted as dead while a copy of the other is made."""
    healing: Replica | None = None
    """It was asked to become this one, whatever it is."""

    @property
    def replica(self) -> Replica | None:
        """The replica, if all was answered."""
        return self.maybe[-1]

    def send(self, request: Request) -> Transition:
        """Note that a request is on its way; return what it must do."""
        before = self.replica
        self.replacing |= gives_way(self.storage, before, request)
        step = expected(self.storage, before, request)
        self.maybe += _on_the_way(before, step)
        if step.replica != before:
            self.maybe.append(step.replica)
        return step

    def hear(self, step: Transition, reply: Reply | Exception) -> str:
        """Note the answer to a request of which `step` was expected; return what is wrong with it.

        A replica that damage may have cost may say that it is dead, and nothing else is excused.
        """
        if isinstance(reply, Nack) and not reply.storage:
            reply = replace(reply, storage=self.storage)  # a node without the block
        if reply == step.reply and not self.dead:
            self.replacing = False
            self._answered(step.replica)
            return ""
        if self.hurt and refuses(reply):
            self.dead = True
            del self.maybe[1:]
            return ""
        return f"answered {reply}, not {step.reply}{' after it was dead' if self.dead else ''}"

    def _answered(self, replica: Replica | None) -> None:
        if replica in self.maybe:
            del self.maybe[: self.maybe.index(replica)]
        if replica is None:
            self.durable = NO_GENERATION, 0

    def tell_durable(self, count: int | None = None) -> None:
        """Note that an answer said that `count` chunks are on stable storage; None: all."""
        if (now := self.maybe[0]) is not None:
            count = now.length if count is None else count
            accepted = now.registers.accepted_generation
            before = self.durable[1] if self.durable[0] == accepted else 0
            self.durable = accepted, max(count, before)

    # -- after a crash ----------------------------------------------------------------------------

    def possible(self) -> Iterator[Replica | None]:
        """Yield what a start may find."""
        for one in self.maybe:
            if one is None:
                yield None
                continue
            now = one.registers
            open_in_memory = (
                now.durability is Durability.MEMORY and now.state is ReplicaState.RBW and self.cut
            )
            least = one.length
            if open_in_memory:
                kept = self.durable[1] if self.durable[0] == now.accepted_generation else 0
                least = max(now.base_length, kept)
            for length in range(least, one.length + 1):
                cut = replace(one, log=one.log.truncate(length))
                yield restarted(cut, same_boot=not self.cut)

    def look(self, found: Replica | None, *, dead: bool) -> str:
        """Note what a process has of it that was started; return what is wrong with it."""
        if dead:
            excused = self.hurt or self.replacing
            self.dead = self.hurt = True
            return "" if excused else "is dead, and nothing of it was damaged"
        self.replacing = False
        if self.healing is not None and found == restarted(self.healing, same_boot=True):
            self.heal(self.healing)
            return ""
        if found not in (possible := tuple(self.possible())):
            return f"is {found}, not one of {possible}"
        # That it was found to be dead may not have been noted in time: its bytes show it again.
        self.maybe, self.dead = [found], False
        if found is None:
            self.durable = NO_GENERATION, 0
        if self.cut:  # what was read from the disk is there
            self.tell_durable()
        self.cut = False
        return ""

    def heal(self, replica: Replica) -> None:
        """A full copy took the place of whatever was there."""
        self.maybe, self.hurt, self.dead = [replica], False, False
        self.in_log, self.healing, self.cut = False, None, False
        self.tell_durable()


def _on_the_way(before: Replica | None, step: Transition) -> Iterator[Replica]:
    """Yield what a step may leave that is cut off: chunks that it appends come before it is
    decided. They are those of the writer of generation 0, and count as its own."""
    effect = step.effect
    if before is None or not isinstance(effect, AdoptLog) or effect.keep != before.length:
        return
    now = before.registers
    if now.state is ReplicaState.RBW and now.accepted_generation == FIRST_GENERATION:
        for count in range(1, len(effect.append) + 1):
            yield replace(before, log=before.log.extend(effect.append[:count]))


def refuses(reply: Reply | Exception) -> bool:
    """Return if an answer says that the replica is dead, or cannot be read."""
    if isinstance(reply, Nack):
        return reply.reason in REFUSED
    return isinstance(reply, Exception)
