"""What the catalog stores: typed values, encoded as msgpack maps so that fields can be added."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from paxosblock.api.namenode import NO_FILE
from paxosblock.errors import CorruptionError
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import NO_WRITER, BlockId, Durability, WriterId

ROOT_ID = 1
"""The root directory's id. `NO_FILE` (0) is nobody's."""

RECOVERY_WRITER = WriterId("namenode")
"""Who holds a file whose writer was fenced: any NameNode may seal its blocks and close it."""


class DirectoryInode(msgspec.Struct, frozen=True, tag="d", gc=False):
    """A directory. Its entries are keys of their own; `parent` and `name` lead back to the root.

    `expires_ms` is when it is deleted with all that is in it; 0: never.
    """

    number: int
    parent: int
    name: str
    created_ms: int
    owner: str
    group: str
    permission: int
    expires_ms: int = 0


class FileInode(msgspec.Struct, frozen=True, tag="f", gc=False):
    """A file. Its blocks are keys of their own.

    `writer` may add blocks while `open`; of a closed file it is the one who closed it, so that a
    repeated close is recognised. `length` (bytes) is that of the file when it was closed last; what
    `writer` has added since is at the places from `appended_from` on.
    """

    number: int
    parent: int
    name: str
    created_ms: int
    modified_ms: int
    owner: str
    group: str
    permission: int
    replication: int
    block_size: int
    durability: Durability
    writer: WriterId = NO_WRITER
    open: bool = True
    length: int = 0
    appended_from: int = 0


Inode = DirectoryInode | FileInode


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """A block's record and its place: `file` is NO_FILE for a block of an embedder."""

    record: BlockRecord
    file: int = NO_FILE
    sequence: int = 0


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The block at a place of a file, and the byte of the file at which it begins.

    That is known when the block is added, as all before it are finalized by then (K1); nothing
    changes it but a concat, which moves the block to another place.
    """

    block: BlockId
    offset: int


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """`block_tag` is the upper part of every block id of this cluster (see `ids.py`).

    `id` names the cluster to its DataNodes; "" in a record of before there were ids.
    """

    block_tag: int
    created_ms: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class Application:
    """The last transaction applied for an application; `attempt` names the request that did it.

    `expires_ms` is when this is forgotten; 0: never.
    """

    version: int
    attempt: str
    expires_ms: int = 0


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The latest request of a session: the answer it got, and when this is forgotten."""

    sequence: int
    expires_ms: int
    answer: bytes


_encode = msgspec.msgpack.Encoder().encode
_inode: msgspec.msgpack.Decoder[Inode] = msgspec.msgpack.Decoder(Inode)
_entry = msgspec.msgpack.Decoder(BlockEntry)
_place = msgspec.msgpack.Decoder(Place)
_cluster = msgspec.msgpack.Decoder(ClusterRecord)
_application = msgspec.msgpack.Decoder(Application)
_answered = msgspec.msgpack.Decoder(Answered)


def encode(value: Inode | BlockEntry | Place | ClusterRecord | Application | Answered) -> bytes:
    """Encode a record as the value of its key."""
    return _encode(value)


def decode_inode(value: bytes) -> Inode:
    """Decode a file or directory."""
    try:
        return _inode.decode(value)
    except msgspec.MsgspecError as error:
        raise _damaged("file or directory", error) from error


def decode_entry(value: bytes) -> BlockEntry:
    """Decode a block's entry."""
    try:
        return _entry.decode(value)
    except msgspec.MsgspecError as error:
        raise _damaged("block", error) from error


def decode_place(value: bytes) -> Place:
    """Decode a place of a file."""
    if value.startswith(b"\0"):  # of the 52 bits of a block's number, alone in 64
        raise CorruptionError(
            "the catalog is of an earlier version, which did not keep where the blocks of a file "
            "begin: copy its files with that version into a new cluster"
        )
    try:
        return _place.decode(value)
    except msgspec.MsgspecError as error:
        raise _damaged("place", error) from error


def decode_cluster(value: bytes) -> ClusterRecord:
    """Decode the cluster's record."""
    try:
        return _cluster.decode(value)
    except msgspec.MsgspecError as error:
        raise _damaged("cluster", error) from error


def decode_application(value: bytes) -> Application:
    """Decode what is known of an application."""
    try:
        return _application.decode(value)
    except msgspec.MsgspecError as error:
        raise _damaged("application", error) from error


def decode_answered(value: bytes) -> Answered:
    """Decode what is known of a session."""
    try:
        return _answered.decode(value)
    except msgspec.MsgspecError as error:
        raise _damaged("session", error) from error


def _damaged(kind: str, error: msgspec.MsgspecError) -> CorruptionError:
    return CorruptionError(f"a {kind} record of the catalog cannot be read: {error}")
