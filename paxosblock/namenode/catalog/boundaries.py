"""The boundaries of chunks: a decision that cuts a block needs them, and its holders know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, Generation


class Cut(NamedTuple):
    """Byte `offset` of user data of the version of a block that was decided under
    `finalized_generation`; to each chunk encryption has added `added_bytes`, or 0."""

    block: BlockId
    finalized_generation: Generation
    offset: int
    added_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Boundary:
    """The beginning of the chunk with a byte: after `length` chunks, which have `size_bytes` at
    holders."""

    length: int
    size_bytes: int


Boundaries = Mapping[Cut, Boundary]
"""All that holders said. It stays true, because a decided version of a block never changes."""


class BoundaryUnknownError(Exception):
    """A decision needs to know where the chunk begins that holds the byte `cut` of `record`."""

    def __init__(self, record: BlockRecord, cut: Cut) -> None:
        super().__init__(f"block {cut.block}: byte {cut.offset}")
        self.record = record
        self.cut = cut
