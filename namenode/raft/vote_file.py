"""Term and vote in one record of one file, durable before anybody hears of them.

    vote = "PBKVOTE1", term u64, candidate length u16, candidate, crc32c of all this u32

A length of 0 means that no vote was given in this term. The file is replaced as a whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from paxosblock.checksum import crc32c
from paxosblock.errors import ConfigError, CorruptionError, StorageError
from paxosblock.namenode.kv.disk import Disk, OsDisk, store

_MAGIC = b"PBKVOTE1"
_HEAD = struct.Struct(">8sQH")
_CRC = struct.Struct(">I")
_NAME = "vote"


@dataclass(frozen=True, slots=True)
class Vote:
    """The latest term a member has seen, and whom it elected in it, if anybody."""

    term: int
    candidate: str | None

    def follows(self, before: Vote) -> bool:
        """Whether a member may go from `before` to this: no term twice, no second vote in it."""
        if self.term != before.term:
            return self.term > before.term
        return before.candidate in (None, self.candidate)


class VoteFile:
    """The vote of one member. Reading and writing block."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Read the file, or begin at term 0.

        Raises:
            CorruptionError: the file is damaged. Nothing can replace it: a forgotten vote could
                be given twice.
        """
        self._disk = disk
        self._path = folder / _NAME
        there = _NAME in disk.names(folder)
        self.vote = _decode(self._path, disk.read(self._path)) if there else Vote(0, None)

    def __repr__(self) -> str:
        return f"VoteFile({str(self._path)!r}, {self.vote})"

    def write(self, vote: Vote) -> None:
        """Return once `vote`, which follows the one before, is durable."""
        assert vote.follows(self.vote), f"{vote} after {self.vote} would be a second vote"
        store(self._disk, self._path, [_encode(vote)])
        self.vote = vote


def check_member(folder: Path, *, new_cluster: bool) -> None:
    """Return if the folder is that of a member, or make it one where the cluster is new.

    A member whose folder was emptied has forgotten whom it voted for and what it confirmed. It
    must not begin again as if it had promised nothing: so only a word of the operator lets an
    empty folder in. Every member has a vote from then on, before it says anything to anybody.

    Raises:
        ConfigError: the folder is empty and the cluster is not new, or the other way round.
        StorageError: it cannot be written.
    """
    disk = OsDisk()
    there = (folder / _NAME).exists()
    if new_cluster and there:
        raise ConfigError(f"--new-cluster: {folder} holds a member already; start without it")
    if there:
        return
    if not new_cluster:
        raise ConfigError(
            f"{folder} holds no member of the cluster. Start with --new-cluster if the cluster is "
            "new; a NameNode that lost its folder gets it back as RAFT.md says"
        )
    try:
        disk.make_folder(folder)
        VoteFile(disk, folder).write(Vote(0, None))
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror}") from error


def _encode(vote: Vote) -> bytes:
    candidate = (vote.candidate or "").encode()
    data = _HEAD.pack(_MAGIC, vote.term, len(candidate)) + candidate
    return data + _CRC.pack(crc32c(data))


def _decode(path: Path, data: bytes) -> Vote:
    body, stored = data[: -_CRC.size], data[-_CRC.size :]
    if len(body) < _HEAD.size or stored != _CRC.pack(crc32c(body)):
        raise CorruptionError(f"{path}: damaged", file=str(path))
    magic, term, length = _HEAD.unpack_from(body)
    candidate = body[_HEAD.size :]
    if magic != _MAGIC or len(candidate) != length:
        raise CorruptionError(f"{path}: not a vote of this version", file=str(path))
    return Vote(term, candidate.decode() or None)
