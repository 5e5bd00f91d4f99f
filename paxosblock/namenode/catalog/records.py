"""The catalog's records: typed values, encoded as msgpack maps so that fields can be added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from paxosblock.api.capability import BlockKey
from paxosblock.api.care import AdminState
from paxosblock.api.namenode import NO_BLOCK, NO_FILE
from paxosblock.api.user_tokens import TokenNote
from paxosblock.base.acl_entries import Acl
from paxosblock.base.chunk_cipher import ADDED_BYTES, user_bytes
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.errors import CorruptionError
from paxosblock.namenode.kv.interface import Versioned
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    NO_WRITER,
    BlockId,
    Durability,
    Generation,
    StorageId,
    WriterId,
)

ROOT_ID = 1
"""The root directory's id. `NO_FILE` (0) is the id of no file or directory."""

RECOVERY_WRITER = WriterId("namenode")
"""The holder of a file whose writer was fenced: any NameNode may seal its blocks and close it."""


class Quota(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The counters of a directory (`quotas.py`): the number in their keys, whether all that was
    there when they began is in them, and the most that they may be; -1: anything."""

    counter: int
    counted: bool = False
    names_max: int = -1
    space_max: int = -1

    @property
    def limited(self) -> bool:
        """True if there is a limit."""
        return self.names_max >= 0 or self.space_max >= 0


class DirectoryInode(msgspec.Struct, frozen=True, tag="d", omit_defaults=True, gc=False):
    """A directory. Its entries are keys of their own; `parent` and `name` lead back to the root.

    `attributes` counts its attributes, which are keys of their own (`attributes.py`). At
    `expires_ms` it is deleted with all that is in it; 0: never. Without an access
    control list (`acls.py`) nothing of it is written. An `implicit` one was made on the way to
    something else, and goes when what is in it is gone (`namespace.prune`).
    `zone` is the encryption zone that it is the top of, or was made in (`zones.py`); 0: none.
    One with a `quota` counts what is at and below it.
    """

    number: int
    parent: int
    name: str
    created_ms: int
    owner: str
    group: str
    permission: int
    expires_ms: int = 0
    attributes: int = 0
    acl: Acl | msgspec.UnsetType = msgspec.UNSET
    implicit: bool = False
    zone: int = 0
    quota: Quota | msgspec.UnsetType = msgspec.UNSET


class FileInode(msgspec.Struct, frozen=True, tag="f", omit_defaults=True, gc=False):
    """A file. Its blocks are keys of their own.

    `writer` may add blocks while the file is `open`; once it is closed, `writer` is the one that
    closed it, so that a repeated close is recognised. `length` (bytes) is that of the last close;
    the blocks that `writer` has added or opened again since are at the places from `appended_from`
    on. `truncations` counts how often bytes were cut off. `reserved` is the block that was made
    ahead (`reserving.py`). `attributes` are counted as in a directory. `zone` is the encryption
    zone that it was made in or for; 0: none.
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
    truncations: int = 0
    reserved: BlockId = NO_BLOCK
    attributes: int = 0
    acl: Acl | msgspec.UnsetType = msgspec.UNSET
    zone: int = 0


Inode = DirectoryInode | FileInode


def asked_for(inode: Inode) -> Inode:
    """Return an inode as that of something that was asked for, not only made on the way to a file:
    what a user says of a directory must not go when it is empty."""
    if isinstance(inode, DirectoryInode) and inode.implicit:
        return msgspec.structs.replace(inode, implicit=False)
    return inode


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """A block's record and its place: `file` is NO_FILE for a block of an embedder.

    `replication` is how many replicas a block without a file asks for; 0: as many as its file does.
    With the key of `zone` the client encrypts its chunks; 0: it does not.
    """

    record: BlockRecord
    file: int = NO_FILE
    sequence: int = 0
    replication: int = 0
    zone: int = 0

    @property
    def added_bytes(self) -> int:
        """Bytes that encryption adds to each chunk, 0 without it."""
        return ADDED_BYTES if self.zone else 0

    @property
    def user_bytes(self) -> int:
        """Bytes of user data of the block, once its length is decided: those that files count."""
        record = self.record
        return user_bytes(record.size_bytes, record.length, self.added_bytes)


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The block at a place of a file, and the byte of the file at which it begins.

    The offset is known when the block is added, as all blocks before it are finalized by then (K1);
    only a concat changes it, by moving the block to another place.
    """

    block: BlockId
    offset: int


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """`block_tag` is the upper part of every block id of this cluster (see `ids.py`).

    `id` names the cluster to its DataNodes; "" in a record from before there were ids. Blocks that
    were made before a backup was brought back have one of the `earlier_tags`.
    """

    block_tag: int
    created_ms: int
    id: str = ""
    earlier_tags: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Application:
    """The last transaction applied for an application; `attempt` names the request it came from.

    The record is forgotten at `expires_ms`; 0: never.
    """

    version: int
    attempt: str
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A DataNode that is not simply in service, as it was known when an operator changed its state.

    At `expires_ms` its maintenance is over and the record is forgotten; 0: never. `storages` tell
    which replicas are on the node while it does not register.
    """

    admin: AdminState
    address: str
    storages: tuple[StorageId, ...]
    expires_ms: int = 0


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """A process of a DataNode: where it listens, and the name that no other start of it has."""

    address: str
    incarnation: str


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The latest request of a session and the msgpack of its answer; the record is forgotten at
    `expires_ms`.
    """

    sequence: int
    expires_ms: int
    answer: msgspec.Raw


KeptLine = tuple[int, Generation, str, StorageId, str]
"""The fields of a `VoteLine` in their order."""


class KeptVotes(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The steps that led to a decision about a block (`kept_votes.py`); `time_ms` is that of the
    decision. It stands for the `repeated` decisions before it, too, which were like it, from
    `since` on."""

    time_ms: int
    lines: tuple[KeptLine, ...]
    repeated: int = 0
    since: KeptLine | None = None


class BlockKeys(msgspec.Struct, frozen=True):
    """The keys for capabilities or tokens, oldest first; the newest one signs from `next_ms` on."""

    keys: tuple[BlockKey, ...]
    next_ms: int


class Zone(msgspec.Struct, frozen=True):
    """An encryption zone: its key, `wrapped` by the master key of this name (`zone_keys.py`)."""

    wrapped: bytes
    master: str
    made_ms: int


class Snapshot(msgspec.Struct, frozen=True):
    """A snapshot of a directory. `number` is an id like that of a file, and stays when it is
    renamed."""

    number: int
    created_ms: int
    owner: str


class KeptFile(msgspec.Struct, frozen=True):
    """An unlinked file that has a block that a snapshot shows; the places before `swept_to` were
    looked at since it was unlinked, or since a snapshot ended."""

    inode: FileInode
    swept_to: int


_encode = msgspec.msgpack.Encoder().encode

Record = (
    Inode
    | BlockEntry
    | Place
    | ClusterRecord
    | Application
    | Answered
    | KeptVotes
    | NodeRecord
    | ProcessRecord
    | BlockKeys
    | TokenNote
    | Zone
    | Snapshot
    | KeptFile
)


def encode(value: Record) -> bytes:
    """Encode a record as the value of its key."""
    return _encode(value)


def _decoder(record: Any, kind: str) -> Callable[[bytes], Any]:
    """Return a function that decodes a value as a `record`; its CorruptionError names `kind`."""
    decode = msgpack_decoder(record).decode

    def checked(value: bytes) -> Any:
        try:
            return decode(value)
        except msgspec.MsgspecError as error:
            raise CorruptionError(
                f"a {kind} record of the catalog cannot be read: {error}"
            ) from error

    return checked


decode_inode: Callable[[bytes], Inode] = _decoder(Inode, "file or directory")
"""Decode a file or directory."""
decode_entry: Callable[[bytes], BlockEntry] = _decoder(BlockEntry, "block")
"""Decode a block's entry."""
decode_cluster: Callable[[bytes], ClusterRecord] = _decoder(ClusterRecord, "cluster")
"""Decode the cluster's record."""
decode_application: Callable[[bytes], Application] = _decoder(Application, "application")
"""Decode what is known of an application."""
decode_answered: Callable[[bytes], Answered] = _decoder(Answered, "session")
"""Decode what is known of a session."""
decode_kept_votes: Callable[[bytes], KeptVotes] = _decoder(KeptVotes, "votes")
"""Decode the steps that led to a decision about a block."""
decode_node: Callable[[bytes], NodeRecord] = _decoder(NodeRecord, "DataNode")
"""Decode what an operator said of a DataNode."""
decode_process: Callable[[bytes], ProcessRecord] = _decoder(ProcessRecord, "DataNode's process")
"""Decode the process that answers for a DataNode."""
decode_block_keys: Callable[[bytes], BlockKeys] = _decoder(BlockKeys, "block key")
"""Decode the keys that capabilities are signed with."""
decode_token: Callable[[bytes], TokenNote] = _decoder(TokenNote, "token")
"""Decode what is known of a token."""
decode_zone: Callable[[bytes], Zone] = _decoder(Zone, "encryption zone")
"""Decode an encryption zone."""
decode_snapshot: Callable[[bytes], Snapshot] = _decoder(Snapshot, "snapshot")
"""Decode a snapshot of a directory."""
decode_kept: Callable[[bytes], KeptFile] = _decoder(KeptFile, "kept file")
"""Decode an unlinked file that has a block that a snapshot shows."""
_decode_place: Callable[[bytes], Place] = _decoder(Place, "place")


def decode_place(value: bytes) -> Place:
    """Decode a place of a file."""
    if value.startswith(b"\0"):  # a block's number has 52 bits, and stands alone in 64
        raise CorruptionError(
            "the catalog is of an earlier version, which did not keep where the blocks of a file "
            "begin: copy its files with that version into a new cluster"
        )
    return _decode_place(value)


class Put(Versioned, frozen=True, gc=False):
    """A value that a draft has put itself, with the record that it was made of."""

    record: BlockEntry | Inode


def entry_in(found: Versioned) -> BlockEntry:
    """Return the entry of a block that was just read."""
    if isinstance(found, Put) and isinstance(found.record, BlockEntry):
        return found.record
    return decode_entry(found.value)


def inode_in(found: Versioned) -> Inode:
    """Return the file or directory that was just read."""
    if isinstance(found, Put) and isinstance(found.record, FileInode | DirectoryInode):
        return found.record
    return decode_inode(found.value)
