"""Calls to a DataNode: protocol messages, states and bytes of replicas.

Chunks to write, and these calls, travel on the data stream (`stream.py`); the NameNode's protocol
messages come as control calls (`ACCEPT`, and `ACCEPT_ALL` for many of them).

Whatever is about a block brings the `capability` for it (`capability.py`), b"" where none is asked
for: it is not sent then (`omit_defaults`).
"""

from __future__ import annotations

from typing import Any, Final, cast, get_args

import msgspec

from paxosblock.api.capability import Signed
from paxosblock.api.methods import Method
from paxosblock.base.units import MIB
from paxosblock.protocol.messages import (
    Create,
    Created,
    Delete,
    Deleted,
    Finalize,
    Finalized,
    LastVote,
    Nack,
    NextGS,
    Read,
    ReadReply,
    RecoveryVote,
    RecoveryWrite,
    Short,
    Vote,
)
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import BlockId, ChunkName, Generation, StorageId


class StorageAddress(Signed, frozen=True, omit_defaults=True):
    """A storage and the `address` of its DataNode, host:port; the capability is one to read."""

    storage: StorageId
    address: str
    capability: bytes = b""


Control = Create | NextGS | RecoveryWrite | Finalize | Delete
"""Requests that change a replica, apart from chunks."""
PROMPT_S: Final = 0.05
"""Seconds that the answers to many messages wait for each other."""
Answer = Created | LastVote | RecoveryVote | Finalized | Short | ReadReply | Deleted | Nack
"""Answers of an acceptor, except its votes, which travel as frames or answer `CreateAndWrite`."""


class Envelope(Signed, frozen=True, tag=True, gc=False, omit_defaults=True):
    """A protocol message for the acceptor of `storage`, which gives an `Answer`.

    `peers` are the addresses of the holders that the message names.
    """

    storage: StorageId
    message: Control | Read
    peers: tuple[StorageAddress, ...] = ()
    capability: bytes = b""


class Envelopes(msgspec.Struct, frozen=True, gc=False):
    """Protocol messages that are due at one DataNode; each is handled as if it came alone."""

    each: tuple[Envelope, ...]


class NoAnswer(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Stands for an answer among `Answers`: `error` is the DataNode's own, as on the wire.

    b"": it was not done within `PROMPT_S` and goes on; the same message, sent alone, waits for it.
    """

    error: bytes = b""


class Answers(msgspec.Struct, frozen=True, gc=False):
    """Answers to each of `Envelopes`, in their order."""

    each: tuple[Answer | NoAnswer, ...]


class CreateAndWrite(Signed, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Stream call: a Create and then the Write of the first chunk (W1), handled like two messages.

    There is one answer: the `Vote`, or the first refusal. `frame` is the CHUNK frame of the data
    stream.
    """

    storage: StorageId
    create: Create
    frame: bytes
    capability: bytes = b""


class CreateAndWriteAll(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Stream call: the chunks of several new blocks; each is handled as if it came alone."""

    each: tuple[CreateAndWrite, ...]


class Votes(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Answers to each of `CreateAndWriteAll`, in their order. `NoAnswer` has an error here."""

    each: tuple[Vote | Nack | NoAnswer, ...]


class Watch(Signed, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Stream call: the state of a replica once it has more than `known_length` chunks.

    The answer (`ReadReply` or `Nack`) comes at once if the replica has more already or is no longer
    a good rbw replica of `generation`, and after `wait_ms` at the latest.
    """

    storage: StorageId
    read: Read
    generation: Generation
    known_length: int
    wait_ms: int
    capability: bytes = b""


class Admit(Signed, frozen=True, tag=True, gc=False):
    """Stream call: the writer of a block that is open already begins with chunks on this stream.

    A frame of a chunk has no place for a capability. The answer is `BlockAdmitted`.
    """

    block: BlockId
    capability: bytes


class BlockAdmitted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Chunks of the block are taken on this stream."""

    block: BlockId


class ReadBytes(Signed, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Stream call: chunks of `version` that cover user bytes [offset, offset + size_bytes).

    The answer is a `Run`. It may cover less than was asked for, because the DataNode bounds a
    reply, but at least one chunk unless `offset` is past the end. If `exact`, the answer need not
    have more of the first and the last chunk than the part asked for. `offset` and `size_bytes` do
    not count `added_bytes` of each chunk, which are no user data: encryption added them.
    """

    block: BlockId
    storage: StorageId
    version: Version
    offset: int
    size_bytes: int
    exact: bool = False
    capability: bytes = b""
    added_bytes: int = 0


class BorrowReplica(Signed, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Stream call of a client on the DataNode's machine: the file of the replica, to read chunks of
    `version` from it. The answer is `LentReplica` or `NotLent`, or a Nack as for `ReadBytes`.
    """

    block: BlockId
    storage: StorageId
    version: Version
    capability: bytes = b""


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A descriptor that waits at the `socket` of a process of `user`, a number, for the `ticket`
    (`net/lending.py`). `device` and `inode` are those of its file, as `fstat` tells them.
    """

    socket: str
    user: int
    ticket: bytes
    device: int
    inode: int

    def __repr__(self) -> str:
        return f"Offer(inode={self.inode})"  # errors and logs tell no ticket


class LentReplica(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The descriptor of a block file is offered, which has the records of chunks one after the
    other (FORMAT.md, 4). `names` has 12 bytes for each chunk of the version, as in `Run`.
    """

    offer: Offer
    names: bytes


class NotLent(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The client must read the replica by the stream; if `never`, all replicas of this DataNode."""

    never: bool = False


class FetchChunks(Signed, frozen=True, tag=True, gc=False, omit_defaults=True):
    """Stream call between DataNodes: chunks `start` to `stop - 1` of the log accepted in one of
    `generations`, to complete a recovery or a finalization. The answer is `Chunks`, followed by the
    chunk frames as they are on disk, bounded as for `ReadBytes`.

    `copy` says that the caller makes a whole replica, and no client waits for it: the holder may
    pace it.
    """

    block: BlockId
    storage: StorageId
    generations: tuple[Generation, ...]
    start: int
    stop: int
    copy: bool = False
    capability: bytes = b""


class Chunks(msgspec.Struct, frozen=True, tag=True, gc=False):
    """`count` chunk frames follow, from chunk `first`, which starts at user byte `offset`."""

    first: int
    offset: int
    count: int
    size_bytes: int


class Run(msgspec.Struct, frozen=True, tag=True, gc=False):
    """One RUN frame follows with successive chunks from chunk `first` on, which starts at user byte
    `offset` of the block; no frame follows if there are no chunks.

    `names` has 12 bytes for each chunk, as in the holder's log (`ChunkLog.entries`): its end in the
    block, and the CRC32C that its writer gave it. One frame for many chunks saves both ends work:
    a frame and a reply for each small chunk would cost them more than its bytes do. For a part of a
    chunk (`exact`) the holder makes the CRC32C, from bytes that it has checked.
    """

    first: int
    offset: int
    names: bytes


class ListReplicas(msgspec.Struct, frozen=True):
    """Ask a DataNode for its replicas; for people and tools."""


class FindReplica(Signed, frozen=True, omit_defaults=True):
    """Ask for the replica of one block at one storage; the answer is as for `ListReplicas`."""

    block: BlockId
    storage: StorageId
    capability: bytes = b""


class FindChunk(Signed, frozen=True, omit_defaults=True):
    """Ask a storage that holds `version` of a block for the chunk with user byte `offset`, which
    leaves out `added_bytes` of each chunk."""

    block: BlockId
    storage: StorageId
    version: Version
    offset: int
    capability: bytes = b""
    added_bytes: int = 0


class FoundChunk(msgspec.Struct, frozen=True):
    """Chunk `index` begins at user byte `offset` of the version, whose length is `size_bytes`."""

    index: int
    offset: int
    size_bytes: int


class AskProcess(msgspec.Struct, frozen=True):
    """Ask which process answers at an address."""


class Process(msgspec.Struct, frozen=True):
    """The process that answers: its DataNode's id and its own incarnation, as it registers them."""

    node: str
    incarnation: str


class ReplicaSummary(msgspec.Struct, frozen=True):
    """A replica in a block report."""

    storage: StorageId
    state: ReadReply
    hdfs_state: str
    last: ChunkName | None


class ReplicaList(msgspec.Struct, frozen=True):
    """The replicas of a DataNode: all of them, or the one asked for."""

    node: str
    replicas: tuple[ReplicaSummary, ...]


ACCEPT: Method[Envelope, Answer] = Method(
    "acceptor", Envelope, cast("Any", Answer), request_bytes_max=64 * MIB
)
ACCEPT_ALL = Method("acceptors", Envelopes, Answers, request_bytes_max=64 * MIB)
LIST_REPLICAS = Method("replicas", ListReplicas, ReplicaList)
FIND_REPLICA = Method("replica", FindReplica, ReplicaList)
FIND_CHUNK = Method("chunk", FindChunk, FoundChunk)
PROCESS = Method("process", AskProcess, Process)

BlockCall = Envelope | CreateAndWrite | Watch | ReadBytes | FetchChunks | Admit | BorrowReplica
"""Stream calls about one block."""
StreamCall = BlockCall | CreateAndWriteAll
STREAM_CALLS: tuple[type[msgspec.Struct], ...] = get_args(StreamCall)
"""Requests that travel on the data stream as CALL frames."""
STREAM_REPLIES: tuple[type[msgspec.Struct], ...] = (
    *get_args(Answer),
    Vote,
    Votes,
    Chunks,
    Run,
    BlockAdmitted,
    LentReplica,
    NotLent,
)
