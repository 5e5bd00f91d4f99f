"""Term and vote in one record of one file, durable before any other member hears of them.

    vote = "PBKVOTE1", term u64, candidate length u16, candidate, crc32c of all this u32

A length of 0 means that no vote was given in this term. The file is replaced as a whole; on a full
disk the new one takes room that is kept for it, in the file `spare`.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import refuse_later_magic
from paxosblock.base.units import KIB, MIB
from paxosblock.errors import CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import Disk, read_file
from paxosblock.host.kept_room import KeptRoom
from paxosblock.namenode.kv.files import publish

_MAGIC = b"PBKVOTE1"
_HEAD = struct.Struct(">8sQH")
_CRC = struct.Struct(">I")
NAME = "vote"

SPARE_BYTES: Final = MIB
STEP_BYTES: Final = 64 * KIB
"""Bytes given at a time: a vote takes a file of one block, and frees the file before it. Others may
be faster to take the room that is given, so it is more than one block."""


FOR_VOTES_BYTES: Final = 4 * STEP_BYTES
"""Room that is left for votes whatever else needs some."""

RECORDS_OVERHEAD_BYTES: Final = 4 * KIB
"""Bytes that a journal takes beside the records: for the head of a batch, or of a new segment."""


@dataclass(frozen=True, slots=True)
class ElectionVote:
    """The latest term that a member has seen, and the candidate it voted for in it, if any."""

    term: int
    candidate: str | None

    def follows(self, before: ElectionVote) -> bool:
        """True if a member may go from `before` to this: to a later term, or to its first vote."""
        if self.term != before.term:
            return self.term > before.term
        return before.candidate in (None, self.candidate)


class VoteFile:
    """The vote of one member. Reading and writing block."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Read the file, or begin at term 0.

        Raises:
            ConfigError: a later version wrote the file.
            CorruptionError: it is damaged. Nothing can replace it: a forgotten vote could be given
                twice.
        """
        self._disk = disk
        self._path = folder / NAME
        self.spare = KeptRoom(disk, folder / "spare", SPARE_BYTES, STEP_BYTES, synced=True)
        there = NAME in disk.names(folder)
        self.vote = (
            _decode(self._path, read_file(disk, self._path)) if there else ElectionVote(0, None)
        )

    def __repr__(self) -> str:
        return f"VoteFile({str(self._path)!r}, {self.vote})"

    def keep_room(self) -> None:
        """Take the room for votes, as far as there is any; a vote that lacks room says so."""
        with suppress(StorageError):
            self.spare.keep()

    def lend(self, size_bytes: int) -> bool:
        """Free room for records of this length that a new term begins with; False if there is none
        but what votes need."""
        return self.spare.give(size_bytes + RECORDS_OVERHEAD_BYTES, leave_bytes=FOR_VOTES_BYTES)

    def write(self, vote: ElectionVote) -> None:
        """Make `vote`, which follows the one before, durable.

        Raises:
            NoSpaceError: there is no room, not even the spare room; the vote before it counts.
            StorageError: the disk refuses.
        """
        assert vote.follows(self.vote), f"{vote} after {self.vote} would be a second vote"
        while True:
            try:
                publish(self._disk, self._path, [_encode(vote)])
            except NoSpaceError:
                if not self.spare.give():
                    raise
            else:
                break
        # Only now: in memory a vote ahead of the disk could be answered, and a crash forgets it.
        self.vote = vote


def _encode(vote: ElectionVote) -> bytes:
    candidate = (vote.candidate or "").encode()
    data = _HEAD.pack(_MAGIC, vote.term, len(candidate)) + candidate
    return data + _CRC.pack(crc32c(data))


def _decode(path: Path, data: bytes) -> ElectionVote:
    body, stored = data[: -_CRC.size], data[-_CRC.size :]
    if len(body) < _HEAD.size or stored != _CRC.pack(crc32c(body)):
        raise CorruptionError(f"{path}: damaged", file=str(path))
    magic, term, length = _HEAD.unpack_from(body)
    refuse_later_magic(path, magic, _MAGIC)
    candidate = body[_HEAD.size :]
    if magic != _MAGIC or len(candidate) != length:
        raise CorruptionError(f"{path}: not a vote", file=str(path))
    return ElectionVote(term, candidate.decode() or None)
