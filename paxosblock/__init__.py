"""Files as replicated blocks, by consensus.

::

    from paxosblock import Client, LocalCluster

    with LocalCluster(datanodes=3) as cluster, Client(cluster.url) as fs:
        with fs.create("/greeting") as out:
            out.write(b"hello")

The names below are imported when they are first used, so that `import paxosblock` stays light.
"""

from __future__ import annotations

from paxosblock.base.lazy import lazy_names

TYPE_CHECKING = (
    False  # as type checkers know it; a command imports `typing` after its signals are set
)
if TYPE_CHECKING:
    from paxosblock.api.namenode import BlockMember, BlockView, FileStatus, Kind, Listing
    from paxosblock.api.reports import StorageReport
    from paxosblock.api.status import (
        ClusterStatus,
        NameNodeStatus,
        NodeStatus,
        ReplicationStatus,
        SafeModeStatus,
    )
    from paxosblock.api.subtree import ContentSummary, Summed
    from paxosblock.api.transaction import (
        AssertAbsent,
        AssertFile,
        Concat,
        Delete,
        MakeDirectory,
        Marker,
        Operation,
        Rename,
        SetAttributes,
        SetOwner,
        SetPermission,
        SetTimes,
        TransactionOutcome,
        Truncate,
    )
    from paxosblock.api.user_tokens import ListedToken, TokenIssued, TokenNote, TokenRight
    from paxosblock.base.checksum import Buffer
    from paxosblock.base.paths import AnyPath
    from paxosblock.base.replacement import OnFailure, Replacement, WriteOptions
    from paxosblock.client.async_client import AsyncClient
    from paxosblock.client.block_verbs import AsyncBlockVerbs
    from paxosblock.client.blocking.sync import BlockVerbs, Client, DataNode, FileReader, FileWriter
    from paxosblock.client.check import BlockCheck, ReplicaCheck, ReplicaHealth
    from paxosblock.client.datanode_verbs import AsyncDataNode
    from paxosblock.client.reading.file_checksum import FileChecksum
    from paxosblock.client.reading.file_reader import AsyncFileReader
    from paxosblock.client.reading.length import Consistency
    from paxosblock.client.reading.locations import BlockLocation
    from paxosblock.client.writing.file_writer import AsyncFileWriter
    from paxosblock.client.writing.receipt import BlockReceipt, FlushReceipt
    from paxosblock.config import ClientConfig
    from paxosblock.errors import (
        AccessDeniedError,
        ConfigError,
        CorruptionError,
        DeadlineError,
        DirectoryNotEmptyError,
        ExistsError,
        FencedError,
        InvalidRequestError,
        IsDirectoryError,
        LeaseError,
        NoSpaceError,
        NotDirectoryError,
        NotFoundError,
        NotLeaderError,
        NotReadyError,
        Outcome,
        OutcomeUnknownError,
        PaxosBlockError,
        PermissionDeniedError,
        ProtocolError,
        SafeModeError,
        StorageError,
        TruncatedError,
        UnavailableError,
    )
    from paxosblock.local.cluster import LocalCluster
    from paxosblock.local.cluster_folder import NodeEntry, NodeKind
    from paxosblock.local.node_process import Node
    from paxosblock.protocol.finalize import BlockRecord
    from paxosblock.protocol.messages import LastVote, ReadReply, Vote
    from paxosblock.protocol.types import (
        BlockId,
        BlockState,
        ChunkIndex,
        ChunkName,
        Durability,
        Generation,
        Registers,
        ReplicaState,
        StorageId,
        WriterId,
    )

    __version__: str

__all__ = [
    "AccessDeniedError",
    "AnyPath",
    "AssertAbsent",
    "AssertFile",
    "AsyncBlockVerbs",
    "AsyncClient",
    "AsyncDataNode",
    "AsyncFileReader",
    "AsyncFileWriter",
    "BlockCheck",
    "BlockId",
    "BlockLocation",
    "BlockMember",
    "BlockReceipt",
    "BlockRecord",
    "BlockState",
    "BlockVerbs",
    "BlockView",
    "Buffer",
    "ChunkIndex",
    "ChunkName",
    "Client",
    "ClientConfig",
    "ClusterStatus",
    "Concat",
    "ConfigError",
    "Consistency",
    "ContentSummary",
    "CorruptionError",
    "DataNode",
    "DeadlineError",
    "Delete",
    "DirectoryNotEmptyError",
    "Durability",
    "ExistsError",
    "FencedError",
    "FileChecksum",
    "FileReader",
    "FileStatus",
    "FileWriter",
    "FlushReceipt",
    "Generation",
    "InvalidRequestError",
    "IsDirectoryError",
    "Kind",
    "LastVote",
    "LeaseError",
    "ListedToken",
    "Listing",
    "LocalCluster",
    "MakeDirectory",
    "Marker",
    "NameNodeStatus",
    "NoSpaceError",
    "Node",
    "NodeEntry",
    "NodeKind",
    "NodeStatus",
    "NotDirectoryError",
    "NotFoundError",
    "NotLeaderError",
    "NotReadyError",
    "OnFailure",
    "Operation",
    "Outcome",
    "OutcomeUnknownError",
    "PaxosBlockError",
    "PermissionDeniedError",
    "ProtocolError",
    "ReadReply",
    "Registers",
    "Rename",
    "Replacement",
    "ReplicaCheck",
    "ReplicaHealth",
    "ReplicaState",
    "ReplicationStatus",
    "SafeModeError",
    "SafeModeStatus",
    "SetAttributes",
    "SetOwner",
    "SetPermission",
    "SetTimes",
    "StorageError",
    "StorageId",
    "StorageReport",
    "Summed",
    "TokenIssued",
    "TokenNote",
    "TokenRight",
    "TransactionOutcome",
    "Truncate",
    "TruncatedError",
    "UnavailableError",
    "Vote",
    "WriteOptions",
    "WriterId",
    "__version__",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AccessDeniedError": "paxosblock.errors",
        "AnyPath": "paxosblock.base.paths",
        "AssertAbsent": "paxosblock.api.transaction",
        "AssertFile": "paxosblock.api.transaction",
        "AsyncBlockVerbs": "paxosblock.client.block_verbs",
        "AsyncClient": "paxosblock.client.async_client",
        "AsyncDataNode": "paxosblock.client.datanode_verbs",
        "AsyncFileReader": "paxosblock.client.reading.file_reader",
        "AsyncFileWriter": "paxosblock.client.writing.file_writer",
        "BlockCheck": "paxosblock.client.check",
        "BlockId": "paxosblock.protocol.types",
        "BlockLocation": "paxosblock.client.reading.locations",
        "BlockMember": "paxosblock.api.namenode",
        "BlockReceipt": "paxosblock.client.writing.receipt",
        "BlockRecord": "paxosblock.protocol.finalize",
        "BlockState": "paxosblock.protocol.types",
        "BlockVerbs": "paxosblock.client.blocking.sync",
        "BlockView": "paxosblock.api.namenode",
        "Buffer": "paxosblock.base.checksum",
        "ChunkIndex": "paxosblock.protocol.types",
        "ChunkName": "paxosblock.protocol.types",
        "Client": "paxosblock.client.blocking.sync",
        "ClientConfig": "paxosblock.config",
        "ClusterStatus": "paxosblock.api.status",
        "Concat": "paxosblock.api.transaction",
        "ConfigError": "paxosblock.errors",
        "Consistency": "paxosblock.client.reading.length",
        "ContentSummary": "paxosblock.api.subtree",
        "CorruptionError": "paxosblock.errors",
        "DataNode": "paxosblock.client.blocking.sync",
        "DeadlineError": "paxosblock.errors",
        "Delete": "paxosblock.api.transaction",
        "DirectoryNotEmptyError": "paxosblock.errors",
        "Durability": "paxosblock.protocol.types",
        "ExistsError": "paxosblock.errors",
        "FencedError": "paxosblock.errors",
        "FileChecksum": "paxosblock.client.reading.file_checksum",
        "FileReader": "paxosblock.client.blocking.sync",
        "FileStatus": "paxosblock.api.namenode",
        "FileWriter": "paxosblock.client.blocking.sync",
        "FlushReceipt": "paxosblock.client.writing.receipt",
        "Generation": "paxosblock.protocol.types",
        "InvalidRequestError": "paxosblock.errors",
        "IsDirectoryError": "paxosblock.errors",
        "Kind": "paxosblock.api.namenode",
        "LastVote": "paxosblock.protocol.messages",
        "LeaseError": "paxosblock.errors",
        "Listing": "paxosblock.api.namenode",
        "ListedToken": "paxosblock.api.user_tokens",
        "LocalCluster": "paxosblock.local.cluster",
        "MakeDirectory": "paxosblock.api.transaction",
        "Marker": "paxosblock.api.transaction",
        "NameNodeStatus": "paxosblock.api.status",
        "NoSpaceError": "paxosblock.errors",
        "Node": "paxosblock.local.node_process",
        "NodeEntry": "paxosblock.local.cluster_folder",
        "NodeKind": "paxosblock.local.cluster_folder",
        "NodeStatus": "paxosblock.api.status",
        "NotDirectoryError": "paxosblock.errors",
        "NotFoundError": "paxosblock.errors",
        "NotLeaderError": "paxosblock.errors",
        "NotReadyError": "paxosblock.errors",
        "OnFailure": "paxosblock.base.replacement",
        "Operation": "paxosblock.api.transaction",
        "Outcome": "paxosblock.errors",
        "OutcomeUnknownError": "paxosblock.errors",
        "PaxosBlockError": "paxosblock.errors",
        "PermissionDeniedError": "paxosblock.errors",
        "ProtocolError": "paxosblock.errors",
        "ReadReply": "paxosblock.protocol.messages",
        "Registers": "paxosblock.protocol.types",
        "Rename": "paxosblock.api.transaction",
        "Replacement": "paxosblock.base.replacement",
        "ReplicaCheck": "paxosblock.client.check",
        "ReplicaHealth": "paxosblock.client.check",
        "ReplicaState": "paxosblock.protocol.types",
        "ReplicationStatus": "paxosblock.api.status",
        "SafeModeError": "paxosblock.errors",
        "SafeModeStatus": "paxosblock.api.status",
        "SetAttributes": "paxosblock.api.transaction",
        "SetOwner": "paxosblock.api.transaction",
        "SetPermission": "paxosblock.api.transaction",
        "SetTimes": "paxosblock.api.transaction",
        "StorageError": "paxosblock.errors",
        "StorageId": "paxosblock.protocol.types",
        "StorageReport": "paxosblock.api.reports",
        "Summed": "paxosblock.api.subtree",
        "TokenIssued": "paxosblock.api.user_tokens",
        "TokenNote": "paxosblock.api.user_tokens",
        "TokenRight": "paxosblock.api.user_tokens",
        "TransactionOutcome": "paxosblock.api.transaction",
        "Truncate": "paxosblock.api.transaction",
        "TruncatedError": "paxosblock.errors",
        "UnavailableError": "paxosblock.errors",
        "Vote": "paxosblock.protocol.messages",
        "WriteOptions": "paxosblock.base.replacement",
        "WriterId": "paxosblock.protocol.types",
        "__version__": "paxosblock.base.version",
    },
)
