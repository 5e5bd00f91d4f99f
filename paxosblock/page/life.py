"""The life of a block as a drawing: a lane for each generation, and a mark for each step in it.

Where a mark stands tells the order of the steps: most come within a millisecond, and then nothing
for days. The table under the drawing has their times.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from paxosblock.api.status import VoteLine

STEP: Final = 34
"""Units of the drawing from one mark to the next."""
LANE: Final = 40
LEFT: Final = 90
"""Units for the names of the lanes."""
_LENGTH: Final = re.compile(r"length (\d+)")


class MarkKind(enum.Enum):
    """The kinds of steps, each with a shape of its own."""

    VOTE = "vote"
    """A member answered as it was asked to."""
    REFUSAL = "refusal"
    """A member refused, or did not answer."""
    DECISION = "decision"
    """The NameNode decided, or began something."""


class Mark(msgspec.Struct, frozen=True):
    """One step: its place in the drawing, what is told of it, and a length if it tells one."""

    kind: MarkKind
    x: int
    y: int
    title: str
    length: str


class Lane(msgspec.Struct, frozen=True):
    """A generation, and its height in the drawing."""

    generation: int
    y: int


class Life(msgspec.Struct, frozen=True):
    """The drawing of all steps that are remembered."""

    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    width: int
    height: int


_REFUSALS: Final = ("refused", "no answer", "short", "not copied", "not finalized yet")


def life_of(history: tuple[VoteLine, ...]) -> Life:
    """Return the drawing of a block's steps, oldest first."""
    generations = sorted({line.generation for line in history})
    heights = {each: LANE * (place + 1) for place, each in enumerate(generations)}
    marks = tuple(
        Mark(
            _kind(line),
            LEFT + STEP * place,
            heights[line.generation],
            _title(line),
            found[1] if (found := _LENGTH.search(line.detail)) else "",
        )
        for place, line in enumerate(history)
    )
    lanes = tuple(Lane(generation, y) for generation, y in heights.items())
    return Life(lanes, marks, LEFT + STEP * max(1, len(history)), LANE * (len(lanes) + 1))


def _kind(line: VoteLine) -> MarkKind:
    if line.event in _REFUSALS:
        return MarkKind.REFUSAL
    return MarkKind.VOTE if line.storage else MarkKind.DECISION


def _title(line: VoteLine) -> str:
    at = f" at {line.storage[:8]}" if line.storage else ""
    detail = f": {line.detail}" if line.detail else ""
    return f"generation {line.generation}, {line.event}{at}{detail}"
