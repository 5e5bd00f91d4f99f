"""The history of a block, step by step, for `explain`: in memory and bounded.

What led to a decision is kept in the catalog as well, by the change that is the decision
(`catalog/kept_votes.py`): it outlives this NameNode.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from paxosblock.api.status import VoteLine
from paxosblock.host.logs import facts, log_event
from paxosblock.namenode.catalog.kept_votes import OPENED, Grounds
from paxosblock.protocol.messages import (
    Deleted,
    Finalized,
    LastVote,
    Nack,
    RecoveryVote,
    Short,
)
from paxosblock.protocol.types import BlockId, Generation, StorageId

_log = logging.getLogger(__name__)

BLOCKS_MAX: Final = 1000
LINES_MAX: Final = 64
GROUNDS_MAX: Final = 32
"""Steps before a decision that are kept with it."""
DELETED: Final = "deleted"
NO_ANSWER: Final = "no answer"
REFUSED: Final = "refused"
_SAID_AGAIN: Final = (NO_ANSWER, REFUSED)
NOBODY = StorageId("")
"""Stands for the NameNode itself."""


@dataclass(slots=True)
class _BlockHistory:
    """The last steps of a block."""

    lines: deque[VoteLine]
    kept: VoteLine | None = None
    """The last decision; it and all before it is kept in the catalog."""


class History:
    """The last `LINES_MAX` steps of each of the last `BLOCKS_MAX` blocks to which something
    happened."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._steps: OrderedDict[BlockId, _BlockHistory] = OrderedDict()

    def add(
        self,
        block: BlockId,
        generation: Generation,
        event: str,
        storage: StorageId = NOBODY,
        detail: str = "",
        *,
        logged: bool = False,
    ) -> None:
        """Remember one step, and log it unless its DataNode has `logged` what happens to every
        replica; that a replica was deleted is for debug. What a member that is asked again says
        once more is left out, or it would drive out all that others said."""
        line = VoteLine(self._clock_ms(), generation, event, storage, detail)
        if event in _SAID_AGAIN and self._last_of(block, storage) == msgspec.structs.replace(
            line, time_ms=0
        ):
            return
        self._remember(block, line)
        level = logging.DEBUG if event == DELETED else logging.INFO
        if logged or not _log.isEnabledFor(level):
            return
        known: dict[str, object] = {"block": block, "generation": generation}
        if storage:
            known["storage"] = storage
        if detail:
            known["detail"] = detail
        log_event(_log, event, facts(**known), level)

    def of(self, block: BlockId, kept: tuple[VoteLine, ...] = ()) -> tuple[VoteLine, ...]:
        """Return the steps of a block, oldest first, with those that were `kept` of it."""
        steps = self._steps.get(block)
        if steps is None:
            return kept
        own = set(steps.lines)
        lines = (*(line for line in kept if line not in own), *steps.lines)
        return tuple(sorted(lines, key=lambda line: line.time_ms))

    def grounds(
        self, block: BlockId, generation: Generation, decision: str, detail: str
    ) -> Grounds:
        """Return what a decision that is about to be made comes from: the steps since the last one,
        and itself. Once it is made, say so with `decided`."""
        steps, led = self._steps.get(block) or _BlockHistory(deque()), deque[VoteLine]()
        for line in reversed(steps.lines):
            is_before = decision == OPENED and line.generation < generation
            if line is steps.kept or is_before or len(led) == GROUNDS_MAX:
                break
            led.appendleft(line)
        return (*led, VoteLine(self._clock_ms(), generation, decision, NOBODY, detail))

    def decided(self, block: BlockId, grounds: Grounds) -> None:
        """Remember a decision whose grounds are kept in the catalog by now."""
        made = grounds[-1]
        self._remember(block, made).kept = made
        known = facts(block=block, generation=made.generation, detail=made.detail)
        log_event(_log, made.event, known)

    def opened_again(self, block: BlockId, grounds: Grounds) -> None:
        """Remember that a block was opened again (K7). The catalog only counts earlier times, and
        they go here, because a log that is appended to line by line would have no other steps.
        """
        self.decided(block, grounds)
        lines = self._steps[block].lines
        while lines[0].generation < grounds[-1].generation:
            lines.popleft()

    def _last_of(self, block: BlockId, storage: StorageId) -> VoteLine | None:
        """Return the last step of a member, at the time 0."""
        steps = self._steps.get(block)
        lines = reversed(steps.lines) if steps is not None else ()
        last = next((line for line in lines if line.storage == storage), None)
        return last and msgspec.structs.replace(last, time_ms=0)

    def _remember(self, block: BlockId, line: VoteLine) -> _BlockHistory:
        steps = self._steps.get(block)
        if steps is None:
            steps = self._steps[block] = _BlockHistory(deque(maxlen=LINES_MAX))
            if len(self._steps) > BLOCKS_MAX:
                self._steps.popitem(last=False)
        self._steps.move_to_end(block)
        steps.lines.append(line)
        return steps


def describe(
    answer: LastVote | RecoveryVote | Finalized | Short | Deleted | Nack,
) -> tuple[str, str]:
    """Name an answer and its facts for a line of the history."""
    match answer:
        case LastVote():
            weak = ", weak" if answer.registers.weak else ""
            return "last vote", (
                f"length {answer.length}, accepted in {answer.registers.accepted_generation}{weak}"
            )
        case RecoveryVote():
            return "recovery vote", f"length {answer.length}"
        case Finalized():
            return "finalized", f"length {answer.length}"
        case Short():
            return "short", f"has {answer.length} chunks"
        case Deleted():
            return DELETED, ""
        case Nack():
            return REFUSED, (
                f"{answer.reason.value}, promised {answer.max_generation}, "
                f"accepted {answer.accepted_generation}, length {answer.length}"
            )
