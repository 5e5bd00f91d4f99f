"""The history of a block, step by step, for `explain`: in memory and bounded."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from paxosblock.api.status import VoteLine
from paxosblock.host.logs import facts, log_event
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
OPENED: Final = "opened again"
DELETED: Final = "deleted"
NOBODY = StorageId("")
"""Stands for the NameNode itself."""


@dataclass(slots=True)
class _BlockHistory:
    """The last steps of a block; before them it was opened again `opened` times from `since` on."""

    lines: deque[VoteLine]
    opened: int = 0
    since: VoteLine | None = None


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
        replica; that a replica was deleted is for debug."""
        steps = self._steps.get(block)
        if steps is None:
            steps = self._steps[block] = _BlockHistory(deque(maxlen=LINES_MAX))
            if len(self._steps) > BLOCKS_MAX:
                self._steps.popitem(last=False)
        self._steps.move_to_end(block)
        steps.lines.append(VoteLine(self._clock_ms(), generation, event, storage, detail))
        level = logging.DEBUG if event == DELETED else logging.INFO
        if logged or not _log.isEnabledFor(level):
            return
        known: dict[str, object] = {"block": block, "generation": generation}
        if storage:
            known["storage"] = storage
        if detail:
            known["detail"] = detail
        log_event(_log, event, facts(**known), level)

    def of(self, block: BlockId) -> tuple[VoteLine, ...]:
        """Return the steps of a block, oldest first."""
        steps = self._steps.get(block)
        if steps is None:
            return ()
        if steps.since is None:
            return tuple(steps.lines)
        times = "once" if steps.opened == 1 else f"{steps.opened} times"
        return (
            msgspec.structs.replace(steps.since, detail=f"{times} before the next line"),
            *steps.lines,
        )

    def opened_again(self, block: BlockId, generation: Generation, detail: str) -> None:
        """Remember that a block was opened again (K7). Earlier times are only counted, because a
        log that is appended to line by line would have no other steps.
        """
        self.add(block, generation, OPENED, detail=detail)
        steps = self._steps[block]
        while steps.lines[0].generation < generation:
            line = steps.lines.popleft()
            if line.event == OPENED:
                steps.opened += 1
                steps.since = steps.since or line


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
            return "refused", (
                f"{answer.reason.value}, promised {answer.max_generation}, "
                f"accepted {answer.accepted_generation}, length {answer.length}"
            )
