"""The bounds of chunks: holders of a block know them, and a decision that cuts it needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, Generation


class Cut(NamedTuple):
    """Byte `offset` of the version of a block that was decided under `finalized_generation`."""

    block: BlockId
    finalized_generation: Generation
    offset: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """The beginning of the chunk with a byte: after `length` chunks of `size_bytes` bytes."""

    length: int
    size_bytes: int


Boundaries = Mapping[Cut, Boundary]
"""Everything that holders said; of a version that was decided it stays true."""


class BoundaryUnknownError(Exception):
    """A decision must know where the chunk that holds the byte `cut` of `record` begins."""

    def __init__(self, record: BlockRecord, cut: Cut) -> None:
        super().__init__(f"block {cut.block}: byte {cut.offset}")
        self.record = record
        self.cut = cut
